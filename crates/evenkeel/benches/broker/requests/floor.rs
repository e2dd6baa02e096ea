//! The floor: a bare hyper server in a process of its own that answers every request with the same
//! bytes, read whole first. It knows no routes, no users, no JSON and no store.

use std::convert::Infallible;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;

/// Set for the process that is the floor: the status, and the file with the body.
const SERVE: &str = "EVENKEEL_BENCH_FLOOR";

/// A running floor.
#[derive(Debug)]
pub(super) struct Floor {
    process: Child,
    pub(super) address: String,
}

impl Floor {
    pub(super) fn start(folder: &Path, status: u16, body: &[u8]) -> Self {
        let file = folder.join("floor-body");
        std::fs::write(&file, body).expect("a file");
        let own = std::env::current_exe().expect("a bench has a file");
        #[expect(
            clippy::disallowed_methods,
            reason = "the floor is a process of its own"
        )]
        let mut command = Command::new(own);
        let mut process = command
            .env(SERVE, format!("{status} {}", file.display()))
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut address = String::new();
        BufReader::new(process.stdout.take().expect("a pipe"))
            .read_line(&mut address)
            .expect("it says where it listens");
        let address = address.trim().to_owned();
        Self { process, address }
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Serves for ever, if this process was started to be the floor.
pub(super) async fn serve_if_asked() {
    let Ok(what) = std::env::var(SERVE) else {
        return;
    };
    let (status, file) = what.split_once(' ').expect("a status and a file");
    let status: u16 = status.parse().expect("a status");
    let body = Bytes::from(std::fs::read(file).expect("a body"));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    println!("{}", listener.local_addr().expect("an address"));
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        stream.set_nodelay(true).expect("a socket");
        let body = body.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let body = body.clone();
            async move {
                drop(request.into_body().collect().await);
                let answer = Response::builder()
                    .status(status)
                    .header("content-type", "application/json")
                    .body(Full::new(body));
                Ok::<_, Infallible>(answer.expect("an answer"))
            }
        });
        #[expect(clippy::disallowed_methods, reason = "the floor has no tasks to track")]
        tokio::spawn(async move {
            hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await
                .ok();
        });
    }
}
