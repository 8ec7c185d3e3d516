//! A model whose logits are a hash of all tokens so far, a tokenizer of bytes, a server with both, and a client.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use serve::chat::Template;
use serve::engine::Limits;
use serve::model::{Codec, Model, Piece, Sampling, Special, Specials};
use serve::server::{Setup, serve};

pub(crate) const BOS: u32 = 256;
pub(crate) const EOS: u32 = 257;
pub(crate) const USER: u32 = 258;
pub(crate) const END: u32 = 259;
const VOCAB: usize = 260;

/// Each byte is a token.
#[derive(Debug)]
pub(crate) struct Bytes {
    pub(crate) specials: Specials,
}

impl Bytes {
    pub(crate) fn new() -> Bytes {
        let special = |text: &str, id| Special { text: text.to_owned(), id };
        let specials =
            vec![special("<|bos|>", BOS), special("<|user|>", USER), special("<|end|>", END)];
        Bytes { specials: Specials::new(specials).unwrap() }
    }
}

impl Codec for Bytes {
    fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
        Ok(text.bytes().map(u32::from).collect())
    }

    fn decode(&self, ids: &[u32]) -> Result<Vec<u8>, String> {
        Ok(ids.iter().filter_map(|id| u8::try_from(*id).ok()).collect())
    }

    fn before(&self) -> Option<u32> {
        Some(BOS)
    }

    fn ends(&self) -> &[u32] {
        &[EOS, END]
    }

    fn specials(&self) -> &Specials {
        &self.specials
    }
}

/// The state is a digest of the tokens so far.
#[derive(Debug, Default)]
pub(crate) struct Toy {
    /// How long a step takes.
    pub(crate) step: Duration,
    /// Fails after this token.
    pub(crate) broken: Option<u32>,
}

fn mix(state: u64, token: u32) -> u64 {
    let mixed = (state ^ u64::from(token)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

impl Model for Toy {
    type State = u64;
    type Logits = Vec<u64>;

    fn vocab(&self) -> usize {
        VOCAB
    }

    fn piece(&self) -> usize {
        4
    }

    fn start(&self) -> Result<u64, String> {
        Ok(1)
    }

    fn advance(&self, pieces: &mut [Piece<'_, u64>]) -> Result<Vec<Option<Vec<u64>>>, String> {
        std::thread::sleep(self.step);
        let mut ended = Vec::new();
        for piece in &*pieces {
            assert!((1..=4).contains(&piece.tokens.len()));
            assert!(piece.logits <= piece.tokens.len());
            let mut after = vec![*piece.state];
            for token in piece.tokens {
                if Some(*token) == self.broken {
                    return Err(format!("the toy breaks at {token}"));
                }
                after.push(mix(after[after.len() - 1], *token));
            }
            ended.push(after);
        }
        for (piece, after) in pieces.iter_mut().zip(&ended) {
            *piece.state = after[after.len() - 1];
        }
        let wanted = |(piece, after): (&Piece<'_, u64>, &Vec<u64>)| {
            (piece.logits > 0).then(|| after[after.len() - piece.logits..].to_vec())
        };
        Ok(pieces.iter().zip(&ended).map(wanted).collect())
    }

    fn row(&self, logits: &Vec<u64>, at: usize) -> Result<Vec<f64>, String> {
        let state = logits[at];
        // Letters are likelier, so that texts can be read; all logits differ.
        let logit = |id: usize| {
            let likelier = if (97..=122).contains(&id) || id == 32 { 6.0 } else { 0.0 };
            likelier + (mix(state, id as u32) >> 40) as f64 / (1 << 22) as f64
        };
        Ok((0..VOCAB).map(logit).collect())
    }

    fn choose(&self, logits: &[f64], sampling: &Sampling, index: u64) -> Result<u32, String> {
        // Gumbel's trick, with a draw that depends on the seed, the index and the token.
        let score = |(id, logit): (usize, &f64)| {
            let word = mix(mix(sampling.seed, index as u32), id as u32) >> 11;
            let uniform = (word as f64 + 0.5) / (1u64 << 53) as f64;
            (id, logit - sampling.temperature * (-uniform.ln()).ln())
        };
        let best = logits.iter().enumerate().map(score).max_by(|a, b| a.1.total_cmp(&b.1));
        Ok(best.unwrap().0 as u32)
    }
}

/// A template with special tokens.
pub(crate) const TEMPLATE: &str = "\
{% for m in messages %}{% if m.role not in ['user', 'assistant', 'system'] %}\
{{ raise_exception('no role ' + m.role) }}{% endif %}<|user|>{{ m.role }}:{{ m.content.strip() }}<|end|>{% endfor %}";

/// A server on a free port.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

pub(crate) fn setup() -> Setup {
    Setup {
        name: "toy".to_owned(),
        context: 100,
        limits: Limits { rows: 8, queue: 64 },
        body: 4000,
        connections: 64,
        timeout: Duration::from_secs(600),
        grace: Duration::from_secs(600),
        token: None,
        origins: Vec::new(),
        template: Template::new(TEMPLATE, [].into()).unwrap(),
        codec: Arc::new(Bytes::new()),
        no_text: None,
        memory: || Some(12345),
        seed: 5,
    }
}

impl Server {
    pub(crate) fn start() -> Server {
        Server::with(Toy::default(), setup())
    }

    pub(crate) fn with(model: Toy, setup: Setup) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, end) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let flag = end.clone();
        let thread = std::thread::spawn(move || serve(listener, &model, setup, &flag));
        Server { address, end, thread: Some(thread) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Says that it should end; it ends when its answers are finished.
    pub(crate) fn call_to_end(&self) {
        self.end.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Sends bytes; returns the connection.
    pub(crate) fn send(&self, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        stream
    }

    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        let host = self.address;
        receive(
            self.send(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")),
        )
    }

    pub(crate) fn start_post(&self, path: &str, body: &str) -> TcpStream {
        self.send(&post(path, body, ""))
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> (u16, String) {
        receive(self.start_post(path, body))
    }

    /// The answer to a request that succeeds.
    pub(crate) fn answer(&self, path: &str, body: &str) -> Value {
        let (status, text) = self.post(path, body);
        assert_eq!(status, 200, "{body}: {text}");
        serde_json::from_str(&text).unwrap()
    }

    pub(crate) fn complete(&self, body: &str) -> Value {
        self.answer("/v1/completions", body)
    }

    /// The value of a metric.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").1;
        let line = text.lines().find(|line| line.starts_with(&format!("canonc_{name} ")));
        line.unwrap_or_else(|| panic!("{name} in {text}"))
            .rsplit_once(' ')
            .unwrap()
            .1
            .parse()
            .unwrap()
    }

    /// Waits until it says that it ends.
    pub(crate) fn until_ending(&self) {
        for _ in 0..1000 {
            match self.get("/health").0 {
                200 => std::thread::sleep(Duration::from_millis(5)),
                status => return assert_eq!(status, 503),
            }
        }
        panic!("the server does not end");
    }

    /// Waits until a metric has a value.
    pub(crate) fn until(&self, name: &str, is: impl Fn(f64) -> bool) {
        while !is(self.metric(name)) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.call_to_end();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(std::thread::panicking() || ended.unwrap().is_ok());
        }
    }
}

pub(crate) fn post(path: &str, body: &str, more: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n{more}Content-Length: {length}\r\n\r\n{body}"
    )
}

/// The status and the body, whole or in chunks.
pub(crate) fn receive(mut stream: TcpStream) -> (u16, String) {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head in {text:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    if !head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        return (status, body.to_owned());
    }
    let (mut whole, mut rest) = (String::new(), body);
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        whole += &after[..size];
        rest = after[size..].trim_start_matches("\r\n");
    }
    (status, whole)
}

/// The objects of a stream of events, and whether it was complete.
pub(crate) fn events(text: &str) -> (Vec<Value>, bool) {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let (last, objects): (Vec<&str>, Vec<&str>) = data.partition(|data| *data == "[DONE]");
    (objects.iter().map(|data| serde_json::from_str(data).unwrap()).collect(), last.len() == 1)
}
