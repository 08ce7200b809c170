//! `levada state diff`: what is other in one snapshot than in another.
//!
//! Keyed states are compared a key group at a time, so memory is that of the largest group, whatever the state's size.

mod compare;

use std::collections::BTreeSet;
use std::io::Write;

use crate::progress::count;
use crate::snapshot::{OperatorState, Snapshot};
use compare::{Comparison, compare};

use super::ls::schema_text;

/// Prints the differences, at most `keys` keys of each state; `true` where there are none.
pub async fn diff(before: &Snapshot, after: &Snapshot, keys: usize, out: &mut impl Write) -> anyhow::Result<bool> {
    writeln!(out, "before  {}\nafter   {}\n", before.uri, after.uri)?;
    let paths: BTreeSet<String> = before.states.iter().chain(&after.states).map(OperatorState::path).collect();
    let of = |snapshot: &'_ Snapshot, path: &str| snapshot.states.iter().find(|state| state.path() == path).cloned();
    let (mut differ, all) = (0, paths.len());
    for path in paths {
        let is_same = match (of(before, &path), of(after, &path)) {
            (Some(state), None) => alone(out, "only before", &state)?,
            (None, Some(state)) => alone(out, "only after", &state)?,
            (Some(left), Some(right)) => both(before, after, &left, &right, keys, out).await?,
            (None, None) => true,
        };
        differ += usize::from(!is_same);
    }
    writeln!(out, "\n{differ} of {all} states differ")?;
    Ok(differ == 0)
}

fn alone(out: &mut impl Write, where_: &str, state: &OperatorState) -> anyhow::Result<bool> {
    writeln!(out, "{where_:12} {}: {} {}, {} rows", state.path(), state.kind.name(), state.schema.shape, count(state.rows()))?;
    Ok(false)
}

async fn both(
    before: &Snapshot,
    after: &Snapshot,
    left: &OperatorState,
    right: &OperatorState,
    keys: usize,
    out: &mut impl Write,
) -> anyhow::Result<bool> {
    let path = left.path();
    if left.kind != right.kind || left.schema != right.schema {
        let text =
            |state: &OperatorState| format!("{} {}, {}", state.kind.name(), state.schema.shape, schema_text(&state.schema));
        writeln!(out, "{:12} {path}\n             before: {}\n             after:  {}", "other type", text(left), text(right))?;
        return Ok(false);
    }
    let Some((factor_before, factor_after)) = factors(before.metadata.max_parallelism, after.metadata.max_parallelism) else {
        let (before, after) = (before.metadata.max_parallelism, after.metadata.max_parallelism);
        writeln!(out, "{:12} {path}: {before} key groups before and {after} after do not nest", "not compared")?;
        return Ok(false);
    };
    let found = compare((before, left, factor_before), (after, right, factor_after), keys).await?;
    let Comparison { added, removed, changed, same, .. } = found;
    if added + removed + changed == 0 {
        writeln!(out, "{:12} {path}: {} rows", "same", count(same))?;
        return Ok(true);
    }
    let counts =
        format!("{} rows added, {} removed, {} changed, {} the same", count(added), count(removed), count(changed), count(same));
    writeln!(out, "{:12} {path}: {counts}", "other rows")?;
    for example in &found.examples {
        writeln!(out, "             {example}")?;
    }
    Ok(false)
}

/// How many key groups of each are one of the other: groups nest where one number is a multiple of the other.
fn factors(before: u32, after: u32) -> Option<(u16, u16)> {
    let (least, most) = (before.min(after).max(1), before.max(after));
    let factor = u16::try_from(most / least).ok().filter(|_| most.is_multiple_of(least))?;
    Some(if before > after { (factor, 1) } else { (1, factor) })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{State, Written, entries, panes};
    use super::*;

    async fn diffed(before: &[State], after: &[State]) -> (bool, String) {
        let (before, after) = (Written::new(before), Written::new(after));
        let open = |written: &Written| written.path();
        let left = Snapshot::open(&open(&before)).await.expect("found");
        let right = Snapshot::open(&open(&after)).await.expect("found");
        let mut out = Vec::new();
        let same = diff(&left, &right, 2, &mut out).await.expect("compared");
        let text = String::from_utf8(out).expect("text");
        (same, after.masked(&before.masked(&text)))
    }

    #[tokio::test]
    async fn a_snapshot_is_the_same_as_itself_at_any_parallelism() {
        let mut wide = Written::counts();
        wide[0].parallelism = 5;
        let (same, text) = diffed(&Written::counts(), &wide).await;
        assert!(same, "{text}");
        assert!(text.contains("same         counts/panes: 20 rows") && text.ends_with("0 of 3 states differ\n"), "{text}");
    }

    #[tokio::test]
    async fn every_difference_is_counted_and_the_first_keys_are_named() {
        let mut counts: Vec<i64> = (0..22).collect();
        (counts[3], counts[5]) = (300, 500);
        let after = vec![panes(counts), entries("numbers", "positions", &["{\"at\":6}", "{}"]), entries("new", "state", &["x"])];
        let (same, text) = diffed(&Written::counts(), &after).await;
        assert!(!same);
        for part in [
            "other rows   counts/panes: 2 rows added, 0 removed, 2 changed, 18 the same",
            "only before  counts/watermark: operator-list entries, 1 rows",
            "only after   new/state: operator-list entries, 1 rows",
            "other rows   numbers/positions: 1 rows added, 1 removed, 0 changed, 1 the same",
            "added   entry={\\\"at\\\":6}",
            "removed entry={\\\"at\\\":5}",
            "4 of 4 states differ",
        ] {
            assert!(text.contains(part), "\"{part}\" is missing in:\n{text}");
        }
        let keys = text.lines().filter(|line| line.contains("key.k=k"));
        assert_eq!(keys.count(), 2, "{text}");
        let (_, back) = diffed(&after, &Written::counts()).await;
        assert!(back.contains("counts/panes: 0 rows added, 2 removed, 2 changed"), "{back}");
    }

    #[tokio::test]
    async fn another_type_is_told_and_not_compared() {
        let mut after = Written::counts();
        let mut schema = (*after[0].meta.schema).clone();
        schema.ttl = levada_common::state_schema::Stamps::Event;
        after[0].meta.schema = std::sync::Arc::new(schema);
        let (same, text) = diffed(&Written::counts(), &after).await;
        assert!(!same && text.contains("other type   counts/panes") && text.contains("; expires by event time"), "{text}");
    }

    #[test]
    fn groups_nest_where_one_number_divides_the_other() {
        assert_eq!(factors(128, 128), Some((1, 1)));
        assert_eq!(factors(128, 256), Some((1, 2)));
        assert_eq!(factors(32_768, 1), Some((32_768, 1)));
        assert_eq!(factors(128, 200), None);
    }
}
