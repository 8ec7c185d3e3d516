//! Texts that are being typed: at every beginning of a text and after random edits, each question has an answer that is no
//! error, and the server's text is the client's.

use proptest::prelude::*;
use serde_json::{Value, json};
use support::programs::read;

use super::client::Client;

/// Asks everything about a place; an error fails the test.
fn ask_all(client: &mut Client, name: &str, offset: usize, text: &str) {
    let document = json!({ "uri": client.url(name) });
    let position = json!({ "textDocument": document, "position": client.position(text, offset) });
    for method in ["hover", "definition", "completion", "documentHighlight"] {
        client.ask(&format!("textDocument/{method}"), position.clone());
    }
    let document_params =
        json!({ "textDocument": document, "options": { "tabSize": 2, "insertSpaces": true } });
    for method in ["documentSymbol", "formatting", "semanticTokens/full"] {
        client.ask(&format!("textDocument/{method}"), document_params.clone());
    }
    let mut references = position.clone();
    references["context"] = json!({ "includeDeclaration": true });
    client.ask("textDocument/references", references);
    // Renaming may be refused.
    let mut rename = position;
    rename["newName"] = json!("renamed");
    if let Err(error) = client.try_ask("textDocument/rename", rename) {
        assert!(!error.contains("canonc failed"), "{error}");
    }
}

/// Diagnostics without the addresses of their files.
fn without_addresses(diagnostics: Vec<Value>) -> Vec<Value> {
    diagnostics.into_iter().map(|d| json!([d["range"], d["message"]])).collect()
}

#[test]
fn every_beginning_of_a_file_has_answers() {
    let names = ["std/attention.canon", "arch/hybrid_tiny.canon", "recipes/demo_llama.toml"];
    for name in names {
        let text = read(name);
        let mut client = Client::new(&[]);
        client.open(name, "");
        let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        for end in ends.into_iter().step_by(29) {
            client.set(name, &text[..end]);
            ask_all(&mut client, name, end, &text[..end]);
        }
        client.set(name, &text);
        client.diagnostics(name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn random_edits_have_answers(
        edits in prop::collection::vec(
            (0usize..2000, 0usize..40, "[a-z{}()\\[\\],;=.\"/ é𝄞\n0-9]{0,6}"), 1..6,
        ),
        at in 0usize..2000,
    ) {
        let mut text = read("arch/hybrid_tiny.canon") + &read("std/swiglu.canon");
        let mut client = Client::new(&[]);
        client.open("a.canon", &text);
        let floor = |text: &str, mut at: usize| {
            at = at.min(text.len());
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            at
        };
        for (start, length, new) in edits {
            let start = floor(&text, start);
            let end = floor(&text, start + length).max(start);
            let range = json!({
                "start": client.position(&text, start), "end": client.position(&text, end),
            });
            client.change("a.canon", json!([{ "range": range, "text": new }]));
            text.replace_range(start..end, &new);
            let at = floor(&text, at);
            ask_all(&mut client, "a.canon", at, &text);
        }
        // The diagnostics are those of the same text sent whole.
        let diagnostics = client.diagnostics("a.canon");
        let mut other = Client::new(&[]);
        other.open("a.canon", &text);
        prop_assert_eq!(without_addresses(diagnostics), without_addresses(other.diagnostics("a.canon")));
    }
}

/// Four archs, of which edits change one, some, or what all of them use.
const FAMILY: &str = "\
mlp squared(x; hidden = 4 * dim) {
  up = linear up (x, hidden)
  linear down (up * up, dim)
}

arch one { vocab 256   dim 64   init lingua  layers 2 of decoder { mixer attention { heads 4 }  mlp squared } }
arch two = one with { mixer.heads 8 }
arch three = two with { canon A, B }
arch four { vocab 256   dim 32   init lingua  layers 1 of decoder { mixer attention { heads 2 }  mlp swiglu } }
";

/// What an edit puts in the place of what; the same edit again takes it back.
const EDITS: [(&str, &str); 9] = [
    ("mixer.heads 8", "mixer.heads 7"),
    ("dim 64", "dim 62"),
    ("linear up (x, hidden)", "linear up (x, dim)"),
    ("canon A, B", "canon A, Q"),
    ("heads 2 }", "heads 2, rope { dims 3 } }"),
    ("arch two = one", "arch two = four"),
    ("mlp squared(x; hidden", "mlp swiglu(x; hidden"),
    ("swiglu } }\n", "swiglu } }\narch five = three with { mlp.hiden 3 }\n"),
    ("init lingua  layers 1", "init lingua layers 1"),
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The server judges an arch again only if something that it uses has changed.
    #[test]
    fn findings_are_those_of_the_whole_text_after_every_edit(
        edits in prop::collection::vec(0..EDITS.len(), 1..12),
    ) {
        let mut text = FAMILY.to_owned();
        let mut client = Client::new(&[]);
        client.open("a.canon", &text);
        for edit in edits {
            let (old, new) = EDITS[edit];
            let (old, new) = if text.contains(new) { (new, old) } else { (old, new) };
            let start = text.find(old).unwrap();
            let range = json!({
                "start": client.position(&text, start),
                "end": client.position(&text, start + old.len()),
            });
            client.change("a.canon", json!([{ "range": range, "text": new }]));
            text.replace_range(start..start + old.len(), new);
            let mut other = Client::new(&[]);
            other.open("a.canon", &text);
            let (edited, fresh) = (client.diagnostics("a.canon"), other.diagnostics("a.canon"));
            prop_assert_eq!(without_addresses(edited), without_addresses(fresh));
        }
    }
}

#[test]
fn odd_messages_are_answered_or_ignored() {
    let mut client = Client::new(&[]);
    let error = client.try_ask("textDocument/unheardOf", json!({})).unwrap_err();
    assert_eq!(error, "canonc does not answer `textDocument/unheardOf`");
    assert!(client.try_ask("textDocument/hover", json!({ "what": 1 })).is_err());
    client.tell("textDocument/didChange", json!({ "what": 1 }));
    client.tell("$/cancelRequest", json!({ "id": 1 }));
    // A document that is not a file, and one that is not open.
    let position_in = |uri: &str| {
        json!({
            "textDocument": { "uri": uri }, "position": { "line": 0, "character": 0 },
        })
    };
    assert!(client.ask("textDocument/hover", position_in("file:///no/such.canon")).is_null());
    client.tell(
        "textDocument/didOpen",
        json!({ "textDocument": {
            "uri": "untitled:Untitled-1", "languageId": "canon", "version": 1, "text": "x",
        }}),
    );
    assert!(client.ask("textDocument/hover", position_in("untitled:Untitled-1")).is_null());
    // A text beyond the bound of the language.
    client.open("big.canon", &"// x\n".repeat(300_000));
    let lines = client.diagnostics("big.canon");
    assert!(lines[0]["message"].as_str().unwrap().contains("1 MiB"), "{lines:?}");
}
