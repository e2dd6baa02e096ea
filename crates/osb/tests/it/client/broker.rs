//! A broker that follows a script, down to the bytes: what a well-behaved server cannot do must be tested too.

use std::time::Duration;

use evenkeel_osb::client::Client;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// What the broker does with one connection.
pub(super) enum Reply {
    /// Writes these bytes and closes.
    Bytes(Vec<u8>),
    /// Writes these bytes, and then nothing until the client has gone.
    Stall(Vec<u8>),
}

/// A whole answer.
pub(super) fn reply(status: u16, body: impl Into<Value>) -> Reply {
    reply_with(status, "", &body.into().to_string())
}

/// An answer with more header lines (each ends in CRLF) and any body.
pub(super) fn reply_with(status: u16, headers: &str, body: &str) -> Reply {
    let length = body.len();
    Reply::Bytes(
        format!("HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}").into_bytes(),
    )
}

/// A request as it arrived.
pub(super) struct Request {
    head: String,
    body: String,
}

impl Request {
    /// Method and target.
    pub(super) fn line(&self) -> &str {
        self.head
            .lines()
            .next()
            .and_then(|line| line.strip_suffix(" HTTP/1.1"))
            .expect("a request line")
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self
            .head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(": "));
        lines
            .find(|(header, _)| header.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("a JSON body")
    }

    pub(super) fn has_body(&self) -> bool {
        !self.body.is_empty()
    }
}

/// Lets a client ask a broker that gives these replies, one a connection, and returns what the client made of them
/// and what the broker was asked. Fails unless the client asks exactly so often.
pub(super) async fn talk<T>(
    replies: Vec<Reply>,
    ask: impl AsyncFnOnce(Client) -> T,
) -> (T, Vec<Request>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let client = Client::new(&url, "platform", "pass:wörd".into()).unwrap();
    let serve = async {
        let mut requests = Vec::new();
        for reply in replies {
            let (connection, _) = listener.accept().await.unwrap();
            requests.push(serve_one(connection, reply).await);
        }
        drop(listener);
        requests
    };
    tokio::time::timeout(Duration::from_secs(30), async {
        tokio::join!(ask(client), serve)
    })
    .await
    .expect("client and broker are done within 30 s")
}

async fn serve_one(mut connection: TcpStream, reply: Reply) -> Request {
    let mut bytes = Vec::new();
    let request = loop {
        if let Some(request) = complete(&bytes) {
            break request;
        }
        assert_ne!(
            connection.read_buf(&mut bytes).await.unwrap(),
            0,
            "the client went away while asking"
        );
    };
    match reply {
        // A client that has seen enough may have gone.
        Reply::Bytes(bytes) => drop(connection.write_all(&bytes).await),
        Reply::Stall(bytes) => {
            connection.write_all(&bytes).await.unwrap();
            drop(connection.read_to_end(&mut Vec::new()).await);
        }
    }
    request
}

fn complete(bytes: &[u8]) -> Option<Request> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let request = Request {
        head: head.to_owned(),
        body: body.to_owned(),
    };
    let length = request
        .header("content-length")
        .map_or(0, |length| length.parse().unwrap());
    (body.len() == length).then_some(request)
}
