use arrow::array::{
    BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int8Array, Int16Array, Int32Array,
    Int64Array, ListBuilder, StringArray, StringBuilder, StructArray, TimestampMillisecondArray, UInt64Array, new_null_array,
};
use arrow::compute::take_record_batch;
use levada_common::keys::{is_key_type, key_group, key_hash};
use levada_common::state_schema::Stamps;
use levada_common::types::{Column, LogicalType};
use proptest::prelude::*;

use super::*;

const MAX_PARALLELISM: u32 = 128;

fn layout(schema: StateSchema) -> RowLayout {
    RowLayout::new(Arc::new(schema), MAX_PARALLELISM)
}

fn column(name: &str, ty: LogicalType) -> Column {
    Column::new(name, ty, true)
}

fn written(layout: &RowLayout, batch: &RecordBatch) -> (RowBytes, RowBytes) {
    let (mut keys, mut values) = (RowBytes::new(), RowBytes::new());
    layout.write(batch, &mut keys, &mut values).expect("the layout's columns");
    (keys, values)
}

fn read_back(layout: &RowLayout, keys: &RowBytes, values: &RowBytes) -> RecordBatch {
    let mut reader = RowReader::whole(layout);
    for (key, value) in keys.iter().zip(values.iter()) {
        reader.push(0, key, value).expect("it was written");
    }
    reader.finish()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn batch(layout: &RowLayout, columns: Vec<ArrayRef>) -> RecordBatch {
    RecordBatch::try_new(Arc::clone(layout.columns()), columns).expect("the layout's columns")
}

#[test]
fn the_bytes_of_a_windowed_entry_are_golden() {
    let layout = layout(StateSchema {
        shape: StateShape::Map,
        keys: vec![column("user", LogicalType::String)],
        windowed: true,
        map_key: vec![column("page", LogicalType::Int32)],
        values: vec![column("n", LogicalType::Int64), column("rate", LogicalType::Float32)],
        ttl: Stamps::Processing,
        ..StateSchema::default()
    });
    let windows = Namespaces::column(&[Some(Window { end: 10, start: -1 }), None]);
    let rows = batch(
        &layout,
        vec![
            Arc::new(StringArray::from(vec![Some("ab"), None])),
            windows,
            Arc::new(Int32Array::from(vec![7, -1])),
            Arc::new(Int64Array::from(vec![Some(258), None])),
            Arc::new(Float32Array::from(vec![1.0, -0.0])),
            Arc::new(TimestampMillisecondArray::from(vec![5, 6])),
        ],
    );
    let (keys, values) = written(&layout, &rows);
    let found: Vec<String> = keys.iter().chain(values.iter()).map(hex).collect();
    let group = |bytes: &[u8]| format!("{:04x}", key_group(key_hash(bytes), MAX_PARALLELISM));
    assert_eq!(
        found,
        [
            group(b"\x01\x02\0\0\0ab") + "01800000000000000a7fffffffffffffff01020000006162010700000000000000",
            group(&[0]) + "000001ffffffffffffffff",
            "010500000000000000010201000000000000010000803f".into(),
            "0106000000000000000001000000 80".replace(' ', ""),
        ]
    );
    assert_eq!(hex(keys.get(0))[..4], *"0014", "the group is golden too");
    assert_eq!(read_back(&layout, &keys, &values), rows);
}

#[test]
fn nested_values_are_golden() {
    let ty =
        LogicalType::List(Box::new(LogicalType::Struct(vec![column("a", LogicalType::Int8), column("b", LogicalType::String)])));
    let layout = layout(StateSchema { shape: StateShape::Value, values: vec![column("v", ty)], ..StateSchema::default() });
    let structs = StructArray::try_from(vec![
        ("a", Arc::new(Int8Array::from(vec![Some(-2), None])) as ArrayRef),
        ("b", Arc::new(StringArray::from(vec![Some("x"), Some("")])) as ArrayRef),
    ]);
    let DataType::List(field) = layout.columns().field(0).data_type().clone() else { panic!("it is a list") };
    let DataType::Struct(fields) = field.data_type().clone() else { panic!("of structs") };
    let structs = StructArray::new(fields, structs.expect("one length").columns().to_vec(), None);
    let offsets = arrow::buffer::OffsetBuffer::new(vec![0, 2, 2].into());
    let lists = arrow::array::ListArray::new(field, offsets, Arc::new(structs), None);
    let rows = batch(&layout, vec![Arc::new(lists)]);
    let (keys, values) = written(&layout, &rows);
    assert_eq!(hex(keys.get(0)).len(), 4, "without keys the group alone");
    assert_eq!(hex(values.get(0)), "010200000001 01feffffffffffffff 010100000078 0100 0100000000".replace(' ', ""));
    assert_eq!(hex(values.get(1)), "0100000000");
    assert_eq!(read_back(&layout, &keys, &values), rows);
}

#[test]
fn a_lists_elements_stand_in_order_below_its_key() {
    let list = layout(StateSchema {
        shape: StateShape::List,
        keys: vec![column("k", LogicalType::Int64)],
        values: vec![column("value", LogicalType::String)],
        ..StateSchema::default()
    });
    let index: Vec<i64> = vec![0, 1, 255, 256, 65_536, i64::MAX];
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![9; 6])),
        Arc::new(Int64Array::from(index)),
        Arc::new(StringArray::from(vec!["a"; 6])),
    ];
    let (keys, values) = written(&list, &batch(&list, columns));
    assert!(keys.iter().zip(keys.iter().skip(1)).all(|(left, right)| left < right));
    let whole = Addresses { keys: vec![Arc::new(Int64Array::from(vec![9]))], rows: 1, ..Addresses::default() };
    let (mut prefix, mut known) = (RowBytes::new(), Vec::new());
    list.write_keys(&whole, &mut prefix, &mut known).expect("a key");
    assert!(keys.iter().all(|key| key.starts_with(prefix.get(0))));
    assert_eq!(known, [prefix.get(0).len() as u32]);
    let mut reader = RowReader::below(&list);
    reader.push(known[0] as usize, keys.get(2), values.get(2)).expect("an element");
    let found = reader.finish();
    assert_eq!(found.column(0).as_primitive::<Int64Type>().value(0), 255);
    assert_eq!(found.schema().field(1).name(), "value");
}

#[test]
fn wrong_columns_and_damaged_bytes_are_named() {
    let layout = layout(StateSchema {
        shape: StateShape::Value,
        keys: vec![column("k", LogicalType::Int64)],
        values: vec![Column::new("v", LogicalType::Int16, false)],
        ..StateSchema::default()
    });
    let text: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
    let wrong = Addresses { keys: vec![text], rows: 1, ..Addresses::default() };
    let error = layout.write_keys(&wrong, &mut RowBytes::new(), &mut Vec::new()).expect_err("a text is no INT64");
    assert_eq!(error.to_string(), "the entries have the columns (Utf8), the state has (key.k Int64, v Int16)");
    let schema = Schema::new(vec![Field::new("key.k", DataType::Int64, true), Field::new("v", DataType::Int16, true)]);
    let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(vec![1])), new_null_array(&DataType::Int16, 1)];
    let null = RecordBatch::try_new(Arc::new(schema), columns).expect("a batch");
    let error = layout.write(&null, &mut RowBytes::new(), &mut RowBytes::new()).expect_err("null");
    assert_eq!(error, LayoutError::Null { column: "v".into() });

    let key = [0, 1, 1, 5, 0, 0, 0, 0, 0, 0, 0];
    let read = |key: &[u8], value: &[u8]| RowReader::whole(&layout).push(0, key, value);
    assert_eq!(read(&key, &[1, 1, 0, 0, 0, 0, 0, 0, 0]), Ok(()));
    assert_eq!(read(&key[..5], &[]), Err(BadRow::Short { column: "key.k".into(), needed: 8, found: 2 }));
    assert_eq!(read(&key, &[2]), Err(BadRow::Value { column: "v".into(), found: "the mark 2".into() }));
    assert_eq!(read(&key, &[0]), Err(BadRow::Value { column: "v".into(), found: "null".into() }));
    assert_eq!(read(&key, &[1, 0, 0, 1, 0, 0, 0, 0, 0]), Err(BadRow::Value { column: "v".into(), found: "65536".into() }));
    assert_eq!(read(&key, &[1, 1, 0, 0, 0, 0, 0, 0, 0, 9, 9]), Err(BadRow::TooLong(2)));
}

#[test]
fn windows_order_by_end_then_start() {
    let bytes = |end, start| Window::key_bytes(Some(Window { end, start }));
    let ordered = [
        Window::key_bytes(None),
        bytes(i64::MIN, i64::MIN),
        bytes(-5, -10),
        bytes(-5, -9),
        bytes(0, 3),
        bytes(10, i64::MIN),
        bytes(i64::MAX, i64::MAX),
    ];
    assert!(ordered.windows(2).all(|pair| pair[0] < pair[1]));
    assert_eq!(RowLayout::prefix_bounds(&[0, 5, 0xff, 0xff]).1, [0, 6]);
}

/// Columns of every type, with the extremes of each.
fn any_column(ty: &LogicalType, rows: usize) -> BoxedStrategy<ArrayRef> {
    fn of<T: std::fmt::Debug + Clone + 'static, A: arrow::array::Array + From<Vec<Option<T>>> + 'static>(
        values: impl Strategy<Value = T> + 'static,
        rows: usize,
    ) -> BoxedStrategy<ArrayRef> {
        let values = prop::collection::vec(prop::option::weighted(0.8, values), rows);
        values.prop_map(|values| Arc::new(A::from(values)) as ArrayRef).boxed()
    }
    let (bits32, bits64) = (any::<u32>().prop_map(f32::from_bits), any::<u64>().prop_map(f64::from_bits));
    match ty {
        LogicalType::Boolean => of::<_, BooleanArray>(any::<bool>(), rows),
        LogicalType::Int8 => of::<_, Int8Array>(any::<i8>(), rows),
        LogicalType::Int16 => of::<_, Int16Array>(any::<i16>(), rows),
        LogicalType::Int32 => of::<_, Int32Array>(prop_oneof![any::<i32>(), Just(i32::MIN)], rows),
        LogicalType::Int64 => of::<_, Int64Array>(prop_oneof![any::<i64>(), Just(i64::MAX)], rows),
        LogicalType::UInt64 => of::<_, UInt64Array>(prop_oneof![any::<u64>(), Just(u64::MAX)], rows),
        LogicalType::Float32 => of::<_, Float32Array>(bits32, rows),
        LogicalType::Float64 => of::<_, Float64Array>(bits64, rows),
        LogicalType::Decimal(precision, scale) => {
            let (precision, scale) = (*precision, *scale);
            let column = of::<_, Decimal128Array>(any::<i64>().prop_map(i128::from), rows);
            let typed = move |column: ArrayRef| {
                let values = column.as_primitive::<arrow::datatypes::Decimal128Type>().clone();
                Arc::new(values.with_precision_and_scale(precision, scale).expect("fits")) as ArrayRef
            };
            column.prop_map(typed).boxed()
        }
        LogicalType::String => {
            let texts = prop::collection::vec(prop::option::weighted(0.8, ".{0,5}"), rows);
            texts.prop_map(|texts| Arc::new(StringArray::from(texts)) as ArrayRef).boxed()
        }
        LogicalType::Binary => {
            let texts = prop::collection::vec(prop::option::weighted(0.8, prop::collection::vec(any::<u8>(), 0..6)), rows);
            texts.prop_map(|texts| Arc::new(texts.iter().map(Option::as_deref).collect::<BinaryArray>()) as ArrayRef).boxed()
        }
        LogicalType::Date => of::<_, Date32Array>(any::<i32>(), rows),
        LogicalType::Timestamp => of::<_, TimestampMillisecondArray>(any::<i64>(), rows),
        LogicalType::List(_) => {
            let elements = prop::collection::vec(prop::option::of(".{0,3}"), 0..4);
            let lists = prop::collection::vec(prop::option::weighted(0.8, elements), rows);
            let column = |lists: Vec<Option<Vec<Option<String>>>>| {
                let mut builder = ListBuilder::new(StringBuilder::new());
                lists.into_iter().for_each(|list| builder.append_option(list));
                Arc::new(builder.finish()) as ArrayRef
            };
            lists.prop_map(column).boxed()
        }
        LogicalType::Struct(columns) => {
            let fields: arrow::datatypes::Fields = columns.iter().map(Column::to_field).collect();
            let columns: Vec<_> = columns.iter().map(|column| any_column(&column.ty, rows)).collect();
            let column = move |(columns, valid): (Vec<ArrayRef>, Vec<bool>)| {
                let nulls = arrow::buffer::NullBuffer::from(valid);
                Arc::new(StructArray::new(fields.clone(), columns, Some(nulls))) as ArrayRef
            };
            (columns, prop::collection::vec(any::<bool>(), rows)).prop_map(column).boxed()
        }
    }
}

fn every_type() -> Vec<LogicalType> {
    let simple = [
        "BOOLEAN",
        "INT8",
        "INT16",
        "INT32",
        "INT64",
        "UINT64",
        "FLOAT32",
        "FLOAT64",
        "DECIMAL(38,2)",
        "STRING",
        "BINARY",
        "DATE",
        "TIMESTAMP",
        "LIST(STRING)",
        "STRUCT(a INT64, b STRING, c STRUCT(d FLOAT32))",
    ];
    simple.iter().map(|text| text.parse().expect("a type")).collect()
}

fn any_state() -> impl Strategy<Value = (RowLayout, RecordBatch)> {
    let all = every_type();
    let keys: Vec<LogicalType> = all.iter().filter(|ty| is_key_type(ty)).cloned().collect();
    let keys = || prop::collection::vec(prop::sample::select(keys.clone()), 0..3);
    let flags = (any::<bool>(), any::<bool>(), prop::sample::select(vec![StateShape::Value, StateShape::Map, StateShape::List]));
    (keys(), keys(), prop::collection::vec(prop::sample::select(all), 0..3), flags, 0usize..20).prop_flat_map(
        |(keys, map_key, values, (windowed, ttl, shape), rows)| {
            let named = |prefix: &str, types: Vec<LogicalType>| -> Vec<Column> {
                types.into_iter().enumerate().map(|(at, ty)| column(&format!("{prefix}{at}"), ty)).collect()
            };
            let map_key = if shape == StateShape::Map { named("m", map_key) } else { Vec::new() };
            let ttl = if ttl { Stamps::Event } else { Stamps::None };
            let (keys, values) = (named("k", keys), named("v", values));
            let schema = StateSchema { shape, keys, windowed, map_key, values, ttl, ..StateSchema::default() };
            let layout = layout(schema);
            let columns: Vec<_> = layout.columns().fields().iter().map(|field| layout_column(&layout, field, rows)).collect();
            columns.prop_map(move |columns| {
                let options = arrow::record_batch::RecordBatchOptions::new().with_row_count(Some(rows));
                let rows = RecordBatch::try_new_with_options(Arc::clone(layout.columns()), columns, &options);
                (layout.clone(), rows.expect("the layout's columns"))
            })
        },
    )
}

fn layout_column(layout: &RowLayout, field: &Field, rows: usize) -> BoxedStrategy<ArrayRef> {
    let schema = layout.schema();
    let mut known = schema.keys.iter().map(|key| (format!("{KEY_PREFIX}{}", key.name), key)).collect::<Vec<_>>();
    known.extend(schema.map_key.iter().chain(&schema.values).map(|column| (column.name.clone(), column)));
    let is_value = schema.values.iter().any(|column| column.name == *field.name());
    if let Some((_, column)) = known.iter().find(|(name, _)| name == field.name()) {
        let column = any_column(&column.ty, rows);
        // Keys come normalised; only values are kept bit by bit.
        return if is_value { column } else { column.prop_map(levada_common::keys::normalise_key_column).boxed() };
    }
    match field.name().as_str() {
        NAMESPACE_COLUMN => {
            let window = prop::option::of((any::<i64>(), any::<i64>()).prop_map(|(end, start)| Window { end, start }));
            prop::collection::vec(window, rows).prop_map(|windows| Namespaces::column(&windows)).boxed()
        }
        INDEX_COLUMN => {
            prop::collection::vec(any::<i64>(), rows).prop_map(|index| Arc::new(Int64Array::from(index)) as _).boxed()
        }
        _ => {
            let times = prop::collection::vec(any::<i64>(), rows);
            times.prop_map(|times| Arc::new(TimestampMillisecondArray::from(times)) as _).boxed()
        }
    }
}

/// Equal bit by bit: `RecordBatch`'s equality takes no NaN for another, but compares floats by their bits.
fn text(batch: &RecordBatch) -> String {
    let (keys, values) = (batch.num_rows(), batch.columns().iter().map(|column| column.to_data()).collect::<Vec<_>>());
    format!("{keys} {values:?}")
}

proptest! {
    #[test]
    fn every_entry_comes_back((layout, rows) in any_state()) {
        let (keys, values) = written(&layout, &rows);
        let back = read_back(&layout, &keys, &values);
        let (mut again_keys, mut again_values) = (RowBytes::new(), RowBytes::new());
        layout.write(&back, &mut again_keys, &mut again_values).expect("the layout's columns");
        prop_assert!(keys.iter().eq(again_keys.iter()) && values.iter().eq(again_values.iter()));
        for (column, found) in rows.columns().iter().zip(back.columns()) {
            prop_assert_eq!(column.len(), found.len());
            prop_assert_eq!(column.logical_null_count(), found.logical_null_count());
            if !text(&rows).contains("NaN") {
                prop_assert_eq!(&column.to_data(), &found.to_data());
            }
        }
    }

    #[test]
    fn keys_order_by_group_and_window((layout, rows) in any_state()) {
        let (keys, _) = written(&layout, &rows);
        let windows = layout.schema().windowed.then(|| Namespaces::of(rows.column(layout.schema().keys.len())));
        let order = |row: usize| {
            let group = u16::from_be_bytes([keys.get(row)[0], keys.get(row)[1]]);
            (group, windows.as_ref().and_then(|windows| windows.get(row)))
        };
        let mut places: Vec<usize> = (0..rows.num_rows()).collect();
        places.sort_by_key(|row| keys.get(*row).to_vec());
        prop_assert!(places.windows(2).all(|pair| order(pair[0]) <= order(pair[1])));
        let (from, to) = RowLayout::group_bounds(KeyGroupRange::all(MAX_PARALLELISM));
        prop_assert!(keys.iter().all(|key| from.as_slice() <= key && key < to.as_slice()));
    }

    #[test]
    fn any_bytes_are_read_or_refused((layout, _) in any_state(), key in prop::collection::vec(0u8..3, 0..40), value in prop::collection::vec(0u8..3, 0..40)) {
        let mut reader = RowReader::whole(&layout);
        if reader.push(0, &key, &value).is_ok() {
            prop_assert_eq!(reader.finish().num_rows(), 1);
        }
    }

    #[test]
    fn slices_are_written_from_their_own_start((layout, rows) in any_state(), offset in 0usize..20) {
        prop_assume!(rows.num_columns() > 0);
        let offset = offset.min(rows.num_rows());
        let part = rows.slice(offset, rows.num_rows() - offset);
        let indices = arrow::array::UInt32Array::from_iter_values(offset as u32..rows.num_rows() as u32);
        let copied = take_record_batch(&rows, &indices).expect("taken");
        let (of_part, of_copy) = (written(&layout, &part), written(&layout, &copied));
        prop_assert!(of_part.0.iter().eq(of_copy.0.iter()) && of_part.1.iter().eq(of_copy.1.iter()));
    }
}

#[test]
fn stamps_of_another_clock_count_as_unknown() {
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let stamps: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![10, 20]));
    let rows = RecordBatch::try_from_iter([("n", Arc::clone(&numbers)), (TTL_COLUMN, stamps)]).expect("columns");
    let unknown = restamped(rows.clone(), Stamps::Event, Stamps::Processing);
    let stamps = unknown[TTL_COLUMN].as_primitive::<arrow::datatypes::TimestampMillisecondType>();
    assert_eq!((stamps.values().to_vec(), &unknown["n"]), (vec![STAMP_UNKNOWN; 2], &numbers));
    for (had, wanted) in [(Stamps::Event, Stamps::Event), (Stamps::Unnoted, Stamps::Event), (Stamps::Processing, Stamps::None)] {
        assert_eq!(restamped(rows.clone(), had, wanted), rows, "{had:?} to {wanted:?}");
    }
    let without = rows.project(&[0]).expect("a column");
    assert_eq!(restamped(without.clone(), Stamps::None, Stamps::Event), without);
}
