//! The server: messages of the client in, answers and diagnostics out.
//!
//! Edits are applied in order, and all that have arrived are applied before anything is judged; a question waits for
//! facts at most [`PATIENCE`]; a fault in one answer is an error to that question only.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, never, select, tick};
use lsp_server::{Connection, ErrorCode, Message, Notification, Request, RequestId, Response};
use lsp_types::notification::{self, Notification as _};
use lsp_types::request::Request as _;
use lsp_types::{
    DidChangeTextDocumentParams, DidChangeWatchedFilesRegistrationOptions,
    DidChangeWorkspaceFoldersParams, DidCloseTextDocumentParams, DidOpenTextDocumentParams,
    FileSystemWatcher, GlobPattern, InitializeParams, PublishDiagnosticsParams, Registration,
    RegistrationParams, WorkspaceFolder,
};
use serde_json::Value;

use crate::analysis::{DocumentResult, Job};
use crate::answer::{Handler, answer, capabilities};
use crate::client::Client;
use crate::document::OpenDocument;
use crate::standard;
use crate::store::Store;
use crate::transport;
use crate::worker::Worker;

/// How long a question waits for the facts of a text that has just changed.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often the server checks whether the client's process exists.
const CHECK: Duration = Duration::from_secs(1);

/// How the client ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It asked the server to end.
    Asked,
    /// It went away.
    Abandoned,
}

struct Server {
    sender: Sender<Message>,
    store: Store,
    documents: BTreeMap<String, OpenDocument>,
    client: Client,
    worker: Worker,
    is_ending: bool,
    /// How many jobs were sent.
    sent: u64,
}

/// Serves a client on standard input and output.
pub fn stdio() -> Result<Ended, String> {
    let (connection, writer) =
        transport::stdio().map_err(|error| format!("a thread cannot be started: {error}"))?;
    let ended = serve(&connection)?;
    drop(connection);
    match ended {
        Ended::Asked => writer.join().map_err(|_| "an answer was not written".to_owned())?,
        // The threads may wait for a client that is gone.
        Ended::Abandoned => {}
    }
    Ok(ended)
}

/// Serves a client.
pub fn serve(connection: &Connection) -> Result<Ended, String> {
    let Some((id, params)) = initialize(connection) else { return Ok(Ended::Abandoned) };
    let client = Client::new(&params.capabilities);
    let answer = serde_json::json!({
        "capabilities": capabilities(client),
        "serverInfo": { "name": "canonc", "version": env!("CARGO_PKG_VERSION") },
    });
    let response = Response::new_ok(id, answer);
    if connection.sender.send(Message::Response(response)).is_err() {
        return Ok(Ended::Abandoned);
    }
    let worker = Worker::start().map_err(|error| format!("a thread cannot be started: {error}"))?;
    let mut server = Server {
        sender: connection.sender.clone(),
        store: Store::new(folders(&params), cache(&params)),
        documents: BTreeMap::new(),
        client,
        worker,
        is_ending: false,
        sent: 0,
    };
    let results = server.worker.results.clone();
    let checks = params.process_id.map_or_else(never, |_| tick(CHECK));
    loop {
        select! {
            recv(connection.receiver) -> message => {
                let Ok(message) = message else { return Ok(Ended::Abandoned) };
                if let Some(ended) = server.message(message) {
                    return Ok(ended);
                }
                // Edits that have already arrived come first: only the last text is worth judging.
                while let Ok(message) = connection.receiver.try_recv() {
                    if let Some(ended) = server.message(message) {
                        return Ok(ended);
                    }
                }
                server.judge();
            }
            recv(results) -> result => {
                if let Ok(result) = result {
                    server.show_result(result);
                    server.judge();
                }
            }
            recv(checks) -> _ => {
                if params.process_id.is_some_and(|id| !is_alive(id)) {
                    return Ok(Ended::Abandoned);
                }
            }
        }
    }
}

/// The first request that a server answers, with valid parameters; `None` if the client ends before it.
fn initialize(connection: &Connection) -> Option<(RequestId, InitializeParams)> {
    loop {
        let Request { id, method, params } = match connection.receiver.recv().ok()? {
            Message::Request(request) => request,
            Message::Notification(notification) if notification.method == "exit" => return None,
            Message::Notification(_) | Message::Response(_) => continue,
        };
        let (code, message) = match (method.as_str(), serde_json::from_value(params)) {
            ("initialize", Ok(params)) => return Some((id, params)),
            ("initialize", Err(error)) => {
                (ErrorCode::InvalidParams, format!("initialize: {error}"))
            }
            (method, _) => {
                (ErrorCode::ServerNotInitialized, format!("`initialize` comes before `{method}`"))
            }
        };
        let response = Response::new_err(id, code as i32, message);
        connection.sender.send(Message::Response(response)).ok()?;
    }
}

/// Whether a process exists. Where that cannot be asked, the end of the input has to do.
#[cfg(unix)]
fn is_alive(id: u32) -> bool {
    let id = i32::try_from(id).ok().and_then(rustix::process::Pid::from_raw);
    id.is_none_or(|id| rustix::process::test_kill_process(id) != Err(rustix::io::Errno::SRCH))
}

#[cfg(not(unix))]
fn is_alive(_: u32) -> bool {
    true
}

/// The folders of the workspace.
fn folders(params: &InitializeParams) -> Vec<PathBuf> {
    if let Some(folders) = params.workspace_folders.as_ref().filter(|folders| !folders.is_empty()) {
        return folders.iter().filter_map(|folder| folder.uri.to_file_path().ok()).collect();
    }
    #[expect(deprecated, reason = "older clients name the folder in these ways")]
    let (uri, path) = (params.root_uri.as_ref(), params.root_path.as_ref());
    let folder = uri.and_then(|uri| uri.to_file_path().ok()).or_else(|| path.map(PathBuf::from));
    folder.into_iter().collect()
}

/// The folder for texts that are part of this program: the user's cache, or the one in the client's options.
fn cache(params: &InitializeParams) -> Option<PathBuf> {
    let options = params.initialization_options.as_ref();
    let path = options.and_then(|options| options.get("cache")).and_then(Value::as_str);
    path.map(Into::into).or_else(standard::cache)
}

impl Server {
    fn send(&self, message: Message) {
        // A client that is gone reads nothing; the next message says so.
        let _ = self.sender.send(message);
    }

    /// Asks the client to tell of files that change.
    fn watch(&self) {
        let watcher = |ending: &str| FileSystemWatcher {
            glob_pattern: GlobPattern::String(format!("**/*.{ending}")),
            kind: None,
        };
        let watchers = ["canon", "toml", "lock"].map(watcher).to_vec();
        let options = DidChangeWatchedFilesRegistrationOptions { watchers };
        let registration = Registration {
            id: "files".to_owned(),
            method: notification::DidChangeWatchedFiles::METHOD.to_owned(),
            register_options: serde_json::to_value(options).ok(),
        };
        let params = RegistrationParams { registrations: vec![registration] };
        let method = lsp_types::request::RegisterCapability::METHOD.to_owned();
        let id = RequestId::from("watch".to_owned());
        self.send(Message::Request(Request::new(id, method, params)));
    }

    fn message(&mut self, message: Message) -> Option<Ended> {
        match message {
            Message::Request(request) => self.request(request),
            Message::Notification(notification) if notification.method == "exit" => {
                return Some(if self.is_ending { Ended::Asked } else { Ended::Abandoned });
            }
            Message::Notification(notification) => self.notification(notification),
            Message::Response(_) => {}
        }
        None
    }

    fn request(&mut self, request: Request) {
        let id = request.id.clone();
        if request.method == lsp_types::request::Shutdown::METHOD {
            self.is_ending = true;
            return self.send(Message::Response(Response::new_ok(id, Value::Null)));
        }
        if self.is_ending {
            let message = "the server is shutting down".to_owned();
            let code = ErrorCode::InvalidRequest as i32;
            return self.send(Message::Response(Response::new_err(id, code, message)));
        }
        self.judge();
        if let Some(name) = self.subject(&request) {
            // While typing, the facts of a moment ago will do.
            let known = self.documents.get(&name).is_some_and(OpenDocument::was_good);
            if !known || !request.method.ends_with("/completion") {
                self.wait(&name);
            }
        }
        let handler =
            Handler { store: &self.store, documents: &mut self.documents, client: self.client };
        let outcome = catch_unwind(AssertUnwindSafe(|| answer(handler, &request)));
        let response = match outcome {
            Ok(Ok(value)) => Response::new_ok(id, value),
            Ok(Err((code, message))) => Response::new_err(id, code as i32, message),
            Err(_) => {
                let message = format!("canonc failed on `{}`", request.method);
                Response::new_err(id, ErrorCode::InternalError as i32, message)
            }
        };
        self.send(Message::Response(response));
    }

    /// The document that a question is about, if its answer shows facts.
    fn subject(&self, request: &Request) -> Option<String> {
        let shows = ["hover", "definition", "completion", "codeAction", "rename", "references"];
        let method = request.method.strip_prefix("textDocument/")?;
        if !shows.contains(&method) {
            return None;
        }
        let uri = request.params.get("textDocument")?.get("uri")?.as_str()?;
        Some(self.store.name_of(&uri.parse().ok()?))
    }

    /// Waits for the facts of a document, but not for long.
    fn wait(&mut self, name: &str) {
        let end = Instant::now() + PATIENCE;
        let results = self.worker.results.clone();
        while self.documents.get(name).is_some_and(OpenDocument::is_pending) {
            match results.recv_deadline(end) {
                Ok(result) => self.show_result(result),
                Err(_) => return,
            }
        }
    }

    fn notification(&mut self, notification: Notification) {
        match notification.method.as_str() {
            notification::Initialized::METHOD if self.client.watches => self.watch(),
            notification::DidOpenTextDocument::METHOD => {
                if let Some(params) = read::<DidOpenTextDocumentParams>(notification) {
                    let open = params.text_document;
                    let name = self.store.name_of(&open.uri);
                    let document = OpenDocument::new(&name, open, self.client.encoding);
                    self.store.open.insert(name.clone(), document.shared.clone());
                    self.documents.insert(name.clone(), document);
                    self.changed(&name);
                }
            }
            notification::DidChangeTextDocument::METHOD => {
                if let Some(params) = read::<DidChangeTextDocumentParams>(notification) {
                    let name = self.store.name_of(&params.text_document.uri);
                    let Some(document) = self.documents.get_mut(&name) else { return };
                    document.change(&name, &params.content_changes, params.text_document.version);
                    self.store.open.insert(name.clone(), document.shared.clone());
                    self.changed(&name);
                }
            }
            notification::DidCloseTextDocument::METHOD => {
                if let Some(params) = read::<DidCloseTextDocumentParams>(notification) {
                    let name = self.store.name_of(&params.text_document.uri);
                    self.store.open.remove(&name);
                    if let Some(document) = self.documents.remove(&name) {
                        self.publish(&document.url, Vec::new(), None);
                    }
                    self.changed(&name);
                }
            }
            notification::DidChangeWatchedFiles::METHOD
            | notification::DidSaveTextDocument::METHOD => {
                for document in self.documents.values_mut() {
                    document.is_stale = true;
                    document.forget();
                }
            }
            notification::DidChangeWorkspaceFolders::METHOD => {
                if let Some(params) = read::<DidChangeWorkspaceFoldersParams>(notification) {
                    let paths = |folders: Vec<WorkspaceFolder>| -> Vec<PathBuf> {
                        folders.iter().filter_map(|folder| folder.uri.to_file_path().ok()).collect()
                    };
                    let (added, removed) = (paths(params.event.added), paths(params.event.removed));
                    self.store.change_folders(added, &removed);
                }
            }
            _ => {}
        }
    }

    /// Marks the documents that read a file, and that document itself.
    fn changed(&mut self, name: &str) {
        for (other, document) in &mut self.documents {
            document.forget();
            let reads = document.kind.is_some() && document.may_read(name);
            document.is_stale |= other == name || reads;
        }
    }

    /// Has the documents judged whose texts have changed.
    fn judge(&mut self) {
        if self.documents.values().all(|document| !document.is_stale) {
            return;
        }
        let store = Arc::new(self.store.clone());
        let mut cleared = Vec::new();
        for (name, document) in &mut self.documents {
            if !document.is_stale {
                continue;
            }
            document.is_stale = false;
            let (Some(kind), true) = (document.kind, document.is_judged(&store)) else {
                if !document.findings.is_empty() {
                    document.findings.clear();
                    cleared.push((document.url.clone(), document.version));
                }
                continue;
            };
            self.sent += 1;
            let job = Job {
                number: self.sent,
                name: name.clone(),
                kind,
                text: document.shared.clone(),
                is_edited: document.is_edited(),
                store: store.clone(),
            };
            if self.worker.jobs.send(job).is_ok() {
                document.expect_result(self.sent);
            }
        }
        for (url, version) in cleared {
            self.publish(&url, Vec::new(), Some(version));
        }
    }

    fn show_result(&mut self, result: DocumentResult) {
        let name = result.name.clone();
        let Some(document) = self.documents.get_mut(&name) else { return };
        if !document.note_result(result) {
            return;
        }
        let (text, store) = (&document.text, &self.store);
        let mut shown: Vec<lsp_types::Diagnostic> =
            document.findings.iter().map(|finding| finding.shown(text, store)).collect();
        if !self.client.related {
            shown.iter_mut().for_each(|diagnostic| diagnostic.related_information = None);
        }
        let (url, version) = (document.url.clone(), document.version);
        self.publish(&url, shown, Some(version));
    }

    fn publish(
        &self,
        url: &lsp_types::Url,
        diagnostics: Vec<lsp_types::Diagnostic>,
        version: Option<i32>,
    ) {
        let version = version.filter(|_| self.client.versions);
        let params = PublishDiagnosticsParams { uri: url.clone(), diagnostics, version };
        let method = notification::PublishDiagnostics::METHOD.to_owned();
        self.send(Message::Notification(Notification::new(method, params)));
    }
}

fn read<P: serde::de::DeserializeOwned>(notification: Notification) -> Option<P> {
    serde_json::from_value(notification.params).ok()
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::{Receiver, unbounded};
    use serde_json::json;

    use super::*;
    use crate::analysis::Part;

    const BASE: &str = "arch base { vocab 256   dim 64   init lingua  norm_eps 1e-5  layers 2 of decoder { mixer attention { heads 4 }  mlp swiglu } }\n";
    const USES: &str =
        "import base from \"base.canon\"\n\narch small = base with { mixer.heads 2 }\n";

    /// A server whose jobs wait until the test does them.
    struct Bench {
        server: Server,
        jobs: Receiver<Job>,
        messages: Receiver<Message>,
        version: i32,
    }

    impl Bench {
        fn new() -> Bench {
            let (sender, messages) = unbounded();
            let (jobs, received) = unbounded();
            let (_, results) = unbounded();
            let server = Server {
                sender,
                store: Store::new(vec!["/workspace".into()], None),
                documents: BTreeMap::new(),
                client: Client { versions: true, ..Client::default() },
                worker: Worker { jobs, results },
                is_ending: false,
                sent: 0,
            };
            Bench { server, jobs: received, messages, version: 1 }
        }

        fn tell(&mut self, method: &str, params: Value) -> Vec<Job> {
            let method = format!("textDocument/{method}");
            self.server.notification(Notification::new(method, params));
            self.server.judge();
            self.jobs.try_iter().collect()
        }

        fn open(&mut self, name: &str, text: &str) -> Vec<Job> {
            let uri = format!("file:///workspace/{name}");
            let document = json!({ "uri": uri, "languageId": "canon", "version": 1, "text": text });
            self.tell("didOpen", json!({ "textDocument": document }))
        }

        fn change(&mut self, name: &str, text: &str) -> Vec<Job> {
            self.version += 1;
            let uri = format!("file:///workspace/{name}");
            let document = json!({ "uri": uri, "version": self.version });
            let changes = json!([{ "text": text }]);
            self.tell("didChange", json!({ "textDocument": document, "contentChanges": changes }))
        }

        fn show_result(&mut self, results: Vec<DocumentResult>) {
            for result in results {
                self.server.show_result(result);
            }
        }

        /// Does jobs and reports them.
        fn work(&mut self, jobs: Vec<Job>) {
            for job in jobs {
                self.show_result(results_of(&job));
            }
        }

        fn document(&self, name: &str) -> &OpenDocument {
            &self.server.documents[name]
        }

        /// The messages of the diagnostics shown for a document.
        fn shown(&self, name: &str) -> Vec<String> {
            self.document(name).findings.iter().map(|it| it.message.clone()).collect()
        }
    }

    /// The reports of one job: findings, then facts.
    fn results_of(job: &Job) -> Vec<DocumentResult> {
        let Worker { jobs, results } = Worker::start().unwrap();
        jobs.send(job.clone()).unwrap();
        drop(jobs);
        results.iter().collect()
    }

    fn names(jobs: &[Job]) -> Vec<&str> {
        jobs.iter().map(|job| job.name.as_str()).collect()
    }

    #[test]
    fn a_document_is_judged_again_when_an_import_changes_before_its_facts_are_known() {
        for known in 0..=2 {
            let mut bench = Bench::new();
            let jobs = bench.open("base.canon", BASE);
            bench.work(jobs);
            let jobs = bench.open("a.canon", USES);
            assert_eq!(names(&jobs), ["a.canon"]);
            // Nothing is reported, findings alone, or facts as well.
            let mut old = results_of(&jobs[0]);
            let late = old.split_off(known);
            bench.show_result(old);
            let jobs = bench.change("base.canon", &BASE.replace("base", "other"));
            assert!(names(&jobs).contains(&"a.canon"), "{known}: {:?}", names(&jobs));
            bench.show_result(late);
            bench.work(jobs);
            let want = "`base.canon` does not define `base`: imported here";
            assert_eq!(bench.shown("a.canon").first().map(String::as_str), Some(want), "{known}");
            assert!(!bench.document("a.canon").is_pending());
        }
    }

    #[test]
    fn a_document_is_judged_again_when_a_missing_import_appears() {
        let mut bench = Bench::new();
        let jobs = bench.open("a.canon", USES);
        bench.work(jobs);
        assert!(!bench.shown("a.canon").is_empty());
        let jobs = bench.open("base.canon", BASE);
        bench.work(jobs);
        assert_eq!(bench.shown("a.canon"), Vec::<String>::new());
    }

    #[test]
    fn other_documents_are_not_judged_again() {
        let mut bench = Bench::new();
        for (name, text) in [("base.canon", BASE), ("a.canon", USES), ("b.canon", BASE)] {
            let jobs = bench.open(name, text);
            bench.work(jobs);
        }
        let jobs = bench.open("recipes/a.toml", "arch = \"../a.canon#small\"\n");
        bench.work(jobs);
        let jobs = bench.change("b.canon", &BASE.replace("base", "other"));
        assert_eq!(names(&jobs), ["b.canon"]);
        bench.work(jobs);
        let jobs = bench.change("base.canon", &BASE.replace("64", "128"));
        let mut names = names(&jobs);
        names.sort_unstable();
        assert_eq!(names, ["a.canon", "base.canon", "recipes/a.toml"]);
    }

    #[test]
    fn facts_from_before_an_import_changed_do_not_end_the_wait() {
        let mut bench = Bench::new();
        let jobs = bench.open("base.canon", BASE);
        bench.work(jobs);
        let jobs = bench.open("a.canon", USES);
        let mut old = results_of(&jobs[0]);
        let facts = old.split_off(1);
        assert!(matches!(facts[0].part, Part::Facts(_)));
        bench.show_result(old);
        let jobs = bench.change("base.canon", &BASE.replace("64", "128"));
        bench.show_result(facts);
        assert!(bench.document("a.canon").is_pending());
        bench.work(jobs);
        assert!(!bench.document("a.canon").is_pending());
    }

    #[test]
    fn findings_of_a_text_that_was_closed_are_not_shown() {
        let mut bench = Bench::new();
        let old = bench.open("a.canon", "arch");
        let uri = json!({ "uri": "file:///workspace/a.canon" });
        bench.tell("didClose", json!({ "textDocument": uri }));
        let new = bench.open("a.canon", BASE);
        let before = bench.messages.try_iter().count();
        bench.work(old);
        assert_eq!((before, bench.messages.try_iter().count()), (1, 0));
        assert!(bench.document("a.canon").is_pending());
        bench.work(new);
        assert_eq!(bench.messages.try_iter().count(), 1);
    }

    #[test]
    fn findings_are_shown_although_an_import_changes_again_and_again() {
        let mut bench = Bench::new();
        let jobs = bench.open("base.canon", BASE);
        bench.work(jobs);
        let mut jobs = bench.open("a.canon", &USES.replace("heads", "hheads"));
        for dim in ["128", "256", "512"] {
            // Each edit arrives while the job of the last is done.
            let next = bench.change("base.canon", &BASE.replace("64", dim));
            bench.work(jobs);
            assert_eq!(bench.shown("a.canon").len(), 1);
            jobs = next;
        }
    }

    #[test]
    fn the_edited_document_is_judged_first() {
        let mut bench = Bench::new();
        let mut jobs = bench.open("z.canon", BASE);
        for name in ["recipes/a.toml", "recipes/b.toml", "recipes/c.toml"] {
            jobs.extend(bench.open(name, "arch = \"../z.canon\"\n"));
        }
        bench.work(jobs);
        let jobs = bench.change("z.canon", &BASE.replace("64", "128"));
        let (sender, received) = unbounded();
        let (results, received_results) = unbounded();
        for job in jobs {
            sender.send(job).unwrap();
        }
        drop(sender);
        let worker = std::thread::Builder::new().stack_size(64 << 20);
        worker.spawn(move || crate::worker::work(&received, &results)).unwrap().join().unwrap();
        let mut order: Vec<String> = received_results.iter().map(|result| result.name).collect();
        order.dedup();
        assert_eq!(order, ["z.canon", "recipes/a.toml", "recipes/b.toml", "recipes/c.toml"]);
    }
}
