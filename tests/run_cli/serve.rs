//! `canonc serve` and `canonc generate --interactive` as processes: the answers are those of `canonc generate`, at any
//! number of requests at a time; folders, tokens, signals and refusals.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use compiler::program::{Program, Std};
use runtime::weights::Weights;
use serde_json::{Value, json};

/// Bytes; attention, a recurrence, Canon layers.
const ARCHS: &str = "
block recurrent = decoder { mixer gated_deltanet { heads 2 } mlp swiglu { hidden 40 } }
block softmax = decoder { mixer attention { heads 2 } mlp swiglu { hidden 40 } }
arch base { vocab 258  dim 32  norm_eps 1e-5  init lingua  layers [recurrent, softmax] }
arch mixed = base with { canon A, B, C, D }
arch llama { vocab 258  dim 32  norm_eps 1e-5  init lingua
  layers 2 of decoder { mixer attention { heads 4, kv_heads 2, rope { theta 10000, layout half } }  mlp swiglu { hidden 64 } } }
";

/// A folder with archs and their weights.
struct ModelFolder {
    root: tempfile::TempDir,
}

impl ModelFolder {
    /// Large weights, so that a token is much likelier than the next.
    fn new() -> ModelFolder {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("a.canon"), ARCHS).unwrap();
        let program = Program::new([("a.canon".to_owned(), ARCHS.to_owned())], Std::Embedded);
        for name in ["mixed", "llama"] {
            let compiled = program.compile("a.canon", name).0.unwrap();
            let weights = Weights::init(&compiled.graph, 7).unwrap();
            weights.save(&root.path().join(format!("{name}.safetensors"))).unwrap();
        }
        ModelFolder { root }
    }

    fn command(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_canonc"));
        command.current_dir(self.root.path()).args(words.split_whitespace());
        for name in ["OMP_NUM_THREADS", "MKL_NUM_THREADS"] {
            command.env(name, "1");
        }
        command.env_remove("CANONC_SERVE_TOKEN");
        command
    }

    fn type_in(&self, words: &str, input: &[u8]) -> Output {
        let mut command = self.command(words);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        child.wait_with_output().unwrap()
    }

    fn works(&self, words: &str) -> String {
        let output = self.type_in(words, b"");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{words}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn refused(&self, code: i32, words: &str, part: &str) {
        let output = self.type_in(words, b"");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{words}: {stderr}");
        assert!(stderr.contains(part), "{words}: {stderr}");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn serve(&self, words: &str) -> Server {
        Server::start(&mut self.command(&format!("serve {words} --port 0")))
    }
}

const MIXED: &str = "a.canon --arch mixed --weights mixed.safetensors";

/// A server, and the address that it prints.
pub(super) struct Server {
    child: Child,
    line: String,
    address: String,
    _stdout: BufReader<ChildStdout>,
}

impl Server {
    /// Serves on a free port, in a folder.
    pub(super) fn in_folder(folder: &Path, words: &str) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_canonc"));
        command.current_dir(folder).arg("serve").args(words.split_whitespace());
        command.env_remove("CANONC_SERVE_TOKEN").env("OMP_NUM_THREADS", "1");
        Server::start(command.args(["--port", "0"]))
    }

    fn start(command: &mut Command) -> Server {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        if line.is_empty() {
            let mut stderr = String::new();
            child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
            panic!("it does not serve: {stderr}");
        }
        let address =
            line.split_once("http://").unwrap().1.trim().trim_end_matches("/v1").to_owned();
        Server { child, line, address, _stdout: stdout }
    }

    pub(super) fn ask(&self, method: &str, path: &str, header: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\n{header}Content-Length: {length}\r\n\r\n{body}",
            self.address
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    fn complete(&self, body: &Value) -> Value {
        let (status, text) = self.ask("POST", "/v1/completions", "", &body.to_string());
        assert_eq!(status, 200, "{body}: {text}");
        serde_json::from_str(&text).unwrap()
    }

    /// Sends a signal; returns the exit code and standard error.
    pub(super) fn end(mut self, signal: &str) -> (Option<i32>, String) {
        let status =
            Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
        let mut stderr = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        (self.child.wait().unwrap().code(), stderr)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended, or the test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn serve_answers_as_generate_does() {
    let folder = ModelFolder::new();
    let server = folder.serve(MIXED);
    assert!(server.line.starts_with("serving `mixed` at http://127.0.0.1:"), "{}", server.line);
    for (prompt, seed, options, fields) in [
        ("Once", 4, "", json!({})),
        ("upon", 5, "--temperature 0", json!({ "temperature": 0 })),
        ("a time", 6, "--top-k 5 --temperature 0.8", json!({ "top_k": 5, "temperature": 0.8 })),
        ("there", 7, "--top-p 0.4", json!({ "top_p": 0.4 })),
    ] {
        let mut body = json!({ "prompt": prompt, "seed": seed, "max_tokens": 24 });
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let answer = server.complete(&body);
        let mut command = folder
            .command(&format!("generate {MIXED} --json --max-tokens 24 --seed {seed} {options}"));
        let output = command.args(["--prompt", prompt]).output().unwrap();
        let wanted: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(answer["choices"][0]["text"], wanted["text"], "{body}");
    }
    let (code, stderr) = server.end("-TERM");
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains("ended"), "{stderr}");
}

/// Probabilities to the last bit.
#[test]
fn an_answer_has_the_same_bits_at_any_number_of_requests() {
    let folder = ModelFolder::new();
    let server = folder.serve(MIXED);
    let body = |n: usize| {
        let prompt = "Once upon a time there was a cat. ".repeat(12);
        json!({
            "prompt": prompt[n..][..1 + (n * n * 11) % 300], "seed": n, "max_tokens": 4 + n % 29,
            "logprobs": 2, "echo": n.is_multiple_of(3), "temperature": (n % 3) as f64 * 0.75,
        })
    };
    let choices = |n: usize| server.complete(&body(n))["choices"].clone();
    let alone: Vec<Value> = (0..32).map(choices).collect();
    for round in 0..2usize {
        std::thread::scope(|scope| {
            let order = (0..32).map(|n| (n * 13 + round * 5) % 32);
            let requests: Vec<_> = order.map(|n| scope.spawn(move || (n, choices(n)))).collect();
            for request in requests {
                let (n, answer) = request.join().unwrap();
                assert_eq!(answer, alone[n], "request {n}");
            }
        });
    }
    let (_, metrics) = server.ask("GET", "/metrics", "", "");
    let value = |name: &str| -> f64 {
        let line = metrics.lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit_once(' ').unwrap().1.parse().unwrap()
    };
    // Some steps were of several sequences.
    assert!(value("canonc_steps_total") < value("canonc_generated_tokens_total"), "{metrics}");
    assert!(value("canonc_resident_memory_bytes") > 1e6);
}

#[test]
fn an_exported_folder_serves_and_generates_with_its_tokenizer() {
    let folder = ModelFolder::new();
    let weights = "a.canon --arch llama --weights llama.safetensors";
    for name in ["plain", "own"] {
        let arch = if name == "plain" { weights.to_owned() } else { MIXED.to_owned() };
        folder.works(&format!("export {arch} --to hf --out {name}"));
        // The tokenizer that a run on bytes has.
        let bytes = interop::tokenizer::Tokenizer::bytes(256, 257);
        fs::write(folder.path(name).join("tokenizer.json"), &bytes.json).unwrap();
        let template =
            "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{% endfor %}";
        let config =
            json!({ "bos_token": "<|bos|>", "eos_token": "<|eos|>", "chat_template": template });
        fs::write(folder.path(name).join("tokenizer_config.json"), config.to_string()).unwrap();
        let server = folder.serve(name);
        assert!(server.line.starts_with(&format!("serving `{name}` at ")), "{}", server.line);
        let body = json!({ "prompt": "Once", "seed": 4, "max_tokens": 24 });
        let answer = server.complete(&body);
        let mut command =
            folder.command(&format!("generate {name} --json --max-tokens 24 --seed 4"));
        let output = command.args(["--prompt", "Once"]).output().unwrap();
        let wanted: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
        assert_eq!(answer["choices"][0]["text"], wanted["text"]);
        // Its texts begin with bos, as the run's.
        assert_eq!(answer["usage"]["prompt_tokens"], 5);
        let body = json!({ "messages": [{ "role": "user", "content": "hi" }] }).to_string();
        let (status, text) = server.ask("POST", "/tokenize", "", &body);
        let tokens: Value = serde_json::from_str(&text).unwrap();
        let wanted: Vec<u32> =
            std::iter::once(256).chain("[user]hi".bytes().map(u32::from)).collect();
        assert_eq!((status, &tokens["tokens"]), (200, &json!(wanted)), "{text}");
        let body = json!({ "messages": [{ "role": "user", "content": "<|eos|>" }] }).to_string();
        let (status, text) = server.ask("POST", "/v1/chat/completions", "", &body);
        assert!(status == 400 && text.contains("special token"), "{text}");
        drop(server);
        fs::remove_file(folder.path(name).join("tokenizer.json")).unwrap();
        let server = folder.serve(name);
        let (status, text) = server.ask("POST", "/v1/completions", "", r#"{"prompt": "a"}"#);
        assert!(
            status == 400 && text.contains("has no tokenizer.json; name one with --tokenizer-file; give a list of token ids"),
            "{text}"
        );
        server.complete(&json!({ "prompt": [1, 2], "max_tokens": 3 }));
    }
}

#[test]
fn a_token_comes_from_a_file_or_a_variable() {
    let folder = ModelFolder::new();
    fs::write(folder.path("token"), "s3cret\n").unwrap();
    let mut by_variable = folder.command(&format!("serve {MIXED} --port 0 --name mine"));
    by_variable.env("CANONC_SERVE_TOKEN", "s3cret");
    for server in [
        folder.serve(&format!("{MIXED} --token-file token --name mine")),
        Server::start(&mut by_variable),
    ] {
        assert_eq!(server.ask("GET", "/health", "", "").0, 200);
        let (status, text) = server.ask("GET", "/v1/models", "", "");
        assert!(status == 401 && text.contains("missing_api_key"), "{text}");
        let (status, text) =
            server.ask("GET", "/v1/models", "Authorization: Bearer s3cret\r\n", "");
        assert!(status == 200 && text.contains("\"mine\""), "{text}");
        let words = fs::read(format!("/proc/{}/cmdline", server.child.id())).unwrap();
        assert!(!String::from_utf8_lossy(&words).contains("s3cret"));
        let (code, stderr) = server.end("-INT");
        assert_eq!(code, Some(0), "{stderr}");
        assert!(!stderr.contains("s3cret"), "{stderr}");
    }
}

#[test]
fn what_cannot_be_served_is_refused() {
    let folder = ModelFolder::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    folder.refused(3, &format!("serve {MIXED} --port {port}"), &format!("port {port} is in use"));
    fs::write(folder.path("empty"), " \n").unwrap();
    fs::write(folder.path("bad.jinja"), "{% for %}").unwrap();
    fs::write(folder.path("none.json"), "{}").unwrap();
    fs::create_dir(folder.path("folder")).unwrap();
    for (words, part) in [
        (format!("serve {MIXED} --port 70000"), "from 0 to 65535"),
        (format!("serve {MIXED} --port 0 --host nowhere"), "--host"),
        (format!("serve {MIXED} --port 0 --token-file none"), "`none` does not exist"),
        (format!("serve {MIXED} --port 0 --token-file empty"), "the token in `empty` is empty"),
        (
            format!("serve {MIXED} --port 0 --chat-template bad.jinja"),
            "the chat template cannot be read",
        ),
        (
            format!("serve {MIXED} --port 0 --tokenizer-file none.json"),
            "cannot be used as a huggingface tokenizer",
        ),
        ("serve a.canon --arch mixed --port 0".to_owned(), "no weights are given"),
        ("serve folder --port 0".to_owned(), "`folder` is a folder"),
        ("serve none --port 0".to_owned(), "does not exist"),
        (format!("generate {MIXED} --interactive --prompt a"), "cannot be used with"),
        (format!("generate {MIXED} --prompt a --top-p 0"), "above 0 and at most 1"),
    ] {
        folder.refused(2, &words, part);
    }
}

#[test]
fn interactive_takes_each_line_as_a_prompt_and_continues_on_an_empty_one() {
    let folder = ModelFolder::new();
    let words = format!("generate {MIXED} --max-tokens 9 --seed 3");
    let output = folder.type_in(&format!("{words} --interactive"), "Once\n\nhé\n".as_bytes());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).unwrap();
    let generated = |prompt: &str, count: usize| {
        let mut command =
            folder.command(&format!("generate {MIXED} --json --seed 3 --max-tokens {count}"));
        let output = command.args(["--prompt", prompt]).output().unwrap();
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        value["text"].as_str().unwrap().to_owned()
    };
    // 18 tokens in two lines, unless a text ended before; a character that is incomplete at a line's end comes with the
    // next line.
    let (half, full, second) = (generated("Once", 9), generated("Once", 18), generated("hé", 9));
    assert!(full.starts_with(half.trim_end_matches('\u{fffd}')));
    let texts = printed.replacen('\n', "", printed.matches('\n').count());
    let wanted = format!("{full}{second}").replace('\n', "");
    let complete = |text: &str| text.replace('\u{fffd}', "");
    assert_eq!(complete(&texts), complete(&wanted), "{printed:?}");
}
