//! HTTP/2 servers, end to end: some of many streams hang, die or are reset, and streams are open during a
//! reload or a soft stop. The crate `h2` is at both ends.

use crate::common;
use crate::h2_settings::{
    DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RST_STREAM, Raw, SETTINGS, WINDOW_UPDATE, field,
    frame,
};

use bytes::Bytes;
use common::h2::{block, client, serve};
use common::watch::Syslog;
use common::watch::{ask, until};
use common::{DEFAULTS, Folder, Manylane, ONE_LANE, TIMEOUT, connect, fd, listener, origin};
use h2::client::SendRequest;
use http::{Request, Response};
use nix::sys::signal::Signal;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

/// Status and body, or the error.
type Answer = Result<(u16, String), h2::Error>;

/// Sends a request and waits for the whole response.
async fn get(client: &SendRequest<Bytes>, path: &str) -> Answer {
    let mut client = client.clone().ready().await?;
    let request = Request::get(format!("http://a.example{path}")).body(()).unwrap();
    let (response, _) = client.send_request(request, true)?;
    let (head, mut stream) = response.await?.into_parts();
    let mut body = Vec::new();
    while let Some(piece) = stream.data().await {
        let piece = piece?;
        body.extend_from_slice(&piece);
        stream.flow_control().release_capacity(piece.len())?;
    }
    Ok((head.status.as_u16(), String::from_utf8(body).unwrap()))
}

/// Returns true if a response was truncated, before or after its head.
fn is_cut(answer: Answer) -> bool {
    answer.map_or(true, |(status, _)| status == 502)
}

/// An HTTP/2 origin. Each response begins with the number of its connection. The path selects the behaviour:
/// `/silent` gets no response; `/die` closes the connection; `/reset` resets the stream; `/hold` gets the
/// rest when the test releases it.
struct Origin {
    address: SocketAddr,
    /// Number of streams that wait for the release.
    held: Arc<AtomicUsize>,
    go: watch::Sender<bool>,
}

impl Origin {
    fn new() -> Self {
        let (go, goes) = watch::channel(false);
        let held = Arc::new(AtomicUsize::new(0));
        let own = held.clone();
        let address =
            serve(move |stream, number| Self::connection(stream, number, own.clone(), goes.clone()));
        Self { address, held, go }
    }

    async fn connection(
        stream: tokio::net::TcpStream,
        number: usize,
        held: Arc<AtomicUsize>,
        goes: watch::Receiver<bool>,
    ) {
        let Ok(mut connection) = h2::server::handshake(stream).await else { return };
        let dies = Rc::new(Notify::new());
        let death = dies.clone();
        let all = tokio::task::spawn_local(async move {
            while let Some(Ok((request, respond))) = connection.accept().await {
                let (dies, held, goes) = (dies.clone(), held.clone(), goes.clone());
                tokio::task::spawn_local(Self::answer(request, respond, number, (dies, held, goes)));
            }
        });
        death.notified().await;
        all.abort();
    }

    async fn answer(
        request: Request<h2::RecvStream>,
        mut respond: h2::server::SendResponse<Bytes>,
        number: usize,
        (dies, held, mut goes): (Rc<Notify>, Arc<AtomicUsize>, watch::Receiver<bool>),
    ) -> Option<()> {
        let path = request.uri().path().to_owned();
        if path == "/silent" {
            std::future::poll_fn(|context| respond.poll_reset(context)).await.ok()?;
            return None;
        }
        let mut out = respond.send_response(Response::new(()), false).ok()?;
        out.send_data(Bytes::from(format!("{number}:")), false).ok()?;
        match &*path {
            "/die" => dies.notify_one(),
            "/reset" => out.send_reset(h2::Reason::INTERNAL_ERROR),
            "/hold" => {
                held.fetch_add(1, Ordering::SeqCst);
                goes.wait_for(|go| *go).await.ok()?;
                held.fetch_sub(1, Ordering::SeqCst);
                out.send_data(Bytes::from("whole"), true).ok()?;
            }
            _ => out.send_data(Bytes::from(path), true).ok()?,
        }
        Some(())
    }

    /// Opens `count` streams of `client` that hold, on the origin's first connection.
    async fn hold(&self, client: &SendRequest<Bytes>, count: usize) -> JoinSet<Answer> {
        let mut held = JoinSet::new();
        for _ in 0..count {
            let client = client.clone();
            held.spawn_local(async move { get(&client, "/hold").await });
        }
        self.holds(count).await;
        held
    }

    /// Releases all streams, and checks that those of [`hold`](Self::hold) end well.
    async fn release(&self, mut held: JoinSet<Answer>) {
        self.go.send(true).unwrap();
        while let Some(answer) = held.join_next().await {
            assert_eq!(answer.unwrap().unwrap(), (200, "1:whole".into()));
        }
    }

    /// Waits until `count` streams hold.
    async fn holds(&self, count: usize) {
        while self.held.load(Ordering::SeqCst) != count {
            tokio::task::yield_now().await;
        }
    }
}

/// A connection to a server takes 120 streams: as many as fit half of its window.
fn start(frontend: &str, backend: &str, origin: &Origin) -> (Manylane, SocketAddr, Syslog) {
    let (web, address) = listener();
    let log = Syslog::new();
    let program = Manylane::start_ready(&format!(
        "{}\n mode http\n log {} local0\n option httplog\nfrontend f\n bind {}\n{frontend} default_backend \
         b\nbackend b\n http-reuse always\n{backend} server s {} proto h2\n",
        DEFAULTS.replace("nbthread 2", "nbthread 1\n tune.h2.be.rxbuf 15728640"),
        log.address(),
        fd(&web),
        origin.address
    ));
    (program, address, log)
}

/// Clients retry refused requests by themselves, so a request that a server may have processed is not
/// refused.
#[test]
fn what_a_server_was_asked_is_not_refused_though_there_is_no_answer() {
    let frontend = " errorfile 429 /dev/null\n http-request deny deny_status 429 if { path /early }\n \
                    http-request set-var(txn.path) path\n";
    let rules = [
        "errorfile 502 /dev/null",
        "tcp-response content reject if { var(txn.path) -m str /content }",
        "http-response deny deny_status 502 if { var(txn.path) -m str /empty }",
    ];
    let backend: String = rules.iter().map(|rule| format!(" {rule}\n")).collect();
    let (_program, address, _log) = start(frontend, &backend, &Origin::new());
    block(async {
        let client = client(address).await;
        for (path, reason) in [
            ("/content", h2::Reason::INTERNAL_ERROR),
            ("/empty", h2::Reason::INTERNAL_ERROR),
            ("/early", h2::Reason::REFUSED_STREAM),
        ] {
            assert_eq!(get(&client, path).await.unwrap_err().reason(), Some(reason), "{path}");
        }
    });
}

#[test]
fn a_stream_that_a_server_does_not_answer_ends_by_its_timeout_alone() {
    let origin = Origin::new();
    let (_program, address, log) = start("", " timeout server 3s\n", &origin);
    block(async {
        let client = client(address).await;
        assert_eq!(get(&client, "/first").await.unwrap(), (200, "1:/first".into()));
        let silent = {
            let client = client.clone();
            tokio::task::spawn_local(async move { get(&client, "/silent").await })
        };
        for _ in 0..3 {
            assert_eq!(get(&client, "/other").await.unwrap(), (200, "1:/other".into()));
        }
        assert_eq!(silent.await.unwrap().unwrap().0, 504);
        // The connection stays open.
        assert_eq!(get(&client, "/after").await.unwrap(), (200, "1:/after".into()));
    });
    let line = log.wait("/silent");
    assert!(line.contains(" 504 ") && line.contains(" sH-- "), "{line}");
}

/// One of two server connections dies: its streams are truncated and told so; those of the other end well.
#[test]
fn a_server_that_dies_takes_the_streams_of_its_connection_alone() {
    let origin = Origin::new();
    let (_program, address, log) = start("", "", &origin);
    block(async {
        let client = client(address).await;
        assert_eq!(get(&client, "/first").await.unwrap(), (200, "1:/first".into()));
        let held = origin.hold(&client, 100).await;
        // The first connection is full; this client's streams are on another.
        let second = self::client(address).await;
        let own = {
            let second = second.clone();
            tokio::task::spawn_local(async move { get(&second, "/hold").await })
        };
        origin.holds(101).await;
        assert!(is_cut(get(&second, "/die").await));
        assert!(own.await.unwrap().is_err());
        origin.release(held).await;
        // A new connection replaces it.
        assert_eq!(get(&second, "/next").await.unwrap().0, 200);
    });
    let line = log.wait("/die");
    assert!(line.contains(" SD-- ") || line.contains(" SH-- "), "{line}");
}

#[test]
fn a_reset_of_one_stream_leaves_all_others() {
    let origin = Origin::new();
    let (_program, address, log) = start("", "", &origin);
    block(async {
        let client = client(address).await;
        assert_eq!(get(&client, "/first").await.unwrap(), (200, "1:/first".into()));
        let held = origin.hold(&client, 50).await;
        for _ in 0..10 {
            assert!(is_cut(get(&client, "/reset").await));
        }
        origin.release(held).await;
    });
    let line = log.wait("/reset");
    assert!(line.contains(" SD-- ") || line.contains(" SH-- "), "{line}");
}

/// Later streams of a connection see variables of the session, other connections do not.
#[test]
fn variables_of_a_session_are_those_of_its_connection() {
    let origin = Origin::new();
    let rules = " http-request set-var(sess.last) path if { path_beg /set }\n \
                 http-after-response set-header x-last %[var(sess.last)]\n";
    let (_program, address, _log) = start(rules, "", &origin);
    let last = async |client: &SendRequest<Bytes>, path: &str| {
        let mut client = client.clone().ready().await.unwrap();
        let request = Request::get(format!("http://a.example{path}")).body(()).unwrap();
        let response = client.send_request(request, true).unwrap().0.await.unwrap();
        response.headers().get("x-last").map(|last| last.to_str().unwrap().to_owned()).unwrap_or_default()
    };
    block(async {
        let (one, two) = (client(address).await, client(address).await);
        assert_eq!(last(&one, "/set1").await, "/set1");
        assert_eq!(last(&one, "/get").await, "/set1");
        assert_eq!(last(&two, "/get").await, "");
        assert_eq!(last(&one, "/set2").await, "/set2");
        assert_eq!(last(&one, "/get").await, "/set2");
    });
}

/// A stream that began before another one sets a variable, and ends behind it, does not erase it.
#[test]
fn streams_at_the_same_time_share_the_variables_of_their_session() {
    let origin = Origin::new();
    let rules = " http-request deny if { var(sess.bad) -m bool }\n \
                 http-request set-var(sess.bad) bool(true) if { path /attack }\n";
    let (_program, address, _log) = start(rules, "", &origin);
    let status = async |client: &SendRequest<Bytes>, path: &str| get(client, path).await.unwrap().0;
    block(async {
        let client = client(address).await;
        let held = origin.hold(&client, 1).await;
        assert_eq!(status(&client, "/attack").await, 200);
        assert_eq!(status(&client, "/next").await, 403);
        origin.release(held).await;
        assert_eq!(status(&client, "/later").await, 403, "the stream that began first has erased it");
    });
}

/// Open streams of ten clients when the generation ends.
#[test]
fn a_thousand_open_streams_outlive_a_reload_and_a_soft_stop() {
    const CLIENTS: usize = 10;
    const EACH: usize = 100;
    /// Limit of additional memory in KiB: 32 for a stream, of which the task takes 12 and waiting data 7. A
    /// reload adds a generation, and the memory of the thread that reads files.
    const MEMORY: usize = CLIENTS * EACH * 32;
    const RELOAD: usize = 4 << 10;
    let origin = Origin::new();
    let folder = Folder::new();
    let socket = folder.0.join("control");
    let (web, address) = listener();
    let mut program = Manylane::start_ready(&format!(
        "global\n stats socket {} level admin\n{} mode http\nlisten l\n bind {}\n http-reuse always\n \
         server s {} proto h2 pool-purge-delay 10m\n",
        socket.display(),
        common::measured(),
        fd(&web),
        origin.address
    ));
    // Each lane has allocated what it needs once, such as the receive ring of io_uring.
    block(async {
        let lanes = [client(address).await, client(address).await];
        for client in lanes.iter().cycle().take(8) {
            assert_eq!(get(client, "/new").await.unwrap().0, 200);
        }
    });
    let before = program.memory();
    for stops in [false, true] {
        origin.go.send(false).unwrap();
        block(async {
            let mut requests = JoinSet::new();
            for _ in 0..CLIENTS {
                let client = client(address).await;
                for _ in 0..EACH {
                    let client = client.clone();
                    requests.spawn_local(async move { get(&client, "/hold").await });
                }
            }
            origin.holds(CLIENTS * EACH).await;
            let grown = program.memory().saturating_sub(before);
            println!("{grown} KiB for {} streams", CLIENTS * EACH);
            let most = MEMORY + if stops { RELOAD } else { 0 };
            assert!(grown < most, "{grown} KiB for {} streams", CLIENTS * EACH);
            if stops {
                program.signal(Signal::SIGUSR1);
            } else {
                let mut control = UnixStream::connect(&socket).unwrap();
                control.write_all(b"reload\n").unwrap();
                let mut answer = String::new();
                control.read_to_string(&mut answer).unwrap();
                assert!(answer.contains("Reloaded"), "{answer}");
                let new = client(address).await;
                assert_eq!(get(&new, "/new").await.unwrap().0, 200);
            }
            origin.go.send(true).unwrap();
            while let Some(answer) = requests.join_next().await {
                let (status, body) = answer.unwrap().unwrap();
                assert!(status == 200 && body.ends_with(":whole"), "{status} {body}");
            }
        });
        block(origin.holds(0));
    }
    assert!(program.wait().success());
}

/// Idle connections move to the next generation, and so do those with open streams.
#[test]
fn connections_to_servers_go_over_to_the_next_generation() {
    let origin = Origin::new();
    let folder = Folder::new();
    let socket = folder.0.join("control");
    let (web, address) = listener();
    let _program = Manylane::start_ready(&format!(
        "global\n nbthread 1\n stats socket {} level admin\n{} mode http\nlisten l\n bind {}\n http-reuse \
         always\n server s {} proto h2 pool-purge-delay 10m\n",
        socket.display(),
        DEFAULTS.replace("global\n", "").replace(" nbthread 2\n", ""),
        fd(&web),
        origin.address
    ));
    let reload = || assert!(ask(&socket, "reload").contains("Reloaded"));
    // Numbers of idle connections, of all lanes and of the only one.
    let idle = || {
        let servers = ask(&socket, "show servers conn l");
        let words: Vec<&str> = servers.lines().nth(1).unwrap().split_whitespace().collect();
        [12, 13].map(|at| words[at].to_owned())
    };
    block(async {
        assert_eq!(idle(), ["0", "0"]);
        assert_eq!(get(&client(address).await, "/first").await.unwrap(), (200, "1:/first".into()));
        until(|| idle() == ["1", "1"]);
        reload();
        until(|| idle() == ["1", "1"]);
        let second = client(address).await;
        assert_eq!(get(&second, "/second").await.unwrap(), (200, "1:/second".into()));
        let held = origin.hold(&second, 3).await;
        reload();
        let third = client(address).await;
        assert_eq!(get(&third, "/third").await.unwrap(), (200, "1:/third".into()));
        until(|| idle() == ["0", "0"]);
        origin.release(held).await;
        until(|| idle() == ["1", "1"]);
        assert_eq!(get(&third, "/last").await.unwrap(), (200, "1:/last".into()));
    });
}

const EMPTY_SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Reads to the end and responds to nothing. Returns true if a ping came.
fn gets_request(mut stream: &TcpStream) -> bool {
    let mut head = [0; 9];
    let mut requested = false;
    while stream.read_exact(&mut head).is_ok() {
        let mut payload = vec![0; usize::from(head[2])];
        stream.read_exact(&mut payload).unwrap();
        requested |= head[3] == 6 && head[4] == 0;
    }
    requested
}

/// Runs a program whose client and server of HTTP/2 are silent after one request. Returns whether each of
/// them got a ping before it was closed, and after what time: the server, and the client.
fn silent_peers(frontend: &str, server_options: &str) -> [(bool, Duration); 2] {
    let (sender, closed) = std::sync::mpsc::channel();
    let server = origin(move |mut stream| {
        stream.read_exact(&mut [0; PREFACE.len()]).unwrap();
        // SETTINGS, the acknowledgement, and `:status: 200` for the first stream.
        let answer = [0, 0, 0, 4, 1, 0, 0, 0, 0, 0, 0, 1, 1, 5, 0, 0, 0, 1, 0x88];
        let begin = Instant::now();
        stream.write_all(&[EMPTY_SETTINGS, &answer].concat()).unwrap();
        sender.send((gets_request(&stream), begin.elapsed())).unwrap();
    });
    let (web, address) = listener();
    let _program = Manylane::start_ready(&format!(
        "{DEFAULTS} mode http\n http-reuse always\nlisten l\n bind {}{frontend}\n server s {server} proto h2 \
         {server_options}\n",
        fd(&web)
    ));
    let mut stream = connect(address);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    stream.read_exact(&mut [0; 12]).unwrap();
    let of_server = closed.recv_timeout(TIMEOUT).unwrap();
    let mut stream = connect(address);
    let begin = Instant::now();
    stream.write_all(&[PREFACE, EMPTY_SETTINGS, &[0, 0, 0, 4, 1, 0, 0, 0, 0], GET].concat()).unwrap();
    [of_server, (gets_request(&stream), begin.elapsed())]
}

/// `GET http://a/` on stream 1.
const GET: &[u8] = &[0, 0, 6, 1, 5, 0, 0, 0, 1, 0x82, 0x86, 0x84, 0x01, 1, b'a'];

#[test]
fn idle_peers_that_do_not_answer_pings_are_given_up() {
    for (requested, time) in silent_peers(" idle-ping 100ms", "idle-ping 100ms pool-purge-delay 10m") {
        assert!(requested && time < TIMEOUT, "{time:?}");
    }
}

#[test]
fn idle_peers_are_closed_when_their_time_is_over() {
    let peers = silent_peers("\n timeout http-keep-alive 300ms", "pool-purge-delay 300ms");
    // A lane's clock may be behind by a millisecond or two.
    let bounds = Duration::from_millis(290)..TIMEOUT;
    for (_, time) in peers {
        assert!(bounds.contains(&time), "{time:?}");
    }
}

/// Returns the data. Its end must come with the last frame of data, not in a frame of its own.
async fn whole(mut stream: h2::RecvStream) -> Result<Bytes, h2::Error> {
    let mut body = Vec::new();
    while let Some(piece) = stream.data().await {
        let piece = piece?;
        assert!(!piece.is_empty(), "the end came alone, behind {} bytes", body.len());
        body.extend_from_slice(&piece);
        stream.flow_control().release_capacity(piece.len())?;
    }
    Ok(body.into())
}

#[test]
fn the_end_of_a_body_comes_with_its_last_data() {
    let of_2 = serve(|stream, _| async {
        let Ok(mut connection) = h2::server::handshake(stream).await else { return };
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            tokio::task::spawn_local(async move {
                let body = whole(request.into_body()).await.unwrap();
                respond.send_response(Response::new(()), false).unwrap().send_data(body, true).unwrap();
            });
        }
    });
    // An HTTP/1 server: it echoes a body, or sends one with the size in its path.
    let of_1 = origin(|stream| {
        let (mut out, mut stream) = (stream.try_clone().unwrap(), BufReader::new(stream));
        let line = |stream: &mut BufReader<TcpStream>| {
            let mut line = String::new();
            stream.read_line(&mut line).is_ok_and(|n| n > 2).then_some(line)
        };
        while let Some(first) = line(&mut stream) {
            while line(&mut stream).is_some() {}
            let size: usize = first.split(['/', ' ']).nth(2).unwrap().parse().unwrap();
            let (body, head) = ("x".repeat(size), "HTTP/1.1 200 OK\r\n");
            let _ = if size.is_multiple_of(2) {
                write!(out, "{head}Transfer-Encoding: chunked\r\n\r\n{size:x}\r\n{body}\r\n0\r\n\r\n")
            } else {
                write!(out, "{head}Content-Length: {size}\r\n\r\n{body}")
            };
        }
    });
    for (server, proto) in [(of_2, "proto h2"), (of_1, "proto h1")] {
        let (web, address) = listener();
        let _program = Manylane::start_ready(&format!(
            "{DEFAULTS} mode http\nlisten l\n bind {}\n server s {server} {proto}\n",
            fd(&web)
        ));
        block(async {
            let mut client = client(address).await.ready().await.unwrap();
            for size in [1, 2, 3_001, 30_002, 300_001] {
                let posts = server == of_2;
                let request =
                    if posts { Request::post("http://a/") } else { Request::get(format!("http://a/{size}")) };
                let (response, mut up) = client.send_request(request.body(()).unwrap(), !posts).unwrap();
                if posts {
                    up.send_data(vec![b'x'; size].into(), true).unwrap();
                }
                let body = whole(response.await.unwrap().into_body()).await.unwrap();
                assert_eq!(body.len(), size);
            }
        });
    }
}

/// Bytes of each body of [`large`].
const LARGE: usize = 256 << 10;

/// An HTTP/2 origin that responds with [`LARGE`] bytes and counts the bytes that windows let it send, and its
/// connections.
fn large(sent: &Arc<AtomicUsize>, connections: &Arc<AtomicUsize>) -> SocketAddr {
    let (sent, connections) = (sent.clone(), connections.clone());
    serve(move |stream, _| {
        let sent = sent.clone();
        connections.fetch_add(1, Ordering::SeqCst);
        async move {
            let Ok(mut connection) = h2::server::handshake(stream).await else { return };
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                let sent = sent.clone();
                tokio::task::spawn_local(async move {
                    let mut out = respond.send_response(Response::new(()), false).ok()?;
                    let mut left = LARGE;
                    while left > 0 {
                        out.reserve_capacity(left);
                        let room = std::future::poll_fn(|context| out.poll_capacity(context)).await?.ok()?;
                        left -= room;
                        out.send_data(vec![b'x'; room].into(), left == 0).ok()?;
                        sent.fetch_add(room, Ordering::SeqCst);
                    }
                    Some(())
                });
            }
        }
    })
}

/// Clients that read nothing fill the windows of their streams. They leave room in the window of the
/// server's connection for the last of its 100 streams, and for others on another connection. Where `rxbuf`
/// is smaller, fewer streams share a connection.
#[test]
fn streams_that_nobody_reads_hold_back_no_other_client() {
    hold_back_no_other_client("", 99, [1, 2]);
    // Of 20 streams, half of the window is that of 10.
    hold_back_no_other_client(" tune.h2.be.rxbuf 1310700\n", 39, [4, 5]);
}

/// As many streams as `silent` are not read. The server has as many connections as the first number of
/// `connections` once another stream was served, and as the second when that goes on beside one more.
fn hold_back_no_other_client(global: &str, silent: usize, connections: [usize; 2]) {
    let (sent, made) = (Arc::default(), Arc::default());
    let (web, address) = listener();
    let _program = Manylane::start_ready(&format!(
        "{} mode http\nlisten l\n bind {}\n http-reuse always\n server s {} proto h2\n",
        ONE_LANE.replace("global\n", &format!("global\n{global}")),
        fd(&web),
        large(&sent, &made)
    ));
    block(async {
        let reader = client(address).await;
        assert_eq!(get(&reader, "/").await.unwrap().1.len(), LARGE);
        let silent_client = client(address).await;
        let begin = async || {
            let mut silent = silent_client.clone().ready().await.unwrap();
            let (response, _) =
                silent.send_request(Request::get("http://a/").body(()).unwrap(), true).unwrap();
            response.await.unwrap().into_body()
        };
        let mut bodies = Vec::new();
        for _ in 0..silent {
            bodies.push(begin().await);
        }
        // The windows of all streams are full.
        while sent.load(Ordering::SeqCst) < LARGE + silent * 65_535 {
            tokio::task::yield_now().await;
        }
        assert_eq!(get(&reader, "/").await.unwrap().1.len(), LARGE);
        assert_eq!(made.load(Ordering::SeqCst), connections[0]);
        bodies.push(begin().await);
        assert_eq!(get(&client(address).await, "/").await.unwrap().1.len(), LARGE);
        assert_eq!(made.load(Ordering::SeqCst), connections[1]);
        // All waiting streams continue at once: they share the client's window.
        let mut reading = JoinSet::new();
        for body in bodies {
            reading.spawn_local(whole(body));
        }
        while let Some(body) = reading.join_next().await {
            assert_eq!(body.unwrap().unwrap().len(), LARGE);
        }
    });
}

/// What a server sends in response to a request on a stream, and the code by which the proxy has to end the
/// connection (GOAWAY) or the stream (RST_STREAM).
type Wrong = (&'static str, fn(u32) -> Vec<Vec<u8>>, u32);

const PROTOCOL_ERROR: u32 = 1;
const FLOW_CONTROL_ERROR: u32 = 3;
const FRAME_SIZE_ERROR: u32 = 6;
const COMPRESSION_ERROR: u32 = 9;

const CONTINUATION: u8 = 9;
const PADDED: u8 = 8;

/// `:status: 200`
const OK: &[u8] = b"\x88";
const MOST: [u8; 4] = 0x7fff_ffff_u32.to_be_bytes();

/// The head of a response, then these frames.
fn after_head(stream: u32, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    [&[frame(HEADERS, END_HEADERS, stream, OK)][..], frames].concat()
}

const WRONG_FOR_THE_CONNECTION: &[Wrong] = &[
    ("data without a stream", |_| vec![frame(DATA, 0, 0, b"x")], PROTOCOL_ERROR),
    ("data of an idle stream", |n| vec![frame(DATA, 0, n + 2, b"x")], PROTOCOL_ERROR),
    ("padding", |n| after_head(n, &[frame(DATA, PADDED, n, &[5, 0, 0])]), PROTOCOL_ERROR),
    ("no length of padding", |n| after_head(n, &[frame(DATA, PADDED, n, &[])]), FRAME_SIZE_ERROR),
    ("a head without a stream", |_| vec![frame(HEADERS, END_HEADERS, 0, OK)], PROTOCOL_ERROR),
    ("a head of an even stream", |_| vec![frame(HEADERS, END_HEADERS, 2, OK)], PROTOCOL_ERROR),
    ("a head of an idle stream", |n| vec![frame(HEADERS, END_HEADERS, n + 2, OK)], PROTOCOL_ERROR),
    ("a padded head", |n| vec![frame(HEADERS, END_HEADERS | PADDED, n, &[9, 0x88])], PROTOCOL_ERROR),
    ("an interrupted head", |n| vec![frame(HEADERS, 0, n, OK), frame(PING, 0, 0, &[0; 8])], PROTOCOL_ERROR),
    ("a stray continuation", |n| vec![frame(CONTINUATION, END_HEADERS, n, OK)], PROTOCOL_ERROR),
    ("compression", |n| vec![frame(HEADERS, END_HEADERS, n, &[0xff, 0xff])], COMPRESSION_ERROR),
    ("a short reset", |n| vec![frame(RST_STREAM, 0, n, &[0; 3])], FRAME_SIZE_ERROR),
    ("settings of a stream", |n| vec![frame(SETTINGS, 0, n, &[])], PROTOCOL_ERROR),
    ("short settings", |_| vec![frame(SETTINGS, 0, 0, &[0; 5])], FRAME_SIZE_ERROR),
    ("push enabled", |_| vec![frame(SETTINGS, 0, 0, &[0, 2, 0, 0, 0, 1])], PROTOCOL_ERROR),
    ("a window setting", |_| vec![frame(SETTINGS, 0, 0, &[0, 4, 0x80, 0, 0, 0])], FLOW_CONTROL_ERROR),
    ("a frame size setting", |_| vec![frame(SETTINGS, 0, 0, &[0, 5, 0, 0, 1, 0])], PROTOCOL_ERROR),
    ("a push", |n| vec![frame(5, END_HEADERS, n, &[0, 0, 0, 2, 0x82])], PROTOCOL_ERROR),
    ("a ping of a stream", |n| vec![frame(PING, 0, n, &[0; 8])], PROTOCOL_ERROR),
    ("a short ping", |_| vec![frame(PING, 0, 0, &[0; 7])], FRAME_SIZE_ERROR),
    (
        "a goaway that allows more",
        |n| [n, n + 2].map(|last| frame(GOAWAY, 0, 0, &[last.to_be_bytes(), [0; 4]].concat())).into(),
        PROTOCOL_ERROR,
    ),
    ("no window", |_| vec![frame(WINDOW_UPDATE, 0, 0, &[0; 4])], PROTOCOL_ERROR),
    ("too much window", |_| vec![frame(WINDOW_UPDATE, 0, 0, &MOST)], FLOW_CONTROL_ERROR),
    ("too long a frame", |n| after_head(n, &[frame(DATA, 0, n, &[0; 16_385])]), FRAME_SIZE_ERROR),
    ("a priority update", |_| vec![frame(0x10, 0, 0, &[0, 0, 0, 1, b'u'])], PROTOCOL_ERROR),
];

const WRONG_FOR_THE_STREAM: &[Wrong] = &[
    ("no status", |n| vec![frame(HEADERS, END_HEADERS, n, &field("a", "b"))], PROTOCOL_ERROR),
    (
        "upper case",
        |n| vec![frame(HEADERS, END_HEADERS, n, &[OK, &field("A", "b")].concat())],
        PROTOCOL_ERROR,
    ),
    (
        "a field of connections",
        |n| vec![frame(HEADERS, END_HEADERS, n, &[OK, &field("connection", "close")].concat())],
        PROTOCOL_ERROR,
    ),
    (
        "a late status",
        |n| vec![frame(HEADERS, END_HEADERS, n, &[&field("a", "b")[..], OK].concat())],
        PROTOCOL_ERROR,
    ),
    ("data before the head", |n| vec![frame(DATA, 0, n, b"x")], PROTOCOL_ERROR),
    (
        "an interim response that ends",
        |n| vec![frame(HEADERS, END_HEADERS | END_STREAM, n, &field(":status", "103"))],
        PROTOCOL_ERROR,
    ),
    ("no window", |n| vec![frame(WINDOW_UPDATE, 0, n, &[0; 4])], PROTOCOL_ERROR),
    ("too much window", |n| vec![frame(WINDOW_UPDATE, 0, n, &MOST)], FLOW_CONTROL_ERROR),
    (
        "trailers that do not end",
        |n| after_head(n, &[frame(HEADERS, END_HEADERS, n, &field("a", "b"))]),
        PROTOCOL_ERROR,
    ),
    (
        "more data than was told",
        |n| {
            let head = [OK, &field("content-length", "1")].concat();
            vec![frame(HEADERS, END_HEADERS, n, &head), frame(DATA, END_STREAM, n, b"xx")]
        },
        PROTOCOL_ERROR,
    ),
];

/// A server that sends what is wrong with the number in `which`, of all in the order of the tables, and tells
/// by which frame the proxy ended what: its type, the number of the connection, and the code. After a GOAWAY,
/// the proxy has to close the connection.
fn wrong(which: Arc<AtomicUsize>, tell: std::sync::mpsc::Sender<(u8, usize, u32)>) -> SocketAddr {
    let connections = AtomicUsize::new(0);
    origin(move |stream| {
        let number = connections.fetch_add(1, Ordering::SeqCst);
        let mut server = Raw::server(stream, &[]);
        while let Some(received) = server.next() {
            match received.kind {
                HEADERS => {
                    let all = [WRONG_FOR_THE_CONNECTION, WRONG_FOR_THE_STREAM].concat();
                    let (_, frames, _) = all[which.load(Ordering::SeqCst)];
                    server.send(&frames(received.stream));
                }
                RST_STREAM => tell.send((RST_STREAM, number, received.number())).unwrap(),
                GOAWAY => {
                    let code = u32::from_be_bytes(*received.payload[4..].first_chunk().unwrap());
                    server.rest();
                    tell.send((GOAWAY, number, code)).unwrap();
                    return;
                }
                _ => {}
            }
        }
    })
}

#[test]
fn what_a_server_does_wrong_ends_its_stream_or_its_connection_and_nothing_else() {
    let origin = Origin::new();
    let which = Arc::new(AtomicUsize::new(0));
    let (tell, reported) = std::sync::mpsc::channel();
    let wrong = wrong(which.clone(), tell);
    let (web, address) = listener();
    let _program = Manylane::start_ready(&format!(
        "{}\n mode http\n http-reuse always\nfrontend f\n bind {}\n use_backend wrong if {{ path /wrong }}\n \
         default_backend right\nbackend right\n server s {} proto h2\nbackend wrong\n retries 0\n server s \
         {wrong} proto h2\n",
        ONE_LANE,
        fd(&web),
        origin.address
    ));
    block(async {
        let client = client(address).await;
        assert_eq!(get(&client, "/first").await.unwrap(), (200, "1:/first".into()));
        let held = origin.hold(&client, 10).await;
        let mut connections = Vec::new();
        let of_connection = WRONG_FOR_THE_CONNECTION.iter().map(|wrong| (wrong, GOAWAY));
        let of_stream = WRONG_FOR_THE_STREAM.iter().map(|wrong| (wrong, RST_STREAM));
        for (n, ((what, frames, code), kind)) in of_connection.chain(of_stream).enumerate() {
            which.store(n, Ordering::SeqCst);
            let answer = get(&client, "/wrong").await;
            if frames(1)[0] == frame(HEADERS, END_HEADERS, 1, OK) || *what == "more data than was told" {
                assert!(is_cut(answer), "{what}"); // the head may have gone on
            } else {
                assert_eq!(answer.unwrap().0, 502, "{what}");
            }
            let (ended, connection, reported) =
                reported.recv_timeout(TIMEOUT).unwrap_or_else(|_| panic!("{what}"));
            assert_eq!((ended, reported), (kind, *code), "{what}");
            connections.push(connection);
        }
        // Each wrong connection is replaced by one; streams that end leave theirs to the next.
        let expected: Vec<usize> =
            (0..connections.len()).map(|n| n.min(WRONG_FOR_THE_CONNECTION.len())).collect();
        assert_eq!(connections, expected);
        origin.release(held).await;
    });
}

/// A server that leaves says which streams it has not processed. The proxy repeats them elsewhere; a stream
/// with a body is refused, so that its client repeats it.
#[test]
fn streams_that_a_leaving_server_leaves_out_are_repeated() {
    for has_body in [false, true] {
        let connections = AtomicUsize::new(0);
        let server = origin(move |stream| {
            let leaves = connections.fetch_add(1, Ordering::SeqCst) == 0;
            let mut server = Raw::server(stream, &[]);
            while let Some(received) = server.next() {
                if received.kind == HEADERS {
                    let response = frame(HEADERS, END_HEADERS | END_STREAM, received.stream, OK);
                    server.send(&[if leaves { frame(GOAWAY, 0, 0, &[0; 8]) } else { response }]);
                }
            }
        });
        let (web, address) = listener();
        let _program = Manylane::start_ready(&format!(
            "{DEFAULTS} mode http\nlisten l\n bind {}\n server s {server} proto h2\n",
            fd(&web)
        ));
        block(async {
            let mut client = client(address).await;
            let mut ask = async || {
                let request = Request::post("http://a.example/").body(()).unwrap();
                let (response, mut upload) = client.send_request(request, !has_body)?;
                if has_body {
                    upload.send_data(Bytes::from("x"), true)?;
                }
                response.await
            };
            if has_body {
                assert_eq!(ask().await.unwrap_err().reason(), Some(h2::Reason::REFUSED_STREAM));
            }
            assert_eq!(ask().await.unwrap().status(), 200);
        });
    }
}
