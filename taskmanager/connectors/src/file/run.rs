//! The files that one subtask has closed and not published, as entries of a snapshot: an entry for each run of checkpoints, whatever
//! their number. A job whose savepoints alone close files publishes none of them before its end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use levada_common::ids::CheckpointId;
use serde::{Deserialize, Serialize};

use super::part::Part;
use crate::error::ConnectorError;

/// Stands for a checkpoint's number in names.
const NUMBER: char = '*';

/// Files of one entry, above which it is none of ours.
const FILES_MAX: u64 = 10_000_000;

/// Several files whose names differ in their checkpoint only.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PartRun {
    /// First and last checkpoint of each stretch in which every one has closed a file.
    checkpoints: Vec<(u64, u64)>,
    folder: PathBuf,
    hidden: String,
    name: String,
}

/// The entries of these files, in the order of their checkpoints.
pub(super) fn entries(parts: &[Part]) -> Vec<String> {
    let mut runs = BTreeMap::<(&Path, String, String), Vec<&Part>>::new();
    let mut entries = Vec::new();
    for part in parts {
        match patterns(part) {
            Some((hidden, name)) => runs.entry((&part.folder, hidden, name)).or_default().push(part),
            None => entries.push(part.entry()),
        }
    }
    entries.extend(runs.into_iter().map(|((folder, hidden, name), parts)| match parts[..] {
        [part] => part.entry(),
        _ => {
            let checkpoints = stretches(parts.iter().map(|part| part.checkpoint.0));
            let run = PartRun { checkpoints, folder: folder.to_owned(), hidden, name };
            serde_json::to_string(&run).expect("the folder came out of JSON")
        }
    }));
    entries
}

/// The files of an entry.
pub(super) fn parse(entry: &str) -> Result<Vec<Part>, ConnectorError> {
    let bad = |reason: String| ConnectorError::BadEntry { entry: entry.to_owned(), reason };
    let value: serde_json::Value = serde_json::from_str(entry).map_err(|error| bad(error.to_string()))?;
    if value.get("checkpoints").is_none() {
        return Ok(vec![Part::parse(entry)?]);
    }
    let run: PartRun = serde_json::from_value(value).map_err(|error| bad(error.to_string()))?;
    if run.hidden.contains('/') || run.name.contains('/') {
        return Err(bad("a file's name has a slash".into()));
    }
    let files: Option<u64> = run
        .checkpoints
        .iter()
        .try_fold(0u64, |files, (first, last)| files.checked_add(last.checked_sub(*first)?)?.checked_add(1));
    if files.is_none_or(|files| files > FILES_MAX) {
        return Err(bad(format!("it has more than {FILES_MAX} files, or a stretch that ends before it begins")));
    }
    let named = |pattern: &str, checkpoint: u64| pattern.replace(NUMBER, &number(checkpoint));
    let part = |checkpoint| Part {
        checkpoint: CheckpointId(checkpoint),
        folder: run.folder.clone(),
        hidden: named(&run.hidden, checkpoint),
        name: named(&run.name, checkpoint),
    };
    Ok(run.checkpoints.iter().flat_map(|(first, last)| *first..=*last).map(part).collect())
}

/// The names of a file without its checkpoint; none where they are made otherwise.
fn patterns(part: &Part) -> Option<(String, String)> {
    let number = number(part.checkpoint.0);
    let stem = part.hidden.strip_suffix(".prepared")?.strip_suffix(&number)?;
    let (start, subtask) = part.name.rsplit_once('-')?;
    let start = start.strip_suffix(&number)?;
    let (hidden, name) = (format!("{stem}{NUMBER}.prepared"), format!("{start}{NUMBER}-{subtask}"));
    let is_plain = |pattern: &str| pattern.matches(NUMBER).count() == 1;
    (is_plain(&hidden) && is_plain(&name)).then_some((hidden, name))
}

/// A checkpoint's number as names have it.
fn number(checkpoint: u64) -> String {
    format!("{checkpoint:010}")
}

fn stretches(checkpoints: impl Iterator<Item = u64>) -> Vec<(u64, u64)> {
    let mut stretches: Vec<(u64, u64)> = Vec::new();
    for checkpoint in checkpoints {
        match stretches.last_mut() {
            Some((_, last)) if *last + 1 == checkpoint => *last = checkpoint,
            _ => stretches.push((checkpoint, checkpoint)),
        }
    }
    stretches
}

#[cfg(test)]
mod tests {
    use levada_common::ids::{Attempt, AttemptId, Epoch, JobId, Uid};

    use super::super::part::Names;
    use super::*;

    fn parts(attempt: u32, checkpoints: &[u64]) -> Vec<Part> {
        let attempt = AttemptId { job: JobId::from_u128(1), attempt: Attempt(attempt), epoch: Epoch(1) };
        let names = Names::new(Path::new("/out"), &Uid::new("out"), &attempt, 3);
        checkpoints.iter().map(|checkpoint| names.part(CheckpointId(*checkpoint))).collect()
    }

    fn read(entries: &[String]) -> Vec<Part> {
        entries.iter().flat_map(|entry| parse(entry).expect("its own")).collect()
    }

    #[test]
    fn entries_stay_as_they_are() {
        let job = "00000000000000000000000000000001";
        let one = r#"{"checkpoint":7,"folder":"/out","hidden":".part-JOB-ab1a365f-1-1-3-0000000007.prepared","name":"part-00000001-ab1a365f-0000000007-3.ndjson"}"#;
        let some = r#"{"checkpoints":[[7,9],[11,11]],"folder":"/out","hidden":".part-JOB-ab1a365f-1-1-3-*.prepared","name":"part-00000001-ab1a365f-*-3.ndjson"}"#;
        assert_eq!(entries(&parts(1, &[7])), [one.replace("JOB", job)]);
        assert_eq!(entries(&parts(1, &[7, 8, 9, 11])), [some.replace("JOB", job)]);
        assert_eq!(read(&[some.replace("JOB", job)]), parts(1, &[7, 8, 9, 11]));
    }

    #[test]
    fn files_of_several_attempts_and_foreign_names_come_back() {
        let mut all = parts(1, &[1, 2]);
        all.extend(parts(2, &[3, 5]));
        let foreign = Part { hidden: ".x".into(), ..parts(1, &[4])[0].clone() };
        let starred = Part { folder: "/o*t".into(), ..parts(1, &[6])[0].clone() };
        all.extend([foreign, starred]);
        let mut back = read(&entries(&all));
        back.sort_by_key(|part| part.checkpoint);
        all.sort_by_key(|part| part.checkpoint);
        assert_eq!(back, all);
    }

    #[test]
    fn what_is_none_of_ours_is_refused() {
        for entry in [
            "1",
            r#"{"checkpoints":[[1,0]],"folder":"/out","hidden":"*","name":"*"}"#,
            r#"{"checkpoints":[[0,18446744073709551615]],"folder":"/out","hidden":"*","name":"*"}"#,
            r#"{"checkpoints":[[1,1]],"folder":"/out","hidden":"../*","name":"*"}"#,
            r#"{"checkpoints":[[1,1]],"folder":"/out","hidden":"*","name":"*","more":1}"#,
        ] {
            let error = parse(entry).expect_err(entry).to_string();
            assert!(error.contains("is not a position of this source"), "{error}");
        }
    }
}
