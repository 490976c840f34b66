//! Interoperability with the crate `h2`, as client and as server.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

mod common;

use bytes::Bytes;
use common::{body, chain, echo, half_pair, head, on_lane, pattern, request, send, spawn};
use manylane_mux::h2::{Config, Conn, ConnEnd, ConnTimeouts, ResponseHead};
use manylane_sched::Here;
use std::cell::Cell;
use std::os::unix::net::UnixStream;
use std::rc::Rc;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Returns the size of the request with the number `n`, in bytes.
const fn length(n: usize) -> usize {
    [0, 1, 1_000, 70_000, 200_000][n % 5]
}

const REQUESTS: usize = 40;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap()
}

fn theirs(socket: UnixStream) -> tokio::net::UnixStream {
    socket.set_nonblocking(true).unwrap();
    tokio::net::UnixStream::from_std(socket).unwrap()
}

/// Sends one request with the other crate's client. Returns status, size of the data, and its sum.
async fn ask(
    mut client: h2::client::SendRequest<Bytes>,
    n: usize,
) -> Result<(u16, Vec<u8>, String), Failure> {
    client = client.ready().await?;
    let request = http::Request::post(format!("http://a.example/{n}")).body(())?;
    let (response, mut upload) = client.send_request(request, false)?;
    let upload = async move {
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
        Ok::<_, Failure>(())
    };
    let upload = tokio::spawn(upload);
    let response = response.await?;
    let status = response.status().as_u16();
    let mut body = response.into_body();
    let mut data = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece?;
        body.flow_control().release_capacity(piece.len())?;
        data.extend_from_slice(&piece);
    }
    upload.await??;
    let trailers = body.trailers().await?.ok_or("no trailers")?;
    Ok((status, data, trailers["x-sum"].to_str()?.to_owned()))
}

#[test]
fn their_client_and_our_server_agree() {
    on_lane(|io| async move {
        let (ours, socket) = half_pair(&io);
        let client = std::thread::spawn(move || {
            runtime().block_on(async {
                let (client, connection) = h2::client::handshake(theirs(socket)).await.unwrap();
                let connection = tokio::spawn(connection);
                // After the first answer, the client knows the number of concurrent streams.
                ask(client.clone(), 0).await.unwrap();
                let requested: Vec<_> = (0..REQUESTS).map(|n| tokio::spawn(ask(client.clone(), n))).collect();
                for (n, task) in requested.into_iter().enumerate() {
                    let (status, data, sum) = task.await.unwrap().unwrap();
                    let right =
                        status == 200 && data == pattern(n, length(n)) && sum == length(n).to_string();
                    assert!(right, "request {n}");
                }
                drop(client);
                connection.await.unwrap().unwrap();
            });
        });
        let config = Config { max_streams: 8, ..Config::default() };
        let conn = Conn::server(ours, manylane_buf::Chain::new(), config, Here::current().unwrap()).unwrap();
        let end = conn
            .run(&ConnTimeouts::default(), |stream, incoming| {
                spawn(async move { echo(stream, incoming).await.unwrap() });
            })
            .await;
        assert_eq!((end, conn.begun(), conn.open_streams()), (ConnEnd::Drained, 1 + REQUESTS as u64, 0));
        client.join().unwrap();
    });
}

/// Answers a request as the other crate's server: sends back what it receives, with parts of the head.
async fn their_echo(
    request: http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
) -> Result<(), Failure> {
    let (parts, mut body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("", |path| path.as_str());
    let mut send =
        respond.send_response(http::Response::builder().header("x-path", path).body(())?, false)?;
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
    on_lane(|io| async move {
        let (ours, socket) = half_pair(&io);
        let server = std::thread::spawn(move || {
            runtime().block_on(async {
                let mut builder = h2::server::Builder::new();
                builder.max_concurrent_streams(7).initial_window_size(5_000);
                let mut connection = builder.handshake::<_, Bytes>(theirs(socket)).await.unwrap();
                while let Some(Ok((request, respond))) = connection.accept().await {
                    tokio::spawn(async { their_echo(request, respond).await.unwrap() });
                }
            });
        });
        let config = Config { stream_window: 20_000, ..Config::default() };
        let conn = Conn::client(ours, config, Here::current().unwrap()).unwrap();
        let done = Rc::new(Cell::new(0));
        let driver = {
            let conn = conn.clone();
            async move { conn.run(&ConnTimeouts::default(), |_, _| panic!("a server begins a stream")).await }
        };
        let asking = {
            let (conn, done) = (conn.clone(), done.clone());
            async move {
                let here = Here::current().unwrap();
                // Before its settings came, more streams may be begun than it accepts.
                while conn.peer_max_streams() != 7 {
                    here.yield_now().await;
                }
                for n in 0..REQUESTS {
                    while !conn.can_begin() {
                        here.yield_now().await;
                    }
                    let head_ = request(b"POST", &format!("/{n}?q"));
                    let mut stream = conn.begin(&head_, b"http", None, false).unwrap();
                    let (conn, done) = (conn.clone(), done.clone());
                    spawn(async move {
                        let mut data = chain(&pattern(n, length(n)));
                        send(&mut stream, &mut data, false).await.unwrap();
                        let mut trailers = manylane_http::Head::trailers().unwrap();
                        trailers.add_field("x-sum", n.to_string().as_bytes()).unwrap();
                        stream.send_trailers(&trailers).unwrap();
                        let ResponseHead::Final { response, end } = head(&mut stream).await.unwrap() else {
                            panic!("an interim response");
                        };
                        assert_eq!(response.head.value("x-path"), Some(format!("/{n}?q").as_bytes()));
                        assert!(!end);
                        let (data, trailers) = body(&mut stream).await.unwrap();
                        assert!(data == pattern(n, length(n)), "request {n}");
                        assert_eq!(trailers.unwrap().value("x-sum"), Some(n.to_string().as_bytes()));
                        drop(stream);
                        done.set(done.get() + 1);
                        if done.get() == REQUESTS {
                            assert_eq!(conn.open_streams(), 0);
                            conn.shutdown();
                        }
                    });
                }
            }
        };
        spawn(asking);
        assert_eq!(driver.await, ConnEnd::Drained);
        assert_eq!(done.get(), REQUESTS);
        server.join().unwrap();
    });
}
