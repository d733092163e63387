//! Whether device memory can be used, asked without linking CUDA.

use std::os::raw::{c_int, c_uint};

use kvspec::MemKind;
use libloading::os::unix::Library;

use crate::error::{Error, Result};

/// Checks that a CUDA driver is installed and has the device.
pub(crate) fn check(mem: MemKind) -> Result<()> {
    let MemKind::Vram(device) = mem else { return Ok(()) };
    let num_devices = num_devices().map_err(|why| Error::NoDevice { mem, why })?;
    if device >= num_devices {
        return Err(Error::NoDevice { mem, why: format!("the CUDA driver has {num_devices} devices") });
    }
    Ok(())
}

fn num_devices() -> Result<u32, String> {
    // SAFETY: loading the driver runs its initialisers only.
    let driver = unsafe { Library::new("libcuda.so.1") };
    let driver = driver.map_err(|_| "no CUDA driver (libcuda.so.1) is installed".to_owned())?;
    let missing = |error: libloading::Error| format!("the CUDA driver is unusable: {error}");
    let failed = |status: c_int| format!("the CUDA driver is unusable: error {status}");
    // SAFETY: the signatures are those of the driver API, stable since CUDA 2.
    let (init, count) = unsafe {
        (
            driver.get::<unsafe extern "C" fn(c_uint) -> c_int>(b"cuInit\0").map_err(missing)?,
            driver.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"cuDeviceGetCount\0").map_err(missing)?,
        )
    };
    let mut num_devices = 0;
    // SAFETY: cuInit takes 0; the count is written to a live integer.
    let status = unsafe {
        match init(0) {
            0 => count(&raw mut num_devices),
            status => status,
        }
    };
    // Initialised drivers are not unloaded.
    std::mem::forget(driver);
    if status != 0 {
        return Err(failed(status));
    }
    u32::try_from(num_devices).map_err(|_| failed(status))
}
