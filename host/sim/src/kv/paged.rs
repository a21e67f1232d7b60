//! A table from dense keys to node numbers whose copies share what has not changed since.

use std::sync::Arc;

/// No entry.
pub(super) const NONE: u32 = u32::MAX;

const PAGE: usize = 512;

/// Key → number, [`NONE`] where nothing was set. A copy costs one pointer per 512 keys.
#[derive(Clone, Debug, Default)]
pub(super) struct Pages {
    pages: Vec<Option<Arc<[u32; PAGE]>>>,
}

impl Pages {
    pub(super) fn get(&self, key: u32) -> u32 {
        match self.pages.get(key as usize / PAGE) {
            Some(Some(page)) => page[key as usize % PAGE],
            _ => NONE,
        }
    }

    pub(super) fn set(&mut self, key: u32, value: u32) {
        let index = key as usize / PAGE;
        if index >= self.pages.len() {
            self.pages.resize(index + 1, None);
        }
        let page = self.pages[index].get_or_insert_with(|| Arc::new([NONE; PAGE]));
        Arc::make_mut(page)[key as usize % PAGE] = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_keeps_its_own_values() {
        let mut table = Pages::default();
        assert_eq!(table.get(5), NONE);
        table.set(5, 1);
        table.set(70_000, 2);
        let copy = table.clone();
        table.set(5, 3);
        assert_eq!((table.get(5), table.get(70_000), table.get(6)), (3, 2, NONE));
        assert_eq!(copy.get(5), 1);
    }
}
