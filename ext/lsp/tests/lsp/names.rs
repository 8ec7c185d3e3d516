//! References and renaming, in all files of a workspace.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::client::Client;

const LIB: &str = "\
/// Two projections.
mlp gated(x; width = 2 * dim) {
  up = linear up (x, width)
  gate = linear side (x, width)
  linear down (up * sigmoid(gate), dim)
}

block carried(x) {
  carry first = x
  x + first
}

arch base {
  vocab 256   dim 64   norm_eps 1e-5
  init lingua
  layers 2 of decoder {
    mixer attention { heads 4 }
    mlp   gated { width 96 }
  }
}
";

const USES: &str = "\
import base, gated as half from \"lib.canon\"

mlp narrow = half { width 32 }

block other(x) {
  half(x, width = 16)
}

arch more = base with { mlp.width 48 }
";

const RECIPE: &str = "arch = \"../lib.canon#base\"\n[sweep]\narch = [\"../lib.canon#base\", \"../uses.canon#more\"]\n";

fn client() -> Client {
    let mut client =
        Client::new(&[("lib.canon", LIB), ("uses.canon", USES), ("recipes/r.toml", RECIPE)]);
    client.open("lib.canon", LIB);
    assert!(client.diagnostics("lib.canon").is_empty());
    client
}

/// The texts of the files after a renaming.
fn renamed(client: &mut Client, name: &str, pattern: &str, new: &str) -> BTreeMap<String, String> {
    let mut params = client.at(name, pattern);
    params["newName"] = json!(new);
    let answer = client.ask("textDocument/rename", params);
    let mut texts: BTreeMap<String, String> =
        [("lib.canon", LIB), ("uses.canon", USES), ("recipes/r.toml", RECIPE)]
            .map(|(name, text)| (name.to_owned(), text.to_owned()))
            .into();
    for (url, edits) in answer["changes"].as_object().unwrap() {
        let name = client.name(url);
        let text = texts.get_mut(&name).unwrap();
        let lines = text.clone();
        let offset = |at: &Value| {
            let line = at["line"].as_u64().unwrap() as usize;
            let start: usize = lines.split_inclusive('\n').take(line).map(str::len).sum();
            start + at["character"].as_u64().unwrap() as usize
        };
        let mut edits: Vec<(usize, usize, String)> = edits
            .as_array()
            .unwrap()
            .iter()
            .map(|edit| {
                let range = &edit["range"];
                let new = edit["newText"].as_str().unwrap().to_owned();
                (offset(&range["start"]), offset(&range["end"]), new)
            })
            .collect();
        edits.sort();
        for (start, end, new) in edits.into_iter().rev() {
            text.replace_range(start..end, &new);
        }
    }
    texts
}

fn refused(client: &mut Client, pattern: &str, new: &str) -> String {
    let mut params = client.at("lib.canon", pattern);
    params["newName"] = json!(new);
    client.try_ask("textDocument/rename", params).unwrap_err()
}

#[test]
fn a_local_name_is_renamed_in_its_body() {
    let mut client = client();
    let texts = renamed(&mut client, "lib.canon", "up * sigmoid(ga|te)", "opened");
    let want = LIB.replace("gate = linear", "opened = linear").replace("(gate)", "(opened)");
    assert_eq!(texts["lib.canon"], want);
    assert_eq!(texts["uses.canon"], USES);
    // The instance `up` is another name than the tensor `up`.
    let texts = renamed(&mut client, "lib.canon", "|up = linear", "high");
    let want = LIB.replace("up = linear", "high = linear").replace("(up *", "(high *");
    assert_eq!(texts["lib.canon"], want);
}

#[test]
fn configuration_is_renamed_wherever_it_is_set() {
    let mut client = client();
    client.open("uses.canon", USES);
    client.diagnostics("uses.canon");
    let texts = renamed(&mut client, "lib.canon", "|width = 2 * dim", "hidden");
    assert_eq!(texts["lib.canon"], LIB.replace("width", "hidden"));
    assert_eq!(texts["uses.canon"], USES.replace("width", "hidden"));
}

#[test]
fn definitions_are_renamed_in_all_files() {
    let mut client = client();
    let texts = renamed(&mut client, "lib.canon", "arch ba|se", "ground");
    assert_eq!(texts["lib.canon"], LIB.replace("arch base", "arch ground"));
    assert_eq!(texts["uses.canon"], USES.replace("base", "ground"));
    assert_eq!(texts["recipes/r.toml"], RECIPE.replace("#base", "#ground"));
    // Under an alias, only the import itself changes.
    let texts = renamed(&mut client, "lib.canon", "mlp ga|ted(", "sided");
    assert_eq!(texts["lib.canon"], LIB.replace("gated", "sided"));
    assert_eq!(texts["uses.canon"], USES.replace("gated", "sided"));
    client.open("uses.canon", USES);
    let texts = renamed(&mut client, "uses.canon", "narrow = ha|lf", "part");
    assert_eq!(texts["lib.canon"], LIB);
    assert_eq!(texts["uses.canon"], USES.replace("half", "part"));
}

#[test]
fn what_cannot_be_renamed_is_refused_with_the_reason() {
    let mut client = client();
    let std = refused(&mut client, "layers 2 of deco|der", "layer_of_mine");
    assert_eq!(std, "`decoder` is defined in std/decoder.canon, which is part of canonc");
    assert_eq!(refused(&mut client, "up = lin|ear up", "dense"), "`linear` is a primitive");
    let carried = refused(&mut client, "carry fir|st", "second");
    assert!(carried.contains("the same tensor"), "{carried}");
    assert_eq!(refused(&mut client, "gate = lin|ear side", "x"), "`linear` is a primitive");
    let taken = refused(&mut client, "|gate = linear", "up");
    assert_eq!(taken, "`up` is already used at lib.canon:3");
    assert_eq!(refused(&mut client, "|gate = linear", "slot"), "`slot` is a keyword");
    assert!(refused(&mut client, "|gate = linear", "a-b").contains("is not a name"));
    let params = client.at("lib.canon", "layers 2 of deco|der");
    assert!(client.try_ask("textDocument/prepareRename", params).is_err());
    let params = client.at("lib.canon", "up * sigmoid(ga|te)");
    let range = client.ask("textDocument/prepareRename", params);
    assert_eq!(client.written("lib.canon", &range), "gate");
    client.replace("lib.canon", "arch base {", "arch base");
    assert!(refused(&mut client, "|gate = linear", "opened").contains("errors"));
}

#[test]
fn references_are_in_all_files() {
    let mut client = client();
    let mut params = client.at("lib.canon", "mlp ga|ted(");
    params["context"] = json!({ "includeDeclaration": true });
    let answer = client.ask("textDocument/references", params);
    let places = client.places(&answer);
    let want = ["lib.canon:2 `gated`", "lib.canon:18 `gated`", "uses.canon:1 `gated`"];
    assert_eq!(places, want);
    let params = client.at("lib.canon", "up * sigmoid(ga|te)");
    let marks = client.ask("textDocument/documentHighlight", params);
    assert_eq!(marks.as_array().unwrap().len(), 2);
    let symbols = client.ask("workspace/symbol", json!({ "query": "MOR" }));
    assert_eq!(symbols[0]["name"], "more");
}
