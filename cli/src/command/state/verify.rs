//! `levada state verify`: every byte of a snapshot is what was written, and makes sense.
//!
//! Checked: `_metadata` (before this), length and CRC-32C of every handle and file, that every file decodes, names what the handle
//! names, and holds the noted number of rows in the noted key groups, each row in the group of its key; that the subtasks of a
//! keyed state share no key group.

use std::collections::BTreeSet;
use std::io::Write;

use arrow::record_batch::RecordBatch;
use futures::{StreamExt, stream};
use levada_common::checkpoint::{DatabaseFile, Handle, StateHandle, TaskSnapshot};
use levada_state::format::{Layout, groups_by_key};

use crate::progress::count;
use crate::snapshot::database::{DatabaseRows, check_file};
use crate::snapshot::groups::groups_of;
use crate::snapshot::rows::{ArrowFile, with_causes};
use crate::snapshot::{OperatorState, Snapshot, SnapshotError};

/// Handles that are looked through at a time.
const AT_ONCE: usize = 4;

/// Prints a line for each damage and a last one with the sums; `true` where there is none.
///
/// Errors: the snapshot was deleted or replaced meanwhile; nothing is called damaged for that.
pub async fn verify(snapshot: &Snapshot, out: &mut impl Write) -> anyhow::Result<bool> {
    let handles: Vec<&StateHandle> = snapshot.states.iter().flat_map(|state| &state.handles).collect();
    let files: BTreeSet<&str> = handles.iter().flat_map(|handle| paths(handle)).collect();
    let mut damaged = 0;
    let mut tell = |out: &mut dyn Write, damages: Vec<String>| {
        damaged += damages.len();
        damages.iter().try_for_each(|damage| writeln!(out, "{damage}"))
    };
    let mut checks = stream::iter(&handles).map(|handle| check(snapshot, handle)).buffered(AT_ONCE);
    while let Some(damages) = checks.next().await {
        if !damages.is_empty() {
            snapshot.still_there().await?;
        }
        tell(out, damages)?;
    }
    let databases: BTreeSet<&DatabaseFile> = handles.iter().flat_map(|handle| database_files(handle)).collect();
    let check = |file| async move { check_file(snapshot.storage(), file).await.err().map(|damage| damage.text(file)) };
    let mut checks = stream::iter(databases).map(check).buffered(AT_ONCE);
    while let Some(damage) = checks.next().await {
        if damage.is_some() {
            snapshot.still_there().await?;
        }
        tell(out, damage.into_iter().collect())?;
    }
    for state in &snapshot.states {
        tell(out, shared_groups(state).into_iter().collect())?;
    }
    let rows: u64 = snapshot.states.iter().map(OperatorState::rows).sum();
    let bytes: u64 = snapshot.metadata.tasks.iter().map(TaskSnapshot::bytes).sum();
    let verdict = if damaged == 0 { "whole".into() } else { format!("{damaged} damages") };
    writeln!(
        out,
        "{}: {verdict}; {} states of {} subtasks, {} files beside _metadata, {} rows, {} bytes",
        snapshot.uri,
        snapshot.states.len(),
        handles.len(),
        files.len(),
        count(rows),
        count(bytes)
    )?;
    Ok(damaged == 0)
}

fn database_files(handle: &StateHandle) -> &[DatabaseFile] {
    match &handle.handle {
        Handle::Database { files, .. } => files,
        Handle::Inline(_) | Handle::File { .. } => &[],
    }
}

fn paths(handle: &StateHandle) -> Vec<&str> {
    match &handle.handle {
        Handle::Inline(_) => Vec::new(),
        Handle::File { path, .. } => vec![path],
        Handle::Database { files, .. } => files.iter().map(|file| file.path.as_str()).collect(),
    }
}

/// What is wrong with one state of one subtask.
async fn check(snapshot: &Snapshot, handle: &StateHandle) -> Vec<String> {
    if let Handle::Database { files, .. } = &handle.handle {
        return check_database(snapshot, handle, files).await;
    }
    let file = match ArrowFile::open(snapshot, handle).await {
        Ok(file) => file,
        Err(error) => return vec![error.to_string()],
    };
    let mut contents =
        Contents { handle, layout: &file.layout, defects: header_defects(snapshot, handle, &file.layout), rows: 0 };
    if let Err(error) = file.layout.rows_of(None) {
        return vec![SnapshotError::damaged(handle, with_causes(&error)).to_string()];
    }
    for place in 0..file.layout.batches() {
        match file.batch(place).await {
            Ok(batch) => contents.batch(place, &batch),
            Err(error) => return vec![error.to_string()],
        }
    }
    contents.end().into_iter().map(|what| SnapshotError::damaged(handle, what).to_string()).collect()
}

/// What is wrong with the rows of one state in a database; files that are damaged are told elsewhere, once for all states in them.
async fn check_database(snapshot: &Snapshot, handle: &StateHandle, files: &[DatabaseFile]) -> Vec<String> {
    for file in files {
        if check_file(snapshot.storage(), file).await.is_err() {
            return Vec::new();
        }
    }
    let mut rows = match DatabaseRows::open(snapshot, handle, None).await {
        Ok(rows) => rows,
        Err(error) => return vec![error.to_string()],
    };
    let mut defects = BTreeSet::new();
    loop {
        match rows.next().await {
            Ok(Some(batch)) => {
                let groups = groups_of(&batch, snapshot.metadata.max_parallelism);
                if groups.iter().any(|group| !handle.key_groups.contains(*group)) {
                    defects.insert(format!("rows are not in the key groups {}", handle.key_groups));
                }
            }
            Ok(None) => return defects.into_iter().map(|what| SnapshotError::damaged(handle, what).to_string()).collect(),
            Err(error) => return vec![error.to_string()],
        }
    }
}

/// What the file says of itself, against what the handle says.
fn header_defects(snapshot: &Snapshot, handle: &StateHandle, layout: &Layout) -> BTreeSet<String> {
    let meta = layout.meta();
    let mut defects = BTreeSet::new();
    if meta.uid != handle.uid || meta.name != handle.name {
        defects.insert(format!("it holds state \"{}/{}\"", meta.uid, meta.name));
    }
    if meta.kind != handle.kind || meta.schema != handle.schema {
        defects.insert(format!("it holds another type: {} {}", meta.kind.name(), meta.schema.shape));
    }
    if layout.max_parallelism() != snapshot.metadata.max_parallelism {
        defects.insert(format!(
            "it has {} key groups, _metadata has {}",
            layout.max_parallelism(),
            snapshot.metadata.max_parallelism
        ));
    }
    defects
}

/// The rows of one file, as they pass by.
struct Contents<'a> {
    handle: &'a StateHandle,
    layout: &'a Layout,
    defects: BTreeSet<String>,
    rows: u64,
}

impl Contents<'_> {
    fn batch(&mut self, place: usize, batch: &RecordBatch) {
        self.rows += batch.num_rows() as u64;
        if !self.handle.kind.is_keyed() {
            return;
        }
        let groups = groups_of(batch, self.layout.max_parallelism());
        if groups != groups_by_key(batch, self.layout.max_parallelism()) {
            self.defects.insert("rows are not in the key group of their key".into());
        }
        if groups.iter().any(|group| !self.handle.key_groups.contains(*group)) {
            self.defects.insert(format!("rows are not in the key groups {}", self.handle.key_groups));
        }
        let spans = self.layout.spans().unwrap_or_default().iter().filter(|span| span.batch as usize == place);
        let listed: Vec<u16> = spans.flat_map(|span| std::iter::repeat_n(span.group, span.rows as usize)).collect();
        if listed != groups {
            self.defects.insert("its index of key groups is not that of its rows".into());
        }
    }

    fn end(mut self) -> BTreeSet<String> {
        if self.rows != self.handle.rows {
            self.defects.insert(format!("it has {} rows, {} were noted", self.rows, self.handle.rows));
        }
        self.defects
    }
}

/// Whether two subtasks of a keyed state hold the same key group.
fn shared_groups(state: &OperatorState) -> Option<String> {
    let pairs = state.handles.windows(2);
    let shared = pairs.filter(|_| state.kind.is_keyed()).find(|pair| pair[0].key_groups.intersects(pair[1].key_groups))?;
    Some(format!(
        "_metadata is damaged: subtasks {} and {} share key groups of state \"{}\": {} and {}",
        shared[0].subtask,
        shared[1].subtask,
        state.path(),
        shared[0].key_groups,
        shared[1].key_groups
    ))
}

#[cfg(test)]
mod tests {
    use super::super::testing::Written;
    use super::*;

    async fn verified(written: &Written) -> (bool, String) {
        let snapshot = Snapshot::open(&written.path()).await.expect("it is found");
        let mut out = Vec::new();
        let whole = verify(&snapshot, &mut out).await.expect("it is checked");
        (whole, written.masked(&String::from_utf8(out).expect("text")))
    }

    #[tokio::test]
    async fn a_whole_snapshot_is_whole() {
        let (whole, text) = verified(&Written::new(&Written::counts())).await;
        assert!(whole, "{text}");
        let end = "whole; 3 states of 4 subtasks, 2 files beside _metadata, 23 rows";
        assert!(text.starts_with(&format!("file:///DIR/job/chk-7/_metadata: {end}")), "{text}");
        assert_eq!(text.lines().count(), 1);
    }

    #[tokio::test]
    async fn each_flipped_bit_is_found_in_its_file() {
        let written = Written::new(&Written::counts());
        let path = written.file("counts-panes-1");
        let bytes = std::fs::read(&path).expect("a file");
        for at in (0..bytes.len()).step_by(97) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            std::fs::write(&path, damaged).expect("a file");
            let (whole, text) = verified(&written).await;
            assert!(!whole);
            assert!(text.starts_with("\"chk-7/counts-panes-1\" is damaged: CRC-32C is "), "byte {at}: {text}");
            assert!(text.contains("operator \"counts\", state \"panes\", subtask 1\n") && text.contains(": 1 damages"), "{text}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn each_flipped_bit_is_found_in_each_file_of_a_database() {
        let written = Written::in_database();
        let (whole, text) = verified(&written).await;
        assert!(whole, "{text}");
        let folder = written.file("_metadata");
        let folder = folder.parent().expect("it is in a folder");
        let mut kinds = std::collections::BTreeSet::new();
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            if name == "_metadata" {
                continue;
            }
            kinds.insert(name.rsplit(['.', '-']).next().filter(|end| *end == "sst").map_or(name[..4].to_owned(), str::to_owned));
            let bytes = std::fs::read(&path).expect("a file");
            for at in (0..bytes.len()).step_by(bytes.len().div_ceil(20)) {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << (at % 8);
                std::fs::write(&path, damaged).expect("a file");
                let (whole, text) = verified(&written).await;
                assert!(
                    !whole && text.contains(&format!("\"chk-7/{name}\" is damaged: CRC-32C is ")),
                    "{name}, byte {at}: {text}"
                );
                assert!(text.contains(": 1 damages"), "{name}, byte {at}: {text}");
            }
            std::fs::write(&path, bytes).expect("a file");
        }
        assert_eq!(kinds.into_iter().collect::<Vec<_>>(), ["CURR", "MANI", "sst"]);
    }

    #[tokio::test]
    async fn each_flipped_bit_is_found_in_inline_state_and_in_metadata() {
        let written = Written::new(&Written::counts());
        let path = written.file("_metadata");
        let bytes = std::fs::read(&path).expect("a file");
        for at in (0..bytes.len()).step_by(61) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            std::fs::write(&path, damaged).expect("a file");
            // Inline states are in it, so it is the file that is damaged.
            let error = Snapshot::open(&written.path()).await.expect_err("it is damaged").to_string();
            assert!(error.contains("chk-7/_metadata"), "byte {at}: {error}");
        }
        std::fs::write(&path, bytes).expect("a file");
        let mut snapshot = Snapshot::open(&written.path()).await.expect("it is whole");
        let handle = &mut snapshot.states[1].handles[0];
        let Handle::Inline(inline) = &handle.handle else { panic!("{:?}", handle.handle) };
        let mut damaged = inline.to_vec();
        damaged[40] ^= 2;
        handle.handle = Handle::Inline(damaged.into());
        let mut out = Vec::new();
        assert!(!verify(&snapshot, &mut out).await.expect("it is checked"));
        let text = String::from_utf8(out).expect("text");
        assert!(text.starts_with("inline state in _metadata is damaged: CRC-32C is "), "{text}");
    }

    #[tokio::test]
    async fn a_short_and_a_missing_file_are_told_apart() {
        let written = Written::new(&Written::counts());
        let path = written.file("counts-panes-0");
        let bytes = std::fs::read(&path).expect("a file");
        std::fs::write(&path, &bytes[..bytes.len() - 1]).expect("a file");
        let (_, text) = verified(&written).await;
        let ends = format!("it ends at byte {}, the state reaches to byte {}", bytes.len() - 1, bytes.len());
        assert!(text.contains(&ends), "{text}");
        std::fs::remove_file(&path).expect("it was there");
        let (whole, text) = verified(&written).await;
        assert!(!whole && text.starts_with("\"chk-7/counts-panes-0\" is damaged: it does not exist"), "{text}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_was_deleted_meanwhile_is_not_called_damaged() {
        for (written, file) in [(Written::new(&Written::counts()), "counts-panes-1"), (Written::in_database(), "CURRENT")] {
            let snapshot = Snapshot::open(&written.path()).await.expect("it is found");
            let metadata = std::fs::read(written.file("_metadata")).expect("a file");
            let other = Written::new(&Written::counts()[1..]);
            std::fs::remove_file(written.file("_metadata")).expect("it was there");
            let folder = written.file("");
            let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
            let gone: Vec<_> = entries.filter(|path| path.to_string_lossy().contains(file)).collect();
            assert_eq!(gone.len(), 1, "{gone:?}");
            std::fs::remove_file(&gone[0]).expect("it was there");
            let is_told = async |what: &str| {
                let mut out = Vec::new();
                let error = verify(&snapshot, &mut out).await.expect_err(what).to_string();
                assert!(error.contains("chk-7/_metadata\" was deleted or replaced while it was read"), "{error}");
                assert_eq!(String::from_utf8_lossy(&out), "", "{what}");
            };
            is_told("deleted").await;
            std::fs::copy(other.file("_metadata"), written.file("_metadata")).expect("a file");
            is_told("replaced").await;
            std::fs::write(written.file("_metadata"), metadata).expect("a file");
            let (whole, text) = verified(&written).await;
            assert!(!whole && text.contains("it does not exist"), "{text}");
            std::fs::remove_dir_all(written.file("")).expect("it was there");
            is_told("gone with its folder").await;
        }
    }

    #[tokio::test]
    async fn what_the_handle_says_is_compared_with_what_the_file_holds() {
        let written = Written::new(&Written::counts());
        let mut snapshot = Snapshot::open(&written.path()).await.expect("it is found");
        snapshot.states[0].handles[0].rows += 1;
        snapshot.states[0].handles[0].key_groups.end = 3;
        snapshot.states[0].handles[1].key_groups.start = 2;
        snapshot.states[0].handles[1].name = "other".into();
        snapshot.metadata.max_parallelism = 256;
        // Else it would be another snapshot than the one that was opened.
        std::fs::write(written.file("_metadata"), levada_proto::metadata::encode(snapshot.metadata.clone())).expect("a file");
        let mut out = Vec::new();
        assert!(!verify(&snapshot, &mut out).await.expect("it is checked"));
        let text = String::from_utf8(out).expect("text");
        for part in [
            "rows, ",
            "rows are not in the key groups 0..=3",
            "it holds state \"counts/panes\"",
            "share key groups",
            "_metadata has 256",
        ] {
            assert!(text.contains(part), "\"{part}\" is missing in:\n{text}");
        }
    }
}
