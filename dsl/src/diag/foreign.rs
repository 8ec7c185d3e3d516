//! Words of other languages that people write out of habit, with what to write here.

/// What to write instead of a word of Python, Rust or JavaScript.
pub fn advice_for(word: &str) -> Option<&'static str> {
    Some(match word {
        "return" | "yield" => "leave it out: the last expression of a body is its result",
        "for" | "while" | "loop" => {
            "there are no loops: layers repeat by `layers 12 of decoder { … }`, and a body computes all tokens at once"
        }
        "def" | "fn" | "func" | "function" | "lambda" => {
            "write a definition of the file: `block f(x) { … }`; its last expression is its result"
        }
        "class" => {
            "write a definition of the file: `mixer m(x; heads) { … }`, `mlp m(x) { … }` or `block b(x) { … }`"
        }
        "let" | "var" | "const" => "leave it out: `name = value`",
        "elif" => "write `else if CONDITION { … }`",
        "pass" | "break" | "continue" => "remove it: a body has statements and then its result",
        "print" | "assert" => "remove it: `canonc show` and `canonc graph` show shapes and values",
        _ => return None,
    })
}
