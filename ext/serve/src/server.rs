//! The routes, and the life of the server. Every error is OpenAI's object; a request is checked completely before
//! anything is computed; a client that leaves takes its work with it; after the call to end, running answers are finished
//! within the grace time, and new ones are refused.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::body::{Body, BodyDataStream, HttpBody as _};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Version, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::sse::{KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Extension, Json, Router};
use futures_util::StreamExt as _;
use futures_util::stream::unfold;
use serde_json::{Value, json};
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, watch};

use crate::answer::{Head, Shape};
use crate::chat::{Conversation, Template};
use crate::engine::{Engine, Job, JobQueue, Limits, Refusal};
use crate::error::ApiError;
use crate::model::{Codec, Model};
use crate::request::{self, Chat, Common, Completion, Prompt, Read, ordered_values, values};
use crate::socket::{ARRIVAL, Acceptor, Answer, Connections, Peer};
use crate::stats::Stats;
use crate::stream::{Answering, PromptTokens, collect, pieces};

/// The settings of a server.
pub struct Setup {
    /// The model's name.
    pub name: String,
    /// Prompt and drawn tokens of a sequence, at most.
    pub context: usize,
    /// Sequences at a time, and in the queue.
    pub limits: Limits,
    /// Bytes of a request.
    pub body: usize,
    /// Connections at a time.
    pub connections: usize,
    /// How long a request may take.
    pub timeout: Duration,
    /// How long answers may take after the call to end.
    pub grace: Duration,
    /// What a client must know.
    pub token: Option<String>,
    /// Origins of web pages that may use the server, besides those on this machine; `*` for all.
    pub origins: Vec<String>,
    /// How messages become a prompt.
    pub template: Template,
    /// The tokenizer, if the tokens are text.
    pub codec: Arc<dyn Codec>,
    /// Why texts cannot be tokenized, if they cannot.
    pub no_text: Option<String>,
    /// Bytes that this process has in memory, if the system says.
    pub memory: fn() -> Option<u64>,
    /// The first seed of requests without one.
    pub seed: u64,
}

struct App {
    setup: Setup,
    vocab: usize,
    queue: JobQueue,
    stats: Arc<Stats>,
    began: u64,
    numbers: AtomicU64,
    /// For requests without an id.
    ids: AtomicU64,
    /// Whether only this machine can connect.
    is_local: bool,
    connections: Arc<Connections>,
    /// Bytes that all bodies together may have, without the first of each.
    bodies: Arc<Semaphore>,
    /// Small requests that are read at a time.
    small: Arc<Semaphore>,
    /// Large requests that are read at a time; small ones never wait for them.
    large: Arc<Semaphore>,
}

type Shared = Arc<App>;

/// Bytes of all large requests that are arriving or being read, unless two of the largest need more.
const BODIES: usize = 64 << 20;

/// Most tokens of an answer with probabilities, alternatives included.
const NAMES: usize = 1 << 18;

const JSON: (HeaderName, HeaderValue) =
    (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));

/// A request of at most these bytes is small.
const SMALL: usize = 64 << 10;

/// How long no byte of a request may arrive.
const PAUSE: Duration = Duration::from_secs(5);

/// Bytes of a text that is tokenized whatever the context, and bytes that a token may have in longer ones.
const TEXT: usize = 64 << 10;
const TOKEN: usize = 16;

/// Serves until `end` is set. The model stays on this thread.
pub fn serve<M: Model>(
    listener: TcpListener,
    model: &M,
    setup: Setup,
    end: &Arc<AtomicBool>,
) -> std::io::Result<()> {
    let stats = Arc::new(Stats::default());
    let (engine, queue) = Engine::new(setup.limits, stats.clone());
    let (codec, grace) = (setup.codec.clone(), setup.grace);
    let is_local = listener.local_addr()?.ip().is_loopback();
    // Reading a request and answering it may each take the whole time.
    let idle_limit = 2 * setup.timeout + ARRIVAL;
    let most = setup.connections;
    let bodies = (2 * setup.body).max(BODIES);
    let connections = Arc::new(Connections::default());
    let app = Arc::new(App {
        vocab: model.vocab(),
        setup,
        queue,
        stats: stats.clone(),
        began: seconds(),
        numbers: AtomicU64::new(0),
        ids: AtomicU64::new(0),
        is_local,
        connections: connections.clone(),
        bodies: Arc::new(Semaphore::new(bodies)),
        small: Arc::new(Semaphore::new(2)),
        large: Arc::new(Semaphore::new(1)),
    });
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("http")
        .enable_all()
        .build()?;
    let listener = {
        let _inside = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    let (close, closing) = watch::channel(false);
    let acceptor = Acceptor {
        router: router(app),
        connections: connections.clone(),
        most,
        idle_limit,
        closing,
        stats: stats.clone(),
    };
    let accepting = runtime.spawn(acceptor.accept(listener));
    let (end, is_over) = (end.clone(), Arc::new(AtomicBool::new(false)));
    let over = is_over.clone();
    // A thread of its own, which no client's work can hold up.
    let ending = std::thread::Builder::new().name("end".to_owned()).spawn(move || {
        watch_end(&end, &over, grace, &stats);
    })?;
    engine.run(model, codec.as_ref());
    is_over.store(true, Ordering::Relaxed);
    // The engine is done: answers need only be written.
    accepting.abort();
    let _ = close.send(true);
    runtime.block_on(async {
        let _ = tokio::time::timeout(Duration::from_secs(1), connections.closed()).await;
    });
    runtime.shutdown_timeout(Duration::from_millis(100));
    let _ = ending.join();
    Ok(())
}

/// After the call to end, new requests are refused with 503, so that a load balancer sees it; running answers have the grace
/// time.
fn watch_end(end: &AtomicBool, is_over: &AtomicBool, grace: Duration, stats: &Stats) {
    let tick = Duration::from_millis(20);
    let mut called: Option<Instant> = None;
    while !is_over.load(Ordering::Relaxed) {
        if end.load(Ordering::Relaxed) {
            stats.ending.store(true, Ordering::Relaxed);
            if called.get_or_insert_with(Instant::now).elapsed() >= grace {
                stats.cut.store(true, Ordering::Relaxed);
            }
        }
        std::thread::sleep(tick);
    }
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

fn router(app: Shared) -> Router {
    let routes: [(&str, MethodRouter<Shared>); 7] = [
        ("/health", get(health)),
        ("/metrics", get(metrics)),
        ("/v1/models", get(models)),
        ("/v1/completions", post(completions)),
        ("/v1/chat/completions", post(chat)),
        ("/tokenize", post(tokenize)),
        ("/detokenize", post(detokenize)),
    ];
    // Clients join paths with and without a slash at the end.
    let with_slash = |router: Router<Shared>, (path, route): (&str, MethodRouter<Shared>)| {
        router.route(path, route.clone()).route(&format!("{path}/"), route)
    };
    let router = routes.into_iter().fold(Router::new(), with_slash);
    router
        .route("/v1/models/{*name}", get(one_model))
        .fallback(unknown)
        .method_not_allowed_fallback(other_method)
        .layer(from_fn_with_state(app.clone(), guard))
        .with_state(app)
}

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Checks who asks, and counts the answer.
async fn guard(
    State(app): State<Shared>,
    Extension(peer): Extension<Arc<Peer>>,
    request: Request,
    next: Next,
) -> Response {
    let began = Instant::now();
    peer.begin_request();
    if request.body().is_end_stream() {
        peer.work();
    }
    let origin = request.headers().get(header::ORIGIN).cloned().filter(|origin| app.allows(origin));
    let id = request.headers().get(REQUEST_ID).cloned();
    let is_preflight = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let waits = request.headers().contains_key(header::EXPECT);
    let (parts, body) = request.into_parts();
    let body = Arc::new(Mutex::new(body.into_data_stream()));
    let shared = unfold(body.clone(), |body| async move {
        let next = body.lock().await.next().await?;
        Some((next, body))
    });
    let request = Request::from_parts(parts, Body::from_stream(shared));
    let mut response = match app.admit_host(&request) {
        Err(error) => error.into_response(),
        // A browser asks without a token.
        Ok(()) if is_preflight => match &origin {
            Some(_) => StatusCode::NO_CONTENT.into_response(),
            None => {
                let message = "pages of this origin may not use the server; start it with --allow-origin ORIGIN";
                ApiError::with(StatusCode::FORBIDDEN, "wrong_origin", message).into_response()
            }
        },
        Ok(()) => match app.admit(&request).and_then(|()| app.admit_now(&request, &peer)) {
            Ok(()) => next.run(request).await,
            Err(error) => error.into_response(),
        },
    };
    // A client that asks first has sent nothing yet.
    let is_refused = response.status().is_client_error() || response.status().is_server_error();
    if is_refused && (waits || !passed(&body).await) {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    app.stats.answered(response.status().as_u16());
    app.stats.request_times.add(began.elapsed());
    let headers = response.headers_mut();
    headers.insert(header::VARY, HeaderValue::from_static("Origin"));
    if let Some(origin) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        let exposed = HeaderValue::from_static("x-request-id, x-ignored-fields");
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
        if is_preflight {
            let allow = |text| HeaderValue::from_static(text);
            headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, allow("GET, POST"));
            headers.insert(
                header::ACCESS_CONTROL_ALLOW_HEADERS,
                allow("*, Authorization, Content-Type"),
            );
        }
    }
    let number = app.ids.fetch_add(1, Ordering::Relaxed);
    let id = id.or_else(|| HeaderValue::from_str(&format!("req-{}-{number}", app.began)).ok());
    if let Some(id) = id {
        headers.insert(REQUEST_ID, id);
    }
    if peer.is_spare {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    peer.work();
    response.map(|body| Body::new(Answer { body, peer }))
}

/// How long the next bytes of the rest of a refused request may take.
const LINGER: Duration = Duration::from_secs(1);

/// Most bytes of that rest.
const REST: usize = 256 << 20;

/// Reads over the rest of a request, which the client would otherwise send into a closed connection, and so not see the
/// answer. False if too much is left.
async fn passed(body: &Mutex<BodyDataStream>) -> bool {
    let rest = async {
        let mut body = body.lock().await;
        let mut left = REST;
        loop {
            let next = tokio::time::timeout(LINGER, body.next()).await;
            let Ok(next) = next else { return false };
            let Some(bytes) = next else { return true };
            let read = bytes.ok().and_then(|bytes| left.checked_sub(bytes.len()));
            let Some(read) = read else { return false };
            left = read;
        }
    };
    tokio::time::timeout(ARRIVAL, rest).await.unwrap_or(false)
}

/// An answer that names the fields of the request that were left out.
fn with_ignored(mut response: Response, ignored: &[String]) -> Response {
    let names: Vec<String> = ignored.iter().map(|name| name.escape_default().to_string()).collect();
    let mut names = names.join(", ");
    // Clients limit the length of a header.
    names.truncate(1000);
    if let Ok(names) = HeaderValue::from_str(&names)
        && !ignored.is_empty()
    {
        response.headers_mut().insert(HeaderName::from_static("x-ignored-fields"), names);
    }
    response
}

impl App {
    /// Whether a page of this origin may use the server.
    fn allows(&self, origin: &HeaderValue) -> bool {
        let Ok(origin) = origin.to_str() else { return false };
        let host = ["http://", "https://"].iter().find_map(|scheme| origin.strip_prefix(scheme));
        let Some(host) = host else { return false };
        let name = host
            .rsplit_once(':')
            .filter(|(_, port)| !port.ends_with(']'))
            .map_or(host, |(name, _)| name);
        ["localhost", "127.0.0.1", "[::1]"].contains(&name)
            || self.setup.origins.iter().any(|allowed| allowed == "*" || allowed == origin)
    }

    fn admit_host(&self, request: &Request) -> Result<(), ApiError> {
        let refused = |status, message: String| Err(ApiError::with(status, "wrong_host", message));
        let mut hosts = request.headers().get_all(header::HOST).iter();
        let (host, another) = (hosts.next(), hosts.next());
        if another.is_some() || host.is_none() && request.version() == Version::HTTP_11 {
            let message = "a request has one `Host` header, the name of this server";
            return refused(StatusCode::BAD_REQUEST, message.to_owned());
        }
        // A page in a browser could point a name of its own at this machine.
        if !self.is_local || self.setup.token.is_some() {
            return Ok(());
        }
        let host = host.map(|host| String::from_utf8_lossy(host.as_bytes()).into_owned());
        let authority = request.uri().authority().map(|authority| authority.to_string());
        match host.iter().chain(&authority).find(|name| !is_local(name)) {
            None if host.is_none() => {
                refused(StatusCode::BAD_REQUEST, "send the header `Host: localhost`".to_owned())
            }
            None => Ok(()),
            Some(name) => refused(
                StatusCode::FORBIDDEN,
                format!(
                    "this server answers requests to localhost, but this one is to `{name}`; a server with a token answers any name"
                ),
            ),
        }
    }

    /// Refuses what comes while the server ends, or on a connection above the limit. Whoever watches the server is answered.
    fn admit_now(&self, request: &Request, peer: &Peer) -> Result<(), ApiError> {
        let path = request.uri().path().trim_end_matches('/');
        if ["/health", "/metrics"].contains(&path) {
            return Ok(());
        }
        if self.stats.is_ending() {
            return Err(ending());
        }
        match peer.is_spare {
            true => {
                let message = "too many connections are open; try again";
                Err(ApiError::with(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "too_many_connections",
                    message,
                ))
            }
            false => Ok(()),
        }
    }

    fn admit(&self, request: &Request) -> Result<(), ApiError> {
        let text = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
        let Some(wanted) = &self.setup.token else { return Ok(()) };
        if request.uri().path().trim_end_matches('/') == "/health" {
            return Ok(());
        }
        let given = text(header::AUTHORIZATION)
            .and_then(|value| value.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("Bearer"))
            .map(|(_, token)| token);
        match given {
            Some(given) if same(given.trim(), wanted) => Ok(()),
            Some(_) => {
                let message = "the bearer token is not this server's";
                Err(ApiError::with(StatusCode::UNAUTHORIZED, "invalid_api_key", message))
            }
            None => {
                let message =
                    "this server needs a token; send the header `Authorization: Bearer TOKEN`";
                Err(ApiError::with(StatusCode::UNAUTHORIZED, "missing_api_key", message))
            }
        }
    }

    /// The bytes of a request.
    async fn receive(&self, request: Request, peer: &Peer) -> Result<Received, ApiError> {
        let kind = request.headers().get(header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or("nothing");
        // A page in a browser may send other types without asking.
        let kind_alone = kind.split(';').next().unwrap_or(kind).trim().to_ascii_lowercase();
        let is_json = kind_alone
            .strip_prefix("application/")
            .is_some_and(|kind| kind == "json" || kind.ends_with("+json"));
        if !is_json {
            let message =
                format!("the content type is {kind}; send `Content-Type: application/json`");
            return Err(ApiError::with(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", message));
        }
        let most = self.setup.body;
        let too_large = || {
            let message = format!("the request has more than {most} bytes, this server's limit");
            ApiError::with(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
        };
        let length = request.headers().get(header::CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if length.is_some_and(|length| length > most as u64) {
            return Err(too_large());
        }
        let slow = |limit: Duration| {
            let message = format!("no more of the request arrived within {} s", limit.as_secs());
            ApiError::with(StatusCode::REQUEST_TIMEOUT, "too_slow", message)
        };
        let mut body = request.into_body().into_data_stream();
        let arrival = async {
            let (mut received, mut room) = (Vec::new(), None::<OwnedSemaphorePermit>);
            loop {
                let next = tokio::time::timeout(PAUSE, body.next()).await;
                let Some(bytes) = next.map_err(|_| slow(PAUSE))? else { break };
                let bytes =
                    bytes.map_err(|_| ApiError::bad("the request's body is cut or malformed"))?;
                if received.len() + bytes.len() > most {
                    return Err(too_large());
                }
                let held = room.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
                let wanted = (received.len() + bytes.len()).saturating_sub(SMALL + held);
                if let Some(more) = self.body_room(wanted, peer).await? {
                    match &mut room {
                        Some(room) => room.merge(more),
                        None => room = Some(more),
                    }
                }
                received.extend(bytes);
            }
            Ok(Received { bytes: received, _room: room })
        };
        let received = tokio::time::timeout(ARRIVAL, arrival).await;
        peer.holds_room.store(false, Ordering::Relaxed);
        let mut received = received.unwrap_or_else(|_| Err(slow(ARRIVAL)))?;
        peer.work();
        // Some clients write a byte order mark.
        if received.bytes.starts_with(b"\xef\xbb\xbf") {
            received.bytes.drain(..3);
        }
        Ok(received)
    }

    /// Room for bytes of a large request. Clients that are slow to send one that has room give way.
    async fn body_room(
        &self,
        bytes: usize,
        peer: &Peer,
    ) -> Result<Option<OwnedSemaphorePermit>, ApiError> {
        let Some(wanted) = u32::try_from(bytes).ok().filter(|bytes| *bytes > 0) else {
            return Ok(None);
        };
        // It waits for the server now.
        peer.work();
        let until = Instant::now() + PAUSE;
        loop {
            let room = self.bodies.clone().acquire_many_owned(wanted);
            match tokio::time::timeout(Duration::from_millis(50), room).await {
                Ok(Ok(room)) => {
                    peer.holds_room.store(true, Ordering::Relaxed);
                    peer.wait();
                    return Ok(Some(room));
                }
                Ok(Err(_)) | Err(_) if Instant::now() < until => {
                    self.connections.make_room(|peer| peer.holds_room.load(Ordering::Relaxed));
                }
                Ok(Err(_)) | Err(_) => {
                    let message = "too many large requests arrive at once; try again";
                    return Err(ApiError::with(StatusCode::SERVICE_UNAVAILABLE, "busy", message));
                }
            }
        }
    }

    /// Receives a request, and reads it on a thread that may take long. Only as many large ones are read at once as leave time
    /// for others.
    async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        request: Request,
        peer: &Peer,
        read: impl FnOnce(&App, &[u8]) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let received = self.receive(request, peer).await?;
        let is_small = received.bytes.len() <= SMALL;
        let turns = if is_small { &self.small } else { &self.large };
        let app = self.clone();
        let work = async {
            let turn = turns.clone().acquire_owned().await;
            let reading = tokio::task::spawn_blocking(move || {
                // The whole of it, so that its room is free when it is.
                let (_turn, received) = (turn, received);
                read(&app, &received.bytes)
            });
            reading.await.unwrap_or_else(|_| Err(ApiError::bad("the request cannot be read")))
        };
        tokio::time::timeout(self.setup.timeout, work).await.unwrap_or_else(|_| {
            let limit = self.setup.timeout.as_secs();
            let message = format!("reading the request took longer than this server's {limit} s");
            Err(ApiError::with(StatusCode::GATEWAY_TIMEOUT, "timeout", message))
        })
    }

    fn check_name(&self, name: Option<&str>) -> Result<(), ApiError> {
        let served = &self.setup.name;
        match name {
            None | Some("") => Ok(()),
            Some(name) if name == served => Ok(()),
            Some(name) => {
                let message = format!("the model `{name}` is not here; this server has `{served}`");
                let error = ApiError::with(StatusCode::NOT_FOUND, "model_not_found", message);
                Err(ApiError { param: Some("model".to_owned()), ..error })
            }
        }
    }

    fn check_bias(&self, common: &Common) -> Result<(), ApiError> {
        match common.penalties.bias.iter().find(|(id, _)| *id as usize >= self.vocab) {
            None => Ok(()),
            Some((id, _)) => {
                let message = format!(
                    "`logit_bias` has the token {id}, but the vocabulary has {}",
                    self.vocab
                );
                Err(ApiError::field("logit_bias", message))
            }
        }
    }

    /// The tokenizer, if the tokens of a field can be text.
    fn codec(&self, name: &str) -> Result<&dyn Codec, ApiError> {
        match &self.setup.no_text {
            Some(reason) => Err(ApiError::field(name, reason.clone())),
            None => Ok(self.setup.codec.as_ref()),
        }
    }

    /// The tokens of a text.
    fn encode(&self, name: &str, text: &str, marked: bool) -> Result<Vec<u32>, ApiError> {
        let codec = self.codec(name)?;
        self.check_length(name, text)?;
        let mut ids: Vec<u32> = codec.before().filter(|_| marked).into_iter().collect();
        ids.extend(codec.encode(text).map_err(|message| ApiError::field(name, message))?);
        Ok(ids)
    }

    /// The tokens of a conversation.
    fn conversation(&self, conversation: &Conversation) -> Result<Vec<u32>, ApiError> {
        let codec = self.codec("messages")?;
        let (count, context) = (conversation.messages.len(), self.setup.context);
        // Each is at least a token.
        if count > context {
            let message = format!(
                "`messages` has {count} messages, but this server computes at most {context} tokens of a sequence"
            );
            return Err(too_long("messages", message));
        }
        let text = self.setup.template.render(conversation, codec)?;
        self.check_length("messages", &text)?;
        self.setup.template.tokens(&text, codec)
    }

    /// Refuses a text that cannot fit the context: tokenizers take up to a hundred times its bytes.
    fn check_length(&self, name: &str, text: &str) -> Result<(), ApiError> {
        let (bytes, context) = (text.len(), self.setup.context);
        if bytes <= context.saturating_mul(TOKEN).max(TEXT) {
            return Ok(());
        }
        let message = format!(
            "`{name}` is a text of {bytes} bytes, but this server computes at most {context} tokens of a sequence"
        );
        Err(too_long(name, message))
    }

    /// Refuses an answer that would take all memory: each token's alternatives are named.
    fn check_size(
        &self,
        common: &Common,
        prompts: &[PromptTokens],
        echo: bool,
    ) -> Result<(), ApiError> {
        let Some(alternatives) = common.logprobs else { return Ok(()) };
        let tokens: usize = prompts
            .iter()
            .map(|prompt| prompt.most + if echo { prompt.ids.len() } else { 0 })
            .sum();
        let names = tokens.saturating_mul(common.choices).saturating_mul(alternatives + 1);
        if names <= NAMES {
            return Ok(());
        }
        let message = format!(
            "the answer would have up to {names} tokens with their alternatives, and the limit is {NAMES}; ask for fewer, or in several requests"
        );
        Err(ApiError::field("logprobs", message))
    }

    /// Refuses more texts than may wait.
    fn check_count(&self, count: usize) -> Result<(), ApiError> {
        let queue = self.setup.limits.queue;
        if count <= queue {
            return Ok(());
        }
        let message = format!(
            "this request asks for {count} texts, and this server lets {queue} wait (--queue)"
        );
        Err(ApiError::field("n", message))
    }

    /// The most tokens to draw after this prompt, if all fits.
    fn room(
        &self,
        name: &str,
        prompt: &[u32],
        asked: Option<usize>,
        usual: usize,
    ) -> Result<usize, ApiError> {
        let (vocab, context) = (self.vocab, self.setup.context);
        if prompt.is_empty() {
            let message = format!("`{name}` has no tokens, and there is no mark before a text");
            return Err(ApiError::field(name, message));
        }
        if let Some(id) = prompt.iter().find(|id| **id as usize >= vocab) {
            let message = format!("`{name}` has the token {id}, but the vocabulary has {vocab}");
            return Err(ApiError::field(name, message));
        }
        let left = context.saturating_sub(prompt.len());
        let wanted = asked.unwrap_or(usual.min(left).max(1));
        if wanted > left || prompt.len() > context {
            let message = format!(
                "`{name}` has {} tokens and {wanted} more are asked for, but this server computes at most {context} tokens of a sequence",
                prompt.len()
            );
            return Err(too_long(name, message));
        }
        Ok(wanted)
    }

    /// Queues the jobs of a request, and answers when they are done or as they go.
    async fn answer(
        self: Arc<Self>,
        shape: Shape,
        common: Common,
        prompts: Vec<PromptTokens>,
        echo: bool,
    ) -> Result<Response, ApiError> {
        let (count, queue) = (prompts.len() * common.choices, self.setup.limits.queue);
        let (events, received) = unbounded_channel();
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let now = Instant::now();
        let seed = match common.seeded {
            true => common.sampling.seed,
            false => self.setup.seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        };
        let (mut jobs, penalties) = (Vec::new(), Arc::new(common.penalties));
        for PromptTokens { ids, most, .. } in &prompts {
            for choice in 0..common.choices {
                let mut sampling = common.sampling;
                sampling.seed = seed.wrapping_add(choice as u64);
                jobs.push(Job {
                    prompt: ids.clone(),
                    max_tokens: *most,
                    sampling,
                    penalties: penalties.clone(),
                    stops: common.stops.clone(),
                    logprobs: common.logprobs,
                    score_prompt: echo && common.logprobs.is_some(),
                    began: now,
                    deadline: now + self.setup.timeout,
                    events: events.clone(),
                    number: jobs.len(),
                });
            }
        }
        drop(events);
        self.queue.submit(jobs).map_err(|refusal| match refusal {
            Refusal::Full => {
                let message =
                    format!("too many texts wait: this request has {count}, and {queue} may wait");
                ApiError::with(StatusCode::TOO_MANY_REQUESTS, "queue_full", message)
            }
            Refusal::Ending => ending(),
        })?;
        let head = Head {
            shape,
            id: format!(
                "{}-{}-{number}",
                if shape == Shape::Chat { "chatcmpl" } else { "cmpl" },
                self.began
            ),
            created: seconds(),
            model: self.setup.name.clone(),
            logprobs: common.logprobs.is_some(),
            counts: common.stream_usage,
        };
        let answering = Answering {
            head,
            codec: self.setup.codec.clone(),
            prompts,
            choices: common.choices,
            echo,
            timeout: self.setup.timeout,
        };
        if common.stream {
            let alive = KeepAlive::new().interval(Duration::from_secs(10));
            let answer = Sse::new(pieces(answering, received)).keep_alive(alive).into_response();
            return Ok(with_ignored(answer, &common.ignored));
        }
        let answer = collect(answering, received).await?;
        Ok(with_ignored(([JSON], answer).into_response(), &common.ignored))
    }
}

/// The bytes of a request, with their part of the room for all.
struct Received {
    bytes: Vec<u8>,
    _room: Option<OwnedSemaphorePermit>,
}

fn too_long(name: &str, message: String) -> ApiError {
    let error = ApiError::with(StatusCode::BAD_REQUEST, "context_length_exceeded", message);
    ApiError { param: Some(name.to_owned()), ..error }
}

fn ending() -> ApiError {
    ApiError::with(StatusCode::SERVICE_UNAVAILABLE, "ending", "this server is ending")
}

/// Whether this is a name of this machine, with or without a port.
fn is_local(host: &str) -> bool {
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let name =
        host.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(host, |(name, _)| name);
    let local = ["localhost", "localhost.", "127.0.0.1", "0.0.0.0", "[::1]"];
    local.iter().any(|local| local.eq_ignore_ascii_case(name))
}

/// Whether two texts are equal, in a time that does not depend on where they differ.
fn same(one: &str, two: &str) -> bool {
    let differ = one.bytes().zip(two.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
    one.len() == two.len() && differ == 0
}

async fn completions(
    State(app): State<Shared>,
    Extension(peer): Extension<Arc<Peer>>,
    request: Request,
) -> Result<Response, ApiError> {
    let (common, prompts, echo) = app.read(request, &peer, read_completion).await?;
    app.answer(Shape::Completion, common, prompts, echo).await
}

fn read_completion(app: &App, bytes: &[u8]) -> Result<(Common, Vec<PromptTokens>, bool), ApiError> {
    let Completion { common, prompts, echo, marked } = Completion::read(values(bytes)?)?;
    app.check_name(common.model.as_deref())?;
    app.check_bias(&common)?;
    app.check_count(prompts.len() * common.choices)?;
    let several = prompts.len() > 1;
    let mut ready = Vec::new();
    for (at, prompt) in prompts.into_iter().enumerate() {
        let name = if several { format!("prompt[{at}]") } else { "prompt".to_owned() };
        let (ids, text) = match prompt {
            Prompt::Text(text) => (app.encode(&name, &text, marked)?, echo.then_some(text)),
            Prompt::Tokens(ids) => (ids, None),
        };
        // OpenAI's default.
        let most = app.room(&name, &ids, common.max_tokens, 16)?;
        ready.push(PromptTokens { ids, text, most });
    }
    app.check_size(&common, &ready, echo)?;
    Ok((common, ready, echo))
}

async fn chat(
    State(app): State<Shared>,
    Extension(peer): Extension<Arc<Peer>>,
    request: Request,
) -> Result<Response, ApiError> {
    let (common, prompt) = app.read(request, &peer, read_chat).await?;
    app.answer(Shape::Chat, common, vec![prompt], false).await
}

fn read_chat(app: &App, bytes: &[u8]) -> Result<(Common, PromptTokens), ApiError> {
    let Read { value, ordered } = ordered_values(bytes)?;
    let Chat { mut common, conversation } = Chat::read(value, &ordered)?;
    app.check_name(common.model.as_deref())?;
    app.check_count(common.choices)?;
    let ids = app.conversation(&conversation)?;
    app.check_bias(&common)?;
    let most = app.room("messages", &ids, common.max_tokens, usize::MAX)?;
    common.stops.extend(app.setup.template.stops());
    let prompt = PromptTokens { ids, text: None, most };
    app.check_size(&common, std::slice::from_ref(&prompt), false)?;
    Ok((common, prompt))
}

async fn health(State(app): State<Shared>) -> Response {
    let ending = app.stats.is_ending();
    let status = if ending { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    let (running, waiting) = (app.stats.running.get(), app.stats.waiting.get());
    let word = if ending { "ending" } else { "ok" };
    (status, Json(json!({ "status": word, "running": running, "waiting": waiting })))
        .into_response()
}

async fn metrics(State(app): State<Shared>) -> Response {
    let text = app.stats.render((app.setup.memory)());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

impl App {
    fn card(&self) -> Value {
        json!({
            "id": self.setup.name, "object": "model", "created": self.began, "owned_by": "canonc",
            "max_model_len": self.setup.context,
        })
    }
}

async fn models(State(app): State<Shared>) -> Json<Value> {
    Json(json!({ "object": "list", "data": [app.card()] }))
}

async fn one_model(
    State(app): State<Shared>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, ApiError> {
    let Path(name) = name.map_err(|error| ApiError::bad(error.body_text()))?;
    app.check_name(Some(&name))?;
    Ok(Json(app.card()))
}

async fn tokenize(
    State(app): State<Shared>,
    Extension(peer): Extension<Arc<Peer>>,
    request: Request,
) -> Result<Response, ApiError> {
    let (ids, ignored) = app.read(request, &peer, read_tokenize).await?;
    let (count, most) = (ids.len(), app.setup.context);
    let answer = Json(json!({ "count": count, "max_model_len": most, "tokens": ids }));
    Ok(with_ignored(answer.into_response(), &ignored))
}

fn read_tokenize(app: &App, bytes: &[u8]) -> Result<(Vec<u32>, Vec<String>), ApiError> {
    let Read { value, ordered } = ordered_values(bytes)?;
    let asked = request::Tokenize::read(value, &ordered)?;
    app.check_name(asked.model.as_deref())?;
    let ids = match asked.what {
        request::Tokenized::Text(text) => app.encode("prompt", &text, asked.marked)?,
        request::Tokenized::Messages(conversation) => app.conversation(&conversation)?,
    };
    Ok((ids, asked.ignored))
}

async fn detokenize(
    State(app): State<Shared>,
    Extension(peer): Extension<Arc<Peer>>,
    request: Request,
) -> Result<Response, ApiError> {
    let (text, ignored) = app.read(request, &peer, read_detokenize).await?;
    Ok(with_ignored(Json(json!({ "prompt": text })).into_response(), &ignored))
}

fn read_detokenize(app: &App, bytes: &[u8]) -> Result<(String, Vec<String>), ApiError> {
    let asked = request::Detokenize::read(values(bytes)?)?;
    app.check_name(asked.model.as_deref())?;
    if let Some(id) = asked.tokens.iter().find(|id| **id as usize >= app.vocab) {
        let message = format!("`tokens` has the token {id}, but the vocabulary has {}", app.vocab);
        return Err(ApiError::field("tokens", message));
    }
    let decoded = app.codec("tokens")?.decode(&asked.tokens);
    let bytes = decoded.map_err(|message| ApiError::field("tokens", message))?;
    Ok((String::from_utf8_lossy(&bytes).into_owned(), asked.ignored))
}

const ROUTES: &str = "GET /v1/models, /health and /metrics; POST /v1/completions, /v1/chat/completions, /tokenize and /detokenize";

async fn unknown(request: Request) -> ApiError {
    let message = format!("there is no {}; this server has {ROUTES}", request.uri().path());
    ApiError::with(StatusCode::NOT_FOUND, "unknown_path", message)
}

async fn other_method(method: Method, request: Request) -> ApiError {
    let message =
        format!("{} does not take {method}; this server has {ROUTES}", request.uri().path());
    ApiError::with(StatusCode::METHOD_NOT_ALLOWED, "unknown_method", message)
}
