//! A table from dense keys to node indices that allocates pages only where there are entries, so that the cost of a
//! copy is proportional to the entries.

/// Marks the absence of an entry.
pub(super) const NONE: u32 = u32::MAX;

/// Keys per page. Large, because a copy costs a pointer for every page ever used; small, because it costs a whole page
/// wherever there is an entry.
const PAGE: usize = 512;

#[derive(Clone, Debug)]
struct KeyPage {
    entries: u32,
    slots: [u32; PAGE],
}

/// A map from keys to numbers, with [`NONE`] for keys that were not set.
#[derive(Clone, Debug, Default)]
pub(super) struct Pages {
    pages: Vec<Option<Box<KeyPage>>>,
}

impl Pages {
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.pages.iter().flatten().count() * PAGE
    }

    pub(super) fn get(&self, key: u32) -> u32 {
        match self.pages.get(key as usize / PAGE) {
            Some(Some(page)) => page.slots[key as usize % PAGE],
            _ => NONE,
        }
    }

    /// Inserts `value` (not [`NONE`]) if `key` has no entry; otherwise returns its entry.
    pub(super) fn get_or_insert(&mut self, key: u32, value: u32) -> Option<u32> {
        let page = self.page(key);
        let slot = &mut page.slots[key as usize % PAGE];
        if *slot != NONE {
            return Some(*slot);
        }
        *slot = value;
        page.entries += 1;
        None
    }

    /// Sets the entry to `value`; [`NONE`] removes it. Returns the previous entry.
    pub(super) fn set(&mut self, key: u32, value: u32) -> u32 {
        if value == NONE {
            return self.remove(key);
        }
        match self.get_or_insert(key, value) {
            Some(before) => {
                self.page(key).slots[key as usize % PAGE] = value;
                before
            }
            None => NONE,
        }
    }

    /// Replaces `value` by `next` if `value` is the entry of `key`; [`NONE`] as `next` removes the entry.
    pub(super) fn replace(&mut self, key: u32, value: u32, next: u32) -> bool {
        let index = key as usize / PAGE;
        let Some(Some(page)) = self.pages.get_mut(index) else { return false };
        let slot = &mut page.slots[key as usize % PAGE];
        if *slot != value {
            return false;
        }
        *slot = next;
        if next == NONE {
            page.entries -= 1;
            if page.entries == 0 {
                self.pages[index] = None;
            }
        }
        true
    }

    #[inline]
    fn page(&mut self, key: u32) -> &mut KeyPage {
        let index = key as usize / PAGE;
        if index >= self.pages.len() {
            self.pages.resize(index + 1, None);
        }
        self.pages[index].get_or_insert_with(|| Box::new(KeyPage { entries: 0, slots: [NONE; PAGE] }))
    }

    fn remove(&mut self, key: u32) -> u32 {
        let value = self.get(key);
        if value != NONE {
            self.replace(key, value, NONE);
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_and_go_with_their_pages() {
        let mut table = Pages::default();
        assert_eq!(table.get(5), NONE);
        assert_eq!(table.set(5, 1), NONE);
        assert_eq!(table.get_or_insert(5, 9), Some(1));
        assert_eq!(table.get_or_insert(70_000, 2), None);
        assert_eq!((table.get(5), table.get(70_000), table.get(6)), (1, 2, NONE));
        assert_eq!(table.set(5, 3), 1);
        assert_eq!(table.get(5), 3);
        assert_eq!(table.set(5, NONE), 3);
        assert_eq!(table.set(5, NONE), NONE);
        assert_eq!(table.get(5), NONE);
        assert!(table.pages[0].is_none(), "an empty page is freed");
    }
}
