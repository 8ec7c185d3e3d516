//! Names of methods by type: those that exist here, those of Python that are refused, and those that change a value.

use crate::value::Value;

pub(crate) const STRING: &[&str] = &[
    "capitalize",
    "casefold",
    "center",
    "count",
    "endswith",
    "find",
    "format",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "islower",
    "isnumeric",
    "isspace",
    "istitle",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "upper",
    "zfill",
];

/// Methods of Python's strings that are refused by name.
pub(crate) const STRING_REFUSED: &[&str] = &[
    "encode",
    "expandtabs",
    "format_map",
    "isidentifier",
    "isprintable",
    "maketrans",
    "translate",
];

pub(crate) const WITHOUT_ARGUMENTS: &[&str] = &[
    "capitalize",
    "casefold",
    "copy",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "islower",
    "isnumeric",
    "isspace",
    "istitle",
    "isupper",
    "is_integer",
    "items",
    "keys",
    "lower",
    "swapcase",
    "title",
    "upper",
    "values",
];

pub(crate) const MAP: &[&str] = &["copy", "get", "items", "keys", "values"];

/// Methods that change a value, which the sandbox forbids.
pub(crate) const MAP_CHANGES: &[&str] =
    &["clear", "fromkeys", "pop", "popitem", "setdefault", "update"];

pub(crate) const LIST: &[&str] = &["copy", "count", "index"];

pub(crate) const LIST_CHANGES: &[&str] =
    &["append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"];

/// Whether a value has a method of this name.
pub(crate) fn has(value: &Value, name: &str) -> bool {
    let lists: &[&[&str]] = match value {
        Value::Str(_) | Value::Markup(_) => &[STRING, STRING_REFUSED],
        Value::Map(_) => &[MAP, MAP_CHANGES],
        Value::List(_) => &[LIST, LIST_CHANGES],
        Value::Tuple(_) => &[&["count", "index"]],
        Value::Loop(_) => &[&["cycle", "changed"]],
        Value::Float(_) | Value::Int(_) | Value::Bool(_) => &[&["is_integer"]],
        _ => &[],
    };
    lists.iter().any(|list| list.contains(&name))
}
