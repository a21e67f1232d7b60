//! A table from dense keys to node numbers that holds pages only where there are entries, so that
//! a copy costs what is in it.

/// No entry.
pub(super) const NONE: u32 = u32::MAX;

/// Large, because a copy pays for a pointer per page that ever was; small, because it pays for
/// whole pages where there are entries.
const PAGE: usize = 512;

#[derive(Clone, Debug)]
struct Page {
    entries: u32,
    slots: [u32; PAGE],
}

/// Key → number, [`NONE`] where nothing was set.
#[derive(Clone, Debug, Default)]
pub(super) struct Pages {
    pages: Vec<Option<Box<Page>>>,
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

    /// Enters `value` (not [`NONE`]) if `key` has no entry; else returns the entry it has.
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

    /// Enters `value`, or with [`NONE`] removes the entry. Returns the entry there was.
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

    /// Puts `next` in the place of `value`, if that is the entry of `key`; [`NONE`] removes it.
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
    fn page(&mut self, key: u32) -> &mut Page {
        let index = key as usize / PAGE;
        if index >= self.pages.len() {
            self.pages.resize(index + 1, None);
        }
        self.pages[index].get_or_insert_with(|| Box::new(Page { entries: 0, slots: [NONE; PAGE] }))
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
        assert!(table.pages[0].is_none(), "an empty page goes");
    }
}
