//! A client that speaks to a server in another thread. An answer with an error is a failure unless the test asks for it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::thread::JoinHandle;

use lsp_server::{Connection, Message, Notification, Request, RequestId};
use lsp_types::Url;
use serde_json::{Value, json};

pub(super) struct Client {
    connection: Connection,
    server: Option<JoinHandle<Result<lsp::Ended, String>>>,
    folder: tempfile::TempDir,
    next: i32,
    versions: BTreeMap<String, i32>,
    texts: BTreeMap<String, String>,
    /// The last diagnostics by name, each with the version that they are about.
    diagnostics: BTreeMap<String, (Option<i64>, Vec<Value>)>,
    utf8: bool,
    pub(super) capabilities: Value,
}

impl Client {
    /// A client of a workspace with these files.
    pub(super) fn new(files: &[(&str, &str)]) -> Client {
        Client::with(files, json!({}))
    }

    /// The same, with more capabilities than those of a usual editor.
    pub(super) fn with(files: &[(&str, &str)], more: Value) -> Client {
        let mut capabilities = json!({ "textDocument": {
            "hover": { "contentFormat": ["markdown", "plaintext"] },
            "completion": { "completionItem": { "documentationFormat": ["markdown"] } },
            "documentSymbol": { "hierarchicalDocumentSymbolSupport": true },
            "codeAction": { "codeActionLiteralSupport": { "codeActionKind": { "valueSet": [] } } },
            "rename": { "prepareSupport": true },
            "publishDiagnostics": { "relatedInformation": true, "versionSupport": true },
        } });
        for (name, value) in more.as_object().unwrap() {
            capabilities[name] = value.clone();
        }
        Client::started(files, json!({ "capabilities": capabilities }))
    }

    /// A client with these parameters of `initialize`.
    pub(super) fn started(files: &[(&str, &str)], parameters: Value) -> Client {
        let capabilities = parameters["capabilities"].clone();
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let (connection, other) = Connection::memory();
        let server = std::thread::Builder::new()
            .stack_size(64 << 20)
            .spawn(move || lsp::serve(&other))
            .unwrap();
        let encodings = capabilities.pointer("/general/positionEncodings");
        let utf8 = encodings.is_some_and(|list| list.to_string().contains("utf-8"));
        let mut client = Client {
            connection,
            server: Some(server),
            folder,
            next: 0,
            versions: BTreeMap::new(),
            texts: BTreeMap::new(),
            diagnostics: BTreeMap::new(),
            utf8,
            capabilities: Value::Null,
        };
        let mut params = json!({
            "rootUri": client.url(""),
            "initializationOptions": { "cache": client.path("cache") },
        });
        for (name, value) in parameters.as_object().unwrap() {
            params[name] = value.clone();
        }
        client.capabilities = client.ask("initialize", params)["capabilities"].clone();
        client.tell("initialized", json!({}));
        client
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn url(&self, name: &str) -> String {
        Url::from_file_path(self.path(name)).unwrap().to_string()
    }

    /// The name of an address in the workspace.
    pub(super) fn name(&self, url: &str) -> String {
        let path = url.parse::<Url>().unwrap().to_file_path().unwrap();
        let path = path.strip_prefix(self.folder.path()).unwrap();
        path.to_string_lossy().into_owned()
    }

    pub(super) fn tell(&self, method: &str, params: Value) {
        let message = Notification::new(method.to_owned(), params);
        self.connection.sender.send(Message::Notification(message)).unwrap();
    }

    /// The answer to a question, or the message of its error.
    pub(super) fn try_ask(&mut self, method: &str, params: Value) -> Result<Value, String> {
        self.next += 1;
        let id = RequestId::from(self.next);
        let request = Request::new(id.clone(), method.to_owned(), params);
        self.connection.sender.send(Message::Request(request)).unwrap();
        loop {
            match self.connection.receiver.recv().unwrap() {
                Message::Response(response) if response.id == id => {
                    let message = serde_json::to_value(&response).unwrap();
                    return match message.get("error") {
                        Some(error) => Err(error["message"].as_str().unwrap().to_owned()),
                        None => Ok(message["result"].clone()),
                    };
                }
                message @ (Message::Request(_)
                | Message::Response(_)
                | Message::Notification(_)) => self.note(message),
            }
        }
    }

    pub(super) fn ask(&mut self, method: &str, params: Value) -> Value {
        let answer = self.try_ask(method, params.clone());
        answer.unwrap_or_else(|error| panic!("{method} {params}: {error}"))
    }

    fn note(&mut self, message: Message) {
        let Message::Notification(message) = message else { return };
        assert_eq!(message.method, "textDocument/publishDiagnostics");
        let uri = message.params["uri"].as_str().unwrap();
        let name = if uri.starts_with("file:") { self.name(uri) } else { uri.to_owned() };
        let diagnostics = message.params["diagnostics"].as_array().unwrap().clone();
        self.diagnostics.insert(name, (message.params["version"].as_i64(), diagnostics));
    }

    pub(super) fn open(&mut self, name: &str, text: &str) {
        self.texts.insert(name.to_owned(), text.to_owned());
        self.versions.insert(name.to_owned(), 1);
        let document = json!({
            "uri": self.url(name), "languageId": "canon", "version": 1, "text": text,
        });
        self.tell("textDocument/didOpen", json!({ "textDocument": document }));
    }

    /// Opens a file of the workspace.
    pub(super) fn open_file(&mut self, name: &str) {
        let text = std::fs::read_to_string(self.path(name)).unwrap();
        self.open(name, &text);
    }

    /// Sends edits as they are.
    pub(super) fn change(&mut self, name: &str, changes: Value) {
        let version = self.versions.get_mut(name).unwrap();
        *version += 1;
        let document = json!({ "uri": self.url(name), "version": self.versions[name] });
        let params = json!({ "textDocument": document, "contentChanges": changes });
        self.tell("textDocument/didChange", params);
    }

    /// Replaces the text `old`, which occurs once, as an editor does.
    pub(super) fn replace(&mut self, name: &str, old: &str, new: &str) {
        let text = self.texts[name].clone();
        assert_eq!(text.matches(old).count(), 1, "{old} in {text}");
        let start = text.find(old).unwrap();
        let range = json!({
            "start": self.position(&text, start), "end": self.position(&text, start + old.len()),
        });
        self.change(name, json!([{ "range": range, "text": new }]));
        self.texts.insert(name.to_owned(), text.replacen(old, new, 1));
    }

    /// Replaces the whole text.
    pub(super) fn set(&mut self, name: &str, text: &str) {
        self.change(name, json!([{ "text": text }]));
        self.texts.insert(name.to_owned(), text.to_owned());
    }

    pub(super) fn position(&self, text: &str, offset: usize) -> Value {
        let before = &text[..offset];
        let line = before.matches('\n').count();
        let last = before.rsplit('\n').next().unwrap();
        let column = if self.utf8 { last.len() } else { last.encode_utf16().count() };
        json!({ "line": line, "character": column })
    }

    /// The text of a range of a document.
    pub(super) fn written(&self, name: &str, range: &Value) -> String {
        let text = match self.texts.get(name) {
            Some(text) => text.clone(),
            None => std::fs::read_to_string(self.path(name)).unwrap(),
        };
        let offset = |at: &Value| {
            let (line, column) = (at["line"].as_u64().unwrap(), at["character"].as_u64().unwrap());
            let start: usize = text.split_inclusive('\n').take(line as usize).map(str::len).sum();
            let units = |part: &str| {
                if self.utf8 { part.len() } else { part.encode_utf16().count() }
            };
            let rest = &text[start..];
            let ends = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
            start + ends.into_iter().find(|end| units(&rest[..*end]) == column as usize).unwrap()
        };
        text[offset(&range["start"])..offset(&range["end"])].to_owned()
    }

    /// The parameters of a question about the place of `|` in a pattern that occurs once in the document.
    pub(super) fn at(&self, name: &str, pattern: &str) -> Value {
        let text = &self.texts[name];
        let (before, after) = pattern.split_once('|').unwrap();
        let joined = format!("{before}{after}");
        assert_eq!(text.matches(&joined).count(), 1, "{joined} in {text}");
        let offset = text.find(&joined).unwrap() + before.len();
        let position = self.position(text, offset);
        json!({ "textDocument": { "uri": self.url(name) }, "position": position })
    }

    /// The diagnostics of the document as it is now.
    pub(super) fn diagnostics(&mut self, name: &str) -> Vec<Value> {
        let version = i64::from(self.versions[name]);
        loop {
            match self.diagnostics.get(name) {
                Some((known, diagnostics)) if *known == Some(version) => {
                    return diagnostics.clone();
                }
                Some(_) | None => {
                    let message = self.connection.receiver.recv().unwrap();
                    self.note(message);
                }
            }
        }
    }

    /// The lines of the diagnostics of a document once there are some, or none: another document changed.
    pub(super) fn lines_once(&mut self, name: &str, are_some: bool) -> Vec<String> {
        while self.diagnostics(name).is_empty() == are_some {
            let message = self.connection.receiver.recv().unwrap();
            self.note(message);
        }
        self.lines(name)
    }

    /// Diagnostics as lines: code, the text that they underline, and the message.
    pub(super) fn lines(&mut self, name: &str) -> Vec<String> {
        let diagnostics = self.diagnostics(name);
        diagnostics.iter().map(|d| self.line(name, d)).collect()
    }

    pub(super) fn line(&self, name: &str, diagnostic: &Value) -> String {
        let written = self.written(name, &diagnostic["range"]);
        let text = |key: &str| diagnostic[key].as_str().unwrap().to_owned();
        format!("{} at `{written}`: {}", text("code"), text("message"))
    }

    /// The messages of the diagnostics of a document without a file.
    pub(super) fn lines_of(&mut self, uri: &str) -> Vec<String> {
        while !self.diagnostics.contains_key(uri) {
            let message = self.connection.receiver.recv().unwrap();
            self.note(message);
        }
        let (_, diagnostics) = &self.diagnostics[uri];
        diagnostics
            .iter()
            .map(|diagnostic| diagnostic["message"].as_str().unwrap().to_owned())
            .collect()
    }

    pub(super) fn hover(&mut self, name: &str, pattern: &str) -> String {
        let answer = self.ask("textDocument/hover", self.at(name, pattern));
        answer["contents"]["value"].as_str().unwrap_or("nothing").to_owned()
    }

    /// The labels of a completion.
    pub(super) fn completion(&mut self, name: &str, pattern: &str) -> Vec<String> {
        let answer = self.ask("textDocument/completion", self.at(name, pattern));
        let items = answer["items"].as_array().unwrap();
        items.iter().map(|item| item["label"].as_str().unwrap().to_owned()).collect()
    }

    /// The texts that a definition leads to, each with its file.
    pub(super) fn definition(&mut self, name: &str, pattern: &str) -> Vec<String> {
        let answer = self.ask("textDocument/definition", self.at(name, pattern));
        self.places(&answer)
    }

    pub(super) fn places(&self, answer: &Value) -> Vec<String> {
        let places = answer.as_array().unwrap();
        let line = |location: &Value| {
            let name = self.name(location["uri"].as_str().unwrap());
            let line = location["range"]["start"]["line"].as_u64().unwrap() + 1;
            format!("{name}:{line} `{}`", self.written(&name, &location["range"]))
        };
        places.iter().map(line).collect()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.ask("shutdown", Value::Null);
        self.tell("exit", Value::Null);
        let ended = self.server.take().unwrap().join().unwrap();
        assert_eq!(ended, Ok(lsp::Ended::Asked));
    }
}
