//! What depends on the client: its capabilities, its folders, its documents without files, its process.

use std::process::Command;

use lsp_server::{Connection, Message, Request};
use serde_json::{Value, json};

use super::client::Client;

const SMALL: &str = "\
/// Tiny.
arch small {
  vocab 256   dim 64   norm_eps 1e-5
  init lingua
  layers 2 of decoder {
    mixer attention { heads 4 }
    mlp   swiglu { hidden 128 }
  }
}
";

#[test]
fn a_client_without_capabilities_gets_the_older_forms() {
    let mut client = Client::started(&[], json!({ "capabilities": {} }));
    assert_eq!(client.capabilities["renameProvider"], json!(true));
    client.open("a.canon", SMALL);
    let hover = client.ask("textDocument/hover", client.at("a.canon", "mixer att|ention"));
    assert_eq!(hover["contents"]["kind"], "plaintext");
    assert!(!hover["contents"]["value"].as_str().unwrap().contains("```"), "{hover}");
    let position = client.at("a.canon", "mixer att|ention");
    let items = client.ask("textDocument/completion", position)["items"].clone();
    let kinds = items.as_array().unwrap().iter().map(|item| &item["documentation"]["kind"]);
    assert!(
        kinds.clone().any(|kind| kind == "plaintext") && kinds.clone().all(|k| k != "markdown")
    );
    let document = json!({ "textDocument": { "uri": client.url("a.canon") } });
    let symbols = client.ask("textDocument/documentSymbol", document.clone());
    assert_eq!(symbols[0]["location"]["uri"], client.url("a.canon"), "{symbols}");
    let range =
        json!({ "start": { "line": 0, "character": 0 }, "end": { "line": 9, "character": 0 } });
    let mut params = document;
    params["range"] = range;
    params["context"] = json!({ "diagnostics": [] });
    assert!(client.ask("textDocument/codeAction", params).is_null());
}

#[test]
fn a_second_initialize_is_an_invalid_request() {
    let mut client = Client::new(&[]);
    let params = json!({ "capabilities": {}, "processId": null, "rootUri": null });
    let error = client.try_ask("initialize", params).unwrap_err();
    assert_eq!(error, "the server is initialized already");
}

#[test]
fn all_folders_of_a_workspace_are_searched() {
    let files = [("one/a.canon", SMALL), ("two/b.canon", &SMALL.replace("small", "other"))];
    let third = tempfile::tempdir().unwrap();
    std::fs::write(third.path().join("c.canon"), SMALL.replace("small", "third")).unwrap();
    let mut client = Client::new(&files);
    let folder = |path: String| json!({ "uri": format!("file://{path}"), "name": "x" });
    let names = |client: &mut Client| -> Vec<String> {
        let symbols = client.ask("workspace/symbol", json!({ "query": "" }));
        let name = |symbol: &Value| symbol["name"].as_str().unwrap().to_owned();
        symbols.as_array().unwrap().iter().map(name).collect()
    };
    assert_eq!(names(&mut client), ["small", "other"]);
    let root = folder(client.path("").to_string_lossy().trim_end_matches('/').to_owned());
    let third = folder(third.path().to_string_lossy().into_owned());
    let change =
        |added: &Value, removed: &Value| json!({ "event": { "added": added, "removed": removed } });
    let method = "workspace/didChangeWorkspaceFolders";
    client.tell(method, change(&json!([third]), &json!([])));
    let mut sorted = names(&mut client);
    sorted.sort();
    assert_eq!(sorted, ["other", "small", "third"]);
    client.tell(method, change(&json!([]), &json!([root])));
    assert_eq!(names(&mut client), ["third"]);
}

#[test]
fn a_document_without_a_file_is_judged_and_explained() {
    let mut client = Client::new(&[("base.canon", SMALL)]);
    let uri = "untitled:Untitled-1";
    let text = "import small from \"base.canon\"\n\narch large = small with { dimm 128 }\n";
    let document = json!({ "uri": uri, "languageId": "canon", "version": 1, "text": text });
    client.tell("textDocument/didOpen", json!({ "textDocument": document }));
    let position = json!({
        "textDocument": { "uri": uri }, "position": { "line": 2, "character": 14 },
    });
    let hover = client.ask("textDocument/hover", position.clone());
    assert!(hover["contents"]["value"].as_str().unwrap().contains("small"), "{hover}");
    let definition = client.ask("textDocument/definition", position);
    assert_eq!(client.places(&definition), ["base.canon:2 `small`"]);
    let keyword =
        json!({ "textDocument": { "uri": uri }, "position": { "line": 2, "character": 6 } });
    let definition = client.ask("textDocument/definition", keyword);
    assert_eq!(definition[0]["uri"], uri, "{definition}");
    let lines = client.lines_of(uri);
    assert!(lines.len() == 1 && lines[0].contains("have no `dimm`"), "{lines:?}");
}

/// Lines end as those of the document do.
#[test]
fn formatting_keeps_carriage_returns() {
    let mut client = Client::new(&[]);
    let returns = SMALL.replace('\n', "\r\n");
    client.open("a.canon", &returns);
    let params = json!({
        "textDocument": { "uri": client.url("a.canon") },
        "options": { "tabSize": 2, "insertSpaces": true },
    });
    assert_eq!(client.ask("textDocument/formatting", params.clone()), json!([]));
    client.set("a.canon", &returns.replace("arch small", "arch  small"));
    let edits = client.ask("textDocument/formatting", params);
    assert_eq!(edits.as_array().unwrap().len(), 1, "{edits}");
    assert_eq!(edits[0]["newText"], "", "{edits}");
}

/// Even before the client says that it is ready.
#[cfg(unix)]
#[test]
fn the_server_ends_with_the_process_of_its_client() {
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let (connection, other) = Connection::memory();
    let server = std::thread::spawn(move || lsp::serve(&other));
    let params = json!({ "processId": ended.id(), "capabilities": {} });
    let request = Request::new(1.into(), "initialize".to_owned(), params);
    connection.sender.send(Message::Request(request)).unwrap();
    assert!(matches!(connection.receiver.recv(), Ok(Message::Response(_))));
    assert_eq!(server.join().unwrap(), Ok(lsp::Ended::Abandoned));
}
