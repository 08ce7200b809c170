//! What a cold store has of a list: enough to write only what is new of it.
//!
//! An element's place in the store does not change while its list is there: appending writes elements behind those that are
//! written, whatever went away before them. Must never know what an element is. Invariant: the first `len` elements stand in the
//! store as they are, from place `first` on, and unless `others` is set nothing else does that has not expired.

/// What the store has of one list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct StoredList {
    /// The place in the store of the list's first element.
    pub(super) first: i64,
    /// Elements, from the first one on, that the store has as they are, or need not have: they have expired.
    pub(super) len: usize,
    /// The store may have elements that are not the list's. They go before the list is written again, all of it.
    pub(super) others: bool,
    /// The store may have further elements of the list, which stand where they will be written.
    more: bool,
}

impl StoredList {
    /// Of a list without elements in memory: those that are added get the places from `next` on, behind what the store has.
    pub(super) fn behind(next: i64) -> Self {
        Self { first: next, ..Self::default() }
    }

    /// Elements came in before the first one, which the store has at these places.
    pub(super) fn preceded(&mut self, places: &[i64]) {
        let Some(first) = places.first() else { return };
        let is_contiguous = places.iter().zip(*first..).all(|(place, expected)| *place == expected);
        *self = match is_contiguous && first + places.len() as i64 == self.first {
            true => Self { first: *first, len: places.len() + self.len, ..*self },
            // Some between have expired and are gone. A list with holes is written anew when it changes.
            false => Self { others: true, ..Self::default() },
        };
    }

    /// Element `item` of the list came out of the store, where it stood at `place`.
    ///
    /// Contract: elements come in order.
    pub(super) fn loaded(&mut self, item: usize, place: i64) {
        if item == 0 {
            *self = Self { first: place, len: 1, ..Self::default() };
        } else if self.len == item && place == self.first + item as i64 {
            self.len += 1;
        } else {
            // Some between have expired and are gone. A list with holes is written anew when it changes.
            *self = Self { others: true, ..Self::default() };
        }
    }

    /// The list has no elements any more; `is_sending`: some may be on their way into the store.
    pub(super) fn emptied(&mut self, is_sending: bool) {
        *self = Self { others: self.others || self.more || self.len > 0 || is_sending, ..Self::default() };
    }

    /// The list's first elements have expired and are not in it any more. The store forgets them by itself.
    pub(super) fn dropped(&mut self, items: usize) {
        self.first += items as i64;
        self.len = self.len.saturating_sub(items);
    }

    /// The elements from `item` on have changed.
    pub(super) fn changed_from(&mut self, item: usize) {
        if item < self.len {
            self.len = item;
            self.more = true;
        }
    }

    /// The first elements, up to, not including, `to`, were sent as far as the store had not got them: they stand at the places from
    /// `first` on.
    pub(super) fn sent(&mut self, first: i64, to: usize) {
        *self = Self { first, len: to, ..Self::default() };
    }

    /// A copy of the list is on its way into the store, made before it changed.
    pub(super) fn copied(&mut self) {
        self.more = true;
    }

    /// The elements from `from` up to, not including, `to` were sent behind those before them.
    pub(super) fn sent_more(&mut self, from: usize, to: usize) {
        // Else some before them have changed since they were sent.
        if self.len == from {
            self.len = to;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_appended_is_all_that_is_new() {
        let mut list = StoredList::default();
        list.sent(0, 3);
        assert_eq!(list, StoredList { first: 0, len: 3, ..StoredList::default() });
        list.dropped(2);
        list.sent(2, 4);
        assert_eq!(list, StoredList { first: 2, len: 4, ..StoredList::default() });
        list.changed_from(1);
        assert_eq!(list.len, 1);
    }

    #[test]
    fn what_was_there_before_a_list_was_emptied_has_to_go() {
        let mut list = StoredList::default();
        list.emptied(false);
        assert!(!list.others, "the store never had anything");
        list.emptied(true);
        assert!(list.others, "what is on its way will be there");
        list.sent(0, 1);
        list.emptied(false);
        assert_eq!(list, StoredList { others: true, ..StoredList::default() });
        let mut copied = StoredList::default();
        copied.copied();
        copied.emptied(false);
        assert!(copied.others, "the copy is there");
        let mut changed = StoredList::default();
        changed.sent(0, 1);
        changed.changed_from(0);
        changed.emptied(false);
        assert!(changed.others, "what it was before it changed is there");
    }

    #[test]
    fn a_list_with_holes_is_written_anew() {
        let mut list = StoredList::default();
        (0..3).for_each(|item| list.loaded(item, 5 + item as i64));
        assert_eq!(list, StoredList { first: 5, len: 3, ..StoredList::default() });
        list.loaded(3, 9);
        list.loaded(4, 10);
        assert_eq!(list, StoredList { others: true, ..StoredList::default() });
    }

    #[test]
    fn what_the_store_has_before_the_end_of_a_list_counts_once_it_is_there() {
        let mut list = StoredList::behind(7);
        list.sent(7, 2);
        list.preceded(&[5, 6]);
        assert_eq!(list, StoredList { first: 5, len: 4, ..StoredList::default() });
        for holes in [[3, 6], [4, 5]] {
            let mut list = StoredList::behind(7);
            list.preceded(&holes);
            assert_eq!(list, StoredList { others: true, ..StoredList::default() });
        }
    }

    #[test]
    fn what_changed_while_it_was_sent_is_sent_again() {
        let mut list = StoredList::default();
        list.sent(0, 5);
        list.sent_more(5, 7);
        assert_eq!(list.len, 7);
        list.changed_from(2);
        list.sent_more(7, 9);
        assert_eq!(list.len, 2);
    }
}
