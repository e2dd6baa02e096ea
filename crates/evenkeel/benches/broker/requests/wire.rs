//! A load generator that costs little: requests are bytes, answers are read by their length.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

pub(super) const CONNECTIONS: usize = 50;

/// `platform:open-sesame`: a user whose password is in a file.
pub(super) const FILED: &str = "cGxhdGZvcm06b3Blbi1zZXNhbWU=";
/// `hashed:open-sesame`: a user whose password is known by its hash alone.
pub(super) const HASHED: &str = "aGFzaGVkOm9wZW4tc2VzYW1l";
pub(super) const PASSWORD: &str = "open-sesame";

/// The request with that number.
pub(super) type Requests = Arc<dyn Fn(usize) -> Vec<u8> + Send + Sync>;

pub(super) fn get(credentials: &str, path: &str, header: &str) -> Vec<u8> {
    format!(
        "GET {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Basic {credentials}\r\n\
         X-Broker-API-Version: 2.17\r\n{header}\r\n"
    )
    .into_bytes()
}

pub(super) fn put(credentials: &str, path: &str, body: &str) -> Vec<u8> {
    format!(
        "PUT {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Basic {credentials}\r\n\
         X-Broker-API-Version: 2.17\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// One connection, kept.
pub(super) struct Wire(BufReader<TcpStream>);

impl Wire {
    pub(super) async fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.expect("it listens");
        stream.set_nodelay(true).expect("a socket");
        Self(BufReader::with_capacity(64 << 10, stream))
    }

    /// Status and body of the answer.
    pub(super) async fn exchange(&mut self, request: &[u8]) -> (u16, Vec<u8>) {
        self.0.get_mut().write_all(request).await.expect("it reads");
        let (mut line, mut status, mut length) = (String::new(), 0, 0);
        loop {
            line.clear();
            self.0.read_line(&mut line).await.expect("it answers");
            let text = line.trim_end().to_ascii_lowercase();
            if let Some(rest) = text.strip_prefix("http/1.1 ") {
                status = rest[..3].parse().expect("a status");
            } else if let Some(rest) = text.strip_prefix("content-length:") {
                length = rest.trim().parse().expect("a length");
            } else if text.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).await.expect("a body");
        (status, body)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    pub(super) per_second: f64,
    pub(super) p50: Duration,
    pub(super) p99: Duration,
}

/// Sends so many requests over [`CONNECTIONS`] connections, each as soon as the one before it has
/// been answered; every answer has to have this status.
pub(super) async fn load(
    address: &str,
    number: usize,
    status: u16,
    requests: &Requests,
) -> Figures {
    let since = Instant::now();
    let mut tasks = JoinSet::new();
    for connection in 0..CONNECTIONS {
        let (address, requests) = (address.to_owned(), Arc::clone(requests));
        tasks.spawn(async move {
            let mut wire = Wire::connect(&address).await;
            let mut took = Vec::new();
            for nth in (connection..number).step_by(CONNECTIONS) {
                let request = requests(nth);
                let sent = Instant::now();
                let (answered, body) = wire.exchange(&request).await;
                took.push(sent.elapsed());
                assert_eq!(answered, status, "{}", String::from_utf8_lossy(&body));
            }
            took
        });
    }
    let mut took: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    let lasted = since.elapsed();
    took.sort_unstable();
    Figures {
        per_second: number as f64 / lasted.as_secs_f64(),
        p50: took[took.len() / 2],
        p99: took[took.len() * 99 / 100],
    }
}
