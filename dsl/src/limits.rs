//! The bounds of the language, in one place; `LANGUAGE.md` lists them and a test compares the two.
//!
//! In: nothing. Out: constants. Must stay true: each is checked before the memory it bounds is
//! allocated, and passing one is a diagnostic that names it, never a panic or a long wait.

/// A file: larger ones are refused before anything is read from them.
pub const MAX_SOURCE_BYTES: usize = 1 << 20;
/// Words, numbers and signs in one file, comments apart.
pub const MAX_TOKENS: usize = 250_000;
/// A name: paths of parameters are made of names, and ten thousand layers repeat them.
pub const MAX_NAME_BYTES: usize = 100;
/// Brackets, unary operators and `else if` arms inside one another.
pub const MAX_NESTING: usize = 64;
/// Levels of operators and brackets in the tree of one expression (`a + b + c` has two).
pub const MAX_EXPRESSION_HEIGHT: usize = 256;
/// Errors reported for one file, or for one arch, before the rest is left unread.
pub const MAX_ERRORS: usize = 50;
