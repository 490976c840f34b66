//! Authenticated connections to servers (NTLM, Negotiate): they serve only the client that has authenticated.

use crate::common;

use bytes::Bytes;
use common::watch::until;
use common::{DEFAULTS, Folder, Manylane, connect, fd, listener, origin};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

const MODES: [&str; 4] = ["never", "safe", "aggressive", "always"];

/// An origin that remembers who has authenticated on each connection. Responses contain the number of the
/// connection, from 1, and that user.
struct Remembering {
    address: SocketAddr,
    /// Number of open connections.
    open: Arc<AtomicUsize>,
    /// A request for `/wait/N` is answered once this is at least N.
    released: Arc<AtomicUsize>,
}

/// Value of a field; its name is compared without case.
fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (own, value) = line.split_once(": ")?;
        own.eq_ignore_ascii_case(name).then_some(value)
    })
}

/// Reads a head; `None` at the end of the connection.
fn head_of(reader: &mut impl BufRead) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    Some(head)
}

impl Remembering {
    fn new() -> Self {
        let (connections, open, released) =
            (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (counted, may) = (open.clone(), released.clone());
        let address = origin(move |mut stream| {
            let number = connections.fetch_add(1, Ordering::SeqCst) + 1;
            counted.fetch_add(1, Ordering::SeqCst);
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut user = "-".to_owned();
            while let Some(head) = head_of(&mut reader) {
                let target = head.split(' ').nth(1).unwrap();
                let credentials =
                    field(&head, "authorization").or_else(|| field(&head, "proxy-authorization"));
                if let Some(name) = credentials.and_then(|text| text.split_once(' ')) {
                    user = name.1.to_owned();
                }
                if let Some(turn) = target.strip_prefix("/wait/") {
                    let turn = turn.parse().unwrap();
                    until(|| may.load(Ordering::SeqCst) >= turn);
                }
                let asks = field(&head, "x-asks").filter(|_| user == "-");
                let line = match asks {
                    Some(asks) if asks.starts_with("Proxy") => format!("407 Who\r\n{asks}"),
                    Some(asks) => format!("401 Who\r\n{}", asks.replace('|', "\r\n")),
                    None => "200 OK\r\nX-Fine: yes".to_owned(),
                };
                let text = format!("{number}:{user}");
                let answer = format!("HTTP/1.1 {line}\r\nContent-Length: {}\r\n\r\n{text}", text.len());
                if stream.write_all(answer.as_bytes()).is_err() {
                    break;
                }
            }
            counted.fetch_sub(1, Ordering::SeqCst);
        });
        Self { address, open, released }
    }
}

fn send(client: &mut TcpStream, path: &str, fields: &str) {
    client.write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n").as_bytes()).unwrap();
}

/// Status, number of the connection, and its user.
fn answer(client: &mut TcpStream) -> (u16, usize, String) {
    let mut reader = BufReader::new(client);
    let head = head_of(&mut reader).expect("an answer");
    let mut body = vec![0; field(&head, "content-length").unwrap().parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    let body = String::from_utf8(body).unwrap();
    let (number, user) = body.split_once(':').unwrap_or(("0", &body));
    (head[9..12].parse().unwrap(), number.parse().unwrap_or(0), user.to_owned())
}

fn ask(client: &mut TcpStream, path: &str, fields: &str) -> (u16, usize, String) {
    send(client, path, fields);
    answer(client)
}

/// The program with a control socket.
struct Proxy {
    _program: Manylane,
    folder: Folder,
    address: SocketAddr,
}

impl Proxy {
    fn start(lanes: usize, lines: &str) -> Self {
        let folder = Folder::new();
        let (socket, address) = listener();
        let config = DEFAULTS.replace(
            "nbthread 2",
            &format!("nbthread {lanes}\n stats socket {} level admin", folder.0.join("control").display()),
        );
        let program =
            Manylane::start_ready(&format!("{config} mode http\nlisten l\n bind {}\n{lines}\n", fd(&socket)));
        Self { _program: program, folder, address }
    }

    fn control(&self) -> PathBuf {
        self.folder.0.join("control")
    }
}

/// Other clients send several requests, since modes of reuse treat first and later requests differently; no
/// request may get `ann`'s connection.
fn nobody_else_is(who: &str, address: SocketAddr, what: &str) {
    for _ in 0..3 {
        let mut other = connect(address);
        for _ in 0..3 {
            let (status, _, user) = ask(&mut other, "/", "");
            assert_eq!(status, 200, "{what}");
            assert_ne!(user, who, "another client is served as {who}: {what}");
        }
    }
}

#[test]
fn a_connection_that_a_client_authenticated_serves_this_client_alone() {
    let ways: [(&str, &str); 6] = [
        ("X-Asks: WWW-Authenticate: NTLM", "Authorization: NTLM ann"),
        ("X-Asks: WWW-Authenticate: Basic realm=\"a, b\", nEGOtiate", "Authorization: negotiate ann"),
        ("X-Asks: WWW-Authenticate: Nego2", "Authorization: Nego2 ann"),
        ("X-Asks: Proxy-Authenticate: Digest realm=\"a\", NTLM", "Proxy-Authorization: NTLM ann"),
        ("", "Authorization: NTLM ann"),
        ("", "Proxy-Authorization: Negotiate ann"),
    ];
    for lanes in [1, 2] {
        for mode in MODES {
            for (asks, tells) in ways {
                let what = format!("http-reuse {mode}, {lanes} lanes, {asks:?}, {tells:?}");
                let server = Remembering::new();
                let proxy = Proxy::start(lanes, &format!(" http-reuse {mode}\n server s {}", server.address));
                let mut ann = connect(proxy.address);
                let mut number = None;
                if !asks.is_empty() {
                    let (status, own, user) = ask(&mut ann, "/", &format!("{asks}\r\n"));
                    assert!(matches!(status, 401 | 407), "{what}");
                    assert_eq!(user, "-", "{what}");
                    number = Some(own);
                }
                let (status, own, user) = ask(&mut ann, "/", &format!("{tells}\r\n"));
                assert_eq!((status, &*user), (200, "ann"), "{what}");
                assert_eq!(number.unwrap_or(own), own, "the handshake was on one connection: {what}");
                assert_eq!(ask(&mut ann, "/", ""), (200, own, "ann".to_owned()), "{what}");
                nobody_else_is("ann", proxy.address, &what);
                assert_eq!(ask(&mut ann, "/", ""), (200, own, "ann".to_owned()), "{what}");
                // The connection closes when its client leaves.
                let mut other = connect(proxy.address);
                ask(&mut other, "/", "");
                let before = server.open.load(Ordering::SeqCst);
                drop(ann);
                until(|| server.open.load(Ordering::SeqCst) < before);
                nobody_else_is("ann", proxy.address, &what);
            }
        }
    }
}

/// A challenge makes the connection private before the client has authenticated: the client's next message
/// must go to the same connection.
#[test]
fn a_connection_with_a_challenge_is_given_to_nobody_else() {
    for mode in MODES {
        for challenge in [
            "WWW-Authenticate: NTLM",
            "Proxy-Authenticate: Negotiate",
            "WWW-Authenticate: Basic|WWW-Authenticate: Kerberos",
        ] {
            let server = Remembering::new();
            let proxy = Proxy::start(1, &format!(" http-reuse {mode}\n server s {}", server.address));
            let mut ann = connect(proxy.address);
            let status = if challenge.starts_with("Proxy") { 407 } else { 401 };
            let own = ask(&mut ann, "/", &format!("X-Asks: {challenge}\r\n"));
            assert_eq!(own.0, status, "{mode}, {challenge}");
            for _ in 0..3 {
                let mut other = connect(proxy.address);
                for _ in 0..3 {
                    assert_ne!(ask(&mut other, "/", "").1, own.1, "{mode}, {challenge}");
                }
            }
            assert_eq!(ask(&mut ann, "/", "").1, own.1, "{mode}, {challenge}");
        }
    }
}

/// Schemes that authenticate single requests leave connections shared.
#[test]
fn a_connection_with_other_credentials_is_shared() {
    let server = Remembering::new();
    let proxy = Proxy::start(1, &format!(" http-reuse always\n server s {}", server.address));
    let mut ann = connect(proxy.address);
    let own = ask(&mut ann, "/", "X-Asks: WWW-Authenticate: Basic realm=\"NTLM\"\r\n");
    assert_eq!(own.0, 401);
    assert_eq!(ask(&mut ann, "/", "Authorization: Basic ann\r\n").1, own.1);
    assert_eq!(ask(&mut connect(proxy.address), "/", "").1, own.1);
}

/// Later requests of the client go to its authenticated server, whatever the algorithm says, and wait in its
/// queue even if another server has room.
#[test]
fn requests_follow_the_authenticated_connection_into_a_queue() {
    let server = Remembering::new();
    let own = server.address;
    let proxy = Proxy::start(
        1,
        &format!(
            " http-reuse always\n max-keep-alive-queue 0\n use-server a if {{ path /wait/2 /begin }}\n \
                use-server b if {{ path /wait/1 }}\n \
             server a {own} maxconn 1\n server b {own} maxconn 1"
        ),
    );
    let mut ann = connect(proxy.address);
    let (_, number, user) = ask(&mut ann, "/begin", "Authorization: NTLM ann\r\n");
    assert_eq!(user, "ann");
    for _ in 0..4 {
        assert_eq!(ask(&mut ann, "/", ""), (200, number, "ann".to_owned()));
    }
    let (mut first, mut second) = (connect(proxy.address), connect(proxy.address));
    send(&mut first, "/wait/1", "");
    send(&mut second, "/wait/2", "");
    let control = proxy.control();
    until(|| column(&control, "a", "scur") == "1" && column(&control, "b", "scur") == "1");
    send(&mut ann, "/", "");
    until(|| column(&control, "a", "qcur") == "1");
    server.released.store(1, Ordering::SeqCst);
    assert_eq!(answer(&mut first).0, 200);
    server.released.store(2, Ordering::SeqCst);
    assert_eq!(answer(&mut second).0, 200);
    assert_eq!(answer(&mut ann), (200, number, "ann".to_owned()));
}

/// A column of `show stat` for a server of `l`.
fn column(control: &Path, server: &str, name: &str) -> String {
    let text = common::watch::ask(control, "show stat");
    let mut rows = text.lines().map(|row| row.trim_start_matches("# ").split(',').collect::<Vec<_>>());
    let at = rows.next().unwrap().iter().position(|own| *own == name).unwrap();
    rows.find(|row| row.starts_with(&["l", server])).unwrap()[at].to_owned()
}

/// A client keeps an authenticated connection to each of several backends.
#[test]
fn a_client_is_known_to_several_servers() {
    let server = Remembering::new();
    let own = server.address;
    let proxy = Proxy::start(
        1,
        &format!(
            " use_backend %[path,regsub(^/,)]\nbackend one\n server s {own}\nbackend two\n server s \
                {own}\nbackend three\n server s {own}"
        ),
    );
    let mut ann = connect(proxy.address);
    let numbers = ["/one", "/two", "/three"].map(|path| ask(&mut ann, path, "Authorization: NTLM ann\r\n").1);
    for _ in 0..2 {
        assert_eq!(["/one", "/two", "/three"].map(|path| ask(&mut ann, path, "").1), numbers);
    }
}

/// A session keeps few private connections, whatever `max-session-srv-conns` says; the least recently used
/// one closes.
#[test]
fn a_session_keeps_few_authenticated_connections() {
    const MOST: usize = 5;
    let server = Remembering::new();
    let backends: String =
        (0..MOST + 3).map(|n| format!("backend b{n}\n server s {}\n", server.address)).collect();
    let proxy =
        Proxy::start(1, &format!(" max-session-srv-conns 100\n use_backend %[path,regsub(^/,)]\n{backends}"));
    let mut ann = connect(proxy.address);
    for n in 0..MOST + 3 {
        assert_eq!(
            ask(&mut ann, &format!("/b{n}"), "Authorization: NTLM ann\r\n"),
            (200, n + 1, "ann".to_owned())
        );
        until(|| server.open.load(Ordering::SeqCst) == (n + 1).min(MOST));
    }
    // The last ones are kept, the first is closed.
    assert_eq!(ask(&mut ann, "/b3", ""), (200, 4, "ann".to_owned()));
    assert_eq!(ask(&mut ann, "/b0", ""), (200, MOST + 4, "-".to_owned()));
}

/// `max-session-srv-conns 0`: private connections are neither kept nor shared.
#[test]
fn nobody_gets_what_a_session_may_not_keep() {
    let server = Remembering::new();
    let proxy = Proxy::start(
        1,
        &format!(
            " http-reuse always\n max-session-srv-conns 0\n server s {} pool-purge-delay 60s",
            server.address
        ),
    );
    let mut ann = connect(proxy.address);
    assert_eq!(ask(&mut ann, "/", "Authorization: NTLM ann\r\n"), (200, 1, "ann".to_owned()));
    until(|| server.open.load(Ordering::SeqCst) == 0);
    nobody_else_is("ann", proxy.address, "max-session-srv-conns 0");
}

#[test]
fn an_authenticated_connection_is_not_passed_to_the_next_generation() {
    let server = Remembering::new();
    let proxy = Proxy::start(2, &format!(" http-reuse always\n server s {}", server.address));
    let mut ann = connect(proxy.address);
    assert_eq!(ask(&mut ann, "/", "Authorization: NTLM ann\r\n").2, "ann");
    let said = common::watch::ask(&proxy.control(), "reload");
    assert!(said.contains("Reloaded: generation"), "{said}");
    nobody_else_is("ann", proxy.address, "after a reload");
}

/// The same over HTTP/2, where a reload passes on connections that nobody has authenticated.
#[test]
fn an_authenticated_connection_of_http_2_is_not_passed_to_the_next_generation() {
    for fields in ["", "Authorization: NTLM ann\r\n", "X-Asks: Negotiate\r\n"] {
        let (waiting, release) = (Arc::default(), Arc::new(Notify::new()));
        let server = numbers(&waiting, &release);
        let proxy = Proxy::start(1, &format!(" http-reuse always\n server s {server} proto h2"));
        let mut ann = connect(proxy.address);
        let own = ask(&mut ann, "/", fields).1;
        let said = common::watch::ask(&proxy.control(), "reload");
        assert!(said.contains("Reloaded: generation"), "{said}");
        let shared = (0..4).any(|_| ask(&mut connect(proxy.address), "/", "").1 == own);
        assert_eq!(shared, fields.is_empty(), "{fields:?}");
        drop(ann);
    }
}

/// `check-reuse-pool`: a check leaves its connection to clients only if it is not authenticated.
#[test]
fn a_connection_that_a_check_authenticated_serves_no_client() {
    let server = Remembering::new();
    let proxy = Proxy::start(
        1,
        &format!(
            " http-reuse always\n option httpchk\n http-check send meth GET uri / ver HTTP/1.1 hdr Host a \
                hdr Authorization \"NTLM checker\"\n \
             server s {} check check-reuse-pool init-state fully-down rise 1 inter 60s fastinter 100ms \
             downinter 100ms",
            server.address
        ),
    );
    let control = proxy.control();
    until(|| column(&control, "s", "status") == "UP");
    nobody_else_is("checker", proxy.address, "check-reuse-pool");
}

/// An HTTP/2 origin without authentication: responds with the number of the connection, to `/wait` once
/// `release` is notified, and with `X-Asks` as a challenge.
fn numbers(waiting: &Arc<AtomicUsize>, release: &Arc<Notify>) -> SocketAddr {
    let (waiting, release) = (waiting.clone(), release.clone());
    common::h2::serve(move |stream, number| {
        let (waiting, release) = (waiting.clone(), release.clone());
        async move {
            let Ok(mut connection) = h2::server::handshake(stream).await else { return };
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                let (waiting, release) = (waiting.clone(), release.clone());
                tokio::task::spawn_local(async move {
                    if request.uri().path() == "/wait" {
                        waiting.fetch_add(1, Ordering::SeqCst);
                        release.notified().await;
                    }
                    let text = format!("{number}:-");
                    let mut response = http::Response::builder().header("content-length", text.len());
                    if let Some(asks) = request.headers().get("x-asks") {
                        response = response.status(401).header("www-authenticate", asks);
                    }
                    let response = response.body(()).unwrap();
                    // The client may have closed.
                    if let Ok(mut out) = respond.send_response(response, false) {
                        let _ = out.send_data(Bytes::from(text), true);
                    }
                });
            }
        }
    })
}

/// An HTTP/2 connection to a server has streams of several clients, so after an authentication it takes no
/// further stream, and those that it has end well.
#[test]
fn a_connection_of_http_2_that_a_client_authenticated_serves_nobody_else() {
    for mode in ["safe", "aggressive", "always"] {
        for (fields, status) in [
            ("Authorization: NTLM ann\r\n", 200),
            ("X-Asks: Negotiate\r\n", 401),
            ("X-Asks: Basic realm=a, NTLM\r\n", 401),
        ] {
            let what = format!("http-reuse {mode}, {fields:?}");
            let (waiting, release) = (Arc::default(), Arc::new(Notify::new()));
            let server = numbers(&waiting, &release);
            let proxy = Proxy::start(1, &format!(" http-reuse {mode}\n server s {server} proto h2"));
            let (mut ann, mut other) = (connect(proxy.address), connect(proxy.address));
            // By now each mode shares it.
            let own = [(); 4].map(|()| ask(&mut ann, "/", "").1)[3];
            send(&mut other, "/wait", "");
            until(|| waiting.load(Ordering::SeqCst) == 1);
            let (said, number, _) = ask(&mut ann, "/", fields);
            assert_eq!((said, number), (status, own), "{what}");
            for _ in 0..3 {
                let mut third = connect(proxy.address);
                for _ in 0..3 {
                    let (status, number, _) = ask(&mut third, "/", "");
                    assert_eq!(status, 200, "{what}");
                    assert_ne!(number, own, "{what}");
                }
            }
            release.notify_one();
            assert_eq!(answer(&mut other), (200, own, "-".to_owned()), "{what}");
        }
    }
}

/// Number and user of the server's connection, for a stream of HTTP/2.
async fn answer_over_2(client: &h2::client::SendRequest<Bytes>, fields: &[(&str, &str)]) -> (usize, String) {
    let mut client = client.clone().ready().await.unwrap();
    let request = http::Request::get("http://a/");
    let request = fields.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let (response, _) = client.send_request(request.body(()).unwrap(), true).unwrap();
    let mut body = response.await.unwrap().into_body();
    let mut text = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.unwrap();
        body.flow_control().release_capacity(data.len()).unwrap();
        text.extend_from_slice(&data);
    }
    let text = String::from_utf8(text).unwrap();
    let (number, user) = text.split_once(':').unwrap();
    (number.parse().unwrap(), user.to_owned())
}

/// The streams of an HTTP/2 client share the connection that the client has authenticated, and other clients
/// do not use it.
#[test]
fn what_a_client_of_http_2_authenticated_serves_this_client_alone() {
    for mode in MODES {
        for fields in [[("authorization", "NTLM ann")], [("x-asks", "WWW-Authenticate: Negotiate")]] {
            let what = format!("http-reuse {mode}, {fields:?}");
            let server = Remembering::new();
            let proxy = Proxy::start(1, &format!(" http-reuse {mode}\n server s {}", server.address));
            let address = proxy.address;
            common::h2::block(async {
                let (ann, other) = (common::h2::client(address).await, common::h2::client(address).await);
                let (own, user) = answer_over_2(&ann, &fields).await;
                assert_eq!(answer_over_2(&ann, &[]).await, (own, user.clone()), "{what}");
                for _ in 0..4 {
                    let (number, user) = answer_over_2(&other, &[]).await;
                    assert_ne!(number, own, "{what}");
                    assert_eq!(user, "-", "{what}");
                }
                nobody_else_is("ann", address, &what);
                assert_eq!(answer_over_2(&ann, &[]).await, (own, user), "{what}");
                // While one of her streams uses the connection, her next stream gets another one, which is
                // not authenticated.
                let before = answer_over_2(&ann, &[("authorization", "NTLM ann")]).await.0;
                let same = ann.clone();
                let second = tokio::task::spawn_local(async move { answer_over_2(&same, &[]).await });
                let (first, second) = (answer_over_2(&ann, &[]).await, second.await.unwrap());
                assert!([first.0, second.0].contains(&before), "{what}: {first:?} {second:?}");
            });
        }
    }
}

/// The same if both sides speak HTTP/2.
#[test]
fn a_connection_of_http_2_that_a_client_of_http_2_authenticated_serves_nobody_else() {
    for mode in ["safe", "aggressive", "always"] {
        for fields in [[("authorization", "NTLM ann")], [("x-asks", "Negotiate")]] {
            let what = format!("http-reuse {mode}, {fields:?}");
            let (waiting, release) = (Arc::default(), Arc::new(Notify::new()));
            let server = numbers(&waiting, &release);
            let proxy = Proxy::start(1, &format!(" http-reuse {mode}\n server s {server} proto h2"));
            let address = proxy.address;
            common::h2::block(async {
                let (ann, other) = (common::h2::client(address).await, common::h2::client(address).await);
                let mut own = 0;
                for _ in 0..4 {
                    own = answer_over_2(&ann, &[]).await.0; // by now each mode shares it
                }
                assert_eq!(answer_over_2(&other, &[]).await.0, own, "{what}");
                assert_eq!(answer_over_2(&ann, &fields).await.0, own, "{what}");
                for _ in 0..4 {
                    assert_ne!(answer_over_2(&other, &[]).await.0, own, "{what}");
                    assert_ne!(ask(&mut connect(address), "/", "").1, own, "{what}");
                }
            });
        }
    }
}
