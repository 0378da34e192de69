//! Demangles the names of Rust functions without allocating: the legacy scheme (`_ZN…E`) and that
//! of RFC 2603 (`_R…`). Other names are shown as they are.

use core::fmt::{Display, Error, Formatter, Result, Write};

/// The symbol of a function, shown as a Rust path.
pub(crate) struct Name<'a>(pub &'a [u8]);

impl Display for Name<'_> {
    fn fmt(&self, f: &mut Formatter) -> Result {
        if let Some(path) = legacy_path(self.0) {
            return write_legacy(path, f);
        }
        if let Some(text) = self.0.strip_prefix(b"_R") {
            // A suffix of the compiler's own follows a period.
            let end = text.iter().position(|&byte| byte == b'.').unwrap_or(text.len());
            let text = &text[..end];
            // A first pass without output tells whether the whole name parses.
            if Mangled::new(text, &mut Discard).path(true).is_ok() {
                return Mangled::new(text, f).path(true);
            }
        }
        f.write_str(core::str::from_utf8(self.0).unwrap_or("?"))
    }
}

impl Name<'_> {
    /// Whether the demangled name begins with `text`.
    pub fn begins_with(&self, text: &str) -> bool {
        let mut prefix = Prefix { rest: text.as_bytes(), matches: true };
        let _ = write!(prefix, "{self}");
        prefix.matches && prefix.rest.is_empty()
    }
}

/// Compares the text that is written to it with a prefix.
struct Prefix<'a> {
    rest: &'a [u8],
    matches: bool,
}

impl Write for Prefix<'_> {
    fn write_str(&mut self, text: &str) -> Result {
        let length = self.rest.len().min(text.len());
        let (now, later) = self.rest.split_at(length);
        self.matches &= now == &text.as_bytes()[..length];
        self.rest = later;
        // An error ends the writing early.
        if self.matches && !later.is_empty() { Ok(()) } else { Err(Error) }
    }
}

/// Discards the text that is written to it.
struct Discard;

impl Write for Discard {
    fn write_str(&mut self, _: &str) -> Result {
        Ok(())
    }
}

/// The part between `_ZN` and the hash. `None` for C++ names, which are mangled alike, but have no
/// hash.
fn legacy_path(name: &[u8]) -> Option<&[u8]> {
    let path = name.strip_prefix(b"_ZN")?;
    let (mut rest, mut hash_at) = (path, None);
    while let Some((element, after)) = legacy_element(rest) {
        let is_hash = element.len() == 17
            && element[0] == b'h'
            && element[1..].iter().all(u8::is_ascii_hexdigit);
        hash_at = is_hash.then_some(path.len() - rest.len());
        rest = after;
    }
    if rest.first() == Some(&b'E') { Some(&path[..hash_at?]) } else { None }
}

/// Splits an element, its length in digits followed by its bytes, from the rest.
fn legacy_element(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let length: usize = core::str::from_utf8(&text[..digits]).ok()?.parse().ok()?;
    text[digits..].split_at_checked(length)
}

fn write_legacy(mut path: &[u8], f: &mut Formatter) -> Result {
    const ESCAPES: [(&[u8], &str); 9] = [
        (b"SP", "@"),
        (b"BP", "*"),
        (b"RF", "&"),
        (b"LT", "<"),
        (b"GT", ">"),
        (b"LP", "("),
        (b"RP", ")"),
        (b"C", ","),
        (b"u7e", "~"),
    ];
    let mut first = true;
    while let Some((element, rest)) = legacy_element(path) {
        path = rest;
        f.write_str(if first { "" } else { "::" })?;
        first = false;
        // The compiler puts an underscore before an element that begins with a dollar sign.
        let mut text = if element.starts_with(b"_$") { &element[1..] } else { element };
        while let Some((&byte, after)) = text.split_first() {
            text = after;
            if byte == b'.' && after.first() == Some(&b'.') {
                text = &after[1..];
                f.write_str("::")?;
            } else if byte == b'$'
                && let Some(end) = after.iter().position(|&byte| byte == b'$')
            {
                text = &after[end + 1..];
                let code = &after[..end];
                match ESCAPES.iter().find(|escape| escape.0 == code) {
                    Some((_, shown)) => f.write_str(shown)?,
                    None => f.write_char(character(code).unwrap_or('?'))?,
                }
            } else {
                f.write_char(if byte.is_ascii() { byte as char } else { '?' })?;
            }
        }
    }
    Ok(())
}

/// The character of an escape such as `u20`, its code in hexadecimal digits.
fn character(code: &[u8]) -> Option<char> {
    let digits = core::str::from_utf8(code.strip_prefix(b"u")?).ok()?;
    char::from_u32(u32::from_str_radix(digits, 16).ok()?)
}

/// A reader of the text that follows `_R`. It writes the demangled name as it reads.
struct Mangled<'a, 'b> {
    text: &'a [u8],
    at: usize,
    out: &'b mut dyn Write,
    /// Output is suppressed while this is not 0.
    quiet: usize,
    /// The nesting depth now, and all levels entered so far. Both are bounded, since a short name
    /// can expand to a very long one.
    depth: usize,
    steps: usize,
}

const DEPTH_MAX: usize = 40;
const STEPS_MAX: usize = 500;

type Parsed<T> = core::result::Result<T, Error>;

impl<'a, 'b> Mangled<'a, 'b> {
    fn new(text: &'a [u8], out: &'b mut dyn Write) -> Self {
        Self { text, at: 0, out, quiet: 0, depth: 0, steps: 0 }
    }

    fn next(&mut self) -> Parsed<u8> {
        let byte = *self.text.get(self.at).ok_or(Error)?;
        self.at += 1;
        Ok(byte)
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.text.get(self.at) == Some(&byte);
        self.at += found as usize;
        found
    }

    fn write(&mut self, text: &str) -> Result {
        if self.quiet == 0 { self.out.write_str(text) } else { Ok(()) }
    }

    /// A number in base 62, up to `_`: no digits mean 0, others one more than their value.
    fn number(&mut self) -> Parsed<usize> {
        if self.eat(b'_') {
            return Ok(0);
        }
        let mut number = 0usize;
        loop {
            let digit = match self.next()? {
                b'_' => return number.checked_add(1).ok_or(Error),
                byte @ b'0'..=b'9' => byte - b'0',
                byte @ b'a'..=b'z' => byte - b'a' + 10,
                byte @ b'A'..=b'Z' => byte - b'A' + 36,
                _ => return Err(Error),
            };
            number =
                number.checked_mul(62).and_then(|n| n.checked_add(digit as usize)).ok_or(Error)?;
        }
    }

    /// The number behind `letter`, if the letter comes next.
    fn optional(&mut self, letter: u8) -> Parsed<Option<usize>> {
        if self.eat(letter) { self.number().map(Some) } else { Ok(None) }
    }

    /// An identifier, and its index among those of the same name.
    fn identifier(&mut self) -> Parsed<(&'a str, usize)> {
        let nth = self.optional(b's')?.map_or(0, |nth| nth + 1);
        self.eat(b'u');
        let start = self.at;
        while self.text.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        let digits = core::str::from_utf8(&self.text[start..self.at]).map_err(|_| Error)?;
        let length: usize = digits.parse().map_err(|_| Error)?;
        self.eat(b'_');
        let end = self.at.checked_add(length).ok_or(Error)?;
        let name = self.text.get(self.at..end).ok_or(Error)?;
        self.at = end;
        Ok((core::str::from_utf8(name).map_err(|_| Error)?, nth))
    }

    /// Runs `work` one level deeper. Fails beyond the limits of depth and steps.
    fn deeper<T>(&mut self, work: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        self.depth += 1;
        self.steps += 1;
        if self.depth > DEPTH_MAX || self.steps > STEPS_MAX {
            return Err(Error);
        }
        let done = work(self);
        self.depth -= 1;
        done
    }

    /// A back reference: runs `work` at an earlier position of the text.
    fn back_reference(&mut self, work: impl FnOnce(&mut Self) -> Result) -> Result {
        let letter = self.at - 1;
        let target = self.number()?;
        if target >= letter {
            return Err(Error);
        }
        if self.quiet > 0 {
            return Ok(());
        }
        let at = core::mem::replace(&mut self.at, target);
        let done = self.deeper(work);
        self.at = at;
        done
    }

    /// A path. `value`: it names a value, so `::` precedes its generic arguments.
    fn path(&mut self, value: bool) -> Result {
        self.deeper(|this| this.path_here(value))
    }

    fn path_here(&mut self, value: bool) -> Result {
        match self.next()? {
            b'C' => {
                let (name, _) = self.identifier()?;
                self.write(name)
            }
            b'N' => {
                let space = self.next()?;
                self.path(value)?;
                let (name, nth) = self.identifier()?;
                match space {
                    b'C' => self.numbered("::{closure#", nth),
                    b'S' => self.numbered("::{shim#", nth),
                    _ if name.is_empty() => Ok(()),
                    _ => {
                        self.write("::")?;
                        self.write(name)
                    }
                }
            }
            kind @ (b'M' | b'X' | b'Y') => {
                if kind != b'Y' {
                    self.optional(b's')?;
                    self.quietly(|this| this.path(false))?;
                }
                self.write("<")?;
                self.kind()?;
                if kind != b'M' {
                    self.write(" as ")?;
                    self.path(false)?;
                }
                self.write(">")
            }
            b'I' => {
                self.path(value)?;
                self.write(if value { "::<" } else { "<" })?;
                self.list(Self::argument)?;
                self.write(">")
            }
            b'B' => self.back_reference(|this| this.path_here(value)),
            _ => Err(Error),
        }
    }

    fn numbered(&mut self, before: &str, number: usize) -> Result {
        self.write(before)?;
        if self.quiet == 0 {
            write!(self.out, "{number}")?;
        }
        self.write("}")
    }

    fn quietly(&mut self, work: impl FnOnce(&mut Self) -> Result) -> Result {
        self.quiet += 1;
        let done = work(self);
        self.quiet -= 1;
        done
    }

    /// Items up to `E`, separated by commas. Returns their number.
    fn list(&mut self, each: impl Fn(&mut Self) -> Result) -> Parsed<usize> {
        let mut count = 0;
        while !self.eat(b'E') {
            self.write(if count > 0 { ", " } else { "" })?;
            each(self)?;
            count += 1;
        }
        Ok(count)
    }

    /// A generic argument.
    fn argument(&mut self) -> Result {
        if self.optional(b'L')?.is_some() {
            return self.write("'_");
        }
        if self.eat(b'K') { self.constant() } else { self.kind() }
    }

    /// A type.
    fn kind(&mut self) -> Result {
        self.deeper(Self::kind_here)
    }

    fn kind_here(&mut self) -> Result {
        let tag = self.next()?;
        if let Some(name) = basic(tag) {
            return self.write(name);
        }
        match tag {
            b'R' | b'Q' => {
                self.optional(b'L')?;
                self.write(if tag == b'R' { "&" } else { "&mut " })?;
                self.kind()
            }
            b'P' | b'O' => {
                self.write(if tag == b'P' { "*const " } else { "*mut " })?;
                self.kind()
            }
            b'A' | b'S' => {
                self.write("[")?;
                self.kind()?;
                if tag == b'A' {
                    self.write("; ")?;
                    self.constant()?;
                }
                self.write("]")
            }
            b'T' => {
                self.write("(")?;
                let count = self.list(Self::kind)?;
                self.write(if count == 1 { ",)" } else { ")" })
            }
            b'F' => {
                self.optional(b'G')?;
                let safe = !self.eat(b'U');
                self.write(if safe { "fn(" } else { "unsafe fn(" })?;
                if self.eat(b'K') && !self.eat(b'C') {
                    self.identifier()?;
                }
                self.list(Self::kind)?;
                self.write(")")?;
                if self.eat(b'u') {
                    return Ok(());
                }
                self.write(" -> ")?;
                self.kind()
            }
            b'D' => {
                self.optional(b'G')?;
                self.write("dyn ")?;
                let mut first = true;
                while !self.eat(b'E') {
                    self.write(if first { "" } else { " + " })?;
                    first = false;
                    self.path(false)?;
                    // Bounds of associated types are left out.
                    while self.eat(b'p') {
                        self.identifier()?;
                        self.quietly(Self::kind)?;
                    }
                }
                self.optional(b'L').map(|_| ())
            }
            b'B' => self.back_reference(Self::kind_here),
            _ => {
                self.at -= 1;
                self.path(false)
            }
        }
    }

    /// A constant. Numbers of more than 64 bits are shown as `?`.
    fn constant(&mut self) -> Result {
        if self.eat(b'p') {
            return self.write("_");
        }
        if self.eat(b'B') {
            return self.back_reference(Self::constant);
        }
        let tag = self.next()?;
        basic(tag).ok_or(Error)?;
        let negative = self.eat(b'n');
        let start = self.at;
        while self.next()? != b'_' {}
        let digits = core::str::from_utf8(&self.text[start..self.at - 1]).map_err(|_| Error)?;
        self.write(if negative { "-" } else { "" })?;
        let number = if digits.is_empty() { Ok(0) } else { u64::from_str_radix(digits, 16) };
        match number {
            Ok(number) if self.quiet == 0 => write!(self.out, "{number}"),
            Ok(_) => Ok(()),
            Err(_) => self.write("?"),
        }
    }
}

/// The name of a basic type.
fn basic(tag: u8) -> Option<&'static str> {
    // By letter, from `a` to `z`.
    const NAMES: [&str; 26] = [
        "i8", "bool", "char", "f64", "str", "f32", "", "u8", "isize", "usize", "", "i32", "u32",
        "i128", "u128", "_", "", "", "i16", "u16", "()", "...", "", "i64", "u64", "!",
    ];
    let nth = tag.wrapping_sub(b'a') as usize;
    NAMES.get(nth).copied().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use std::format;
    use std::string::String;

    use super::*;

    fn shown(name: &str) -> String {
        format!("{}", Name(name.as_bytes()))
    }

    #[test]
    fn legacy_names() {
        for (name, expected) in [
            ("_ZN4main4keep17h0123456789abcdefE", "main::keep"),
            (
                "_ZN50_$LT$T$u20$as$u20$core..convert..Into$LT$U$GT$$GT$4into17h0123456789abcdefE",
                "<T as core::convert::Into<U>>::into",
            ),
            (
                "_ZN3foo28_$u7b$$u7b$closure$u7d$$u7d$17h0123456789abcdefE.llvm.12",
                "foo::{{closure}}",
            ),
            ("_ZN1a3b$C17h0123456789abcdefE", "a::b$C"),
        ] {
            assert_eq!(shown(name), expected);
        }
    }

    #[test]
    fn names_by_the_rfc() {
        for (name, expected) in [
            ("_RNvCs1234_7example3foo", "example::foo"),
            ("_RNvNtCs1234_7example3foo3bar.llvm.77", "example::foo::bar"),
            ("_RINvCs1_1a1fmE", "a::f::<u32>"),
            ("_RINvCs1_1a1fNtB2_3FooE", "a::f::<a::Foo>"),
            ("_RNvMCs1_1aNtB2_3Foo3new", "<a::Foo>::new"),
            ("_RNvXCs1_1aNtB2_3FooNtCs2_1b3Bar3baz", "<a::Foo as b::Bar>::baz"),
            ("_RNCNvCs1_1a1f0Cs3_1c", "a::f::{closure#0}"),
            ("_RNCNvCs1_1a1fs_0B3_", "a::f::{closure#1}"),
            ("_RINvCs1_1a1fRShQeTlmEAhj10_E", "a::f::<&[u8], &mut str, (i32, u32), [u8; 16]>"),
            ("_RINvCs1_1a1fFUKCmEuDNtB2_1TEL_PuE", "a::f::<unsafe fn(u32), dyn a::T, *const ()>"),
        ] {
            assert_eq!(shown(name), expected);
        }
    }

    #[test]
    fn other_names_stay() {
        for name in [
            "",
            "main",
            "_R",
            "_RNv",
            "_ZN",
            "_ZN3fooE",
            "_ZN3foo3barEv",
            "_ZNSt6vectorIiE4pushEv",
            "_RNvB_1a",
            "_RINvCs1_1a1fBZ_E",
            "_ZN9999999999999999999999fooE",
            "_RNvCs1_99a",
        ] {
            assert_eq!(shown(name), name);
        }
        assert_eq!(format!("{}", Name(b"\xff")), "?");
    }

    #[test]
    fn a_name_that_refers_to_itself_ends() {
        // Each pair expands to twice the length of the pair before it.
        let mut name = String::from("_RINvCs1_1a1fT");
        let mut at = name.len() - 3;
        name += "mm";
        for _ in 0..60 {
            let back = format!("B{}", to_62(at));
            at = name.len() - 2;
            name += &format!("T{back}{back}");
        }
        let _ = shown(&name);
    }

    fn to_62(number: usize) -> String {
        const DIGITS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
        let Some(mut number) = number.checked_sub(1) else { return "_".into() };
        let mut text = String::from("_");
        loop {
            text.insert(0, DIGITS[number % 62] as char);
            number /= 62;
            if number == 0 {
                return text;
            }
        }
    }

    #[test]
    fn how_names_begin() {
        assert!(Name(b"_RNvNtCs1_9ebbmalloc5check1f").begins_with("ebbmalloc::"));
        assert!(!Name(b"_RINvCs1_1a1fNtCs1_9ebbmalloc1EE").begins_with("ebbmalloc::"));
        assert!(!Name(b"ebb").begins_with("ebbmalloc::"));
        assert!(Name(b"malloc").begins_with("malloc"));
    }
}
