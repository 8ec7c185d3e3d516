//! A listening socket with limits on the number of connections and on their idle time. A client that neither reads nor
//! writes is disconnected after a while, so it cannot hold memory forever; clients above the limit wait to be accepted.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

use crate::stats::Stats;

/// A listening socket with a limit.
pub(crate) struct LimitedListener {
    listener: TcpListener,
    free: Arc<Semaphore>,
    stats: Arc<Stats>,
    idle_limit: Duration,
}

impl LimitedListener {
    pub(crate) fn new(
        listener: TcpListener,
        most: usize,
        idle_limit: Duration,
        stats: Arc<Stats>,
    ) -> LimitedListener {
        LimitedListener { listener, free: Arc::new(Semaphore::new(most)), stats, idle_limit }
    }
}

impl Listener for LimitedListener {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            let Ok(permit) = self.free.clone().acquire_owned().await else {
                // The semaphore is never closed.
                std::future::pending::<()>().await;
                continue;
            };
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    // A token is a small message that should not wait for the next one.
                    let _ = stream.set_nodelay(true);
                    self.stats.connections.add(1);
                    let (idle_limit, stats) = (self.idle_limit, self.stats.clone());
                    let timer = Box::pin(sleep(idle_limit));
                    return (
                        Connection { stream, idle_limit, timer, stats, _permit: permit },
                        address,
                    );
                }
                // No file descriptor is free, or the client has gone already.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that is closed when it is idle for too long.
pub(crate) struct Connection {
    stream: TcpStream,
    idle_limit: Duration,
    timer: Pin<Box<Sleep>>,
    stats: Arc<Stats>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.stats.connections.take(1);
    }
}

impl Connection {
    fn watched<T>(
        &mut self,
        polled: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            let next = Instant::now() + self.idle_limit;
            self.timer.as_mut().reset(next);
            return polled;
        }
        ready!(self.timer.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.watched(polled, context)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watched(polled, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.watched(polled, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
