//! Judges functions by their names: which belong to the allocator, which to containers of the
//! standard libraries; and shortens names for a terminal.

/// Functions of C and C++ that allocate.
const C_ALLOCATORS: [&str; 13] = [
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "aligned_alloc",
    "memalign",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "__libc_malloc",
    "__libc_calloc",
    "__libc_realloc",
    "__libc_memalign",
];
/// Beginnings of names of functions that allocate, in Rust and C++, and of ebbmalloc's own.
const ALLOCATORS: [&str; 15] = [
    "operator new",
    "ebb_",
    "ebbmalloc::",
    "<ebbmalloc::",
    "ebbmalloc_cabi::",
    "__rust_alloc",
    "__rust_realloc",
    "__rustc::__rust_",
    "__rustc[",
    "__rdl_",
    "__rg_",
    "alloc::alloc::",
    "<alloc::alloc::Global",
    "<std::alloc::System",
    "<dyn alloc::alloc::",
];
/// Beginnings of names in the standard libraries of Rust and C++.
const LIBRARIES: [&str; 8] =
    ["alloc::", "core::", "std::", "hashbrown::", "__gnu_cxx::", "__libc_", "_dl_", "__GI_"];

/// Parts of paths of source files. With `debug = "line-tables-only"`, names of inlined functions
/// have no path.
const ALLOCATOR_FILES: [&str; 4] =
    ["/ebbmalloc/src/", "/crates/cabi/src/", "/ebbmalloc-0.", "/library/alloc/src/alloc.rs"];
const LIBRARY_FILES: [&str; 3] = ["/rustlib/src/rust/library/", "/usr/include/c++/", "/csu/"];

/// Whether a function, in this source file, is a part of an allocator.
pub fn is_allocator(name: &str, file: &str) -> bool {
    ALLOCATOR_FILES.iter().any(|part| file.contains(part)) || is_allocators_name(name)
}

fn is_allocators_name(name: &str) -> bool {
    C_ALLOCATORS.contains(&name) || ALLOCATORS.iter().any(|start| name.starts_with(start))
}

/// Whether the name is that of a function in a language whose runtime names its code for perf:
/// JavaScript in node, Python, Java.
pub fn is_script(name: &str) -> bool {
    ["JS:", "py::", "java::"].iter().any(|start| name.starts_with(start))
}

/// Parts of the names of functions in those languages' own libraries.
const SCRIPT_LIBRARIES: [&str; 7] = [
    " node:",
    ":<frozen ",
    "/lib/python",
    "java::java.",
    "java::javax.",
    "java::jdk.",
    "java::sun.",
];

/// A regular expression for the names of functions that belong to an allocator.
pub fn allocators_pattern() -> String {
    let beginnings = ALLOCATORS.iter().map(|start| format!("{}.*", escaped(start)));
    let all: Vec<_> = C_ALLOCATORS.iter().map(|name| escaped(name)).chain(beginnings).collect();
    all.join("|")
}

/// A pattern for this text.
fn escaped(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_: <".contains(c);
    text.chars().flat_map(|c| (!is_plain(c)).then_some('\\').into_iter().chain([c])).collect()
}

/// Functions of the C library through which programs and threads begin.
const BEGINNINGS: [&str; 4] = ["_start", "start_thread", "clone3", "__clone"];

/// Whether a function, in this source file, belongs to a standard library, so that its caller tells
/// more.
pub fn is_library(name: &str, file: &str) -> bool {
    let is_file = LIBRARY_FILES.iter().any(|part| file.contains(part));
    is_file || file.starts_with("/rustc/") && file.contains("/library/") || is_librarys_name(name)
}

fn is_librarys_name(name: &str) -> bool {
    if is_script(name) {
        return SCRIPT_LIBRARIES.iter().any(|part| name.contains(part));
    }
    if BEGINNINGS.contains(&name) {
        return true;
    }
    let name =
        ["void ", "bool ", "auto "].iter().find_map(|kind| name.strip_prefix(kind)).unwrap_or(name);
    if let Some(inside) = name.strip_prefix('<') {
        // `<Type as Trait>::function` belongs to the crate of the type, and one of a plain type to
        // that of the trait.
        let end = inside.find(" as ").or_else(|| inside.find('>')).unwrap_or(inside.len());
        let (kind, rest) = inside.split_at(end);
        let kind = kind.trim_start_matches(['&', '[', '(', '*']);
        let of_trait = rest.strip_prefix(" as ").unwrap_or("core::");
        return is_of_library(if kind.contains("::") { kind } else { of_trait });
    }
    is_of_library(name)
}

fn is_of_library(name: &str) -> bool {
    LIBRARIES.iter().any(|start| name.starts_with(start))
}

/// A function's name without arguments, generic parameters and return type.
pub fn short(name: &str) -> String {
    if is_script(name) {
        return name.to_owned();
    }
    // Without the parts in brackets.
    let mut kept = String::new();
    let mut depth = 0;
    let mut rest = name;
    // `<Type as Trait>::function` becomes `Type::function`.
    if let Some(inside) = name.strip_prefix('<')
        && let Some(end) = closing(inside)
    {
        let kind = inside[..end].split(" as ").next().unwrap_or("");
        kept = short(kind.trim_start_matches('&'));
        rest = &inside[end + 1..];
    }
    for (at, c) in rest.char_indices() {
        let operators: &[&str] = match c {
            '(' => &["operator"],
            ')' => &["operator("],
            _ => &["operator", "operator<", "operator>", "operator-"],
        };
        let is_operator = operators.iter().any(|before| rest[..at].ends_with(before));
        let is_arrow = c == '>' && rest[..at].ends_with('-');
        match c {
            '<' | '(' if !is_operator => depth += 1,
            '>' | ')' if !is_operator && !is_arrow && depth > 0 => depth -= 1,
            _ if depth == 0 => kept.push(c),
            _ => {}
        }
    }
    let kept = kept.replace("::::", "::");
    let kept = kept.trim().trim_end_matches(" const").trim_matches(':');
    // A return type, as C++ writes for templates.
    let function = match kept.rsplit_once(' ') {
        Some((_, function)) if !kept.contains("operator") && function.contains("::") => function,
        _ => kept,
    };
    if function.is_empty() { name.to_owned() } else { function.to_owned() }
}

/// The position of the bracket that closes an opened one.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 1;
    for (at, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' if !text[..at].ends_with('-') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocators() {
        for name in [
            "malloc",
            "operator new(unsigned long)",
            "operator new[](unsigned long, std::nothrow_t const&)",
            "ebb_malloc",
            "<ebbmalloc::api::global_alloc::EbbMalloc as core::alloc::GlobalAlloc>::alloc",
            "alloc::alloc::exchange_malloc",
            "__rustc::__rust_alloc",
        ] {
            assert!(is_allocator(name, ""), "{name}");
        }
        for name in ["strdup", "my_malloc", "alloc::vec::Vec<T>::with_capacity", "mallocate"] {
            assert!(!is_allocator(name, "/src/main.c"), "{name}");
        }
        let file = "/registry/src/ebbmalloc-0.1.0/src/engine/entry.rs";
        assert!(is_allocator("alloc_small<true>", file));
        assert!(is_allocator("allocate", "/home/me/ebbmalloc/crates/cabi/src/cxx.rs"));
    }

    #[test]
    fn the_pattern_has_no_other_signs() {
        let pattern = allocators_pattern();
        assert!(pattern.starts_with("malloc|calloc|") && pattern.contains("|operator new.*|"));
        assert!(pattern.contains(r"|__rustc\[.*|"), "{pattern}");
    }

    #[test]
    fn libraries() {
        for name in [
            "alloc::raw_vec::RawVec<T,A>::grow_one",
            "<u8 as alloc::vec::spec_from_elem::SpecFromElem>::from_elem",
            "<alloc::string::String as core::clone::Clone>::clone",
            "<T as alloc::slice::hack::ConvertVec>::to_vec",
            "void std::vector<int, std::allocator<int> >::_M_realloc_insert<int>(int*, int&&)",
            "_start",
            "std::__cxx11::basic_string<char>::reserve(unsigned long)",
            "JS:alloc node:buffer:391:30",
            "py::_find_and_load:<frozen importlib._bootstrap>",
            "py::loads:/usr/lib/python3.12/json/__init__.py",
            "java::java.nio.DirectByteBuffer.<init>",
            "java::jdk.internal.misc.Unsafe.allocateMemory0",
        ] {
            assert!(is_library(name, ""), "{name}");
        }
        for name in [
            "server::cache::Cache::insert",
            "<server::Entry as core::clone::Clone>::clone",
            "main",
            "std_of_my_own",
            "JS:keep /srv/app.js:3:16",
            "py::keep:/srv/app.py",
            "java::app.Cache.get",
            "java::javacard.Main.main",
        ] {
            assert!(!is_library(name, "/src/main.rs"), "{name}");
        }
        assert!(is_library("from_elem<u8>", "/rustc/abc/library/alloc/src/vec/mod.rs"));
        assert!(is_library("allocate", "/usr/include/c++/12/bits/new_allocator.h"));
    }

    #[test]
    fn short_names() {
        for (name, short_name) in [
            ("main", "main"),
            ("alloc::vec::Vec<T,A>::push", "alloc::vec::Vec::push"),
            ("alloc::vec::Vec<T>::with_capacity::<u8>", "alloc::vec::Vec::with_capacity"),
            ("<server::Entry as core::clone::Clone>::clone", "server::Entry::clone"),
            ("server::run::{closure#0}", "server::run::{closure#0}"),
            (
                "void std::vector<int, std::allocator<int> >::_M_realloc_insert<int>(int*)",
                "std::vector::_M_realloc_insert",
            ),
            ("cache::get(std::pair<int, int> const&) const", "cache::get"),
            ("ns::operator<(ns::a, ns::b)", "ns::operator<"),
            ("ns::f::operator()(int) const", "ns::f::operator()"),
            ("LazyCompile:*sum /app.js:3", "LazyCompile:*sum /app.js:3"),
            ("libx.so+0x12", "libx.so+0x12"),
            ("py::<module>:/srv/app.py", "py::<module>:/srv/app.py"),
            ("java::app.Cache.<init>", "java::app.Cache.<init>"),
            ("(anonymous namespace)::load(char const*)", "load"),
        ] {
            assert_eq!(short(name), short_name, "{name}");
        }
    }
}
