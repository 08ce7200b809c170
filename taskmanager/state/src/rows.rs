//! Which rows of a dense table are meant: a span of them, or these.

/// Rows of a dense table, by their ids.
#[derive(Debug, Clone, Copy)]
pub enum Rows<'a> {
    /// From `start` up to, not including, `end`.
    Span {
        /// First row.
        start: usize,
        /// Row after the last.
        end: usize,
    },
    /// These, in this order.
    Ids(&'a [u32]),
}

impl Rows<'_> {
    /// The first `len` rows.
    pub fn first(len: usize) -> Self {
        Self::Span { start: 0, end: len }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        match self {
            Self::Span { start, end } => end - start,
            Self::Ids(ids) => ids.len(),
        }
    }

    /// Whether no row is meant.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The values of these rows.
    #[inline]
    pub fn gather<T: Copy>(&self, values: &[T]) -> Vec<T> {
        match self {
            Self::Span { start, end } => values[*start..*end].to_vec(),
            Self::Ids(ids) => ids.iter().map(|id| values[*id as usize]).collect(),
        }
    }

    /// What `value` gives for each row.
    #[inline]
    pub fn map<T>(&self, value: impl Fn(usize) -> T) -> Vec<T> {
        match self {
            Self::Span { start, end } => (*start..*end).map(value).collect(),
            Self::Ids(ids) => ids.iter().map(|id| value(*id as usize)).collect(),
        }
    }

    /// Calls `visit` with each row.
    #[inline]
    pub fn each(&self, mut visit: impl FnMut(usize)) {
        match self {
            Self::Span { start, end } => (*start..*end).for_each(visit),
            Self::Ids(ids) => ids.iter().for_each(|id| visit(*id as usize)),
        }
    }
}
