//! A broker that answers what it is told to, and remembers what it was asked.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// One request: `GET /path?query`, and its header lines in lower case.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) line: String,
    pub(crate) headers: String,
}

/// Ends with the test's process.
#[derive(Debug)]
pub(crate) struct Fake {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Fake {
    /// Answers with a status and a JSON text, by the request's first line.
    pub(crate) fn new(answer: impl Fn(&str) -> (u16, String) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let fake = Self {
            address: listener.local_addr().expect("it is bound"),
            asked: Arc::default(),
        };
        let asked = Arc::clone(&fake.asked);
        thread::spawn(move || {
            for stream in listener.incoming() {
                serve(stream.expect("a connection"), &answer, &asked);
            }
        });
        fake
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(stream: TcpStream, answer: &impl Fn(&str) -> (u16, String), asked: &Mutex<Vec<Asked>>) {
    let mut reader = BufReader::new(stream);
    let (mut line, mut headers) = (String::new(), String::new());
    reader.read_line(&mut line).expect("a request line");
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).expect("a header");
        if header.trim().is_empty() {
            break;
        }
        headers.push_str(&header.to_ascii_lowercase());
    }
    let length = headers
        .lines()
        .find_map(|header| header.strip_prefix("content-length: "))
        .map_or(0, |length| length.trim().parse().expect("a number"));
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("the body");
    let line = line.trim_end().trim_end_matches(" HTTP/1.1").to_owned();
    let (status, body) = answer(&line);
    asked.lock().unwrap().push(Asked { line, headers });
    let length = body.len();
    write!(
        reader.get_mut(),
        "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .expect("the answer is read");
}
