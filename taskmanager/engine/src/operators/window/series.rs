//! Which windows a slice is in: arithmetic on times only.

use levada_common::plan::WindowSpec;

use super::{Grid, Window, grid_floor};

/// Windows that overlap, and are made of slices. Milliseconds; the rules of `WindowSpec` and `WindowTime` hold.
#[derive(Debug, Clone, Copy)]
pub(in crate::operators) enum Series {
    /// One of this size after every slide, by the labels of the slices.
    Sliding { size: i64, slide: i64, offset: i64, slices: Grid },
    /// Each cycle as it has grown after every slice.
    Cumulate { cycles: Grid, slices: Grid },
}

impl Series {
    /// The windows of `spec` that are made of the slices of this grid, where they overlap.
    pub(in crate::operators) fn of(spec: &WindowSpec, slices: Grid) -> Option<Self> {
        match *spec {
            WindowSpec::Sliding { size_ms: size, slide_ms: slide, offset_ms: offset } => {
                Some(Self::Sliding { size, slide: slide.max(1), offset, slices })
            }
            WindowSpec::Cumulate { size_ms, offset_ms, .. } => {
                Some(Self::Cumulate { cycles: slices.coarser(size_ms, offset_ms), slices })
            }
            WindowSpec::Running
            | WindowSpec::Tumbling { .. }
            | WindowSpec::Session { .. }
            | WindowSpec::Count { .. }
            | WindowSpec::Same
            | WindowSpec::Global => None,
        }
    }

    /// The windows that have this slice and have not fired at this watermark, in order.
    pub(in crate::operators) fn after(self, slice: Window, watermark: i64) -> impl Iterator<Item = Window> {
        std::iter::successors(self.first_after(slice, watermark), move |window| {
            self.first_after(slice, window.end.saturating_sub(1))
        })
    }

    /// The last window that has this slice.
    pub(in crate::operators) fn last(self, slice: Window) -> Window {
        match self {
            Self::Sliding { size, slide, offset, slices } => {
                let label = grid_floor(slices.label(slice.start), slide, offset);
                Window { start: slices.moment(label), end: slices.moment(label.saturating_add(size)) }
            }
            Self::Cumulate { cycles, .. } => cycles.window(slice.start),
        }
    }

    /// The first window that has this slice and has not fired at this watermark.
    pub(in crate::operators) fn first_after(self, slice: Window, watermark: i64) -> Option<Window> {
        let end_min = slice.end.max(watermark.saturating_add(2));
        match self {
            Self::Sliding { size, slide, offset, slices } => {
                let end_min = slices.label(end_min.saturating_sub(1)).saturating_add(slices.length_ms());
                let label = grid_floor(end_min.saturating_sub(size).saturating_add(slide - 1), slide, offset);
                let window = Window { start: slices.moment(label), end: slices.moment(label.saturating_add(size)) };
                (window.start <= slice.start).then_some(window)
            }
            Self::Cumulate { cycles, slices } => {
                let (cycle, end) = (cycles.window(slice.start), slices.ceil(end_min));
                (end <= cycle.end).then_some(Window { start: cycle.start, end })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every window that has the slice, by looking at all of them around it.
    fn naive(spec: &WindowSpec, slice: Window) -> Vec<Window> {
        let all: Vec<Window> = match *spec {
            WindowSpec::Sliding { size_ms: size, slide_ms: slide, offset_ms: offset } => {
                (-400..400).map(|n| n * slide + offset).map(|start| Window { start, end: start + size }).collect()
            }
            WindowSpec::Cumulate { size_ms: size, step_ms: step, offset_ms: offset } => (-400..400)
                .flat_map(|n| (1..=size / step).map(move |steps| (n * size + offset, steps)))
                .map(|(start, steps)| Window { start, end: start + steps * step })
                .collect(),
            _ => panic!("{spec:?} does not overlap"),
        };
        all.into_iter().filter(|window| window.start <= slice.start && slice.end <= window.end).collect()
    }

    fn series() -> impl Strategy<Value = (WindowSpec, Series)> {
        let sliding = (1i64..12, 0i64..20, 0i64..12).prop_map(|(slide_ms, more, offset)| WindowSpec::Sliding {
            size_ms: slide_ms + more,
            slide_ms,
            offset_ms: offset % slide_ms,
        });
        let cumulate = (1i64..8, 1i64..8, 0i64..64).prop_map(|(step_ms, steps, offset)| WindowSpec::Cumulate {
            size_ms: step_ms * steps,
            step_ms,
            offset_ms: offset % (step_ms * steps),
        });
        let slices = |spec: &WindowSpec| {
            let (size, offset) = spec.slices().expect("there are slices");
            Grid::new(size, offset, None)
        };
        prop_oneof![sliding, cumulate]
            .prop_map(move |spec| (spec.clone(), Series::of(&spec, slices(&spec)).expect("they overlap")))
    }

    proptest! {
        #[test]
        fn windows_of_a_slice_are_those_of_the_model((spec, series) in series(), time in -150i64..150, watermark in -200i64..200) {
            let (size, offset) = spec.slices().expect("there are slices");
            let start = grid_floor(time, size, offset);
            let slice = Window { start, end: start + size };
            let all = naive(&spec, slice);
            prop_assert_eq!(Some(&series.last(slice)), all.iter().max());
            let next = all.iter().filter(|window| !window.has_fired(watermark)).min();
            prop_assert_eq!(series.first_after(slice, watermark), next.copied());
            prop_assert_eq!(series.first_after(slice, i64::MAX), None);
            let mut sorted = all.clone();
            sorted.sort();
            prop_assert_eq!(series.after(slice, i64::MIN).collect::<Vec<_>>(), sorted.clone());
            sorted.retain(|window| !window.has_fired(watermark));
            prop_assert_eq!(series.after(slice, watermark).collect::<Vec<_>>(), sorted);
            prop_assert_eq!(series.first_after(slice, i64::MIN), all.iter().min().copied());
        }
    }
}
