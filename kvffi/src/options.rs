//! Structs that grow: `size_t struct_size` first, new fields at the end, zero means default.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::time::Duration;

use crate::argument::check_aligned;
use crate::failure::Failure;
use crate::status::KVFFI_ERR_STRUCT_SIZE;

/// A struct of C that starts with `size_t struct_size` and is valid when all its bytes are 0.
///
/// # Safety
///
/// `repr(C)`, a multiple of 8 bytes without padding, `usize` first, every bit pattern valid.
pub(crate) unsafe trait Grows: Copy {
    /// Its name in C.
    const NAME: &'static str;
    /// Bytes that it had when it was first released. Nobody has a smaller one, and the number never changes.
    const FIRST_SIZE: usize;
}

/// Milliseconds, or what is already there for 0.
pub(crate) fn set_duration(duration: &mut Duration, ms: u64) {
    if ms > 0 {
        *duration = Duration::from_millis(ms);
    }
}

/// A number, or what is already there for 0.
pub(crate) fn set_count(count: &mut usize, value: u64) {
    // `usize` has 64 bits here: lib.rs asserts it.
    if let Some(value) = usize::try_from(value).ok().filter(|value| *value > 0) {
        *count = value;
    }
}

/// A number of bytes, or what is already there for 0.
pub(crate) fn set_bytes(bytes: &mut u64, value: u64) {
    if value > 0 {
        *bytes = value;
    }
}

/// Larger than any version of any struct will be; a longer `struct_size` was never set.
const MAX_SIZE: usize = 4096;
const WORD: usize = size_of::<usize>();

/// Reads a struct that may be from an older or a newer header than this library.
///
/// What an older one lacks is 0. One that is shorter than any version was is an error. What a newer one has beyond this version must be 0: a setting that would be silently
/// ignored is an error.
///
/// # Safety
///
/// `pointer` is NULL or readable for as many bytes as its first field says, which nobody changes during the call.
pub(crate) unsafe fn read<T: Grows>(pointer: *const T, argument: &str) -> Result<T, Failure> {
    if pointer.is_null() {
        return Err(Failure::null(argument));
    }
    check_aligned(pointer, argument)?;
    let words: *const usize = pointer.cast();
    // SAFETY: not NULL and aligned as just checked; the first field is a `usize` by the contract of `Grows`.
    let size = unsafe { struct_size::<T>(words, argument)? };
    let known = size.min(size_of::<T>());
    for word in known / WORD..size / WORD {
        // SAFETY: `word` lies inside the `size` bytes that are readable by contract.
        if unsafe { words.add(word).read() } != 0 {
            return Err(Failure::new(
                KVFFI_ERR_STRUCT_SIZE,
                format!(
                    "{argument}: the field at byte {} of {} is set, but this library knows its first {} bytes; use a \
                     newer library or leave the field 0",
                    word * WORD,
                    T::NAME,
                    size_of::<T>()
                ),
            ));
        }
    }
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: `known` bytes are readable by contract and fit into `value`; every bit pattern is valid by the contract of
    // `Grows`.
    unsafe {
        std::ptr::copy_nonoverlapping(pointer.cast::<u8>(), value.as_mut_ptr().cast::<u8>(), known);
        Ok(value.assume_init())
    }
}

/// A struct of the caller's that a call fills, as far as the caller's header knows it.
#[derive(Debug)]
pub(crate) struct OutStruct<'a, T> {
    pointer: *mut T,
    size: usize,
    caller: PhantomData<&'a mut T>,
}

impl<T: Grows> OutStruct<'_, T> {
    /// Fills the struct: `struct_size` stays, and fields that only a newer header has become 0.
    pub(crate) fn set(&self, value: &T) {
        let known = self.size.min(size_of::<T>());
        let (from, to): (*const u8, *mut u8) = ((&raw const *value).cast(), self.pointer.cast());
        // SAFETY: `size` bytes are writable by the contract of `out_struct`, and `WORD <= known <= size`; `value` has no
        // padding by the contract of `Grows`.
        unsafe {
            std::ptr::copy_nonoverlapping(from.add(WORD), to.add(WORD), known - WORD);
            std::ptr::write_bytes(to.add(known), 0, self.size - known);
        }
    }
}

/// A struct that a call fills.
///
/// # Safety
///
/// `pointer` is NULL or points to an initialised `struct_size`, and is writable for as many bytes as that says.
pub(crate) unsafe fn out_struct<'a, T: Grows>(pointer: *mut T, argument: &str) -> Result<OutStruct<'a, T>, Failure> {
    if pointer.is_null() {
        return Err(Failure::null(argument));
    }
    check_aligned(pointer, argument)?;
    // SAFETY: not NULL and aligned as just checked; the first field is a `usize` by the contract of `Grows`.
    let size = unsafe { struct_size::<T>(pointer.cast(), argument)? };
    Ok(OutStruct { pointer, size, caller: PhantomData })
}

/// # Safety
///
/// `words` is readable for one word.
unsafe fn struct_size<T: Grows>(words: *const usize, argument: &str) -> Result<usize, Failure> {
    const { assert!(T::FIRST_SIZE >= WORD && T::FIRST_SIZE.is_multiple_of(WORD) && T::FIRST_SIZE <= size_of::<T>()) }
    // SAFETY: by contract.
    let size = unsafe { words.read() };
    let is_of_a_version = size >= T::FIRST_SIZE && size.is_multiple_of(WORD) && size <= MAX_SIZE;
    if is_of_a_version {
        return Ok(size);
    }
    // A pointer's size, the common slip, would else pass for a version that lacks almost every field.
    Err(Failure::new(
        KVFFI_ERR_STRUCT_SIZE,
        format!(
            "{argument}: struct_size {size} is no size of {}, whose first version has {} bytes and this library's {}; \
             initialise it with its _INIT macro",
            T::NAME,
            T::FIRST_SIZE,
            size_of::<T>()
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Sample {
        struct_size: usize,
        a: u64,
        b: u64,
    }

    // SAFETY: as the trait asks.
    unsafe impl Grows for Sample {
        const NAME: &'static str = "sample";
        const FIRST_SIZE: usize = 16;
    }

    fn read_words(words: &[u64]) -> Result<Sample, Failure> {
        // SAFETY: the tests keep `words[0]` within the slice.
        unsafe { read(words.as_ptr().cast::<Sample>(), "options") }
    }

    #[test]
    fn a_short_struct_has_defaults_for_what_it_lacks() {
        assert_eq!(read_words(&[16, 5, 99]).unwrap(), Sample { struct_size: 16, a: 5, b: 0 });
        assert_eq!(read_words(&[24, 5, 99]).unwrap(), Sample { struct_size: 24, a: 5, b: 99 });
    }

    #[test]
    fn a_long_struct_is_fine_while_the_rest_is_zero() {
        assert_eq!(read_words(&[32, 5, 6, 0]).unwrap(), Sample { struct_size: 32, a: 5, b: 6 });
        let error = read_words(&[32, 5, 6, 7]).unwrap_err();
        assert_eq!(error.status, KVFFI_ERR_STRUCT_SIZE);
        assert!(error.message.contains("the field at byte 24 of sample is set"), "{}", error.message);
    }

    #[test]
    fn a_struct_is_filled_as_far_as_the_caller_knows_it() {
        let value = Sample { struct_size: 0, a: 5, b: 6 };
        for (size, expected) in [(16, [16, 5, 9, 9]), (24, [24, 5, 6, 9]), (32, [32, 5, 6, 0])] {
            let mut words = [size, 9, 9, 9_u64];
            // SAFETY: `words` has as many bytes as its first says.
            unsafe { out_struct::<Sample>(words.as_mut_ptr().cast(), "out") }.unwrap().set(&value);
            assert_eq!(words, expected);
        }
        let mut words = [7_u64, 9];
        // SAFETY: as above.
        let refused = unsafe { out_struct::<Sample>(words.as_mut_ptr().cast(), "out") };
        assert_eq!(refused.unwrap_err().status, KVFFI_ERR_STRUCT_SIZE);
    }

    #[test]
    fn a_size_that_no_version_has_is_refused() {
        for size in [0, 1, 7, 8, 9, 15, 23, 1 << 40] {
            let error = read_words(&[size, 0, 0]).unwrap_err();
            assert_eq!(error.status, KVFFI_ERR_STRUCT_SIZE, "{size}");
            let expected = format!(
                "options: struct_size {size} is no size of sample, whose first version has 16 bytes and this library's 24; \
                 initialise it with its _INIT macro"
            );
            assert_eq!(error.message, expected);
        }
    }
}
