//! Names of functions as Rust programmers write them, made from what compilers call them, without allocating: in the legacy way (`_ZN…E`)
//! and by RFC 2603 (`_R…`). Other names stay as they are.

use core::fmt::{Display, Error, Formatter, Result, Write};

/// A function's name, shown as in a program.
pub(crate) struct Name<'a>(pub &'a [u8]);

impl Display for Name<'_> {
    fn fmt(&self, f: &mut Formatter) -> Result {
        if let Some(path) = legacy_path(self.0) {
            return write_legacy(path, f);
        }
        if let Some(text) = self.0.strip_prefix(b"_R") {
            // A compiler's own suffix follows a point.
            let end = text.iter().position(|&byte| byte == b'.').unwrap_or(text.len());
            let text = &text[..end];
            if Mangled::new(text, &mut Nowhere).path(true).is_ok() {
                return Mangled::new(text, f).path(true);
            }
        }
        f.write_str(core::str::from_utf8(self.0).unwrap_or("?"))
    }
}

impl Name<'_> {
    /// Whether what is shown begins with this text.
    pub fn begins_with(&self, text: &str) -> bool {
        let mut compared = Compared { rest: text.as_bytes(), same: true };
        let _ = write!(compared, "{self}");
        compared.same && compared.rest.is_empty()
    }
}

struct Compared<'a> {
    rest: &'a [u8],
    same: bool,
}

impl Write for Compared<'_> {
    fn write_str(&mut self, text: &str) -> Result {
        let length = self.rest.len().min(text.len());
        let (now, later) = self.rest.split_at(length);
        self.same &= now == &text.as_bytes()[..length];
        self.rest = later;
        if self.same && !later.is_empty() { Ok(()) } else { Err(Error) }
    }
}

/// Where nothing is written.
struct Nowhere;

impl Write for Nowhere {
    fn write_str(&mut self, _: &str) -> Result {
        Ok(())
    }
}

/// What is between `_ZN` and the hash, if this is a Rust name: C++ names are mangled alike, but have no hash.
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

/// A length and as many bytes; and what follows.
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
        // An underscore is put before what would begin with a dollar sign.
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
                    None => f.write_char(by_number(code).unwrap_or('?'))?,
                }
            } else {
                f.write_char(if byte.is_ascii() { byte as char } else { '?' })?;
            }
        }
    }
    Ok(())
}

/// `u20`: a character by its number.
fn by_number(code: &[u8]) -> Option<char> {
    let digits = core::str::from_utf8(code.strip_prefix(b"u")?).ok()?;
    char::from_u32(u32::from_str_radix(digits, 16).ok()?)
}

/// What follows `_R`, read from front to back as it is written.
struct Mangled<'a, 'b> {
    text: &'a [u8],
    at: usize,
    out: &'b mut dyn Write,
    /// Nothing is written while this is not 0.
    quiet: usize,
    /// So deep are things in others, and so many have there been: a name may be short and mean much.
    depth: usize,
    steps: usize,
}

const DEPTH_MOST: usize = 40;
const STEPS_MOST: usize = 500;

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

    fn say(&mut self, text: &str) -> Result {
        if self.quiet == 0 { self.out.write_str(text) } else { Ok(()) }
    }

    /// Digits and letters up to `_`; none stand for 0, and others for one more than they say.
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

    /// A number behind a letter, if the letter is there.
    fn optional(&mut self, letter: u8) -> Parsed<Option<usize>> {
        if self.eat(letter) { self.number().map(Some) } else { Ok(None) }
    }

    /// A name, and which of those of this name it is.
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

    /// Runs `work` one level deeper.
    fn deeper<T>(&mut self, work: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        self.depth += 1;
        self.steps += 1;
        if self.depth > DEPTH_MOST || self.steps > STEPS_MOST {
            return Err(Error);
        }
        let done = work(self);
        self.depth -= 1;
        done
    }

    /// Runs `work` on what an earlier place says.
    fn earlier(&mut self, work: impl FnOnce(&mut Self) -> Result) -> Result {
        let letter = self.at - 1;
        let target = self.number()?;
        if target >= letter {
            return Err(Error);
        }
        if self.quiet > 0 {
            return Ok(());
        }
        let back = core::mem::replace(&mut self.at, target);
        let done = self.deeper(work);
        self.at = back;
        done
    }

    /// A path: `value` where its generic arguments are written with `::`.
    fn path(&mut self, value: bool) -> Result {
        self.deeper(|this| this.path_here(value))
    }

    fn path_here(&mut self, value: bool) -> Result {
        match self.next()? {
            b'C' => {
                let (name, _) = self.identifier()?;
                self.say(name)
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
                        self.say("::")?;
                        self.say(name)
                    }
                }
            }
            kind @ (b'M' | b'X' | b'Y') => {
                if kind != b'Y' {
                    self.optional(b's')?;
                    self.quietly(|this| this.path(false))?;
                }
                self.say("<")?;
                self.kind()?;
                if kind != b'M' {
                    self.say(" as ")?;
                    self.path(false)?;
                }
                self.say(">")
            }
            b'I' => {
                self.path(value)?;
                self.say(if value { "::<" } else { "<" })?;
                self.list(Self::argument)?;
                self.say(">")
            }
            b'B' => self.earlier(|this| this.path_here(value)),
            _ => Err(Error),
        }
    }

    fn numbered(&mut self, before: &str, number: usize) -> Result {
        self.say(before)?;
        if self.quiet == 0 {
            write!(self.out, "{number}")?;
        }
        self.say("}")
    }

    fn quietly(&mut self, work: impl FnOnce(&mut Self) -> Result) -> Result {
        self.quiet += 1;
        let done = work(self);
        self.quiet -= 1;
        done
    }

    /// Things up to `E`, with commas between. How many.
    fn list(&mut self, each: impl Fn(&mut Self) -> Result) -> Parsed<usize> {
        let mut count = 0;
        while !self.eat(b'E') {
            self.say(if count > 0 { ", " } else { "" })?;
            each(self)?;
            count += 1;
        }
        Ok(count)
    }

    /// A generic argument.
    fn argument(&mut self) -> Result {
        if self.optional(b'L')?.is_some() {
            return self.say("'_");
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
            return self.say(name);
        }
        match tag {
            b'R' | b'Q' => {
                self.optional(b'L')?;
                self.say(if tag == b'R' { "&" } else { "&mut " })?;
                self.kind()
            }
            b'P' | b'O' => {
                self.say(if tag == b'P' { "*const " } else { "*mut " })?;
                self.kind()
            }
            b'A' | b'S' => {
                self.say("[")?;
                self.kind()?;
                if tag == b'A' {
                    self.say("; ")?;
                    self.constant()?;
                }
                self.say("]")
            }
            b'T' => {
                self.say("(")?;
                let count = self.list(Self::kind)?;
                self.say(if count == 1 { ",)" } else { ")" })
            }
            b'F' => {
                self.optional(b'G')?;
                let safe = !self.eat(b'U');
                self.say(if safe { "fn(" } else { "unsafe fn(" })?;
                if self.eat(b'K') && !self.eat(b'C') {
                    self.identifier()?;
                }
                self.list(Self::kind)?;
                self.say(")")?;
                if self.eat(b'u') {
                    return Ok(());
                }
                self.say(" -> ")?;
                self.kind()
            }
            b'D' => {
                self.optional(b'G')?;
                self.say("dyn ")?;
                let mut first = true;
                while !self.eat(b'E') {
                    self.say(if first { "" } else { " + " })?;
                    first = false;
                    self.path(false)?;
                    // What associated types are is left out.
                    while self.eat(b'p') {
                        self.identifier()?;
                        self.quietly(Self::kind)?;
                    }
                }
                self.optional(b'L').map(|_| ())
            }
            b'B' => self.earlier(Self::kind_here),
            _ => {
                self.at -= 1;
                self.path(false)
            }
        }
    }

    /// A constant: numbers of up to 64 bits as such.
    fn constant(&mut self) -> Result {
        if self.eat(b'p') {
            return self.say("_");
        }
        if self.eat(b'B') {
            return self.earlier(Self::constant);
        }
        let tag = self.next()?;
        basic(tag).ok_or(Error)?;
        let negative = self.eat(b'n');
        let start = self.at;
        while self.next()? != b'_' {}
        let digits = core::str::from_utf8(&self.text[start..self.at - 1]).map_err(|_| Error)?;
        self.say(if negative { "-" } else { "" })?;
        let number = if digits.is_empty() { Ok(0) } else { u64::from_str_radix(digits, 16) };
        match number {
            Ok(number) if self.quiet == 0 => write!(self.out, "{number}"),
            Ok(_) => Ok(()),
            Err(_) => self.say("?"),
        }
    }
}

fn basic(tag: u8) -> Option<&'static str> {
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
        // Each pair is twice as long as the one before it.
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
