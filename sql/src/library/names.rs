//! The aggregates that DataFusion has and the engine has not.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use datafusion_expr::AggregateUDF;
use levada_common::plan::AggregateFunction;

/// What the engine has under a name of its own, what means nothing here, and `nth_value`, which loses rows where states are merged.
const LEFT_OUT: [&str; 6] = ["mean", "first_value", "last_value", "grouping", "any_value", "nth_value"];

/// The aggregates by name, without case; other names of one are names too.
static AGGREGATES: LazyLock<BTreeMap<String, Arc<AggregateUDF>>> = LazyLock::new(|| {
    let mut found = BTreeMap::new();
    for function in datafusion_functions_aggregate::all_default_aggregate_functions() {
        let names = function.aliases().iter().map(String::as_str).chain([function.name()]);
        for name in names.map(str::to_lowercase) {
            let is_ours = AggregateFunction::ALL.iter().any(|ours| ours.name() == name);
            if !is_ours && !LEFT_OUT.contains(&name.as_str()) {
                found.insert(name, Arc::clone(&function));
            }
        }
    }
    found
});

/// Their names, in order.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    AGGREGATES.keys().map(String::as_str)
}

/// Whether `name`, in lower case, is an aggregate that can stand under `aggregate`, here or in the engine, or one that people know
/// from SQL by another name.
pub(crate) fn is_aggregate(name: &str) -> bool {
    let is_ours = AggregateFunction::ALL.iter().any(|ours| ours.name() == name);
    is_ours || LEFT_OUT.contains(&name) || AGGREGATES.contains_key(name)
}

/// The aggregate of this name.
pub(super) fn find(name: &str) -> Option<Arc<AggregateUDF>> {
    AGGREGATES.get(&name.to_lowercase()).cloned()
}
