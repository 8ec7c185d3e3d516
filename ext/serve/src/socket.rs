//! Connections: how many there are, who may go first, and how long a client may take.
//!
//! A client that only holds a connection, or sends its request slowly, gives way to others when there are as many as the
//! server takes: first those of the address that has most, longest first. A few more are accepted, which get answers from
//! `/health` and `/metrics` alone. What neither reads nor writes is closed after a while.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::StatusCode;
use axum::{Extension, Router};
use http_body::{Frame, SizeHint};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, Sleep, sleep};

use crate::error::ApiError;
use crate::stats::Stats;

/// Time for the bytes of a request's head to arrive, and for those of its body.
pub(crate) const ARRIVAL: Duration = Duration::from_secs(30);

/// Connections above the limit, for `/health` and `/metrics`.
const SPARE: usize = 32;

/// Most bytes of a request's head, and of what waits to be read of its body.
const BUFFER: usize = 64 << 10;

/// How long a client may take before others go first.
const HURRY: Duration = Duration::from_secs(1);

/// How long a connection takes to close.
const GIVING_WAY: Duration = Duration::from_millis(2);

/// How long a client may take nothing of an answer that waits to be written.
const STALL: Duration = Duration::from_secs(60);

/// A connection, as a request on it sees it.
#[derive(Debug)]
pub(crate) struct Peer {
    address: IpAddr,
    /// Whether it is one of those above the limit.
    pub(crate) is_spare: bool,
    /// Since when the server waits for its client: for a request, or for the rest of one.
    waits_since: Mutex<Option<Instant>>,
    /// Whether its request has a part of the room for large ones.
    pub(crate) holds_room: AtomicBool,
    /// Whether a request on it has reached the routes and is not answered yet.
    is_asked: AtomicBool,
    /// Whether the last bytes of an answer are on their way.
    is_sent: AtomicBool,
    gives_way: Notify,
}

impl Peer {
    /// The head of a request is there.
    pub(crate) fn begin_request(&self) {
        self.is_asked.store(true, Ordering::Relaxed);
    }

    /// The server works on a request: the connection does not give way.
    pub(crate) fn work(&self) {
        *lock(&self.waits_since) = None;
    }

    /// The server waits for the client.
    pub(crate) fn wait(&self) {
        *lock(&self.waits_since) = Some(Instant::now());
    }
}

/// An address, of which a client may have many: of IPv6 the network.
fn of_client(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The body of an answer. When its last bytes have been written, its connection waits for the client again.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) body: Body,
    pub(crate) peer: Arc<Peer>,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.peer.is_asked.store(false, Ordering::Relaxed);
        self.peer.is_sent.store(true, Ordering::Relaxed);
    }
}

/// The open connections.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    peers: Mutex<BTreeMap<u64, Arc<Peer>>>,
}

impl Connections {
    fn count(&self) -> usize {
        lock(&self.peers).len()
    }

    /// Asks one of these that waits for its client to give way. False if none does.
    pub(crate) fn make_room(&self, among: impl Fn(&Peer) -> bool) -> bool {
        let peers = lock(&self.peers);
        let mut of_address: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for peer in peers.values() {
            *of_address.entry(peer.address).or_default() += 1;
        }
        let now = Instant::now();
        let slow = peers.values().filter(|peer| among(peer)).filter_map(|peer| {
            let waited = now.duration_since((*lock(&peer.waits_since))?);
            (waited >= HURRY).then_some((of_address.get(&peer.address), waited, peer))
        });
        let Some((.., peer)) = slow.max_by_key(|(count, waited, _)| (*count, *waited)) else {
            return false;
        };
        // Its request may have arrived just now.
        let still_waits = lock(&peer.waits_since).take().is_some();
        if still_waits {
            peer.gives_way.notify_one();
        }
        still_waits
    }

    /// Waits until all answers have been sent and their connections are closed.
    pub(crate) async fn closed(&self) {
        while self.count() > 0 {
            sleep(Duration::from_millis(2)).await;
        }
    }
}

/// How connections are accepted.
pub(crate) struct Acceptor {
    pub(crate) router: Router,
    pub(crate) connections: Arc<Connections>,
    /// Connections at a time, without the spare ones.
    pub(crate) most: usize,
    /// How long a connection may neither read nor write.
    pub(crate) idle_limit: Duration,
    /// Whether the server closes connections after their answers.
    pub(crate) closing: watch::Receiver<bool>,
    pub(crate) stats: Arc<Stats>,
}

impl Acceptor {
    /// Accepts connections until the future is dropped.
    pub(crate) async fn accept(self, listener: TcpListener) {
        let Acceptor { router, connections, most, idle_limit, closing, stats } = self;
        for number in 0.. {
            let (stream, address) = loop {
                if connections.count() < most + SPARE {
                    match listener.accept().await {
                        Ok(accepted) => break accepted,
                        // The client has gone already.
                        Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                        // No file descriptor is free.
                        Err(_) => sleep(Duration::from_millis(20)).await,
                    }
                }
                connections.make_room(|_| true);
                sleep(GIVING_WAY).await;
            };
            let surplus = (connections.count() + 1).saturating_sub(most);
            if (0..surplus).filter(|_| connections.make_room(|_| true)).count() > 0 {
                sleep(GIVING_WAY).await;
            }
            let is_spare = connections.count() >= most;
            let peer = Arc::new(Peer {
                address: of_client(address.ip()),
                holds_room: AtomicBool::new(false),
                is_spare,
                waits_since: Mutex::new(Some(Instant::now())),
                is_asked: AtomicBool::new(false),
                is_sent: AtomicBool::new(false),
                gives_way: Notify::new(),
            });
            lock(&connections.peers).insert(number, peer.clone());
            stats.connections.add(1);
            let open = Open { number, connections: connections.clone(), stats: stats.clone() };
            let served = serve(stream, peer, router.clone(), idle_limit, closing.clone());
            tokio::spawn(async move {
                served.await;
                drop(open);
            });
        }
    }
}

/// Counts a connection until it is dropped.
struct Open {
    number: u64,
    connections: Arc<Connections>,
    stats: Arc<Stats>,
}

impl Drop for Open {
    fn drop(&mut self) {
        lock(&self.connections.peers).remove(&self.number);
        self.stats.connections.take(1);
    }
}

async fn serve(
    stream: TcpStream,
    peer: Arc<Peer>,
    router: Router,
    idle_limit: Duration,
    mut closing: watch::Receiver<bool>,
) {
    // A token is a small message that should not wait for the next one.
    let _ = stream.set_nodelay(true);
    let io = Connection {
        stream,
        peer: peer.clone(),
        idle_limit,
        idle: Box::pin(sleep(idle_limit)),
        stall: Box::pin(sleep(STALL)),
        stalled: None,
    };
    let service = TowerToHyperService::new(router.layer(Extension(peer.clone())));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(ARRIVAL)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(io), service);
    let mut connection = pin!(connection);
    let closes = async move {
        // The server is gone if this fails.
        let _ = closing.wait_for(|closing| *closing).await;
    };
    tokio::select! {
        _ = connection.as_mut() => {}
        () = peer.gives_way.notified() => {}
        () = closes => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

/// A connection that is closed when its client does nothing for too long.
struct Connection {
    stream: TcpStream,
    peer: Arc<Peer>,
    idle_limit: Duration,
    idle: Pin<Box<Sleep>>,
    stall: Pin<Box<Sleep>>,
    /// Bytes that were written since an answer had to wait; `None` if none does.
    stalled: Option<usize>,
}

/// Bytes that a client has to take in [`STALL`] if it keeps an answer waiting.
const LEAST: usize = 64 << 10;

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if polled.is_ready() {
            self.acts();
            return polled;
        }
        ready!(self.idle.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl Connection {
    fn acts(&mut self) {
        let next = Instant::now() + self.idle_limit;
        self.idle.as_mut().reset(next);
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        // The protocol's own answer to what is no request has no body.
        let replaced = match self.peer.is_asked.load(Ordering::Relaxed) {
            true => None,
            false => refusal(bytes),
        };
        let polled =
            Pin::new(&mut self.stream).poll_write(context, replaced.as_deref().unwrap_or(bytes));
        if let Poll::Ready(written) = polled {
            self.acts();
            let count = written.as_ref().map_or(0, |count| *count);
            self.stalled = self.stalled.map(|taken| taken + count).filter(|taken| *taken < LEAST);
            return Poll::Ready(written.map(|count| match replaced {
                // A new connection takes as little at once.
                Some(_) => bytes.len(),
                None => count,
            }));
        }
        if self.stalled.is_none() {
            self.stalled = Some(0);
            self.stall.as_mut().reset(Instant::now() + STALL);
        }
        ready!(self.stall.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(Pin::new(&mut self.stream).poll_flush(context));
        self.stalled = None;
        if self.peer.is_sent.swap(false, Ordering::Relaxed) {
            self.peer.wait();
        }
        Poll::Ready(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// An answer with OpenAI's object in the place of hyper's, which is only a head.
fn refusal(bytes: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (status, rest) = text.strip_prefix("HTTP/1.1 ")?.split_once(' ')?;
    let status = StatusCode::from_bytes(status.as_bytes()).ok()?;
    let is_one_head = rest.find("\r\n\r\n").is_some_and(|at| at + 4 == rest.len());
    if !status.is_client_error() || !rest.contains("content-length: 0\r\n") || !is_one_head {
        return None;
    }
    let message = match status {
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
            format!("the head of a request has more than {} KiB or 100 fields", BUFFER >> 10)
        }
        StatusCode::URI_TOO_LONG => "the path of a request is too long".to_owned(),
        _ => "this is not a request of HTTP/1.1".to_owned(),
    };
    let body = ApiError::with(status, "malformed", message).body().to_string();
    let head = format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    Some(format!("{head}{body}").into_bytes())
}
