//! Clients that hold, flood or break what others use.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use serve::model::{Codec, Specials};

use crate::toy::{Bytes, Server, Toy, post, receive, setup};

const COMPLETIONS: &str = "/v1/completions";

/// The error object of an answer.
fn error(text: &str) -> Value {
    let body: Value = serde_json::from_str(text).unwrap_or_else(|_| panic!("no object in {text}"));
    assert!(body["error"]["message"].is_string() && body["error"]["type"].is_string(), "{text}");
    body["error"].clone()
}

#[test]
fn a_host_that_is_missing_doubled_or_odd_is_refused() {
    let server = Server::start();
    for (head, status) in [
        ("HTTP/1.1\r\n", 400),
        ("HTTP/1.0\r\n", 400),
        ("HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n", 400),
        ("HTTP/1.1\r\nHost: localhost\r\nhost: example.com\r\n", 400),
        ("HTTP/1.1\r\nHost:\r\n", 403),
        ("HTTP/1.1\r\nHost: localhost@example.com\r\n", 403),
        ("HTTP/1.1\r\nHost: localhost:80:90\r\n", 403),
        ("HTTP/1.1\r\nHost: localhost.example.com\r\n", 403),
        ("HTTP/1.1\r\nHost: localhost:x\r\n", 403),
        ("HTTP/1.1\r\nHost: \u{e9}localhost\r\n", 403),
        ("HTTP/1.1\r\nHost: [::1]\r\n", 200),
        ("HTTP/1.1\r\nHost: [::1]:8000\r\n", 200),
        ("HTTP/1.0\r\nHost: 127.0.0.1:1\r\n", 200),
    ] {
        let (answered, text) =
            receive(server.send(&format!("GET /v1/models {head}Connection: close\r\n\r\n")));
        assert_eq!(answered, status, "{head}: {text}");
        if status != 200 {
            assert_eq!(error(&text)["code"], "wrong_host");
        }
    }
    // By its path, too.
    let absolute =
        ["GET http", "://other/v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"];
    assert_eq!(receive(server.send(&absolute.concat())).0, 403);
}

#[test]
fn what_is_no_request_has_the_error_object_too() {
    let server = Server::start();
    let long =
        format!("GET /health HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(200_000));
    let many = format!("GET /health HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "X: y\r\n".repeat(200));
    for (request, status) in [
        ("hello\r\n\r\n", 400),
        ("GET /health HTTP/3.7\r\n\r\n", 400),
        ("GET /health HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (long.as_str(), 431),
        (many.as_str(), 431),
    ] {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        // The server may close before it has read all.
        let _ = stream.write_all(request.as_bytes());
        let (answered, text) = receive(stream);
        assert_eq!(answered, status, "{request:.40}: {text}");
        assert_eq!(error(&text)["code"], "malformed");
    }
}

#[test]
fn a_client_that_only_connects_gives_way() {
    let mut few = setup();
    few.connections = 3;
    let server = Server::with(Toy::default(), few);
    let silent: Vec<TcpStream> =
        (0..60).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    let begun: Vec<TcpStream> = (0..60).map(|_| server.send("GET /health HT")).collect();
    for _ in 0..5 {
        assert_eq!(server.get("/health").0, 200);
    }
    // Once others have given way, also what is not only a look at the server.
    let body = r#"{"prompt": "a", "max_tokens": 1}"#;
    while server.post(COMPLETIONS, body).0 != 200 {
        std::thread::sleep(Duration::from_millis(20));
    }
    drop((silent, begun));
}

/// The answer to a request on a connection that stays open.
fn exchange(stream: &mut TcpStream, path: &str) -> String {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = vec![0; 1 << 16];
    let length = stream.read(&mut answer).unwrap();
    String::from_utf8_lossy(&answer[..length]).into_owned()
}

#[test]
fn a_connection_above_the_limit_is_for_those_who_watch() {
    let mut few = setup();
    few.connections = 1;
    let server = Server::with(Toy { step: Duration::from_millis(50), broken: None }, few);
    let stream = r#"{"prompt": "a", "max_tokens": 30, "stream": true}"#;
    let mut running = server.start_post(COMPLETIONS, stream);
    running.read_exact(&mut [0; 20]).unwrap();
    assert_eq!((server.get("/health").0, server.get("/metrics").0), (200, 200));
    let mut kept = TcpStream::connect(server.address()).unwrap();
    let answer = exchange(&mut kept, "/v1/models");
    assert!(
        answer.starts_with("HTTP/1.1 503") && answer.contains("too_many_connections"),
        "{answer}"
    );
    // The next request of this client is on a new connection, which may be an ordinary one.
    assert!(answer.contains("connection: close"), "{answer}");
    // The running one is not of those that wait for their clients.
    let mut rest = String::new();
    running.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("[DONE]"), "{rest}");
}

#[test]
fn a_client_that_keeps_its_connection_is_answered_beside_those_that_only_connect() {
    let mut few = setup();
    few.connections = 4;
    let server = Server::with(Toy::default(), few);
    let silent: Vec<TcpStream> =
        (0..10).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    // From then on one of them gives way to each that comes.
    std::thread::sleep(Duration::from_millis(1200));
    for _ in 0..3 {
        let mut kept = TcpStream::connect(server.address()).unwrap();
        for _ in 0..3 {
            let answer = exchange(&mut kept, "/v1/models");
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
    }
    drop(silent);
}

#[test]
fn a_body_that_is_too_large_is_answered_after_it_was_sent() {
    let server = Server::start();
    let large = json!({ "prompt": "x".repeat(6 << 20) }).to_string();
    let (status, text) = server.post(COMPLETIONS, &large);
    assert_eq!((status, error(&text)["code"].as_str()), (413, Some("too_large")));
    // In chunks, without a length.
    let mut stream = server.send(
        &post(COMPLETIONS, "", "Transfer-Encoding: chunked\r\n")
            .replace("Content-Length: 0\r\n", ""),
    );
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(1 << 16));
    for _ in 0..50 {
        stream.write_all(chunk.as_bytes()).unwrap();
    }
    stream.write_all(b"0\r\n\r\n").unwrap();
    assert_eq!(receive(stream).0, 413);
}

#[test]
fn values_are_bounded_before_they_are_read() {
    let mut large = setup();
    large.body = 4 << 20;
    large.context = 1000;
    let server = Server::with(Toy::default(), large);
    let messages = |count| {
        let message = r#"{"role":"user","content":"a"}"#;
        format!("{{\"messages\":[{}]}}", vec![message; count].join(","))
    };
    let (status, text) = server.post("/v1/chat/completions", &messages(125_000));
    assert!(status == 413 && error(&text)["message"].as_str().unwrap().contains("MiB of memory"));
    for path in ["/v1/chat/completions", "/tokenize"] {
        let (status, text) = server.post(path, &messages(1001));
        let error = error(&text);
        assert_eq!((status, error["code"].as_str()), (400, Some("context_length_exceeded")));
        assert!(error["message"].as_str().unwrap().contains("1001 messages"), "{text}");
    }
    let nested = format!("{{\"prompt\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(server.post(COMPLETIONS, &nested).0, 400);
}

/// A tokenizer that takes as long as the test wants for texts that begin with `slow`.
struct Gate {
    bytes: Bytes,
    is_open: Arc<AtomicBool>,
}

impl Codec for Gate {
    fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
        while text.starts_with("slow") && !self.is_open.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.bytes.encode(text).map(|ids| ids.into_iter().take(10).collect())
    }

    fn decode(&self, ids: &[u32]) -> Result<Vec<u8>, String> {
        self.bytes.decode(ids)
    }

    fn before(&self) -> Option<u32> {
        self.bytes.before()
    }

    fn ends(&self) -> &[u32] {
        self.bytes.ends()
    }

    fn specials(&self) -> &Specials {
        self.bytes.specials()
    }
}

fn gated() -> (Server, Arc<AtomicBool>) {
    let is_open = Arc::new(AtomicBool::new(false));
    let mut setup = setup();
    setup.body = 1 << 20;
    setup.grace = Duration::from_millis(100);
    setup.codec = Arc::new(Gate { bytes: Bytes::new(), is_open: is_open.clone() });
    (Server::with(Toy::default(), setup), is_open)
}

#[test]
fn small_requests_do_not_wait_for_large_ones() {
    let (server, is_open) = gated();
    let large = json!({ "prompt": "slow", "max_tokens": 1, "user": "x".repeat(100_000) });
    let waiting: Vec<TcpStream> =
        (0..20).map(|_| server.start_post(COMPLETIONS, &large.to_string())).collect();
    for _ in 0..10 {
        assert_eq!(server.post(COMPLETIONS, r#"{"prompt": "a", "max_tokens": 1}"#).0, 200);
        assert_eq!(server.get("/health").0, 200);
    }
    is_open.store(true, Ordering::Relaxed);
    for one in waiting {
        assert_eq!(receive(one).0, 200);
    }
}

#[test]
fn the_end_does_not_wait_for_what_is_being_read() {
    let (server, is_open) = gated();
    let slow: Vec<TcpStream> = (0..9)
        .map(|_| server.start_post(COMPLETIONS, r#"{"prompt": "slow", "max_tokens": 1}"#))
        .collect();
    server.call_to_end();
    while !server.is_over() {
        std::thread::sleep(Duration::from_millis(5));
    }
    is_open.store(true, Ordering::Relaxed);
    drop(slow);
}

#[test]
fn while_it_ends_only_those_who_watch_are_answered() {
    let mut slow = setup();
    slow.grace = Duration::from_secs(600);
    let server = Server::with(Toy { step: Duration::from_millis(5), broken: None }, slow);
    let running = server.start_post(COMPLETIONS, r#"{"prompt": "a", "max_tokens": 90}"#);
    server.until("sequences_running", |running| running == 1.0);
    server.call_to_end();
    server.until_ending();
    for path in ["/v1/models", "/v1/complete"] {
        let (status, text) = server.get(path);
        assert_eq!((status, error(&text)["code"].as_str()), (503, Some("ending")));
    }
    let (status, text) = server.post("/tokenize", r#"{"prompt": "a"}"#);
    assert_eq!((status, error(&text)["code"].as_str()), (503, Some("ending")));
    assert_eq!(server.get("/metrics").0, 200);
    assert_eq!(receive(running).0, 200);
}

#[test]
fn a_text_that_cannot_fit_is_not_tokenized() {
    let mut large = setup();
    large.body = 4 << 20;
    let server = Server::with(Toy::default(), large);
    let text = "x".repeat((1 << 20) + 1);
    let chat = json!({ "messages": [{ "role": "user", "content": text }] }).to_string();
    for (path, body) in [
        (COMPLETIONS, json!({ "prompt": text }).to_string()),
        ("/tokenize", json!({ "prompt": text }).to_string()),
        ("/v1/chat/completions", chat.clone()),
        ("/tokenize", chat),
    ] {
        let (status, text) = server.post(path, &body);
        let error = error(&text);
        assert_eq!((status, error["code"].as_str()), (400, Some("context_length_exceeded")));
        assert!(error["message"].as_str().unwrap().contains("is a text of 10485"), "{text}");
    }
}

#[test]
fn an_answer_that_would_take_all_memory_is_refused() {
    let mut large = setup();
    large.body = 4 << 20;
    large.context = 4096;
    large.limits.queue = 1000;
    let server = Server::with(Toy::default(), large);
    let prompt = vec![7; 4000];
    let body =
        json!({ "prompt": vec![prompt; 100], "echo": true, "logprobs": 20, "max_tokens": 0 });
    let (status, text) = server.post(COMPLETIONS, &body.to_string());
    let error = error(&text);
    assert_eq!((status, error["param"].as_str()), (400, Some("logprobs")));
}
