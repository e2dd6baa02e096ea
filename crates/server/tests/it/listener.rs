//! Connections: whatever a client does with its end, others are served.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use evenkeel_server::{ConnectionLimits, OsbSettings, RequestLimits, serve};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::broker::{BASIC, Broker, PATIENCE, WRONG_BASIC, provision, until};

pub(crate) struct Listening {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<usize>,
}

impl Listening {
    pub(crate) async fn start(router: Router, limits: ConnectionLimits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async move { drop(stopped.await) };
        #[expect(clippy::disallowed_methods, reason = "a test holds the handle itself")]
        let served = tokio::spawn(serve(listener, router, shutdown, limits));
        Self {
            address,
            stop: Some(stop),
            served,
        }
    }

    pub(crate) async fn connect(&self) -> Client {
        Client(TcpStream::connect(self.address).await.unwrap())
    }

    fn stop(&mut self) {
        drop(self.stop.take());
    }

    async fn left(self) -> usize {
        timeout(PATIENCE, self.served)
            .await
            .expect("serve ends")
            .unwrap()
    }
}

pub(crate) struct Client(TcpStream);

impl Client {
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        timeout(PATIENCE, self.0.write_all(bytes))
            .await
            .expect("it is read")
            .unwrap();
    }

    /// Sends no more.
    pub(crate) async fn end(&mut self) {
        self.0.shutdown().await.unwrap();
    }

    /// Status and body of the next answer.
    pub(crate) async fn answer(&mut self) -> (u16, Value) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let byte = timeout(PATIENCE, self.0.read_u8())
                .await
                .expect("an answer");
            head.push(byte.expect("an answer before the end of the connection"));
        }
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let length = head.split("content-length: ").nth(1).unwrap();
        let length = length.split("\r\n").next().unwrap().parse().unwrap();
        let mut body = vec![0; length];
        timeout(PATIENCE, self.0.read_exact(&mut body))
            .await
            .expect("a body")
            .unwrap();
        (status, serde_json::from_slice(&body).unwrap())
    }

    /// Waits until the other side has closed the connection; gives what came before that.
    pub(crate) async fn rest(mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        // A reset is an end as well.
        timeout(PATIENCE, self.0.read_to_end(&mut rest))
            .await
            .expect("an end")
            .ok();
        rest
    }
}

pub(crate) fn head(method: &str, path: &str, authorization: &str, more: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: {authorization}\r\n\
         x-broker-api-version: 2.17\r\n{more}\r\n"
    )
}

pub(crate) fn get_catalog() -> String {
    head("GET", "/v2/catalog", BASIC, "")
}

#[tokio::test]
async fn a_client_that_sends_ten_megabytes_gets_its_answer_all_the_same() {
    let broker = Broker::start().await;
    let listening = Listening::start(broker.osb.clone(), ConnectionLimits::default()).await;
    let body = vec![b'x'; 10 * 1024 * 1024];
    let length = format!("content-length: {}\r\n", body.len());
    for (authorization, status) in [(BASIC, 413), (WRONG_BASIC, 401)] {
        let mut client = listening.connect().await;
        client
            .send(head("PUT", "/v2/service_instances/i", authorization, &length).as_bytes())
            .await;
        client.send(&body).await;
        let (found, answer) = client.answer().await;
        assert_eq!(found, status);
        assert!(answer["description"].is_string());
        // Nothing was lost on the way: the connection goes on.
        client.send(get_catalog().as_bytes()).await;
        assert_eq!(client.answer().await.0, 200);
    }
    let mut client = listening.connect().await;
    let chunked = "transfer-encoding: chunked\r\n";
    client
        .send(head("PUT", "/v2/service_instances/i", BASIC, chunked).as_bytes())
        .await;
    for chunk in body.chunks(1024 * 1024) {
        client
            .send(format!("{:x}\r\n", chunk.len()).as_bytes())
            .await;
        client.send(chunk).await;
        client.send(b"\r\n").await;
    }
    client.send(b"0\r\n\r\n").await;
    assert_eq!(client.answer().await.0, 413);
}

#[tokio::test]
async fn a_client_that_does_not_finish_its_head_or_its_body_is_not_waited_for() {
    let limits = RequestLimits {
        body_read: Duration::from_millis(100),
        ..RequestLimits::default()
    };
    let broker = Broker::with(OsbSettings {
        limits,
        ..OsbSettings::default()
    })
    .await;
    let limits = ConnectionLimits {
        head_read: Duration::from_millis(100),
        ..ConnectionLimits::default()
    };
    let listening = Listening::start(broker.osb.clone(), limits).await;
    let mut client = listening.connect().await;
    client.send(b"GET /v2/catalog HTTP/1.1\r\nhost: ").await;
    client.rest().await;
    // One that sends nothing at all, not even a first byte.
    listening.connect().await.rest().await;
    let mut client = listening.connect().await;
    client
        .send(
            head(
                "PUT",
                "/v2/service_instances/i",
                BASIC,
                "content-length: 10\r\n",
            )
            .as_bytes(),
        )
        .await;
    client.send(b"{").await;
    let (status, answer) = client.answer().await;
    assert_eq!(status, 408);
    assert!(answer["description"].is_string());
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_their_turn() {
    let broker = Broker::start().await;
    let limits = ConnectionLimits {
        connections: 1,
        ..ConnectionLimits::default()
    };
    let listening = Listening::start(broker.osb.clone(), limits).await;
    let mut first = listening.connect().await;
    first.send(get_catalog().as_bytes()).await;
    assert_eq!(first.answer().await.0, 200);
    let mut second = listening.connect().await;
    second.send(get_catalog().as_bytes()).await;
    first.send(get_catalog().as_bytes()).await;
    assert_eq!(first.answer().await.0, 200);
    let none = second.0.try_read(&mut [0]).unwrap_err();
    assert_eq!(none.kind(), std::io::ErrorKind::WouldBlock);
    drop(first);
    assert_eq!(second.answer().await.0, 200);
}

#[tokio::test]
async fn a_client_that_does_not_read_loses_its_connection() {
    let broker = Broker::start().await;
    assert_eq!(broker.provision("i", json!({})).await.status, 201);
    let filter = evenkeel_store::seam::JobFilter {
        limit: 1,
        ..evenkeel_store::seam::JobFilter::default()
    };
    let jobs = broker.engine.read().jobs(&filter).await.unwrap();
    let path = format!("/admin/v1/jobs/{}/log?bytes=1048576", jobs[0].job.id);
    let limits = ConnectionLimits {
        connections: 1,
        write_stall: Duration::from_millis(100),
        ..ConnectionLimits::default()
    };
    let listening = Listening::start(broker.admin.clone(), limits).await;
    let request = head("GET", &path, "Bearer operator-token", "");
    let mut deaf = listening.connect().await;
    // More than all buffers between the two hold.
    deaf.send(request.repeat(64).as_bytes()).await;
    let mut second = listening.connect().await;
    second.send(head("GET", "/livez", "", "").as_bytes()).await;
    assert_eq!(second.answer().await.0, 200);
    assert!(deaf.rest().await.len() < 64 * 1024 * 1024);
}

#[tokio::test]
async fn a_shutdown_lets_requests_under_way_be_answered_and_takes_no_new_ones() {
    let broker = Broker::start().await;
    let mut listening = Listening::start(broker.osb.clone(), ConnectionLimits::default()).await;
    let mut idle = listening.connect().await;
    idle.send(get_catalog().as_bytes()).await;
    assert_eq!(idle.answer().await.0, 200);
    let mut busy = listening.connect().await;
    held_provision(&broker, &mut busy).await;
    listening.stop();
    assert!(idle.rest().await.is_empty());
    until("new connections are refused", async || {
        TcpStream::connect(listening.address).await.is_err()
    })
    .await;
    broker.runs.release();
    assert_eq!(busy.answer().await.0, 201);
    assert_eq!(listening.left().await, 0);
}

#[tokio::test]
async fn a_shutdown_does_not_wait_for_ever() {
    let broker = Broker::start().await;
    let limits = ConnectionLimits {
        shutdown: Duration::from_millis(50),
        ..ConnectionLimits::default()
    };
    let mut listening = Listening::start(broker.osb.clone(), limits).await;
    let mut busy = listening.connect().await;
    held_provision(&broker, &mut busy).await;
    listening.stop();
    assert_eq!(listening.left().await, 1);
    busy.rest().await;
}

/// A synchronous provision that is under way.
async fn held_provision(broker: &Broker, client: &mut Client) {
    let body = provision(json!({"provision": "hold"})).to_string();
    let length = format!("content-length: {}\r\n", body.len());
    client
        .send(head("PUT", "/v2/service_instances/held", BASIC, &length).as_bytes())
        .await;
    client.send(body.as_bytes()).await;
    broker.run_is_held().await;
}
