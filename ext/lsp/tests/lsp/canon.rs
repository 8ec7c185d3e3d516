//! `.canon` files: diagnostics, hover, definitions, completion, formatting, colours.

use serde_json::{Value, json};

use super::client::Client;

const SMALL: &str = "\
/// A gate that is squared.
mlp squared(x; hidden = 4 * dim) {
  up = linear up (x, hidden)
  gate = sigmoid(linear gate (x, hidden))
  linear down (up * gate * gate, dim)
}

/// Tiny.
arch small {
  vocab 256   dim 64   norm_eps 1e-5
  init lingua
  layers 2 of decoder {
    mixer attention { heads 4, rope { dims 8 } }
    mlp   squared
  }
}

arch canonical = small with { canon A, B }
";

const USES: &str = "\
import small as base, squared from \"lib/small.canon\"

arch wide = base with {
  mlp.hidden 128
  layers[mixer is attention].mixer.heads 8
}
";

fn client() -> Client {
    Client::new(&[("lib/small.canon", SMALL), ("uses.canon", USES)])
}

#[test]
fn errors_appear_and_disappear() {
    let mut client = client();
    client.open("lib/small.canon", SMALL);
    assert_eq!(client.lines("lib/small.canon"), Vec::<String>::new());
    client.replace("lib/small.canon", "linear gate (x, hidden)", "linear gate (x, hiden)");
    let lines = client.lines("lib/small.canon");
    let want =
        "unknown-name at `hiden`: cannot find the name `hiden`\nhelp: did you mean `hidden`?";
    assert_eq!(lines, [want]);
    client.replace("lib/small.canon", "hiden", "hidden");
    // Shapes are checked where an arch is built.
    client.replace("lib/small.canon", "linear up (x, hidden)", "linear up (x, dim)");
    let lines = client.lines("lib/small.canon");
    assert!(lines.len() == 1 && lines[0].contains("256") && lines[0].contains("64"), "{lines:?}");
    client.replace("lib/small.canon", "linear up (x, dim)", "linear up (x, hidden)");
    assert!(client.diagnostics("lib/small.canon").is_empty());
}

#[test]
fn independent_errors_are_all_reported() {
    let mut client = client();
    let text = "block a(x) {\n  y = \n  x + z1\n}\n\nblock b(x) {\n  w = (x\n  w\n}\n\n\
        arch c { vocab 8 dim 8 norm_eps 1 init lingua layers 1 of nothing }\n";
    client.open("many.canon", text);
    let lines = client.lines("many.canon");
    let has = |word: &str| lines.iter().any(|line| line.contains(word));
    assert!(lines.len() >= 3 && has("z1") && has("nothing"), "{lines:#?}");
}

#[test]
fn an_error_of_an_import_is_shown_at_the_import() {
    let mut client = client();
    client.open_file("uses.canon");
    assert!(client.lines("uses.canon").is_empty());
    // The imported file is open as well, and is edited.
    client.open_file("lib/small.canon");
    client.diagnostics("lib/small.canon");
    client.replace("lib/small.canon", "sigmoid(", "sigmoidd(");
    let lines = client.lines_once("uses.canon", true);
    let diagnostics = client.diagnostics("uses.canon");
    assert!(
        lines[0].starts_with("unknown-name at `\"lib/small.canon\"`: in lib/small.canon: "),
        "{lines:?}"
    );
    let related = &diagnostics[0]["relatedInformation"][0]["location"];
    assert_eq!(client.name(related["uri"].as_str().unwrap()), "lib/small.canon");
    assert_eq!(client.written("lib/small.canon", &related["range"]), "sigmoidd");
    client.replace("lib/small.canon", "sigmoidd(", "sigmoid(");
    client.lines_once("uses.canon", false);
}

#[test]
fn a_misspelling_has_a_correction() {
    let mut client = client();
    let text = SMALL.replace("sigmoid(", "sigmod(");
    client.open("lib/small.canon", &text);
    let diagnostics = client.diagnostics("lib/small.canon");
    let params = json!({
        "textDocument": { "uri": client.url("lib/small.canon") },
        "range": diagnostics[0]["range"], "context": { "diagnostics": diagnostics },
    });
    let actions = client.ask("textDocument/codeAction", params);
    assert_eq!(actions[0]["title"], "Change to `sigmoid`");
    let edit = &actions[0]["edit"]["changes"][client.url("lib/small.canon")][0];
    assert_eq!(edit["newText"], "sigmoid");
    assert_eq!(client.written("lib/small.canon", &edit["range"]), "sigmod");
    // The path of an import keeps its quotes.
    let text = USES.replace("lib/small.canon", "lib/smal.canon");
    client.open("uses.canon", &text);
    let diagnostics = client.diagnostics("uses.canon");
    let params = json!({
        "textDocument": { "uri": client.url("uses.canon") },
        "range": diagnostics[0]["range"], "context": { "diagnostics": diagnostics },
    });
    let actions = client.ask("textDocument/codeAction", params);
    let edit = &actions[0]["edit"]["changes"][client.url("uses.canon")][0];
    assert_eq!(edit["newText"], "lib/small.canon");
    assert_eq!(client.written("uses.canon", &edit["range"]), "lib/smal.canon");
}

#[test]
fn hover_shows_the_value_of_a_name_and_its_origin() {
    let mut client = client();
    client.open("lib/small.canon", SMALL);
    client.open("uses.canon", USES);
    let mut shown = String::new();
    for (name, pattern) in [
        ("lib/small.canon", "up = lin|ear up"),
        ("lib/small.canon", "linear up| (x, hidden)"),
        ("lib/small.canon", "linear up (x|, hidden)"),
        ("lib/small.canon", "(up * ga|te * gate, dim)"),
        ("lib/small.canon", "(up |* gate * gate, dim)"),
        ("lib/small.canon", "hid|den = 4 * dim"),
        ("lib/small.canon", "hidden = 4 * d|im"),
        ("lib/small.canon", "linear down (up * gate * gate, di|m)"),
        ("lib/small.canon", "arch sm|all {"),
        ("lib/small.canon", "layers 2 of deco|der {"),
        ("lib/small.canon", "{ head|s 4"),
        ("lib/small.canon", "{ di|ms 8 }"),
        ("lib/small.canon", "canon A|, B"),
        ("lib/small.canon", "init lin|gua"),
        ("lib/small.canon", "    mlp   squ|ared"),
        ("uses.canon", "import sma|ll"),
        ("uses.canon", "\"lib/sm|all.canon\""),
        ("uses.canon", "mlp.hid|den 128"),
        ("uses.canon", ".mixer.hea|ds 8"),
        ("uses.canon", "arch wi|de ="),
    ] {
        let hover = client.hover(name, pattern);
        shown += &format!("## {pattern}\n{hover}\n\n");
    }
    insta::assert_snapshot!(shown);
}

#[test]
fn hover_follows_a_text_that_is_being_typed() {
    let mut client = client();
    client.open("lib/small.canon", SMALL);
    let before = client.hover("lib/small.canon", "(up * ga|te * gate, dim)");
    assert!(before.contains("[batch, time, 256]"), "{before}");
    // A new line that does not parse, above.
    client.replace("lib/small.canon", "  up = linear", "  half = linear (x,\n  up = linear");
    assert!(!client.diagnostics("lib/small.canon").is_empty());
    assert_eq!(client.hover("lib/small.canon", "(up * ga|te * gate, dim)"), before);
    client.replace("lib/small.canon", "arch small {", "arch small {\n  layers 10000000000 of {");
    assert_eq!(client.hover("lib/small.canon", "(up * ga|te * gate, dim)"), before);
}

#[test]
fn definitions_lead_through_imports_and_std() {
    let mut client = client();
    client.open("lib/small.canon", SMALL);
    client.open("uses.canon", USES);
    let mut shown = String::new();
    for (name, pattern) in [
        ("lib/small.canon", "linear up (x|, hidden)"),
        ("lib/small.canon", "linear gate (x, hid|den)"),
        ("lib/small.canon", "(up * gate * ga|te, dim)"),
        ("lib/small.canon", "    mlp   squ|ared"),
        ("lib/small.canon", "canonical = sma|ll with"),
        ("lib/small.canon", "mixer atten|tion {"),
        ("lib/small.canon", "{ head|s 4"),
        ("lib/small.canon", "{ di|ms 8 }"),
        ("lib/small.canon", "canon A|, B"),
        ("lib/small.canon", "up = lin|ear up"),
        ("lib/small.canon", "hidden = 4 * d|im"),
        ("lib/small.canon", "init lin|gua"),
        ("uses.canon", "import sma|ll"),
        ("uses.canon", "wide = ba|se with"),
        ("uses.canon", "\"lib/sm|all.canon\""),
        ("uses.canon", "mlp.hid|den 128"),
        ("uses.canon", ".mixer.hea|ds 8"),
    ] {
        let places = client.definition(name, pattern).join(", ");
        // The description of the language grows.
        let places = match places.split_once("LANGUAGE.md:") {
            Some((before, row)) => {
                format!(
                    "{before}LANGUAGE.md{}",
                    row.trim_start_matches(|c: char| c.is_ascii_digit())
                )
            }
            None => places,
        };
        shown += &format!("{pattern}\n  {places}\n");
    }
    // The folder of std is named after its text.
    let folder = std::fs::read_dir(client.path("cache/canonc")).unwrap().next().unwrap().unwrap();
    let folder = folder.file_name().into_string().unwrap();
    insta::assert_snapshot!(shown.replace(&folder, "STD"));
    // The text is there, and opening it shows no diagnostics.
    let name = format!("cache/canonc/{folder}/attention.canon");
    let text = std::fs::read_to_string(client.path(&name)).unwrap();
    assert!(text.contains("mixer attention("));
    client.open(&name, &text);
    assert!(client.hover(&name, "mixer atten|tion(").contains("Softmax attention"));
}

#[test]
fn completion_knows_what_fits() {
    let mut client = client();
    client.open("lib/small.canon", SMALL);
    client.diagnostics("lib/small.canon");
    let has = |labels: &[String], words: &[&str]| {
        for word in words {
            assert!(labels.iter().any(|label| label == word), "{word} in {labels:?}");
        }
    };
    let mut at = |old: &str, new: &str, pattern: &str| {
        client.set("lib/small.canon", &SMALL.replacen(old, new, 1));
        client.completion("lib/small.canon", pattern)
    };
    // Settings of a definition, without those that are set.
    let labels = at("heads 4, rope", "heads 4, k rope", "heads 4, k| rope");
    has(&labels, &["kv_heads", "head_dim", "window", "rope"]);
    assert!(!labels.contains(&"heads".to_owned()), "{labels:?}");
    has(&at("dims 8", "dims 8 th", "dims 8 th|"), &["theta", "layout"]);
    has(&at("dims 8", "layout i", "layout i|"), &["interleaved", "half"]);
    has(&at("mlp   squared", "mlp s", "    mlp s|"), &["squared", "swiglu"]);
    has(&at("init lingua", "init ", "init |\n"), &["lingua", "huggingface"]);
    has(&at("layers 2 of decoder", "layers 2 of d", "layers 2 of d|"), &["decoder", "mixer_only"]);
    has(&at("canon A, B", "canon A, ", "canon A, | }"), &["A", "B", "C"]);
    has(&at("{ canon A, B }", "{ mixer.", "with { mixer.|"), &["heads", "rope"]);
    has(&at("{ canon A, B }", "{ mixer.rope.", "mixer.rope.|"), &["dims", "theta"]);
    has(&at("canonical = small", "canonical = s", "canonical = s| with"), &["small"]);
    let labels = at("linear up (x, hidden)", "linear up (x, )", "linear up (x, |)");
    has(&labels, &["out", "bias", "x", "hidden", "dim", "sigmoid", "floor"]);
    // Names of the body that are bound later do not fit yet.
    assert!(!labels.contains(&"gate".to_owned()));
    let labels = at("  linear down (up * gate * gate, dim)\n}", "  ", "  |\n\n/// Tiny");
    has(&labels, &["gate", "up", "param", "if", "linear"]);
    client.open("uses.canon", &USES.replace("small as base, squared", ""));
    has(&client.completion("uses.canon", "import | from"), &["small", "squared", "canonical"]);
    client.set("uses.canon", "import small from \"li\n");
    has(&client.completion("uses.canon", "\"li|"), &["lib/"]);
    client.set("uses.canon", "import small from \"lib/s\"\n");
    has(&client.completion("uses.canon", "\"lib/s|\""), &["lib/small.canon"]);
}

#[test]
fn formatting_is_that_of_fmt() {
    let mut client = client();
    let text = "/// é𝄞\nblock f(x) { y=x+x\n\n\n\n  y }\n";
    client.open("f.canon", text);
    let params = json!({
        "textDocument": { "uri": client.url("f.canon") },
        "options": { "tabSize": 8, "insertSpaces": false },
    });
    let edits = client.ask("textDocument/formatting", params.clone());
    let edits = edits.as_array().unwrap().clone();
    client.change("f.canon", json!([{ "range": edits[0]["range"], "text": edits[0]["newText"] }]));
    // Now there is nothing to do, so the edit was right.
    assert_eq!(client.ask("textDocument/formatting", params.clone()), json!([]));
    let symbols = client.ask("textDocument/documentSymbol", params.clone());
    assert_eq!(
        (&symbols[0]["name"], &symbols[0]["range"]["start"]["line"]),
        (&json!("f"), &json!(1))
    );
    client.set("f.canon", "block f(x) {");
    assert_eq!(client.ask("textDocument/formatting", params), json!([]));
}

/// The tokens of a document, as words with their classes.
fn tokens(client: &mut Client, name: &str, text: &str) -> Vec<String> {
    let legend = client.capabilities["semanticTokensProvider"]["legend"].clone();
    let names = |key: &str| -> Vec<String> {
        legend[key].as_array().unwrap().iter().map(|v| v.as_str().unwrap().to_owned()).collect()
    };
    let (types, modifiers) = (names("tokenTypes"), names("tokenModifiers"));
    let params = json!({ "textDocument": { "uri": client.url(name) } });
    let data = client.ask("textDocument/semanticTokens/full", params)["data"].clone();
    let data: Vec<u64> = data.as_array().unwrap().iter().map(|v| v.as_u64().unwrap()).collect();
    let (mut line, mut column) = (0, 0);
    let lines: Vec<&str> = text.split('\n').collect();
    data.chunks(5)
        .map(|token| {
            (line, column) = match token[0] {
                0 => (line, column + token[1]),
                down => (line + down, token[1]),
            };
            let units: Vec<u16> = lines[line as usize].encode_utf16().collect();
            let word = &units[column as usize..(column + token[2]) as usize];
            let mut class = types[token[3] as usize].clone();
            for (bit, modifier) in modifiers.iter().enumerate() {
                if token[4] & (1 << bit) != 0 {
                    class += &format!(".{modifier}");
                }
            }
            format!("{} {class}", String::from_utf16(word).unwrap())
        })
        .collect()
}

#[test]
fn words_are_coloured_by_their_meaning() {
    let mut client = client();
    client.open("uses.canon", USES);
    let uses = tokens(&mut client, "uses.canon", USES).join("\n");
    let text = format!("// 𝄞 é\n{SMALL}");
    client.open("lib/small.canon", &text);
    let small = tokens(&mut client, "lib/small.canon", &text).join("\n");
    insta::assert_snapshot!(format!("{uses}\n\n{small}"));
}

#[test]
fn columns_are_those_that_the_client_counts() {
    let text = "/* 𝄞 */ block é(x) { x }\n";
    for encodings in [json!(["utf-8", "utf-16"]), json!(["utf-16"]), Value::Null] {
        let mut client =
            Client::with(&[], json!({ "general": { "positionEncodings": encodings } }));
        let utf8 = encodings.to_string().contains("utf-8");
        let want = if utf8 { "utf-8" } else { "utf-16" };
        assert_eq!(client.capabilities["positionEncoding"], want);
        client.open("a.canon", text);
        let diagnostics = client.diagnostics("a.canon");
        let at = diagnostics.iter().find(|d| d["message"].as_str().unwrap().contains('é')).unwrap();
        assert_eq!(client.written("a.canon", &at["range"]), "é");
    }
}
