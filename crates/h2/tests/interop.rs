//! Interoperability with the crate `h2`, as client and as server.
#![cfg(not(any(loom, manylane_sim)))]

#[path = "../examples/server.rs"]
#[allow(dead_code)]
mod server;

use bytes::Bytes;
use manylane_buf::{Chain, Cluster};
use manylane_h2::{Config, Connection, Event, StreamId};
use manylane_http::{Head, Version};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime")
}

fn pattern(n: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + n) as u8).collect()
}

/// Returns the size of the request with the number `n`, in bytes.
const fn length(n: usize) -> usize {
    [0, 1, 1_000, 70_000, 200_000][n % 5]
}

const REQUESTS: usize = 40;

/// Sends one request with the other crate's client. Returns status, data, and whether trailers came.
async fn ask(mut client: h2::client::SendRequest<Bytes>, n: usize) -> Result<(u16, Vec<u8>, bool), Failure> {
    client = client.ready().await?;
    let mut request = http_request(n);
    if n.is_multiple_of(3) {
        request.headers_mut().insert("x-want-trailers", "yes".parse()?);
    }
    let (response, mut upload) = client.send_request(request, false)?;
    let body = pattern(n, length(n));
    let mut at = 0;
    while at < body.len() {
        upload.reserve_capacity(body.len() - at);
        let Some(room) = std::future::poll_fn(|cx| upload.poll_capacity(cx)).await else { break };
        let room = room?;
        upload.send_data(Bytes::copy_from_slice(&body[at..at + room]), false)?;
        at += room;
    }
    upload.send_data(Bytes::new(), true)?;
    let response = response.await?;
    let status = response.status().as_u16();
    let mut body = response.into_body();
    let mut data = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece?;
        body.flow_control().release_capacity(piece.len())?;
        data.extend_from_slice(&piece);
    }
    let trailers = body.trailers().await?;
    Ok((status, data, trailers.is_some_and(|trailers| trailers["x-trailer"] == "the end")))
}

fn http_request(n: usize) -> http::Request<()> {
    http::Request::post(format!("http://a.example/{n}?q={n}"))
        .header("cookie", "a=1")
        .header("cookie", "session=0123456789abcdef0123456789")
        .header("x-number", n.to_string())
        .header("authorization", "Basic c2VjcmV0")
        .body(())
        .expect("a request")
}

#[test]
fn their_client_and_our_server_agree() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || server::serve(&listener, Config { max_streams: 8, ..Config::default() }));
    runtime().block_on(async {
        let socket = tokio::net::TcpStream::connect(address).await.expect("it listens");
        let (client, connection) = h2::client::handshake(socket).await.expect("a handshake");
        tokio::spawn(connection);
        // After the first answer, the client knows the number of concurrent streams.
        ask(client.clone(), 0).await.expect("an answer");
        let requested: Vec<_> = (0..REQUESTS).map(|n| tokio::spawn(ask(client.clone(), n))).collect();
        for (n, task) in requested.into_iter().enumerate() {
            let (status, data, trailers) = task.await.expect("no panic").expect("an answer");
            let mut wanted = pattern(n, length(n));
            wanted.extend_from_slice(b"hello from manylane-h2\n");
            assert!(status == 200 && data == wanted && trailers == (n.is_multiple_of(3)), "request {n}");
        }
    });
}

/// Starts the other crate's server, which sends back what it receives, with parts of the head.
fn their_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("it is ours");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        runtime().block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a runtime");
            let (socket, _) = listener.accept().await.expect("a client");
            let mut connection = h2::server::Builder::new()
                .max_concurrent_streams(7)
                .initial_window_size(5_000)
                .handshake::<_, Bytes>(socket)
                .await
                .expect("a handshake");
            while let Some(Ok((request, respond))) = connection.accept().await {
                tokio::spawn(echo(request, respond));
            }
        });
    });
    address
}

async fn echo(
    request: http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
) -> Result<(), Failure> {
    let (parts, mut body) = request.into_parts();
    let cookies = parts.headers.get_all("cookie").iter().count();
    let response = http::Response::builder()
        .header("x-path", parts.uri.path_and_query().map_or("", |path| path.as_str()))
        .header("x-host", parts.uri.authority().map_or("", |host| host.as_str()))
        .header("x-cookies", cookies)
        .body(())?;
    let mut send = respond.send_response(response, false)?;
    while let Some(piece) = body.data().await {
        let piece = piece?;
        body.flow_control().release_capacity(piece.len())?;
        send.send_data(piece, false)?;
    }
    let trailers = body.trailers().await?.unwrap_or_default();
    send.send_trailers(trailers)?;
    Ok(())
}

#[test]
fn our_client_and_their_server_agree() {
    let mut socket = TcpStream::connect(their_server()).expect("it listens");
    socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a time");
    let now = Duration::ZERO;
    let config = Config { stream_window: 20_000, ..Config::default() };
    let mut connection = Connection::client(config, now).expect("memory");
    let (mut input, mut output) = (Chain::new(), Chain::new());
    let mut uploads: HashMap<StreamId, (usize, Chain)> = HashMap::new();
    let mut answers: HashMap<StreamId, (usize, Vec<u8>)> = HashMap::new();
    let (mut begun, mut done, mut settled) = (0, 0, false);
    let mut bytes = [0; 9_000];
    while done < REQUESTS {
        while settled && begun < REQUESTS && connection.can_begin() {
            let path = format!("/{begun}?q={begun}");
            let mut head = Head::request(b"POST", path.as_bytes(), Version::HTTP_11).expect("a head");
            for (name, value) in [
                ("Host", "a.example"),
                ("Cookie", "a=1; session=0123456789abcdef0123456789"),
                ("Authorization", "Basic c2VjcmV0"),
                ("Connection", "keep-alive"),
                ("TE", "trailers"),
            ] {
                head.add_field(name, value.as_bytes()).expect("room");
            }
            let stream = connection.send_request(&head, b"http", None, false).expect("it may begin");
            let mut body = Chain::new();
            body.append(&pattern(begun, length(begun))).expect("memory");
            uploads.insert(stream, (begun, body));
            answers.insert(stream, (begun, Vec::new()));
            upload(&mut connection, &mut uploads, stream);
            begun += 1;
        }
        connection.poll_output(&mut output).expect("memory");
        for segment in output.segments() {
            socket.write_all(segment).expect("it reads");
        }
        let written = !output.is_empty();
        output.clear();
        if !written {
            let n = socket.read(&mut bytes).expect("it answers");
            assert!(n > 0, "it closed");
            input.push_back(Cluster::with(&bytes[..n]).expect("memory").into_segment()).expect("room");
        }
        while connection.handle_input(now, &mut input).expect("it keeps the rules") {
            while let Some(event) = connection.poll_event() {
                match event {
                    Event::Settings => settled = true,
                    Event::Response { stream, response, end } => {
                        let (n, _) = answers[&stream];
                        assert!(response.head.status() == 200 && !end);
                        let value = |name: &str| response.head.value(name).map(<[u8]>::to_vec);
                        assert_eq!(value("x-path"), Some(format!("/{n}?q={n}").into_bytes()));
                        assert_eq!(value("x-host"), Some(b"a.example".to_vec()));
                        assert_eq!(value("x-cookies"), Some(b"2".to_vec()));
                    }
                    Event::Data { stream, data, end } => {
                        assert!(!end);
                        answers.get_mut(&stream).expect("asked").1.extend_from_slice(&data.to_vec());
                        connection.consume(stream, data.len()).expect("memory");
                    }
                    Event::Trailers { stream, trailers } => {
                        let (n, data) = answers.remove(&stream).expect("asked");
                        assert!(data == pattern(n, length(n)), "request {n}");
                        assert_eq!(trailers.value("x-sum"), Some(n.to_string().as_bytes()));
                        done += 1;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        while let Some(stream) = connection.next_writable() {
            upload(&mut connection, &mut uploads, stream);
        }
    }
    assert_eq!(connection.open_streams(), 0);
}

fn upload(connection: &mut Connection, uploads: &mut HashMap<StreamId, (usize, Chain)>, stream: StreamId) {
    let Some((n, body)) = uploads.get_mut(&stream) else { return };
    if connection.send_data(Duration::ZERO, stream, body, false).expect("it is open").all {
        let mut trailers = Head::trailers().expect("memory");
        trailers.add_field("x-sum", n.to_string().as_bytes()).expect("room");
        connection.send_trailers(stream, &trailers).expect("it is open");
        uploads.remove(&stream);
    }
}
