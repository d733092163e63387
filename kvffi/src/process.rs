//! What should be in the environment before NIXL is loaded.

/// Sets the process defaults when the library is loaded, which is mostly before there are other threads.
#[ctor::ctor(unsafe)]
fn at_load() {
    // SAFETY: before `main`, or inside `dlopen`: the header says what that asks of other threads.
    unsafe { kvnixl::library::set_process_defaults() }
}

/// Does nothing. A linker takes from an archive what is called, and this brings [`at_load`] along.
#[inline(never)]
pub(crate) fn is_linked() {}
