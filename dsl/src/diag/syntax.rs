//! All syntax errors of a `.canon` file: one named constructor each, with a code of its own and a case in
//! `tests/cases/parse` (the test reads this file).

use crate::diag::{Diagnostic, suggest};
use crate::limits::{
    MAX_ERRORS, MAX_EXPRESSION_HEIGHT, MAX_NAME_BYTES, MAX_NESTING, MAX_SOURCE_BYTES, MAX_TOKENS,
};
use crate::{FileId, Span};

// --- bounds ---

pub(crate) fn source_too_large(file: FileId, bytes: usize) -> Diagnostic {
    let message = format!("the file has {}", crate::over(bytes as u64, MAX_SOURCE_BYTES as u64));
    Diagnostic::error("source-too-large", Span::new(file, 0, 0), message)
        .here("not read")
        .help("split it into several files and `import` between them")
}

pub(crate) fn too_many_tokens(span: Span) -> Diagnostic {
    let message = format!("the file has more than {MAX_TOKENS} tokens");
    Diagnostic::error("too-many-tokens", span, message)
        .here("the rest of the file is not read")
        .help("write repeated layers as `24 of decoder { … }`, or split the file")
}

pub(crate) fn name_too_long(span: Span, bytes: usize) -> Diagnostic {
    let message = format!("the name has {bytes} letters; at most {MAX_NAME_BYTES} are kept");
    Diagnostic::error("name-too-long", span, message).help("choose a shorter name")
}

pub(crate) fn nesting_too_deep(span: Span) -> Diagnostic {
    Diagnostic::error(
        "nesting-too-deep",
        span,
        format!("nested more than {MAX_NESTING} levels deep"),
    )
    .here("one level too many")
    .help("name an inner part: `name = …` in a body, or a definition of its own")
}

pub(crate) fn expression_too_tall(span: Span) -> Diagnostic {
    let message =
        format!("the expression is nested more than {MAX_EXPRESSION_HEIGHT} operators deep");
    Diagnostic::error("expression-too-tall", span, message)
        .here("this operator is one too many")
        .help("compute part of it first: `name = …`")
}

pub(crate) fn too_many_errors(span: Span) -> Diagnostic {
    let message = format!("more than {MAX_ERRORS} errors");
    Diagnostic::error("too-many-errors", span, message)
        .here("the rest of the file is not read")
        .help("fix these errors and check again")
}

// --- characters, numbers, strings ---

pub(crate) fn invalid_utf8(file: FileId, offset: usize, line: usize, byte: u8) -> Diagnostic {
    let message =
        format!("the file is not UTF-8: byte 0x{byte:02x} at offset {offset}, line {line}");
    Diagnostic::error("invalid-utf8", Span::new(file, offset, offset + 1), message)
        .here("not a character")
        .help("save the file as UTF-8")
}

/// `first_word` begins the line.
pub(crate) fn bad_character(span: Span, text: &str, first_word: &str) -> Diagnostic {
    let error = |message: String| Diagnostic::error("bad-character", span, message);
    let means = match text {
        "&" | "&&" => Some("and"),
        "|" | "||" => Some("or"),
        "!" => Some("not"),
        "#" => Some("//"),
        "×" => Some("*"),
        "≤" => Some("<="),
        "≥" => Some(">="),
        "≠" => Some("!="),
        "−" | "–" => Some("-"),
        _ => None,
    };
    match means {
        Some(sign) => error(format!("`{text}` is not used here")).help(format!("write `{sign}`")),
        None if text == ":" => error("`:` is not used".into()).help(match first_word {
            "if" | "else" | "elif" => "put the branch into braces: `if CONDITION { … } else { … }`",
            _ => "write the name, a space and its value: `dim 512`",
        }),
        None if text.starts_with('@') => error("`@` is not an operator here".into()).help(
            "a product with a learned matrix is `linear w (x, dim)`; `attention(q, k, v)` has those of queries and keys",
        ),
        None if text.is_ascii() => error(format!("`{text}` has no meaning in this language"))
            .help("remove it, or put it into a `//` comment"),
        None => error(format!("`{text}` is not ASCII")).help(
            "names are made of A-Z a-z 0-9 and `_`; other characters are allowed only in comments",
        ),
    }
}

pub(crate) fn line_break(span: Span, character: char) -> Diagnostic {
    let name = match character {
        '\r' => "a carriage return without a line feed",
        '\u{b}' => "a vertical tab",
        '\u{85}' => "a next-line character",
        _ => "a line or paragraph separator",
    };
    let code = u32::from(character);
    let message = format!("{name} (U+{code:04X}) does not end a line here");
    Diagnostic::error("line-break", span, message)
        .here("an editor may show two lines where there is one")
        .help("end lines with a line feed, or with a carriage return and a line feed")
}

pub(crate) fn block_comment(span: Span) -> Diagnostic {
    Diagnostic::error("block-comment", span, "`/* … */` is not a comment here")
        .help("begin each line of the comment with `//`")
}

pub(crate) fn unterminated_string(span: Span) -> Diagnostic {
    Diagnostic::error("unterminated-string", span, "the string does not end on its line")
        .here("opened here")
        .help("close it with `\"`")
}

pub(crate) fn bad_import_path(span: Span) -> Diagnostic {
    Diagnostic::error("bad-import-path", span, "not the path of a file")
        .here("paths are relative, use `/` and have no escapes")
        .help("write it like \"parts/mixers.canon\"")
}

pub(crate) fn string_outside_import(span: Span) -> Diagnostic {
    Diagnostic::error("string-outside-import", span, "only `import` takes a string")
        .help("write a name without quotes: `layout interleaved`")
}

pub(crate) fn bad_number(span: Span, text: &str) -> Diagnostic {
    Diagnostic::error("bad-number", span, format!("`{text}` is neither a number nor a name"))
        .help("numbers look like 12, 1_000, 0.5 or 1e-5; names do not begin with a digit")
}

pub(crate) fn integer_too_large(span: Span) -> Diagnostic {
    let message = "the integer does not fit into 63 bits";
    Diagnostic::error("integer-too-large", span, message)
        .here(format!("the largest is {}", i64::MAX))
        .help("write it as a decimal if it is not a count: `1e30`")
}

pub(crate) fn decimal_too_large(span: Span) -> Diagnostic {
    let message = "the decimal has too many digits or too large an exponent to be kept exactly";
    Diagnostic::error("decimal-too-large", span, message)
        .here("at most 30 digits and an exponent within ±400")
        .help("write fewer digits")
}

// --- what was expected ---

/// The general case: `what` was expected, `token` was read.
pub(crate) fn expected(span: Span, what: &str, token: &str, help: &str) -> Diagnostic {
    Diagnostic::error("unexpected", span, format!("expected {what}, found {token}")).help(help)
}

pub(crate) fn expected_keyword(span: Span, word: &str, token: &str) -> Diagnostic {
    let message = format!("expected `{word}`, found {token}");
    let error = Diagnostic::error("expected-keyword", span, message);
    match suggest(token.trim_matches('`'), [word]) {
        Some(word) => error.mean(word),
        None => error.help(format!("write `{word}` here")),
    }
}

pub(crate) fn reserved_word(span: Span, word: &str) -> Diagnostic {
    Diagnostic::error("reserved-word", span, format!("`{word}` is a keyword"))
        .here("expected a name here")
        .help(format!("choose another name, for example `{word}_`"))
}

pub(crate) fn unknown_definition(span: Span, word: &str, suggestion: Option<&str>) -> Diagnostic {
    let message = format!("`{word}` does not begin a definition");
    let error = Diagnostic::error("unknown-definition", span, message);
    match suggestion {
        Some(suggestion) => error.mean(suggestion),
        None => {
            error.help("a file contains `import`, `block`, `mixer`, `mlp`, `head`, `init`, `arch`")
        }
    }
}

/// A word with a meaning in other languages.
pub(crate) fn foreign_word(span: Span, word: &str, advice: &str) -> Diagnostic {
    Diagnostic::error("foreign-word", span, format!("`{word}` is not part of this language"))
        .help(advice)
}

pub(crate) fn unknown_statement(span: Span, word: &str, keyword: &str) -> Diagnostic {
    Diagnostic::error("unknown-statement", span, format!("`{word}` is not a keyword")).mean(keyword)
}

pub(crate) fn unclosed(open: Span, bracket: &str, close: &str, stop: Span) -> Diagnostic {
    Diagnostic::error("unclosed", open, format!("`{bracket}` is never closed"))
        .here("opened here")
        .label(stop, format!("`{close}` is missing before this"))
        .help(format!("write `{close}`"))
}

pub(crate) fn unmatched(span: Span, bracket: &str) -> Diagnostic {
    Diagnostic::error("unmatched", span, format!("`{bracket}` closes nothing"))
        .help("remove it, or open it before")
}

pub(crate) fn dangling_doc(span: Span) -> Diagnostic {
    Diagnostic::error("dangling-doc", span, "`///` documents the definition below it")
        .here("no definition follows")
        .help("write `//` for a comment")
}

// --- definitions ---

pub(crate) fn late_import(span: Span, first: Span) -> Diagnostic {
    Diagnostic::error("late-import", span, "imports come before definitions")
        .label(first, "the first definition")
        .help("move the import to the top of the file")
}

pub(crate) fn missing_tensors(span: Span, kind: &str, name: &str) -> Diagnostic {
    let message = format!("`{name}` does not say which tensors it takes");
    Diagnostic::error("missing-tensors", span, message)
        .help(format!("write `{kind} {name}(x) {{ … }}`, or `{kind} {name} = other {{ … }}`"))
}

pub(crate) fn missing_with(span: Span, arch: &str, base: &str) -> Diagnostic {
    let message = format!("`{arch}` is made from `{base}` without `with`");
    Diagnostic::error("missing-with", span, message)
        .help(format!("write `arch {arch} = {base} with {{ … }}`"))
}

pub(crate) fn case_clash(span: Span, name: &str, other: &str, first: Span) -> Diagnostic {
    let message = format!("`{name}` and `{other}` differ only in case");
    Diagnostic::error("case-clash", span, message)
        .label(first, format!("`{other}` is here"))
        .help("rename one of them: file systems and readers confuse the two")
}

pub(crate) fn duplicate_name(span: Span, name: &str, first: Span) -> Diagnostic {
    Diagnostic::error("duplicate-name", span, format!("`{name}` is defined twice"))
        .label(first, "first defined here")
        .help("rename or remove one of them")
}

// --- bodies ---

pub(crate) fn missing_result(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("missing-result", span, format!("`{name}` has no result"))
        .here("the last line of the body must be an expression")
        .help("end the body with the tensor it returns")
}

/// `sign` is the value's first token if it begins a line and could have continued the previous one.
pub(crate) fn unused_value(span: Span, sign: Option<&str>) -> Diagnostic {
    let error = Diagnostic::error("unused-value", span, "this value is not used")
        .here("only the last expression of a body is its result")
        .help("give it a name: `name = …`");
    match sign {
        Some(sign) => error.help(format!("or move `{sign}` up, if it continues the line before")),
        None => error,
    }
}

pub(crate) fn value_in_if(span: Span) -> Diagnostic {
    Diagnostic::error("value-in-if", span, "`if` contains statements and has no value")
        .help("give it a name in each branch: `h = …`, and use `h` after the `if`")
}

pub(crate) fn else_without_if(span: Span) -> Diagnostic {
    Diagnostic::error("else-without-if", span, "`else` without an `if` before it")
        .help("write `if CONDITION { … } else { … }`")
}

pub(crate) fn stray_semicolon(span: Span) -> Diagnostic {
    Diagnostic::error("stray-semicolon", span, "`;` only separates tensors from configuration")
        .help("end the line, or write `,` between entries")
}

pub(crate) fn assignment_in_condition(span: Span) -> Diagnostic {
    Diagnostic::error("assignment-in-condition", span, "`=` is not a comparison").help("write `==`")
}

pub(crate) fn chained_comparison(span: Span, first: Span) -> Diagnostic {
    Diagnostic::error("chained-comparison", span, "comparisons do not chain")
        .here("the second comparison")
        .label(first, "the first")
        .help("join them: `a < b and b < c`")
}

pub(crate) fn operator_on_new_line(span: Span, operator: &str) -> Diagnostic {
    let message = format!("a line cannot begin with `{operator}`");
    Diagnostic::error("operator-on-new-line", span, message).help(format!(
        "end the previous line with `{operator}`, or put the whole expression in parentheses"
    ))
}

pub(crate) fn bracket_on_new_line(span: Span, bracket: &str) -> Diagnostic {
    let message = format!("`{bracket}` has no name before it");
    Diagnostic::error("bracket-on-new-line", span, message)
        .here("a bracket must be on the same line as the name it belongs to")
        .help(format!("move `{bracket}` up to the end of the line before"))
}

pub(crate) fn positional_after_named(span: Span, named: Span) -> Diagnostic {
    let message = "arguments without a name come first";
    Diagnostic::error("positional-after-named", span, message)
        .label(named, "a named argument")
        .help("move it before the named ones, or name it too")
}

// --- entries and paths ---

pub(crate) fn missing_value(span: Span, path: &str) -> Diagnostic {
    Diagnostic::error("missing-value", span, format!("`{path}` has no value"))
        .help(format!("write `{path} VALUE` or `{path} {{ … }}`"))
}

pub(crate) fn value_on_new_line(span: Span, token: &str, path: &str, value: Span) -> Diagnostic {
    let message = format!("{token} does not begin an entry");
    Diagnostic::error("value-on-new-line", span, message)
        .label(value, format!("read as the value of `{path}` on the line before"))
        .help(format!("give `{path}` a value on its own line"))
}

pub(crate) fn entry_in_slot_list(span: Span, token: &str, name: &str) -> Diagnostic {
    let message = format!("{token} cannot be in a list of slots");
    Diagnostic::error("entry-in-slot-list", span, message)
        .here(format!("`{name}` before it is read as a slot"))
        .help(format!(
            "a list of slots ends at the end of the line: write `{name} …` on the next line"
        ))
}

pub(crate) fn bad_selection(span: Span, written: &str) -> Diagnostic {
    let message = format!("{written} does not select layers");
    Diagnostic::error("bad-selection", span, message).help(
        "write `layers[3]`, `layers[0..6]`, `layers[every 4 from 3]`, \
         `layers[mixer is attention]` or `layers[*]`",
    )
}

pub(crate) fn empty_selection(span: Span, reason: &str) -> Diagnostic {
    Diagnostic::error("empty-selection", span, format!("this does not select any layer: {reason}"))
        .help("layers count from 0, and the end of a range is excluded: `layers[0..6]`")
}

pub(crate) fn misplaced_layers(span: Span) -> Diagnostic {
    Diagnostic::error("misplaced-layers", span, "`layers[…]` only begins a path")
        .help("write it first: `layers[3].mixer.heads`")
}

pub(crate) fn layers_by_dot(span: Span, index: &str) -> Diagnostic {
    Diagnostic::error("layers-by-dot", span, "layers are selected with brackets")
        .help(format!("write `layers[{index}]`"))
}
