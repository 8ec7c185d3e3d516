//! Measures the time from an edit to its diagnostics, and to the answers of questions, as a Markdown table.

#![expect(clippy::print_stdout, reason = "it prints its table")]

use std::time::{Duration, Instant};

use lsp_server::{Connection, Message, Notification, Request, RequestId};
use serde_json::{Value, json};

const EDITS: usize = 30;
const URL: &str = "file:///workspace/long.canon";

struct Client(Connection);

impl Client {
    fn tell(&self, method: &str, params: Value) {
        let message = Message::Notification(Notification::new(method.to_owned(), params));
        self.0.sender.send(message).unwrap();
    }

    fn ask(&self, method: &str, params: Value) -> Duration {
        let start = Instant::now();
        let id = RequestId::from(1);
        let request = Request::new(id, method.to_owned(), params);
        self.0.sender.send(Message::Request(request)).unwrap();
        loop {
            if let Message::Response(_) = self.0.receiver.recv().unwrap() {
                return start.elapsed();
            }
        }
    }

    /// Waits for the diagnostics of a version.
    fn diagnostics(&self, version: usize) {
        loop {
            if let Message::Notification(message) = self.0.receiver.recv().unwrap()
                && message.params["version"] == version
            {
                return;
            }
        }
    }
}

/// A file of about this many lines: one arch for each copy.
fn text(lines: usize) -> String {
    let file =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../arch/hybrid_tiny.canon");
    let one = std::fs::read_to_string(file).unwrap();
    let names: Vec<String> = {
        let mut sources = dsl::Sources::new();
        let id = sources.add("one", one.clone());
        let (ast, _) = dsl::parse(id, &one);
        ast.items.iter().map(|item| item.name().text.clone()).collect()
    };
    let mut text = String::new();
    let mut copy = 0;
    while text.lines().count() < lines {
        let mut next = one.clone();
        for name in &names {
            next = next.replace(name.as_str(), &format!("{name}_{copy}"));
        }
        text += &next;
        text += "\n";
        copy += 1;
    }
    text
}

fn shown(mut times: Vec<Duration>) -> String {
    times.sort();
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    format!("{:.1} / {:.1}", ms(times[times.len() / 2]), ms(times[times.len() - 1]))
}

fn main() {
    println!("| lines | diagnostics | colours | completion | hover |");
    println!("|---|---|---|---|---|");
    for lines in [25, 250, 1000, 2000] {
        let (mine, theirs) = Connection::memory();
        let server = std::thread::spawn(move || lsp::serve(&theirs));
        let client = Client(mine);
        let document = json!({ "publishDiagnostics": { "versionSupport": true } });
        client.ask("initialize", json!({ "capabilities": { "textDocument": document } }));
        client.tell("initialized", json!({}));
        let text = text(lines);
        client.tell(
            "textDocument/didOpen",
            json!({ "textDocument": {
                "uri": URL, "languageId": "canon", "version": 1, "text": text,
            }}),
        );
        client.diagnostics(1);
        // Digits of a number in the middle of the file.
        let middle = text.len() / 2 + text[text.len() / 2..].find("dim").unwrap() + 4;
        let line = text[..middle].matches('\n').count();
        let column = text[..middle].rsplit('\n').next().unwrap().len();
        let at = json!({ "line": line, "character": column });
        let document = json!({ "uri": URL });
        let position = json!({ "textDocument": document, "position": at });
        let mut times: [Vec<Duration>; 4] = Default::default();
        for edit in 0..EDITS {
            let version = edit + 2;
            let end = json!({ "line": line, "character": column + edit % 2 });
            let new = if edit % 2 == 0 { "6" } else { "" };
            let start = Instant::now();
            client.tell(
                "textDocument/didChange",
                json!({
                    "textDocument": { "uri": URL, "version": version },
                    "contentChanges": [{ "range": { "start": at, "end": end }, "text": new }],
                }),
            );
            client.diagnostics(version);
            times[0].push(start.elapsed());
            times[1].push(
                client.ask("textDocument/semanticTokens/full", json!({ "textDocument": document })),
            );
            times[2].push(client.ask("textDocument/completion", position.clone()));
            times[3].push(client.ask("textDocument/hover", position.clone()));
        }
        let cells = times.map(shown);
        println!("| {} | {} |", text.lines().count(), cells.join(" | "));
        client.ask("shutdown", Value::Null);
        client.tell("exit", Value::Null);
        let _ = server.join();
    }
    println!("\nmedian / slowest of {EDITS} edits, in milliseconds");
}
