//! HTTP/2 clients, end to end: the crate `h2` sends requests, and an origin of the test responds.

use crate::common;

use bytes::Bytes;
use common::h2::{block, client, serve};
use common::watch::log_lines;
use common::{DEFAULTS, Folder, Manylane, ONE_LANE, TIMEOUT, check, connect, fd, listener, origin, read_all};
use h2::client::SendRequest;
use http::{HeaderMap, Request, StatusCode, Version};
use nix::sys::signal::Signal;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};

/// A body that no window takes in one piece.
const LARGE: usize = 1 << 20;

/// A response.
#[derive(Debug)]
struct Answer {
    status: StatusCode,
    fields: HeaderMap,
    body: Vec<u8>,
    trailers: Option<HeaderMap>,
}

impl Answer {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    async fn of(response: http::Response<h2::RecvStream>) -> Result<Self, h2::Error> {
        assert_eq!(response.version(), Version::HTTP_2);
        let (head, mut stream) = response.into_parts();
        let mut body = Vec::new();
        while let Some(piece) = stream.data().await {
            let piece = piece?;
            body.extend_from_slice(&piece);
            stream.flow_control().release_capacity(piece.len()).unwrap();
        }
        let trailers = stream.trailers().await?;
        Ok(Self { status: head.status, fields: head.headers, body, trailers })
    }
}

/// Requests `path` and waits for the whole response.
async fn get(client: &SendRequest<Bytes>, path: &str) -> Result<Answer, h2::Error> {
    let mut client = client.clone().ready().await?;
    let request = Request::get(format!("http://a.example{path}")).body(()).unwrap();
    let (response, _) = client.send_request(request, true)?;
    Answer::of(response.await?).await
}

/// Sends `body` with trailers, and waits for the whole response.
async fn post(client: &SendRequest<Bytes>, path: &str, body: Vec<u8>) -> Result<Answer, h2::Error> {
    let mut client = client.clone().ready().await?;
    let request = Request::post(format!("http://a.example{path}")).body(()).unwrap();
    let (response, mut upload) = client.send_request(request, false)?;
    let sending = async move {
        let mut body = Bytes::from(body);
        while !body.is_empty() {
            upload.reserve_capacity(body.len());
            let room = std::future::poll_fn(|context| upload.poll_capacity(context)).await.unwrap()?;
            upload.send_data(body.split_to(room.min(body.len())), false)?;
        }
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", "1".parse().unwrap());
        upload.send_trailers(trailers)
    };
    let sent = tokio::task::spawn_local(sending);
    let response = response.await?;
    sent.await.unwrap()?;
    Answer::of(response).await
}

/// A request at the origin: head, body and trailers.
fn request(stream: &mut BufReader<TcpStream>) -> Option<(String, Vec<u8>, String)> {
    fn lines(stream: &mut BufReader<TcpStream>) -> Option<String> {
        let mut text = String::new();
        while stream.read_line(&mut text).ok()? > 0 {
            if text == "\r\n" || text.ends_with("\r\n\r\n") {
                return Some(text);
            }
        }
        None
    }
    let head = lines(stream)?;
    let mut body = Vec::new();
    if head.contains("transfer-encoding: chunked\r\n") {
        loop {
            let mut size = String::new();
            stream.read_line(&mut size).ok()?;
            let size = usize::from_str_radix(size.trim(), 16).ok()?;
            if size == 0 {
                return Some((head, body, lines(stream)?));
            }
            let mut chunk = vec![0; size + 2];
            stream.read_exact(&mut chunk).ok()?;
            body.extend_from_slice(&chunk[..size]);
        }
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    body.resize(length.map_or(0, |length| length.parse().unwrap()), 0);
    stream.read_exact(&mut body).ok()?;
    Some((head, body, String::new()))
}

/// An HTTP/1 origin that responds by the path.
fn server() -> SocketAddr {
    origin(|stream| {
        let mut out = stream.try_clone().unwrap();
        let mut stream = BufReader::new(stream);
        while let Some((head, body, trailers)) = request(&mut stream) {
            let path = head.split(' ').nth(1).unwrap();
            let sized = |text: &[u8]| {
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", text.len());
                [head.as_bytes(), text].concat()
            };
            let answer = match path {
                "/large" => sized(&vec![b'x'; LARGE]),
                "/echo" => sized(&body),
                "/trailers" => {
                    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n";
                    format!("{chunked}x-length: {}\r\n{trailers}", body.len()).into_bytes()
                }
                "/until-end" => {
                    let _ = out.write_all(b"HTTP/1.1 200 OK\r\n\r\nall of it");
                    return;
                }
                "/hints" => {
                    let _ = out.write_all(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
                    sized(b"hinted")
                }
                "/cut" => {
                    let _ = out.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nbegun");
                    return;
                }
                "/none" => b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(),
                _ if head.starts_with("HEAD") => b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n".to_vec(),
                _ => sized(head.as_bytes()),
            };
            if out.write_all(&answer).is_err() {
                return;
            }
        }
    })
}

/// Starts the program in front of an origin, with lines of the frontend and of `global`. Returns its address
/// and its log lines.
fn start(frontend: &str, server: SocketAddr) -> (Manylane, SocketAddr, mpsc::Receiver<String>) {
    let (web, address) = listener();
    let (log, lines) = log_lines();
    let config = format!(
        "global\n log {log} local0\n{DEFAULTS} mode http\n log global\n option httplog\nfrontend f\n \
         bind {}\n\
         {frontend}\n default_backend b\nbackend b\n server s {server}\n",
        fd(&web)
    );
    (Manylane::start_ready(&config), address, lines)
}

/// The next line of a request.
fn line(lines: &mpsc::Receiver<String>) -> String {
    loop {
        let line = lines.recv_timeout(TIMEOUT).unwrap();
        if line.contains('"') {
            return line;
        }
    }
}

/// Runs curl; returns its output.
fn curl(arguments: &[&str]) -> String {
    let fixed = ["-sS", "-m", "30", "-v", "--http2-prior-knowledge"];
    let output = Command::new("curl").args(fixed).args(arguments).output().unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[test]
fn messages_go_to_a_server_of_http_1_and_back() {
    let (_program, address, lines) = start("", server());
    block(async {
        let client = client(address).await;
        let plain = get(&client, "/plain?a=b").await.unwrap();
        assert_eq!(plain.status, 200);
        let expected = ["GET /plain?a=b HTTP/1.1", "host: a.example", "", ""].join("\r\n");
        assert_eq!(plain.text(), expected);
        assert_eq!(plain.fields["content-length"], plain.body.len().to_string());

        let large = get(&client, "/large").await.unwrap();
        assert_eq!(large.body, vec![b'x'; LARGE]);
        assert_eq!(get(&client, "/until-end").await.unwrap().text(), "all of it");
        let none = get(&client, "/none").await.unwrap();
        assert!(none.status == 204 && none.body.is_empty());

        let body: Vec<u8> = (0..LARGE).map(|n| (n % 251) as u8).collect();
        assert_eq!(post(&client, "/echo", body.clone()).await.unwrap().body, body);
        let answer = post(&client, "/trailers", body).await.unwrap();
        assert_eq!(answer.text(), "hello");
        let trailers = answer.trailers.unwrap();
        assert_eq!(trailers["x-length"], LARGE.to_string());
        assert_eq!(trailers["x-sum"], "1");

        let mut asking = client.clone().ready().await.unwrap();
        let head = Request::head("http://a.example/head").body(()).unwrap();
        let (response, _) = asking.send_request(head, true).unwrap();
        let answer = Answer::of(response.await.unwrap()).await.unwrap();
        assert!(answer.body.is_empty() && answer.fields["content-length"] == "7");
    });
    let line = line(&lines);
    assert!(line.contains(" f b/s ") && line.contains(" 200 "), "{line}");
    assert!(line.contains("\"GET http://a.example/plain?a=b HTTP/2.0\""), "{line}");
}

#[test]
fn many_streams_are_served_at_a_time() {
    let count = Arc::new(AtomicUsize::new(0));
    let own = count.clone();
    const STREAMS: usize = 50;
    let all = Arc::new(Barrier::new(STREAMS));
    let server = origin(move |stream| {
        let mut out = stream.try_clone().unwrap();
        let mut stream = BufReader::new(stream);
        while request(&mut stream).is_some() {
            own.fetch_add(1, Ordering::SeqCst);
            all.wait(); // each waits for all others
            if out.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                return;
            }
        }
    });
    let (_program, address, _lines) = start("", server);
    block(async {
        let client = client(address).await;
        let mut requests = tokio::task::JoinSet::new();
        for n in 0..2 * STREAMS {
            let client = client.clone();
            requests.spawn_local(async move { get(&client, &format!("/{n}")).await.unwrap().body });
        }
        while let Some(body) = requests.join_next().await {
            assert_eq!(body.unwrap(), b"ok");
        }
    });
    assert_eq!(count.load(Ordering::SeqCst), 2 * STREAMS);
}

#[test]
fn answers_of_the_programs_own_are_whole() {
    let rules = [
        "stats uri /stats",
        "http-request deny if { path /deny }",
        "http-request redirect location /x if { path /r }",
        "http-request return status 200 content-type a/b lf-string \"%[req.ver] %[fc_http_major] %HV %HU\" \
         if { path /v }",
        "http-request reject if { path /reject }",
        "http-request wait-for-body time 10s if { path /wait }",
        "http-request return status 200 content-type a/b lf-string \"%[req.body_len]\" if { path /wait }",
        "errorfile 429 /dev/null",
        "http-request deny deny_status 429 if { path /nothing }",
    ];
    let rules: String = rules.iter().map(|rule| format!(" {rule}\n")).collect();
    let (_program, address, lines) = start(&rules, server());
    block(async {
        let client = client(address).await;
        let denied = get(&client, "/deny").await.unwrap();
        assert!(denied.status == 403 && denied.text().contains("403"));
        assert_eq!(denied.fields["content-length"], denied.body.len().to_string());
        let redirected = get(&client, "/r").await.unwrap();
        assert!(redirected.status == 302 && redirected.fields["location"] == "/x");
        let version = get(&client, "/v").await.unwrap();
        assert_eq!(version.text(), "2.0 2 HTTP/2.0 http://a.example/v");
        assert!(get(&client, "/stats").await.unwrap().text().contains("</html>"));
        assert_eq!(post(&client, "/wait", vec![0; 10_000]).await.unwrap().text(), "10000");
        // A request without a response may be retried, and other streams continue.
        let error = get(&client, "/nothing").await.unwrap_err();
        assert_eq!(error.reason(), Some(h2::Reason::REFUSED_STREAM));
        assert_eq!(get(&client, "/v").await.unwrap().status, 200);
    });
    assert!(line(&lines).contains(" f/<NOSRV> "));
    let rejected = curl(&[&format!("http://{address}/reject")]);
    assert!(rejected.contains("GOAWAY, error=11,"), "{rejected}"); // ENHANCE_YOUR_CALM
}

#[test]
fn a_head_that_is_too_large_is_answered() {
    let (_program, address, _lines) = start("", server());
    block(async {
        let client = client(address).await;
        let mut asking = client.clone().ready().await.unwrap();
        let mut large = Request::get("http://a.example/").header("x-large", "a".repeat(15_000));
        large = large.header("x-more", "b".repeat(2_000));
        let (response, _) = asking.send_request(large.body(()).unwrap(), true).unwrap();
        assert_eq!(response.await.unwrap().status(), 431);
        assert_eq!(get(&client, "/").await.unwrap().status, 200);
    });
}

#[test]
fn a_server_that_fails_in_mid_response_ends_its_stream_and_no_other() {
    let (_program, address, lines) = start("", server());
    block(async {
        let client = client(address).await;
        let large = tokio::task::spawn_local({
            let client = client.clone();
            async move { get(&client, "/large").await.unwrap().body.len() }
        });
        let error = get(&client, "/cut").await.unwrap_err();
        assert_eq!(error.reason(), Some(h2::Reason::CANCEL));
        assert_eq!(large.await.unwrap(), LARGE);
    });
    let both = [line(&lines), line(&lines)];
    assert!(both.iter().any(|line| line.contains("/cut") && line.contains(" SD")), "{both:?}");
}

#[test]
fn a_client_that_resets_a_stream_ends_its_request_and_no_other() {
    let (gone, is_gone) = mpsc::channel();
    let (came, has_come) = mpsc::channel();
    let server = origin(move |stream| {
        let mut out = stream.try_clone().unwrap();
        let mut stream = BufReader::new(stream);
        while let Some((head, ..)) = request(&mut stream) {
            if head.contains(" /hang ") {
                came.send(()).unwrap();
                let _ = stream.read(&mut [0]);
                gone.send(()).unwrap();
                return;
            }
            let _ = out.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let (_program, address, lines) = start("", server);
    block(async {
        let client = client(address).await;
        let mut asking = client.clone().ready().await.unwrap();
        let hang = Request::get("http://a.example/hang").body(()).unwrap();
        let (response, mut stream) = asking.send_request(hang, true).unwrap();
        assert_eq!(get(&client, "/").await.unwrap().text(), "ok");
        tokio::task::spawn_blocking(move || has_come.recv_timeout(TIMEOUT).unwrap()).await.unwrap();
        stream.send_reset(h2::Reason::CANCEL);
        drop(response);
        assert_eq!(get(&client, "/").await.unwrap().text(), "ok");
        tokio::task::spawn_blocking(move || is_gone.recv_timeout(TIMEOUT).unwrap()).await.unwrap();
    });
    let all = [line(&lines), line(&lines), line(&lines)];
    assert!(all.iter().any(|line| line.contains("/hang") && line.contains(" C")), "{all:?}");
}

/// They would pile up: neither `maxconn` nor the limit of streams bounds requests whose clients are gone.
#[test]
fn requests_that_rules_hold_end_with_their_clients() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let name_server = silent.local_addr().unwrap();
    let server = origin(|stream| {
        let mut out = stream.try_clone().unwrap();
        let mut stream = BufReader::new(stream);
        while request(&mut stream).is_some() {
            let _ = out.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab");
        }
    });
    for (list, action) in [
        ("http-request", "pause 1h"),
        ("http-request", "do-resolve(txn.a,r,ipv4) str(a.example)"),
        ("tcp-request content", "do-resolve(txn.a,r,ipv4) str(a.example)"),
        ("http-response", "pause 1h"),
        ("http-response", "wait-for-body time 1h"),
    ] {
        let (web, address) = listener();
        let (log, lines) = log_lines();
        let _program = Manylane::start_ready(&format!(
            "{DEFAULTS} mode http\n log {log} local0\n option httplog\nresolvers r\n nameserver n \
             {name_server}\n timeout retry 300s\nlisten l\n bind {}\n {list} do-log\n {list} {action}\n \
             server s {server}\n",
            fd(&web)
        ));
        for is_reset in [true, false] {
            let ended = block(async {
                let next = async || loop {
                    match lines.try_recv() {
                        Ok(line) if line.contains('"') => return line,
                        _ => tokio::task::yield_now().await,
                    }
                };
                let mut client = client(address).await.ready().await.unwrap();
                let ask = Request::get("http://a.example/").body(()).unwrap();
                let (_response, mut stream) = client.send_request(ask, true).unwrap();
                next().await; // the rule is next
                if !is_reset {
                    return None; // without its connection
                }
                stream.send_reset(h2::Reason::CANCEL);
                Some(next().await)
            });
            let ended = ended.unwrap_or_else(|| line(&lines));
            assert!(ended.contains(" C"), "{list} {action}: {ended}");
        }
    }
}

#[test]
fn interim_responses_and_expectations_go_both_ways() {
    let (_program, address, _lines) =
        start(" http-request wait-for-body time 10s if { path /waits }", server());
    let hinted = curl(&[&format!("http://{address}/hints")]);
    assert!(hinted.contains("< HTTP/2 103") && hinted.contains("< link: </a>"), "{hinted}");
    assert!(hinted.contains("< HTTP/2 200") && hinted.contains("hinted"), "{hinted}");
    let body = "x".repeat(5_000);
    let expects = curl(&["-H", "Expect: 100-continue", "-d", &body, &format!("http://{address}/waits")]);
    assert!(expects.contains("< HTTP/2 100") && expects.contains("< HTTP/2 200"), "{expects}");
}

#[test]
fn the_preface_changes_the_protocol_where_it_may() {
    let server = server();
    let (plain, at) = listener();
    let (alone, alone_at) = listener();
    let (never, never_at) = listener();
    let (old, old_at) = listener();
    let _program = Manylane::start_ready(&format!(
        "{DEFAULTS} mode http\nfrontend f\n bind {}\n bind {} proto h2\n bind {} proto h1\n \
         default_backend b\nfrontend n\n bind {}\n option disable-h2-upgrade\n default_backend b\n\
         backend b\n server s {server}\n",
        fd(&plain),
        fd(&alone),
        fd(&old),
        fd(&never)
    ));
    // HTTP/1 and HTTP/2 side by side.
    let ask = |address| {
        let mut stream = connect(address);
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        read_all(&mut stream)
    };
    assert!(ask(at).starts_with("HTTP/1.1 200 OK"));
    block(async {
        for address in [at, alone_at] {
            assert_eq!(get(&client(address).await, "/").await.unwrap().status, 200);
        }
    });
    // The preface, cut at any position.
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    for cut in [1, 3, 16, 18, 20, 24] {
        let mut stream = connect(at);
        stream.set_nodelay(true).unwrap();
        stream.write_all(&preface[..cut]).unwrap();
        stream.write_all(&preface[cut..]).unwrap();
        let mut frame = [0; 4];
        stream.read_exact(&mut frame).unwrap();
        assert_eq!(frame[3], 4, "settings come first");
    }
    for address in [never_at, old_at] {
        let mut stream = connect(address);
        stream.write_all(preface).unwrap();
        assert!(read_all(&mut stream).starts_with("HTTP/1.1 405 "), "it is no request of HTTP/1");
    }
    assert!(ask(old_at).starts_with("HTTP/1.1 200 OK"));
    let answer = ask(alone_at);
    assert!(!answer.contains("HTTP/1"), "{answer:?}");
}

#[test]
fn http_2_is_refused_where_it_cannot_be_spoken() {
    let output =
        check(&format!("{DEFAULTS}listen l\n mode tcp\n bind :0 proto h2\n server s 127.0.0.1:1\n"), &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("'proto h2' : HTTP/2 is spoken in 'mode http' only"),
        "{said}"
    );
}

#[test]
fn a_tunnel_carries_bytes_both_ways() {
    let server = origin(|mut stream| {
        let mut head = [0; 1024];
        let length = stream.read(&mut head).unwrap();
        assert!(head[..length].starts_with(b"CONNECT b.example:443 HTTP/1.1\r\n"));
        stream.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").unwrap();
        let mut copy = stream.try_clone().unwrap();
        let _ = std::io::copy(&mut stream, &mut copy);
        let _ = copy.shutdown(std::net::Shutdown::Write);
    });
    let (_program, address, _lines) = start("", server);
    block(async {
        let mut asking = client(address).await.ready().await.unwrap();
        let connect = Request::connect("b.example:443").body(()).unwrap();
        let (response, mut up) = asking.send_request(connect, false).unwrap();
        let response = response.await.unwrap();
        assert_eq!(response.status(), 200);
        let mut down = response.into_body();
        for word in ["one", "two"] {
            up.send_data(Bytes::from(word), false).unwrap();
            assert_eq!(down.data().await.unwrap().unwrap(), word);
            down.flow_control().release_capacity(word.len()).unwrap();
        }
        up.send_data(Bytes::from("end"), true).unwrap();
        assert_eq!(down.data().await.unwrap().unwrap(), "end");
        while let Some(data) = down.data().await {
            assert_eq!(data.unwrap(), "");
        }
    });
}

/// Streams that are open when a generation ends get their responses, and the client is told to begin no more
/// streams.
#[test]
fn streams_under_way_outlive_a_reload_and_a_soft_stop() {
    const STREAMS: usize = 40;
    let (came, has_come) = mpsc::channel();
    let go = Arc::new((std::sync::Mutex::new(false), std::sync::Condvar::new()));
    let own = go.clone();
    let server = origin(move |stream| {
        let mut out = stream.try_clone().unwrap();
        let mut stream = BufReader::new(stream);
        while request(&mut stream).is_some() {
            let _ = came.send(());
            let mut goes = own.0.lock().unwrap();
            while !*goes {
                goes = own.1.wait(goes).unwrap();
            }
            drop(goes);
            if out.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                return;
            }
        }
    });
    let (web, address) = listener();
    let folder = Folder::new();
    let socket = folder.0.join("control");
    let config = format!(
        "global\n stats socket {} level admin\n{DEFAULTS} mode http\nlisten l\n bind {}\n \
         server s {server}\n",
        socket.display(),
        fd(&web)
    );
    let mut program = Manylane::start_ready(&config);
    for stops in [false, true] {
        *go.0.lock().unwrap() = false;
        block(async {
            let client = client(address).await;
            let mut requests = tokio::task::JoinSet::new();
            for _ in 0..STREAMS {
                let client = client.clone();
                requests.spawn_local(async move { get(&client, "/").await.unwrap().body });
            }
            let mut left = STREAMS;
            while left > 0 {
                match has_come.try_recv() {
                    Ok(()) => left -= 1,
                    Err(_) => tokio::task::yield_now().await,
                }
            }
            if stops {
                program.signal(Signal::SIGUSR1);
            } else {
                let mut control = std::os::unix::net::UnixStream::connect(&socket).unwrap();
                control.write_all(b"reload\n").unwrap();
                let mut answer = String::new();
                control.read_to_string(&mut answer).unwrap();
                assert!(answer.contains("Reloaded"), "{answer}");
            }
            *go.0.lock().unwrap() = true;
            go.1.notify_all();
            while let Some(body) = requests.join_next().await {
                assert_eq!(body.unwrap(), b"ok");
            }
            // The connection ends after them; the next connection goes to the new generation.
            while get(&client, "/").await.is_ok() {}
        });
    }
    assert!(program.wait().success());
}

fn h2spec() -> Option<PathBuf> {
    let own = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/peers/h2spec"));
    if own.exists() {
        return Some(own);
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join("h2spec")).find(|program| program.exists())
}

#[test]
fn h2spec_finds_nothing() {
    let Some(tool) = h2spec() else {
        return println!("NOT SHOWN HERE: there is no h2spec: 'scripts/setup test' installs what is missing");
    };
    let (web, address) = listener();
    let _program = Manylane::start_ready(&format!(
        "{DEFAULTS} mode http\nlisten l\n bind {} proto h2\n server s {}\n",
        fd(&web),
        server()
    ));
    let output = Command::new(tool)
        .args(["--strict", "--timeout", "10", "--host", "127.0.0.1", "--port", &address.port().to_string()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let summary = said.lines().find(|line| line.contains("tests,")).unwrap_or("").to_owned();
    assert!(output.status.success(), "{said}");
    assert!(summary.contains(" 0 failed") && summary.starts_with("146 tests"), "{said}");
}

/// Requests at an HTTP/2 origin, with the numbers of their connections.
type Requests = Arc<Mutex<Vec<(usize, String)>>>;

/// An HTTP/2 origin that responds by the path.
fn server_of_2() -> (SocketAddr, Requests) {
    let observed = Requests::default();
    let own = observed.clone();
    (serve(move |stream, number| connection(stream, number, own.clone())), observed)
}

async fn connection(stream: tokio::net::TcpStream, number: usize, observed: Requests) {
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        let path = request.uri().path().to_owned();
        observed.lock().unwrap().push((number, path.clone()));
        if path == "/leave" {
            connection.graceful_shutdown();
        }
        let first = observed.lock().unwrap().iter().filter(|(_, observed)| *observed == path).count() == 1;
        tokio::task::spawn_local(respond_to(request, respond, first));
    }
}

async fn respond_to(
    request: Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
    first: bool,
) -> Option<()> {
    let (head, mut upload) = request.into_parts();
    if head.uri.path() == "/refuse" && first {
        respond.send_reset(h2::Reason::REFUSED_STREAM);
        return None;
    }
    let mut body = Vec::new();
    while let Some(piece) = upload.data().await {
        let piece = piece.ok()?;
        body.extend_from_slice(&piece);
        upload.flow_control().release_capacity(piece.len()).ok()?;
    }
    let trailers = upload.trailers().await.ok()?;
    let response = http::Response::builder().header("x-method", head.method.as_str());
    let (text, length) = match head.uri.path() {
        "/large" => (vec![b'x'; LARGE], true),
        "/echo" => (body, false),
        "/cut" => (vec![b'x'; LARGE], false), // a part; the rest never comes
        _ => (format!("{} {} {:?}", head.method, head.uri, head.headers).into_bytes(), true),
    };
    let response = if length { response.header("content-length", text.len()) } else { response };
    let bodyless = head.method == http::Method::HEAD;
    let mut out = respond.send_response(response.body(()).unwrap(), bodyless).ok()?;
    if bodyless {
        return None;
    }
    let mut text = Bytes::from(text);
    while !text.is_empty() {
        out.reserve_capacity(text.len());
        let room = std::future::poll_fn(|context| out.poll_capacity(context)).await?.ok()?;
        out.send_data(text.split_to(room.min(text.len())), false).ok()?;
    }
    match (head.uri.path(), trailers) {
        ("/cut", _) => out.send_reset(h2::Reason::INTERNAL_ERROR),
        (_, Some(trailers)) => out.send_trailers(trailers).ok()?,
        (_, None) => out.send_data(Bytes::new(), true).ok()?,
    }
    Some(())
}

/// Starts the program in front of such an origin, with options of the server.
fn start_before_2(backend: &str, options: &str) -> (Manylane, SocketAddr, Requests) {
    let (server, observed) = server_of_2();
    let (web, address) = listener();
    let program = Manylane::start_ready(&format!(
        "{}\n mode http\nfrontend f\n bind {}\n default_backend b\nbackend b\n{backend} \
         server s {server} proto h2 {options}\n",
        ONE_LANE,
        fd(&web)
    ));
    (program, address, observed)
}

/// Numbers of the connections with requests.
fn connections(observed: &Requests) -> Vec<usize> {
    let mut numbers: Vec<usize> = observed.lock().unwrap().iter().map(|(number, _)| *number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

#[test]
fn messages_go_to_a_server_of_http_2_and_back() {
    let (_program, address, observed) = start_before_2(" http-reuse always\n", "");
    block(async {
        let client = client(address).await;
        let plain = get(&client, "/plain?a=b").await.unwrap();
        assert!(plain.text().starts_with("GET http://a.example/plain?a=b "), "{}", plain.text());
        assert_eq!(get(&client, "/large").await.unwrap().body, vec![b'x'; LARGE]);
        let body: Vec<u8> = (0..LARGE).map(|n| (n % 251) as u8).collect();
        let echoed = post(&client, "/echo", body.clone()).await.unwrap();
        assert_eq!(echoed.body, body);
        assert_eq!(echoed.trailers.unwrap()["x-sum"], "1");
    });
    // The same with an HTTP/1 client.
    let ask = |request: &str| {
        let mut stream = connect(address);
        stream.write_all(request.as_bytes()).unwrap();
        read_all(&mut stream)
    };
    let head = "HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n";
    let plain = ask(&format!("GET /plain {head}\r\n"));
    assert!(plain.starts_with("HTTP/1.1 200 OK\r\n") && plain.contains("\r\nx-method: GET\r\n"), "{plain}");
    assert!(plain.contains("\r\n\r\nGET http://a.example/plain "), "{plain}");
    let chunked = "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\nX-Sum: 1\r\n\r\n";
    let echoed = ask(&format!("POST /echo {head}{chunked}"));
    assert!(echoed.contains("transfer-encoding: chunked\r\n"), "{echoed}");
    assert!(echoed.ends_with("\r\n0\r\nx-sum: 1\r\n\r\n") && echoed.contains("hello"), "{echoed}");
    let sized = ask(&format!("POST /echo {head}Content-Length: 5\r\n\r\nhello"));
    assert!(sized.ends_with("\r\n\r\n5\r\nhello\r\n0\r\n\r\n"), "{sized}");
    let old = ask("GET /large HTTP/1.0\r\n\r\n");
    assert!(old.ends_with(&"x".repeat(LARGE)));
    assert!(!ask(&format!("HEAD /plain {head}\r\n")).contains("GET http"));
    assert_eq!(connections(&observed), [1], "one connection does for all");
}

/// A connection that no other client may use serves its session, and ends with it.
#[test]
fn a_session_keeps_its_private_connection_to_a_server_of_http_2() {
    for (backend, options) in [(" http-reuse never\n", ""), (" http-reuse always\n", "send-proxy")] {
        let (sender, closed) = mpsc::channel();
        let observed = Requests::default();
        let own = observed.clone();
        let server = serve(move |mut stream, number| {
            let (own, sender) = (own.clone(), sender.clone());
            async move {
                use tokio::io::AsyncReadExt;
                let mut byte = [0; 1];
                while options == "send-proxy" && byte != *b"\n" {
                    stream.read_exact(&mut byte).await.unwrap();
                }
                connection(stream, number, own).await;
                sender.send(number).unwrap();
            }
        });
        let (web, address) = listener();
        let _program = Manylane::start_ready(&format!(
            "{}\n mode http\nlisten l\n bind {}\n{backend} server s {server} proto h2 pool-purge-delay 10m \
             {options}\n",
            ONE_LANE,
            fd(&web)
        ));
        block(async {
            let client = client(address).await;
            for _ in 0..3 {
                assert_eq!(get(&client, "/plain").await.unwrap().status, 200);
            }
        });
        assert_eq!(closed.recv_timeout(TIMEOUT).unwrap(), 1, "{backend}{options}");
        let mut stream = connect(address);
        let more = "GET /plain HTTP/1.1\r\nHost: a\r\n\r\n".repeat(2);
        let last = "GET /plain HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        stream.write_all(format!("{more}{last}").as_bytes()).unwrap();
        assert_eq!(read_all(&mut stream).matches("200 OK").count(), 3);
        assert_eq!(closed.recv_timeout(TIMEOUT).unwrap(), 2, "{backend}{options}");
        let numbers: Vec<usize> = observed.lock().unwrap().iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [1, 1, 1, 2, 2, 2], "{backend}{options}");
    }
}

#[test]
fn a_stream_that_a_server_refuses_goes_elsewhere() {
    let (_program, address, observed) = start_before_2(" http-reuse always\n", "");
    block(async {
        let client = client(address).await;
        assert_eq!(get(&client, "/refuse").await.unwrap().status, 200);
    });
    assert_eq!(observed.lock().unwrap().len(), 2);
}

/// The proxy cannot repeat a request with a body. It refuses the client's stream, and the client repeats it.
#[test]
fn a_client_learns_that_a_server_refused_its_stream() {
    let counting = " http-reuse always\n stick-table type ip size 10 store http_fail_cnt\n \
        http-request track-sc0 src\n http-request return status 200 content-type text/plain lf-string \
        %[sc0_http_fail_cnt] if { path /failures }\n";
    let (_program, address, observed) = start_before_2(counting, "");
    block(async {
        let client = client(address).await;
        let refused = post(&client, "/refuse", vec![b'x'; 10]).await.unwrap_err();
        assert_eq!(refused.reason(), Some(h2::Reason::REFUSED_STREAM));
        assert_eq!(post(&client, "/refuse", vec![b'x'; 10]).await.unwrap().status, 200);
        assert_eq!(get(&client, "/failures").await.unwrap().text(), "1");
    });
    assert_eq!(observed.lock().unwrap().len(), 2);
    // HTTP/1 cannot say so.
    let (_program, address, _observed) = start_before_2(" http-reuse always\n", "");
    let mut stream = connect(address);
    let request = b"POST /refuse HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx";
    stream.write_all(request).unwrap();
    assert!(read_all(&mut stream).starts_with("HTTP/1.1 502 "));
}

#[test]
fn a_server_of_http_2_that_resets_a_stream_ends_no_other() {
    let (_program, address, _seen) = start_before_2(" http-reuse always\n", "");
    block(async {
        let client = client(address).await;
        let large = tokio::task::spawn_local({
            let client = client.clone();
            async move { get(&client, "/large").await.unwrap().body.len() }
        });
        assert!(get(&client, "/cut").await.is_err());
        assert_eq!(large.await.unwrap(), LARGE);
        assert_eq!(get(&client, "/plain").await.unwrap().status, 200);
    });
    let mut stream = connect(address);
    stream.write_all(b"GET /cut HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let cut = read_all(&mut stream);
    assert!(cut.starts_with("HTTP/1.1 200 OK") && !cut.ends_with("0\r\n\r\n"), "{cut}");
}

/// A first request, which is not repeated, shares a connection that has served two requests.
#[test]
fn first_requests_share_connections_as_http_reuse_says() {
    let head = |client: &mut TcpStream| {
        client.write_all(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let lines = BufReader::new(client).lines().map_while(Result::ok);
        assert_eq!(lines.take_while(|line| !line.is_empty()).next().unwrap(), "HTTP/1.1 200 OK");
    };
    for (mode, expected) in [("safe", [1, 2, 1, 1]), ("aggressive", [1, 2, 1, 1]), ("always", [1, 1, 1, 1])] {
        let (_program, address, observed) = start_before_2(&format!(" http-reuse {mode}\n"), "");
        let mut first = connect(address);
        head(&mut first);
        head(&mut connect(address));
        head(&mut first);
        head(&mut connect(address));
        let numbers: Vec<usize> = observed.lock().unwrap().iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, expected, "{mode}");
    }
}

#[test]
fn connections_to_servers_of_http_2_are_kept_as_configured() {
    let ask = |address, path: &'static str| block(async { get(&client(address).await, path).await.unwrap() });
    // After its first request a connection serves this many more.
    let (_program, address, observed) = start_before_2(" http-reuse always\n", "max-reuse 2");
    for _ in 0..6 {
        assert_eq!(ask(address, "/").status, 200);
    }
    let numbers: Vec<usize> = observed.lock().unwrap().iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [1, 1, 1, 2, 2, 2]);
    // Each session has its own connection, and no other session gets it.
    for (backend, options) in [(" http-reuse never\n", ""), (" http-reuse always\n", "pool-max-conn 0")] {
        let (_program, address, observed) = start_before_2(backend, options);
        for _ in 0..3 {
            assert_eq!(ask(address, "/").status, 200);
        }
        assert_eq!(connections(&observed), [1, 2, 3], "{backend}{options}");
    }
    // A connection that ends is replaced by another one.
    let (_program, address, observed) = start_before_2(" http-reuse always\n", "");
    for path in ["/leave", "/", "/"] {
        assert_eq!(ask(address, path).status, 200);
    }
    assert_eq!(connections(&observed).len(), 2);
}

#[test]
fn what_servers_of_http_2_cannot_have_is_refused() {
    for (lines, wrong) in [
        (" mode tcp\n server s 127.0.0.1:1 proto h2\n", "HTTP/2 is spoken in 'mode http' only"),
        (
            " mode http\n server s 127.0.0.1:1 check check-proto h2\n",
            "'check-proto' expects none, found 'h2': the checks of this backend speak no HTTP",
        ),
    ] {
        let output = check(&format!("{DEFAULTS}listen l\n bind :0\n{lines}"), &[]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(wrong), "{said}");
    }
}
