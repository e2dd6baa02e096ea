//! A listening socket and its connections: HTTP/1, with a limit on everything that a client
//! could hold on to.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep, timeout};

mod refusal;

use refusal::Telling;

/// Room for a request's head: an originating identity may have 64 KiB.
const HEAD_BYTES: usize = 128 * 1024;
/// Between two attempts to accept while the process has no free descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What connections may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionLimits {
    /// Until a request's head is there; also how long a connection may be idle.
    pub head_read: Duration,
    /// How long a client may leave an answer unread.
    pub write_stall: Duration,
    /// Connections at once; further ones wait in the listen queue.
    pub connections: usize,
    /// How long requests under way may go on after the shutdown.
    pub shutdown: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            head_read: Duration::from_secs(30),
            write_stall: Duration::from_secs(30),
            connections: 1024,
            shutdown: Duration::from_secs(60),
        }
    }
}

/// Serves connections until `shutdown` resolves; then accepts no more, lets requests under way
/// be answered for up to [`ConnectionLimits::shutdown`], and gives how many had to be cut off.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    shutdown: impl Future<Output = ()>,
    limits: ConnectionLimits,
) -> usize {
    let slots = Arc::new(Semaphore::new(limits.connections));
    let (ending, ended) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let next = async {
            let slot = Arc::clone(&slots).acquire_owned().await;
            (
                slot.expect("the semaphore is never closed"),
                listener.accept().await,
            )
        };
        let (slot, accepted) = tokio::select! {
            biased;
            () = &mut shutdown => break,
            next = next => next,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((stream, _)) => {
                let (router, ended) = (router.clone(), ended.clone());
                connections.spawn(async move {
                    connection(stream, router, ended, limits).await;
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    // Nobody listens if there are no connections.
    ending.send(true).ok();
    let all = async { while connections.join_next().await.is_some() {} };
    timeout(limits.shutdown, all).await.ok();
    let left = connections.len();
    connections.shutdown().await;
    left
}

async fn connection(
    stream: TcpStream,
    router: Router,
    mut ended: watch::Receiver<bool>,
    limits: ConnectionLimits,
) {
    // Small answers should not wait for an acknowledgement; if the option is refused they do.
    stream.set_nodelay(true).ok();
    let stream = Stalling {
        stream,
        limit: limits.write_stall,
        stalled: None,
    };
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.head_read)
        .max_buf_size(HEAD_BYTES);
    let stream = TokioIo::new(Telling::new(stream));
    let serving = http.serve_connection(stream, TowerToHyperService::new(router));
    let mut serving = pin!(serving);
    let early = tokio::select! {
        result = serving.as_mut() => Some(result),
        () = until(&mut ended) => None,
    };
    let result = match early {
        Some(result) => result,
        None => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a connection ended early");
    }
}

async fn until(ended: &mut watch::Receiver<bool>) {
    // A sender that is gone has ended too.
    ended.wait_for(|ended| *ended).await.ok();
}

/// A stream that fails when a write has made no headway for `limit`: hyper has no such limit.
#[derive(Debug)]
struct Stalling {
    stream: TcpStream,
    limit: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Stalling {
    fn watched<T>(
        &mut self,
        context: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut TcpStream>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let outcome = write(Pin::new(&mut self.stream), context);
        if outcome.is_ready() {
            self.stalled = None;
            return outcome;
        }
        let limit = self.limit;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(stalled.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the client does not read",
        )))
    }
}

impl AsyncRead for Stalling {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Stalling {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.watched(context, |stream, context| stream.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.watched(context, |stream, context| {
            stream.poll_write_vectored(context, parts)
        })
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.watched(context, |stream, context| stream.poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.watched(context, |stream, context| stream.poll_shutdown(context))
    }
}
