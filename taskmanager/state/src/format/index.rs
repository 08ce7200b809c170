//! Where each key group's rows stand in a file.

use levada_common::keys::KeyGroupRange;

/// Rows of one group in one batch of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupSpan {
    /// The group.
    pub group: u16,
    /// The batch, by its place in the file.
    pub batch: u32,
    /// Its first row of the group.
    pub row: u32,
    /// Rows of the group in it.
    pub rows: u32,
}

/// The list as it stands in the footer: `[[group,batch,row,rows],...]`, in the order of the file.
pub(super) fn to_json(spans: &[GroupSpan]) -> String {
    let spans: Vec<(u16, u32, u32, u32)> = spans.iter().map(|span| (span.group, span.batch, span.row, span.rows)).collect();
    serde_json::to_string(&spans).expect("numbers become JSON")
}

/// The list that stands in a footer.
pub(super) fn from_json(text: &str) -> Option<Vec<GroupSpan>> {
    let spans: Vec<(u16, u32, u32, u32)> = serde_json::from_str(text).ok()?;
    Some(spans.into_iter().map(|(group, batch, row, rows)| GroupSpan { group, batch, row, rows }).collect())
}

/// The rows of the groups in `range`, as (batch, first row, rows), in the order of the file: one entry per batch, as groups are sorted in
/// it.
pub(super) fn spans_in(spans: &[GroupSpan], range: KeyGroupRange) -> Vec<(u32, u32, u32)> {
    joined(spans.iter().filter(|span| range.contains(span.group)))
}

/// As `spans_in`, in the order of groups; of a group in the order of the file.
pub(super) fn spans_by_group(spans: &[GroupSpan], range: Option<KeyGroupRange>) -> Vec<(u32, u32, u32)> {
    let mut wanted: Vec<&GroupSpan> = spans.iter().filter(|span| range.is_none_or(|range| range.contains(span.group))).collect();
    wanted.sort_by_key(|span| span.group);
    joined(wanted.into_iter())
}

/// Neighbouring rows of a batch together.
fn joined<'a>(spans: impl Iterator<Item = &'a GroupSpan>) -> Vec<(u32, u32, u32)> {
    let mut found: Vec<(u32, u32, u32)> = Vec::new();
    for span in spans {
        match found.last_mut() {
            Some((batch, row, rows)) if *batch == span.batch && *row + *rows == span.row => *rows += span.rows,
            _ => found.push((span.batch, span.row, span.rows)),
        }
    }
    found
}
