//! What hyper refuses by itself, told as JSON.
//!
//! A request that hyper cannot read never becomes one for the router: hyper answers with a bare
//! status and closes. Platforms parse every answer as JSON, so the bare answer is exchanged for
//! one with a body on its way to the socket. It cannot be mistaken for one of ours: those have a
//! content type, or are no errors.

use std::fmt::Write as _;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// What a client that was refused may still send. A socket closed with bytes unread resets the
/// connection, and the answer may be lost with it.
const DRAIN_BYTES: usize = 1024 * 1024;
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// A stream whose bare refusals are given a body.
#[derive(Debug)]
pub(super) struct Telling<S> {
    stream: S,
    telling: Option<Told>,
    /// From the first refusal on.
    drain: Option<Drain>,
}

/// An answer under way in another one's place.
#[derive(Debug)]
struct Told {
    bytes: Vec<u8>,
    sent: usize,
    /// Length of what it stands for.
    instead_of: usize,
}

#[derive(Debug)]
struct Drain {
    room: usize,
    until: Pin<Box<Sleep>>,
    shut: bool,
}

impl<S> Telling<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            telling: None,
            drain: None,
        }
    }
}

/// The answer to send instead of a bare refusal of hyper's.
fn told(head: &[u8]) -> Option<Vec<u8>> {
    let head = std::str::from_utf8(head).ok()?;
    let status = head.strip_prefix("HTTP/1.")?.get(2..5)?;
    let (before, after) = head.split_once("content-length: 0\r\n")?;
    if head.contains("content-type:") || !head.ends_with("\r\n\r\n") {
        return None;
    }
    let description = match status {
        "400" => {
            "The request is not HTTP/1.1 as it can be read here: look at its first line and its headers."
        }
        "414" => "The request's target is too long: at most 65,534 bytes are read.",
        "431" => "The request's head is too large: at most 128 KiB and 100 header lines are read.",
        _ => return None,
    };
    let body = json!({ "description": description }).to_string();
    let mut answer = before.to_owned();
    let length = body.len();
    write!(
        answer,
        "content-type: application/json\r\ncontent-length: {length}\r\n{after}{body}"
    )
    .expect("a string takes any text");
    Some(answer.into_bytes())
}

impl<S: AsyncWrite + Unpin> Telling<S> {
    fn tell(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let told = self.telling.as_mut().expect("there is something to tell");
        while told.sent < told.bytes.len() {
            let rest = &told.bytes[told.sent..];
            match ready!(Pin::new(&mut self.stream).poll_write(context, rest))? {
                0 => return Poll::Ready(Ok(0)),
                sent => told.sent += sent,
            }
        }
        let instead_of = told.instead_of;
        self.telling = None;
        Poll::Ready(Ok(instead_of))
    }
}

impl<S: AsyncRead + Unpin> Telling<S> {
    /// Reads and throws away until the client has seen the end, or enough was read.
    fn poll_drain(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(drain) = &mut self.drain else {
            return Poll::Ready(());
        };
        let mut bytes = [0; 8192];
        loop {
            if drain.until.as_mut().poll(context).is_ready() {
                return Poll::Ready(());
            }
            let mut buffer = ReadBuf::new(&mut bytes);
            let read = ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer));
            let length = buffer.filled().len();
            match drain.room.checked_sub(length) {
                Some(room) if read.is_ok() && length > 0 => drain.room = room,
                _ => return Poll::Ready(()),
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Telling<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Telling<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.telling.is_none() {
            let Some(instead) = told(bytes) else {
                return Pin::new(&mut self.stream).poll_write(context, bytes);
            };
            self.telling = Some(Told {
                bytes: instead,
                sent: 0,
                instead_of: bytes.len(),
            });
            self.drain = Some(Drain {
                room: DRAIN_BYTES,
                until: Box::pin(sleep(DRAIN_TIME)),
                shut: false,
            });
        }
        self.tell(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // A bare refusal is a head and nothing else.
        let mut filled = bytes.iter().filter(|bytes| !bytes.is_empty());
        match (filled.next(), filled.next()) {
            (Some(only), None) => self.poll_write(context, only),
            (_, _) => Pin::new(&mut self.stream).poll_write_vectored(context, bytes),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.drain.as_ref().is_some_and(|drain| drain.shut) {
            return self.poll_drain(context).map(Ok);
        }
        ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
        if let Some(drain) = &mut self.drain {
            drain.shut = true;
        }
        self.poll_drain(context).map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bare_refusal_is_told() {
        let bare = "HTTP/1.1 431 X\r\nconnection: close\r\ncontent-length: 0\r\ndate: now\r\n\r\n";
        let told_of_it = String::from_utf8(told(bare.as_bytes()).unwrap()).unwrap();
        let (head, body) = told_of_it.split_once("\r\n\r\n").unwrap();
        assert!(
            head.starts_with("HTTP/1.1 431 X\r\nconnection: close\r\n"),
            "{head}"
        );
        assert!(
            head.contains("content-type: application/json\r\n"),
            "{head}"
        );
        assert!(
            head.contains(&format!("content-length: {}\r\n", body.len())),
            "{head}"
        );
        assert!(
            serde_json::from_str::<serde_json::Value>(body).unwrap()["description"].is_string()
        );
        for other in [
            "",
            "HTTP/1.1 400 X\r\ncontent-type: application/json\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 400 X\r\ncontent-length: 10\r\n\r\n",
            "HTTP/1.1 200 X\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 304 X\r\ncontent-length: 0\r\n\r\n",
            "{\"content-length: 0\\r\\n\": \"HTTP/1.1 400\"}",
        ] {
            assert_eq!(told(other.as_bytes()), None, "{other}");
        }
    }
}
