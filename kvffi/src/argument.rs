//! Pointers from C become references and slices, or an error that names the argument.

use std::ffi::{CStr, c_char};
use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::failure::Failure;
use crate::status::{KVFFI_ERR_BUFFER_TOO_SMALL, KVFFI_ERR_NOT_UTF8, KVFFI_ERR_TOO_LARGE};

/// Space in C for one result.
#[derive(Debug)]
pub(crate) struct Out<'a, T>(NonNull<T>, PhantomData<&'a mut T>);

impl<T> Out<'_, T> {
    pub(crate) fn set(&self, value: T) {
        // SAFETY: `out` checked that the pointer is not NULL and aligned; by its contract it is writable. Nothing is
        // read or dropped, so that the space may be uninitialised.
        unsafe { self.0.as_ptr().write(value) }
    }
}

/// Where a call leaves a result.
///
/// # Safety
///
/// `pointer` is NULL or writable for one `T` during `'a`.
pub(crate) unsafe fn out<'a, T>(pointer: *mut T, argument: &str) -> Result<Out<'a, T>, Failure> {
    let pointer = NonNull::new(pointer).ok_or_else(|| Failure::null(argument))?;
    check_aligned(pointer.as_ptr(), argument)?;
    Ok(Out(pointer, PhantomData))
}

/// Where a call leaves a result that the caller may not want: NULL if so.
///
/// # Safety
///
/// As for [`out`].
pub(crate) unsafe fn out_optional<'a, T>(pointer: *mut T, argument: &str) -> Result<Option<Out<'a, T>>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: by contract.
    unsafe { out(pointer, argument) }.map(Some)
}

/// Where a call leaves a handle; NULL until it does.
///
/// # Safety
///
/// As for [`out`].
pub(crate) unsafe fn out_handle<'a, C>(pointer: *mut *mut C, argument: &str) -> Result<Out<'a, *mut C>, Failure> {
    // SAFETY: by contract.
    let out = unsafe { out(pointer, argument)? };
    out.set(std::ptr::null_mut());
    Ok(out)
}

/// An array of `len` values; NULL is fine when it is empty.
///
/// # Safety
///
/// `pointer` is NULL or readable for `len` initialised `T` that nobody changes during `'a`.
pub(crate) unsafe fn array<'a, T>(pointer: *const T, len: usize, argument: &str) -> Result<&'a [T], Failure> {
    if len == 0 {
        return Ok(&[]);
    }
    check_array::<T>(pointer, len, argument)?;
    // SAFETY: not NULL, aligned and of a possible length as just checked; the rest by contract.
    Ok(unsafe { std::slice::from_raw_parts(pointer, len) })
}

/// An array of UTF-8 text with its length.
///
/// # Safety
///
/// As for [`array`].
pub(crate) unsafe fn text<'a>(pointer: *const c_char, len: usize, argument: &str) -> Result<&'a str, Failure> {
    // SAFETY: by contract; `c_char` and `u8` have the same layout.
    let bytes = unsafe { array(pointer.cast::<u8>(), len, argument)? };
    utf8(bytes, argument)
}

/// A text that ends with a NUL; `None` for NULL.
///
/// # Safety
///
/// `pointer` is NULL or points to a text that ends with a NUL and that nobody changes during `'a`.
pub(crate) unsafe fn optional_name<'a>(pointer: *const c_char, argument: &str) -> Result<Option<&'a str>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: not NULL as just checked, the rest by contract.
    let bytes = unsafe { CStr::from_ptr(pointer) }.to_bytes();
    utf8(bytes, argument).map(Some)
}

/// A text that ends with a NUL.
///
/// # Safety
///
/// As for [`optional_name`].
pub(crate) unsafe fn name<'a>(pointer: *const c_char, argument: &str) -> Result<&'a str, Failure> {
    // SAFETY: by contract.
    unsafe { optional_name(pointer, argument)? }.ok_or_else(|| Failure::null(argument))
}

fn utf8<'a>(bytes: &'a [u8], argument: &str) -> Result<&'a str, Failure> {
    std::str::from_utf8(bytes).map_err(|error| {
        Failure::new(KVFFI_ERR_NOT_UTF8, format!("{argument} is not UTF-8 at byte {}", error.valid_up_to()))
    })
}

/// Copies all results into the caller's array and says how many there are; nothing is copied if they do not fit.
///
/// # Safety
///
/// `array` is NULL or writable for `capacity` values; `out_len` as for [`out`].
pub(crate) unsafe fn copy_out<T>(
    values: impl ExactSizeIterator<Item = T>,
    array: *mut T,
    capacity: usize,
    out_len: &Out<'_, usize>,
    argument: &str,
) -> Result<(), Failure> {
    let len = values.len();
    // SAFETY: by contract.
    let fits = unsafe { fill(array, capacity, values, argument)? };
    out_len.set(len);
    if fits {
        return Ok(());
    }
    Err(Failure::new(KVFFI_ERR_BUFFER_TOO_SMALL, format!("{argument} has room for {capacity}, {len} are needed")))
}

/// Copies results into the caller's array of `capacity` values; returns whether they fit. Nothing is written otherwise.
///
/// # Safety
///
/// `pointer` is NULL or writable for `capacity` values.
unsafe fn fill<T>(
    pointer: *mut T,
    capacity: usize,
    values: impl ExactSizeIterator<Item = T>,
    argument: &str,
) -> Result<bool, Failure> {
    if capacity > 0 {
        check_array(pointer.cast_const(), capacity, argument)?;
    }
    if values.len() > capacity {
        return Ok(false);
    }
    for (i, value) in values.take(capacity).enumerate() {
        // SAFETY: `i < capacity`; not NULL, aligned and of a possible length as just checked; writable by contract.
        unsafe { pointer.add(i).write(value) };
    }
    Ok(true)
}

fn check_array<T>(pointer: *const T, len: usize, argument: &str) -> Result<(), Failure> {
    if pointer.is_null() {
        return Err(Failure::null(&format!("{argument} (with a length of {len})")));
    }
    check_aligned(pointer, argument)?;
    let bytes = len
        .checked_mul(size_of::<T>())
        .filter(|&bytes| bytes <= isize::MAX.unsigned_abs() && pointer.addr().checked_add(bytes).is_some());
    match bytes {
        Some(_) => Ok(()),
        None => Err(Failure::new(
            KVFFI_ERR_TOO_LARGE,
            format!("{argument} cannot have {len} elements of {} bytes, the address space ends before", size_of::<T>()),
        )),
    }
}

pub(crate) fn check_aligned<T>(pointer: *const T, argument: &str) -> Result<(), Failure> {
    if pointer.is_aligned() {
        return Ok(());
    }
    Err(Failure::invalid(format!("{argument} is not aligned to {} bytes", align_of::<T>())))
}
