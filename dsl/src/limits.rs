//! The bounds of the language; a test compares them with the list in `LANGUAGE.md`.
//!
//! Each is checked before the memory that it bounds is allocated, and exceeding one gives a diagnostic that names it.

/// Bytes of one file. A larger file is refused before it is read.
pub const MAX_SOURCE_BYTES: usize = 1 << 20;
/// Tokens in one file; comments do not count.
pub const MAX_TOKENS: usize = 250_000;
/// Bytes of one name: parameter paths consist of names, and ten thousand layers repeat them.
pub const MAX_NAME_BYTES: usize = 100;
/// Depth of nested brackets, unary operators and `else if` arms.
pub const MAX_NESTING: usize = 64;
/// Levels of operators and brackets in the tree of one expression (`a + b + c` has two).
pub const MAX_EXPRESSION_HEIGHT: usize = 256;
/// Errors reported for one file or one arch before reading stops.
pub const MAX_ERRORS: usize = 50;
