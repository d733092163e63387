//! Finding and loading NIXL, without ever aborting the process.
//!
//! `nixl-sys` loads `libnixl_capi.so` at its first call and aborts the process when the library, or a symbol
//! of it, is missing. So this module looks first: it opens the library itself, checks every symbol that is
//! used, and only then lets `nixl-sys` go on. Places, in order:
//!
//! 1. the path given to [`Library::load`], a file or the folder that holds it;
//! 2. the environment variable `KVNIXL_LIBRARY`, likewise;
//! 3. the dynamic loader (`LD_LIBRARY_PATH`, run paths, the system's cache);
//! 4. `/opt/nvidia/nvda_nixl`;
//! 5. an installed NIXL Python wheel (`nixl-cu12`, `nixl-cu13`): in `PYTHONPATH`, in `VIRTUAL_ENV`, and where
//!    `python3` says that packages lie.
//!
//! A path that is given (1, 2) is the only place looked at. A failed load changes nothing and can be tried
//! again; a successful one holds for the rest of the process.
//!
//! # Process defaults
//!
//! UCX, under NIXL, writes its log to standard output, which is data in many programs; `UCX_LOG_FILE=stderr` sends it
//! elsewhere. A program says so first of all in `main`, by [`set_process_defaults`]: loading changes nothing in the
//! environment, which other threads may be reading. UCX and NIXL read it when they are loaded, so set `UCX_*` and
//! `NIXL_*` variables before that.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use libloading::os::unix::{Library as Handle, RTLD_LOCAL, RTLD_NOW};

use crate::error::{Attempt, Attempts, Error, Result};

/// Environment variable that names the library or the folder that holds it.
pub const LIBRARY_VARIABLE: &str = "KVNIXL_LIBRARY";

const FILE_NAME: &str = "libnixl_capi.so";
const SYSTEM_PREFIX: &str = "/opt/nvidia/nvda_nixl";

/// Proof that NIXL is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    path: PathBuf,
}

static LOADED: Mutex<Option<Library>> = Mutex::new(None);

impl Library {
    /// Loads NIXL from `path`, or from where the module's documentation says when that is `None`.
    ///
    /// Blocks on the file system, and for up to a second on `python3` where nothing else had the library.
    ///
    /// # Errors
    ///
    /// [`Error::LibraryNotFound`] with the places looked at; [`Error::LibraryConflict`] when the process has
    /// loaded another one.
    pub fn load(path: Option<&Path>) -> Result<Self> {
        let mut loaded = LOADED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(library) = &*loaded {
            return match path {
                Some(asked) if !same_file(&library.path, &with_file_name(asked)) => {
                    Err(Error::LibraryConflict { loaded: library.path.clone(), asked: asked.to_owned() })
                }
                _ => Ok(library.clone()),
            };
        }
        let mut tried = Vec::new();
        for place in places(path) {
            match place.and_then(|place| open(&place).map_err(|why| Attempt { place: shown(&place), why })) {
                Ok(library) => {
                    tracing::info!(path = %library.path.display(), "loaded NIXL");
                    return Ok(loaded.insert(library).clone());
                }
                Err(attempt) => tried.push(attempt),
            }
        }
        Err(Error::LibraryNotFound { tried: Attempts(tried) })
    }

    /// Where the library was loaded from; the bare file name when the dynamic loader found it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn shown(place: &Path) -> String {
    if place == Path::new(FILE_NAME) {
        format!("{FILE_NAME} by the dynamic loader")
    } else {
        place.display().to_string()
    }
}

fn same_file(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}

/// `path`, or the library in it when it is a folder.
fn with_file_name(path: &Path) -> PathBuf {
    if path.is_dir() { path.join(FILE_NAME) } else { path.to_owned() }
}

/// Candidates, lazily: asking Python is slow. A place that has none is an attempt of its own.
fn places(explicit: Option<&Path>) -> Box<dyn Iterator<Item = Result<PathBuf, Attempt>>> {
    let given = explicit.map(Path::to_owned);
    let given = given.or_else(|| env::var_os(LIBRARY_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from));
    if let Some(path) = given {
        return Box::new(std::iter::once(Ok(with_file_name(&path))));
    }
    let loader = std::iter::once(Ok(PathBuf::from(FILE_NAME)));
    let system = [format!("lib/{}-linux-gnu", env::consts::ARCH), "lib64".to_owned(), "lib".to_owned()];
    let system = system.into_iter().map(|folder| Ok(Path::new(SYSTEM_PREFIX).join(folder).join(FILE_NAME)));
    let listed = env::var_os("PYTHONPATH").unwrap_or_default();
    let listed: Vec<PathBuf> = env::split_paths(&listed).filter(|path| !path.as_os_str().is_empty()).collect();
    let listed = listed.into_iter().flat_map(|site| wheels("PYTHONPATH", &site));
    let venv = env::var_os("VIRTUAL_ENV").filter(|venv| !venv.is_empty());
    let venv = venv.into_iter().flat_map(|venv| venv_wheels(Path::new(&venv)));
    let python = std::iter::once_with(python_sites).flat_map(|sites| match sites {
        Ok(sites) => sites.iter().flat_map(|site| wheels("python3", site)).collect(),
        Err(attempt) => vec![Err(attempt)],
    });
    Box::new(loader.chain(system).chain(listed).chain(venv).chain(python))
}

/// The libraries of NIXL wheels in a folder of Python packages.
fn wheels(from: &str, site: &Path) -> Vec<Result<PathBuf, Attempt>> {
    let is_wheel =
        |name: &OsStr| name.to_str().is_some_and(|name| name.starts_with(".nixl") && name.ends_with(".mesonpy.libs"));
    let found: Vec<_> = folders(site)
        .filter(|folder| folder.file_name().is_some_and(is_wheel))
        .map(|folder| Ok(folder.join(FILE_NAME)))
        .collect();
    if !found.is_empty() {
        return found;
    }
    vec![Err(Attempt { place: format!("{} ({from})", site.display()), why: "no NIXL wheel in it".to_owned() })]
}

/// The libraries of NIXL wheels in a virtual environment: `lib/python3.*/site-packages`.
fn venv_wheels(venv: &Path) -> Vec<Result<PathBuf, Attempt>> {
    let sites = folders(&venv.join("lib")).map(|folder| folder.join("site-packages")).filter(|site| site.is_dir());
    let found: Vec<_> = sites.flat_map(|site| wheels("VIRTUAL_ENV", &site)).collect();
    if !found.is_empty() {
        return found;
    }
    vec![Err(Attempt {
        place: format!("{} (VIRTUAL_ENV)", venv.display()),
        why: "no Python packages in it".to_owned(),
    })]
}

fn folders(path: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let mut entries: Vec<PathBuf> =
        path.read_dir().into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect();
    entries.sort();
    entries.into_iter()
}

/// Where `python3` looks for packages.
fn python_sites() -> Result<Vec<PathBuf>, Attempt> {
    let failed = |why: String| Attempt { place: "python3".to_owned(), why };
    let code = "import sys; print('\\n'.join(p for p in sys.path if p))";
    let output = Command::new("python3")
        .args(["-c", code])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .map_err(|error| failed(format!("cannot be run: {error}")))?;
    if !output.status.success() {
        return Err(failed(format!("ended with {}", output.status)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().map(PathBuf::from).filter(|path| path.is_dir()).collect())
}

/// Opens one candidate and makes sure that `nixl-sys` will use it.
fn open(path: &Path) -> Result<Library, String> {
    if path.components().count() > 1 && !path.exists() {
        return Err("no such file".to_owned());
    }
    // SAFETY: runs the initialisers of NIXL and UCX, which is what the caller asked for.
    let handle = unsafe { Handle::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(|error| described(&error))?;
    for symbol in SYMBOLS {
        // SAFETY: the symbol's address is only compared.
        let found = unsafe { handle.get::<unsafe extern "C" fn()>(symbol.as_bytes()) };
        if found.is_err() {
            return Err(format!("it lacks {symbol}; NIXL 1.5.1 or newer is needed"));
        }
    }
    // nixl-sys opens the library by its bare name: that must find the one just opened.
    // SAFETY: as above.
    let by_name = unsafe { Handle::open(Some(FILE_NAME), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD) };
    // SAFETY: addresses are only compared.
    let address = |handle: &Handle| unsafe {
        handle.get::<unsafe extern "C" fn()>(SYMBOLS[0].as_bytes()).map(|symbol| symbol.as_raw_ptr() as usize)
    };
    match by_name {
        Ok(by_name) if address(&by_name).ok() == address(&handle).ok() => {}
        _ => return Err(format!("its soname is not {FILE_NAME}")),
    }
    // nixl-sys remembers its first answer, so it is asked only now.
    if nixl_sys::is_stub() {
        return Err("nixl-sys looked for the library before kvnixl did and found none".to_owned());
    }
    // Never unloaded: NIXL and UCX leave threads and handlers behind.
    std::mem::forget(handle);
    Ok(Library { path: path.to_owned() })
}

/// Only if it is loaded already.
const RTLD_NOLOAD: std::os::raw::c_int = 4;

fn described(error: &libloading::Error) -> String {
    let text = match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    text.trim().to_owned()
}

/// Sets what should be in the environment before NIXL is loaded, see the module's documentation. Variables that are set
/// stay as they are, and so a second call does nothing. For the beginning of `main`, before there are other threads.
///
/// # Safety
///
/// No other thread reads or changes the environment through C at the same time. Rust's own accesses are serialised.
pub unsafe fn set_process_defaults() {
    const DEFAULTS: [(&str, &str); 1] = [("UCX_LOG_FILE", "stderr")];
    for (name, value) in DEFAULTS {
        if env::var_os(name).is_none() {
            // SAFETY: the caller's promise.
            unsafe { env::set_var(name, value) };
        }
    }
}

/// Every symbol that the calls of this crate resolve; a missing one would abort the process.
const SYMBOLS: [&str; 38] = [
    "nixl_capi_create_configured_agent",
    "nixl_capi_destroy_agent",
    "nixl_capi_get_local_md",
    "nixl_capi_load_remote_md",
    "nixl_capi_invalidate_remote_md",
    "nixl_capi_check_remote_md",
    "nixl_capi_create_params",
    "nixl_capi_params_add",
    "nixl_capi_destroy_params",
    "nixl_capi_create_backend",
    "nixl_capi_destroy_backend",
    "nixl_capi_create_opt_args",
    "nixl_capi_destroy_opt_args",
    "nixl_capi_opt_args_add_backend",
    "nixl_capi_create_reg_dlist",
    "nixl_capi_destroy_reg_dlist",
    "nixl_capi_reg_dlist_clear",
    "nixl_capi_reg_dlist_add_desc",
    "nixl_capi_register_mem",
    "nixl_capi_deregister_mem",
    "nixl_capi_create_xfer_dlist",
    "nixl_capi_destroy_xfer_dlist",
    "nixl_capi_xfer_dlist_clear",
    "nixl_capi_xfer_dlist_add_desc",
    "nixl_capi_create_xfer_req",
    "nixl_capi_post_xfer_req",
    "nixl_capi_get_xfer_status",
    "nixl_capi_release_xfer_req",
    "nixl_capi_destroy_xfer_req",
    "nixl_capi_gen_notif",
    "nixl_capi_get_notifs",
    "nixl_capi_create_notif_map",
    "nixl_capi_destroy_notif_map",
    "nixl_capi_notif_map_size",
    "nixl_capi_notif_map_get_agent_at",
    "nixl_capi_notif_map_get_notifs_size",
    "nixl_capi_notif_map_get_notif",
    "nixl_capi_notif_map_clear",
];
