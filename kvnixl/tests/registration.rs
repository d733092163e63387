//! What an agent has registered: memory that has to be there, on NIXL and on a loopback.

mod common;

use common::{Memory, Via, nixl, plan};
use kvnixl::{Agent, Error, Limits, LoopbackNetwork};

const PAGE: usize = 4096;
const LEN: usize = 16 * PAGE;

/// An agent on a loopback and one on NIXL.
fn agents() -> [Agent; 2] {
    [Agent::loopback("decode", &LoopbackNetwork::new(), Limits::default()).unwrap(), nixl("decode", Via::Default)]
}

/// Pages of its own mapping.
struct Pages(*mut libc::c_void);

impl Pages {
    fn new() -> Self {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), LEN, protection, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        Self(base)
    }

    fn base(&self) -> u64 {
        self.0.expose_provenance() as u64
    }

    /// Changes what may be done with one page.
    fn protect(&self, page: usize, protection: libc::c_int) {
        // SAFETY: a page of this mapping, which nobody touches.
        assert_eq!(unsafe { libc::mprotect(self.0.byte_add(page * PAGE), PAGE, protection) }, 0);
    }

    fn unmap(&self, page: usize) {
        // SAFETY: as above.
        assert_eq!(unsafe { libc::munmap(self.0.byte_add(page * PAGE), PAGE) }, 0);
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: nothing is registered there any more, or the process is about to end.
        unsafe { libc::munmap(self.0, LEN) };
    }
}

#[test]
fn memory_that_is_not_mapped_readable_and_writable_is_refused_by_its_first_bad_page() {
    for agent in agents() {
        let pages = Pages::new();
        let refused = |page: usize, expected: Option<&str>| {
            // SAFETY: nothing is transferred.
            let error = unsafe { agent.register(&plan(pages.base(), LEN)) }.unwrap_err();
            let Error::NotMapped { range, page: found, permissions } = &error else { panic!("{error}") };
            assert_eq!((range.base, *found), (pages.base(), pages.base() + (page * PAGE) as u64));
            assert_eq!(permissions.as_deref(), expected);
            let text = format!("of storage 0 (Dram): its page at {found:#x} is");
            assert!(error.to_string().contains(&text), "{error}");
            assert_eq!(agent.generation(), 0, "nothing was registered");
        };
        pages.unmap(15);
        refused(15, None);
        pages.protect(8, libc::PROT_NONE);
        refused(8, Some("---p"));
        pages.protect(5, libc::PROT_READ);
        refused(5, Some("r--p"));
        pages.protect(4, libc::PROT_WRITE);
        refused(4, Some("-w-p"));
        // What is left is as good as any.
        // SAFETY: nothing is transferred.
        unsafe { agent.register(&plan(pages.base(), 4 * PAGE)) }.unwrap();
        agent.deregister().unwrap();
    }
}

#[test]
fn memory_that_spans_mappings_is_registered() {
    for agent in agents() {
        let pages = Pages::new();
        // Splits the mapping in two, which a range may span.
        // SAFETY: anonymous memory that nobody touches.
        let advised = unsafe { libc::madvise(pages.0.byte_add(8 * PAGE), PAGE, libc::MADV_DONTFORK) };
        assert_eq!(advised, 0);
        // SAFETY: nothing is transferred.
        unsafe { agent.register(&plan(pages.base(), LEN)) }.unwrap();
        agent.deregister().unwrap();
    }
}

#[test]
fn memory_that_ends_inside_a_page_is_registered() {
    for agent in agents() {
        let memory = Memory::new(LEN + 1024, 1);
        // SAFETY: nothing is transferred.
        unsafe { agent.register(&plan(memory.base() + 512, LEN)) }.unwrap();
        agent.deregister().unwrap();
    }
}
