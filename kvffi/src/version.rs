//! Versions: of the header that a program was compiled with, and of the library that it runs with.

use std::ffi::{CStr, c_char};

use crate::boundary::{ffi_body, ffi_value};
use crate::error::kvffi_error;
use crate::failure::Failure;
use crate::status::{KVFFI_ERR_VERSION, kvffi_status};

/// Major version of this header.
pub const KVFFI_VERSION_MAJOR: u32 = 0;
/// Minor version of this header.
pub const KVFFI_VERSION_MINOR: u32 = 1;
/// Patch version of this header.
pub const KVFFI_VERSION_PATCH: u32 = 0;
/// Version of this header as one number that grows: major in bits 31 to 16, minor in 15 to 8, patch in 7 to 0.
pub const KVFFI_VERSION: u32 = (KVFFI_VERSION_MAJOR << 16) | (KVFFI_VERSION_MINOR << 8) | KVFFI_VERSION_PATCH;

const TEXT: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(text) => text,
    // While compiling: no program can get here.
    Err(_) => panic!("a version has no NUL"),
};

/// Version of the library that is loaded, packed as KVFFI_VERSION is.
///
/// Threads: any number at once.
#[unsafe(no_mangle)]
pub extern "C" fn kvffi_version() -> u32 {
    ffi_value!(0, { KVFFI_VERSION })
}

/// Version of the library that is loaded, as text such as "0.1.0". The text is static.
///
/// Threads: any number at once.
#[unsafe(no_mangle)]
pub extern "C" fn kvffi_version_text() -> *const c_char {
    ffi_value!(c"".as_ptr(), { TEXT.as_ptr() })
}

/// Whether a program that was compiled with a header can use the library that is loaded. Call it once at start, with
/// KVFFI_VERSION:
///
///     kvffi_status status = kvffi_abi_check(KVFFI_VERSION, &error);
///
/// header_version: KVFFI_VERSION of the header.
///
/// KVFFI_ERR_VERSION if the library is of another major version (before 1.0: of another minor version) or older than
/// the header. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_abi_check(header_version: u32, out_error: *mut *mut kvffi_error) -> kvffi_status {
    ffi_body!(out_error, { fits(header_version, KVFFI_VERSION) })
}

fn fits(header: u32, library: u32) -> Result<(), Failure> {
    let major = |version: u32| version >> 16;
    // What must be equal: before 1.0 the minor version too.
    let line = |version: u32| if major(version) == 0 { version >> 8 } else { major(version) << 8 };
    if line(header) == line(library) && header <= library {
        return Ok(());
    }
    let text = |version: u32| format!("{}.{}.{}", major(version), (version >> 8) & 0xff, version & 0xff);
    Err(Failure::new(
        KVFFI_ERR_VERSION,
        format!(
            "the program was compiled with the header of {} and runs with the library {}; install a library of the \
             same line that is not older, or compile again",
            text(header),
            text(library)
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_numbers_equal_the_manifest() {
        let packed = format!("{KVFFI_VERSION_MAJOR}.{KVFFI_VERSION_MINOR}.{KVFFI_VERSION_PATCH}");
        assert_eq!(packed, env!("CARGO_PKG_VERSION"));
        assert_eq!(TEXT.to_str(), Ok(env!("CARGO_PKG_VERSION")));
        const { assert!(KVFFI_VERSION_MINOR < 256 && KVFFI_VERSION_PATCH < 256) };
    }

    #[test]
    fn a_library_serves_headers_of_its_line_that_are_not_newer() {
        let pack = |major: u32, minor: u32, patch: u32| (major << 16) | (minor << 8) | patch;
        assert!(fits(pack(1, 2, 3), pack(1, 2, 3)).is_ok());
        assert!(fits(pack(1, 2, 3), pack(1, 3, 0)).is_ok());
        assert!(fits(pack(1, 3, 0), pack(1, 2, 3)).is_err());
        assert!(fits(pack(1, 9, 0), pack(2, 0, 0)).is_err());
        assert!(fits(pack(0, 1, 0), pack(0, 1, 1)).is_ok());
        assert!(fits(pack(0, 1, 0), pack(0, 2, 0)).is_err());
        assert!(fits(pack(0, 1, 0), pack(1, 0, 0)).is_err());
    }
}
