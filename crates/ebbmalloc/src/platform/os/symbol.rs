//! Describes an address of code.

/// The symbol at an address of code.
#[derive(Clone, Copy, Debug)]
pub struct Symbol<'a> {
    /// The file that the code was loaded from.
    pub module: &'a [u8],
    /// The address in that file, as tools such as addr2line count it.
    pub offset: usize,
    /// The name of the function, if it is known, and the offset of the address in it.
    pub function: Option<(&'a [u8], usize)>,
}
