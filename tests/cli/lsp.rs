//! `canonc lsp` as a process on its pipes: only messages of the protocol are on standard output. Its answers are tested
//! in `ext/lsp/tests`.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};

use crate::{command, root};

struct Editor {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Editor {
    fn new() -> Editor {
        let mut command = command(&root(), &["lsp", "--stdio"]);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        Editor { child, input, output }
    }

    fn send(&mut self, message: &Value) {
        let text = message.to_string();
        let input = self.input.as_mut().unwrap();
        write!(input, "Content-Length: {}\r\n\r\n{text}", text.len()).unwrap();
        input.flush().unwrap();
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.send(&json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }));
        loop {
            let message = self.receive();
            if message["id"] == 7 {
                return message["result"].clone();
            }
        }
    }

    fn tell(&mut self, method: &str, params: &Value) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    fn receive(&mut self) -> Value {
        let mut length = 0;
        loop {
            let mut line = String::new();
            self.output.read_line(&mut line).unwrap();
            match line.trim_end() {
                "" => break,
                header => {
                    let (name, value) = header.split_once(": ").unwrap();
                    if name == "Content-Length" {
                        length = value.parse().unwrap();
                    }
                }
            }
        }
        let mut text = vec![0; length];
        self.output.read_exact(&mut text).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    fn start(&mut self) -> Value {
        let folder = format!("file://{}", root().to_string_lossy());
        let params = json!({ "capabilities": {}, "rootUri": folder });
        let answer = self.ask("initialize", &params);
        self.tell("initialized", &json!({}));
        answer
    }
}

#[test]
fn an_editor_starts_asks_and_ends() {
    let mut editor = Editor::new();
    let answer = editor.start();
    assert_eq!(answer["serverInfo"]["name"], "canonc");
    assert_eq!(answer["capabilities"]["positionEncoding"], "utf-16");
    let uri = format!("file://{}", root().join("arch/new.canon").to_string_lossy());
    let text =
        "import llama_demo from \"llama_demo.canon\"\n\narch new = llama_demo with { canon Z }\n";
    editor.tell(
        "textDocument/didOpen",
        &json!({ "textDocument": { "uri": uri, "languageId": "canon", "version": 1, "text": text } }),
    );
    let notification = editor.receive();
    assert_eq!(notification["method"], "textDocument/publishDiagnostics");
    assert_eq!(notification["params"]["diagnostics"][0]["code"], "unknown-slot");
    let position =
        json!({ "textDocument": { "uri": uri }, "position": { "line": 2, "character": 12 } });
    let answer = editor.ask("textDocument/definition", &position);
    assert!(answer[0]["uri"].as_str().unwrap().ends_with("arch/llama_demo.canon"), "{answer}");
    assert_eq!(editor.ask("shutdown", &Value::Null), Value::Null);
    editor.tell("exit", &Value::Null);
    assert_eq!(editor.child.wait().unwrap().code(), Some(0));
    let mut rest = Vec::new();
    editor.output.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty());
}

#[test]
fn an_editor_that_goes_away_ends_the_server() {
    let mut editor = Editor::new();
    editor.start();
    editor.input = None;
    assert_eq!(editor.child.wait().unwrap().code(), Some(1));
    // One that leaves without saying so first.
    let mut editor = Editor::new();
    editor.start();
    editor.tell("exit", &Value::Null);
    assert_eq!(editor.child.wait().unwrap().code(), Some(1));
    // One that never began.
    let mut editor = Editor::new();
    editor.input = None;
    assert_eq!(editor.child.wait().unwrap().code(), Some(1));
}

#[test]
fn input_that_is_not_the_protocol_is_refused() {
    // Another program's input.
    let mut editor = Editor::new();
    editor.input.take().unwrap().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(editor.child.wait().unwrap().code(), Some(1));
    let mut stderr = String::new();
    editor.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert!(stderr.contains("not the language server protocol: a header without `:`"), "{stderr}");
    // A request too early has an answer, and the server waits on.
    let mut editor = Editor::new();
    editor.send(&json!({ "jsonrpc": "2.0", "id": 1, "method": "shutdown" }));
    let error = &editor.receive()["error"];
    assert_eq!(error["code"], -32002);
    assert_eq!(error["message"], "`initialize` comes before `shutdown`");
    assert_eq!(editor.start()["serverInfo"]["name"], "canonc");
}
