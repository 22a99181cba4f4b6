//! Which pages are in use, and by how many sequences.

/// The number of a page in the key and value buffers.
pub(super) type PageId = u32;

/// Reference counts of a fixed number of pages.
///
/// Pages that were never used come last and in order, so that memory is touched only as far as it is needed.
#[derive(Debug)]
pub(super) struct PagePool {
    references: Vec<u32>,
    freed: Vec<PageId>,
    capacity: usize,
}

impl PagePool {
    /// A pool of `capacity` free pages.
    pub(super) fn new(capacity: usize) -> Self {
        Self { references: Vec::new(), freed: Vec::new(), capacity }
    }

    /// A page with one reference, or `None` when all are in use.
    pub(super) fn allocate(&mut self) -> Option<PageId> {
        if let Some(page) = self.freed.pop() {
            self.references[page as usize] = 1;
            return Some(page);
        }
        if self.references.len() == self.capacity {
            return None;
        }
        self.references.push(1);
        Some((self.references.len() - 1) as PageId)
    }

    /// Adds a reference to a page in use.
    pub(super) fn retain(&mut self, page: PageId) {
        self.references[page as usize] += 1;
    }

    /// Drops a reference; the last one frees the page.
    pub(super) fn release(&mut self, page: PageId) {
        let references = &mut self.references[page as usize];
        *references -= 1;
        if *references == 0 {
            self.freed.push(page);
        }
    }

    /// Whether more than one sequence holds the page.
    pub(super) fn is_shared(&self, page: PageId) -> bool {
        self.references[page as usize] > 1
    }

    /// Pages that can still be allocated.
    pub(super) fn available(&self) -> usize {
        self.capacity - self.used()
    }

    /// Pages with a reference.
    pub(super) fn used(&self) -> usize {
        self.references.len() - self.freed.len()
    }

    /// All pages.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }
}

#[cfg(test)]
mod tests {
    use super::PagePool;

    #[test]
    fn freed_pages_come_before_untouched_ones() {
        let mut pool = PagePool::new(3);
        assert_eq!((pool.allocate(), pool.allocate()), (Some(0), Some(1)));
        pool.release(0);
        assert_eq!((pool.allocate(), pool.allocate(), pool.allocate()), (Some(0), Some(2), None));
    }

    #[test]
    fn shared_page_is_freed_with_its_last_reference() {
        let mut pool = PagePool::new(1);
        let page = pool.allocate().expect("one page");
        pool.retain(page);
        assert!(pool.is_shared(page));
        pool.release(page);
        assert!(!pool.is_shared(page) && pool.available() == 0);
        pool.release(page);
        assert_eq!((pool.used(), pool.available()), (0, 1));
    }
}
