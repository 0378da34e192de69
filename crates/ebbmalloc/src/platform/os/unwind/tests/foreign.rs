//! Stacks of C and C++ code, as several options of compilers make it, beside the unwinder of the
//! process.

use core::ffi::{CStr, c_void};
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::string::String;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, format, fs, println};

use super::super::object::Source;
use super::beside::{COMPARED, by, compare};

type Look = extern "C" fn();
type Each = unsafe extern "C" fn(Look);

/// Options of a compiler.
const PLAIN: [&str; 4] = ["-O0", "-O2", "-Os", "-O2 -fno-omit-frame-pointer -fno-plt"];
#[cfg(target_arch = "x86_64")]
const OF_PROCESSOR: &str = "-O3 -mavx2 -fcf-protection=full";
#[cfg(target_arch = "aarch64")]
const OF_PROCESSOR: &str = "-O3 -mbranch-protection=standard";

/// The libraries share variables by name, so one test opens them at a time.
static ONE: Mutex<()> = Mutex::new(());

fn folder() -> PathBuf {
    env::temp_dir().join(format!("unwind-tests-{}", std::process::id()))
}

/// Builds a shared library. `None` if there is no such compiler.
fn build(compiler: &str, source: &str, options: &str) -> Option<PathBuf> {
    fs::create_dir_all(folder()).unwrap();
    let name = options.replace(['-', '=', ' '], "_");
    let library = folder().join(format!("{source}-{compiler}-{name}.so"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/platform/os/unwind/tests");
    let mut command = Command::new(compiler);
    command.args(["-shared", "-fPIC", "-pthread", "-w"]).args(options.split(' '));
    command.arg(path.join(source)).arg("-o").arg(&library).args(["-ldl", "-Wl,-z,lazy"]);
    match command.output() {
        Ok(done) if done.status.success() => Some(library),
        Ok(done) if options == "-O2" => {
            println!("{compiler}: {}", String::from_utf8_lossy(&done.stderr));
            None
        }
        _ => None,
    }
}

/// The compilers of the processor that tests run on, perhaps under qemu. No compiler has no name.
fn compilers(names: [&'static str; 2]) -> [&'static str; 2] {
    match cfg!(target_arch = "aarch64") && Path::new("/usr/aarch64-linux-gnu").exists() {
        true if names[0] == "gcc" => ["aarch64-linux-gnu-gcc", ""],
        true => ["aarch64-linux-gnu-g++", ""],
        false => names,
    }
}

fn open(library: &Path) -> *mut c_void {
    let path = CString::new(library.to_str().unwrap()).unwrap();
    // SAFETY: constructors of the library call the function that is being tested.
    let opened = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_GLOBAL) };
    assert!(!opened.is_null(), "{library:?}");
    fs::remove_file(library).unwrap();
    let _ = fs::remove_dir(folder());
    opened
}

fn function(library: *mut c_void, name: &CStr) -> Each {
    // SAFETY: the library has a function of this name and type.
    unsafe {
        let found = libc::dlsym(library, name.as_ptr());
        assert!(!found.is_null(), "{name:?}");
        core::mem::transmute::<*mut c_void, Each>(found)
    }
}

extern "C" fn look() {
    compare();
}

/// Runs a function of each build of a source file.
fn each(names: [&'static str; 2], source: &str, called: &CStr) {
    // A fully static program opens no libraries.
    if cfg!(target_feature = "crt-static") {
        return;
    }
    let one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut builds = 0;
    for compiler in compilers(names) {
        for options in PLAIN.into_iter().chain([OF_PROCESSOR]) {
            let Some(library) = build(compiler, source, options) else { continue };
            let before = COMPARED.load(Ordering::Relaxed);
            let library = open(&library);
            // SAFETY: the function calls its argument.
            unsafe { function(library, called)(look) };
            let compared = COMPARED.load(Ordering::Relaxed) - before;
            println!("{compiler} {options}: {compared} stacks");
            assert!(compared > 10);
            builds += 1;
        }
    }
    if builds == 0 {
        println!("no compiler for {source} is installed");
    }
    drop(one);
}

#[test]
fn frames_and_places_of_c() {
    each(["gcc", "clang"], "places.c", c"each_place");
}

#[test]
fn exceptions_of_cpp() {
    each(["g++", "clang++"], "exceptions.cpp", c"each_exception");
}

#[test]
fn calls_while_libraries_are_opened_and_closed() {
    if cfg!(target_feature = "crt-static") {
        return;
    }
    let one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let [compiler, _] = compilers(["gcc", "clang"]);
    let places = build(compiler, "places.c", "-O2").unwrap();
    let places = open(&places);
    let opened = build(compiler, "opened.c", "-O2").unwrap();
    // SAFETY: the function calls its argument. The handle is closed once.
    unsafe {
        function(places, c"each_place")(look);
        let before = COMPARED.load(Ordering::Relaxed);
        libc::dlclose(open(&opened));
        assert!(COMPARED.load(Ordering::Relaxed) >= before + 2);
    }
    drop(one);
}

/// Code without tables is left by its frame pointers, where the unwinder of the process stops.
#[test]
fn libraries_without_tables() {
    if cfg!(target_feature = "crt-static") {
        return;
    }
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn look() {
        for source in [Source::of_process(), Source::List, Source::List] {
            let stack = by(source);
            let start = libraries_without_tables as *const () as usize;
            let mut calls = stack.get().iter();
            let is_found = calls.any(|call| (start..start + 4096).contains(call));
            FOUND.fetch_add(is_found.into(), Ordering::Relaxed);
        }
    }
    let one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let [compiler, _] = compilers(["gcc", "clang"]);
    let options = "-O1 -fno-asynchronous-unwind-tables -fno-unwind-tables -fno-omit-frame-pointer";
    let library = build(compiler, "without_tables.c", options).unwrap();
    // SAFETY: the function calls its argument.
    unsafe { function(open(&library), c"without_tables")(look) };
    assert_eq!(FOUND.load(Ordering::Relaxed), 3);
    drop(one);
}
