//! HTTP/1.1 as bytes on a socket: a client that tidies up its requests could not send these.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// No answer takes longer: the broker itself gives up after 58 s.
const PATIENCE: Duration = Duration::from_secs(70);
/// How much of a request or a reply is shown.
const SHOWN: usize = 1500;

/// A request, and what its maker knows of it.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) method: String,
    /// Path and query.
    pub(super) target: String,
    pub(super) headers: Vec<(String, Vec<u8>)>,
    pub(super) body: Option<Vec<u8>>,
    /// Whether its credentials are right.
    pub(super) authorized: bool,
    /// Whether its API version is one that is served.
    pub(super) versioned: bool,
    /// The request identity that has to come back.
    pub(super) identity: Option<Vec<u8>>,
}

impl Request {
    /// One that nothing is wrong with.
    pub(super) fn example(method: &str, target: &str) -> Self {
        Self {
            method: method.to_owned(),
            target: target.to_owned(),
            headers: Vec::new(),
            body: None,
            authorized: true,
            versioned: true,
            identity: Some(b"r-1".to_vec()),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = format!(
            "{} {} HTTP/1.1\r\nhost: broker\r\n",
            self.method, self.target
        )
        .into_bytes();
        for (name, value) in &self.headers {
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        }
        if let Some(body) = &self.body {
            bytes.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
            bytes.extend_from_slice(body);
        } else {
            bytes.extend_from_slice(b"\r\n");
        }
        bytes
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(f, &self.bytes())
    }
}

/// A whole answer.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    /// Names in lower case.
    pub(super) headers: Vec<(String, Vec<u8>)>,
    pub(super) body: Vec<u8>,
}

impl Reply {
    /// As an answer to [`Request::example`] should be.
    pub(super) fn example(status: u16, body: &str) -> Self {
        let header = |name: &str, value: &str| (name.to_owned(), value.as_bytes().to_vec());
        Self {
            status,
            headers: vec![
                header("content-type", "application/json"),
                header("x-broker-api-request-identity", "r-1"),
            ],
            body: body.into(),
        }
    }

    pub(super) fn header(&self, name: &str) -> Option<&[u8]> {
        let mut found = self
            .headers
            .iter()
            .filter(|(header, _)| header.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value.as_slice())
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.status)?;
        for (name, value) in &self.headers {
            write!(f, "{name}: {} | ", String::from_utf8_lossy(value))?;
        }
        show(f, &self.body)
    }
}

fn show(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    let shown = &bytes[..bytes.len().min(SHOWN)];
    let text = String::from_utf8_lossy(shown);
    let more = if bytes.len() > SHOWN {
        format!("… ({} bytes)", bytes.len())
    } else {
        String::new()
    };
    write!(f, "{}{more}", text.escape_debug())
}

/// A connection, made anew when the broker said that it closes it.
#[derive(Debug)]
pub(super) struct Connection {
    address: SocketAddr,
    stream: Option<BufReader<TcpStream>>,
}

impl Connection {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            stream: None,
        }
    }

    /// # Errors
    /// Anything but one whole answer.
    pub(super) async fn ask(&mut self, request: &Request) -> Result<Reply, String> {
        let reply = match timeout(PATIENCE, self.exchange(request)).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(trouble)) => {
                self.stream = None;
                return Err(format!("broken connection: {trouble}"));
            }
            Err(_) => {
                self.stream = None;
                return Err("no answer in time".to_owned());
            }
        };
        let closes = |value: &[u8]| value.eq_ignore_ascii_case(b"close");
        if reply.header("connection").is_some_and(closes) {
            self.stream = None;
        }
        Ok(reply)
    }

    async fn exchange(&mut self, request: &Request) -> Result<Reply, String> {
        let told = |error: std::io::Error| error.to_string();
        if self.stream.is_none() {
            let stream = TcpStream::connect(self.address).await.map_err(told)?;
            stream.set_nodelay(true).map_err(told)?;
            self.stream = Some(BufReader::new(stream));
        }
        let stream = self.stream.as_mut().expect("made just now");
        stream.write_all(&request.bytes()).await.map_err(told)?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if stream.read_until(b'\n', &mut head).await.map_err(told)? == 0 {
                return Err(format!(
                    "an end instead of an answer, after {:?}",
                    String::from_utf8_lossy(&head)
                ));
            }
        }
        let (status, headers) =
            parse(&head).ok_or_else(|| format!("no HTTP: {:?}", String::from_utf8_lossy(&head)))?;
        let mut reply = Reply {
            status,
            headers,
            body: Vec::new(),
        };
        if request.method == "HEAD" || status == 304 {
            return Ok(reply);
        }
        let length = reply
            .header("content-length")
            .and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        reply.body = vec![0; length.ok_or("no content-length")?];
        stream.read_exact(&mut reply.body).await.map_err(told)?;
        Ok(reply)
    }
}

type Headers = Vec<(String, Vec<u8>)>;

fn parse(head: &[u8]) -> Option<(u16, Headers)> {
    let mut lines = head
        .split(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let status = std::str::from_utf8(lines.next()?)
        .ok()?
        .strip_prefix("HTTP/1.1 ")?;
    let status = status.split(' ').next()?.parse().ok()?;
    let headers = lines.filter(|line| !line.is_empty()).map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = std::str::from_utf8(&line[..colon])
            .ok()?
            .to_ascii_lowercase();
        Some((name, line[colon + 1..].trim_ascii().to_vec()))
    });
    Some((status, headers.collect::<Option<_>>()?))
}
