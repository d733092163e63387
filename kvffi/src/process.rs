//! What must be in the environment before NIXL is loaded.

/// Sets the process defaults when the library is loaded, which is mostly before there are other threads. A linker may
/// leave this out of a program that is linked with the archive; loading NIXL sets them as well.
#[ctor::ctor(unsafe)]
fn at_load() {
    // SAFETY: before `main`, or inside `dlopen`: the header says what that asks of other threads.
    unsafe { kvnixl::library::set_process_defaults() }
}
