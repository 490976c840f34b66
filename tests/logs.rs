//! Log lines, end to end.

use crate::common;

use common::watch::{ask, until};
use common::{DEFAULTS, Folder, Manylane, ONE_LANE, connect, echo, fd, listener, nobody, origin, read_all};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

/// A syslog server.
struct Syslog(UdpSocket);

impl Syslog {
    fn new() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(common::TIMEOUT)).unwrap();
        Self(socket)
    }

    fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    fn line(&self) -> String {
        let mut bytes = [0; 4096];
        let length = self.0.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }
}

/// Replaces numbers by 9, so that lines with times can be compared.
fn shape(text: &str) -> String {
    let mut shape = String::new();
    for c in text.trim_end().chars() {
        match c {
            '0'..='9' if shape.ends_with('9') => {}
            '0'..='9' => shape.push('9'),
            c => shape.push(c),
        }
    }
    shape
}

fn server() -> SocketAddr {
    origin(|stream| {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        loop {
            line.clear();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if line == "\r\n"
                && reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").is_err()
            {
                return;
            }
        }
    })
}

#[test]
fn requests_are_logged_as_haproxy_does() {
    let syslog = Syslog::new();
    let (socket, address) = listener();
    let _program = Manylane::start(&format!(
        "global\n log {} local0\n log-tag web\n{DEFAULTS} mode http\n log global\n option httplog\nfrontend \
            f\n bind {}\n default_backend b\nbackend b\n server s {}\n",
        syslog.address(),
        fd(&socket),
        server()
    ));
    let mut client = connect(address);
    client.write_all(b"GET /a?b HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = [0; 43];
    client.read_exact(&mut answer).unwrap();
    let line = syslog.line();
    let (head, text) = line.split_once("]: ").unwrap();
    assert!(head.starts_with("<134>") && head.contains(" web["), "{line}");
    assert_eq!(
        shape(text),
        "9.9.9.9:9 [9/Nov/9:9:9:9.9] f b/s 9/9/9/9/9 9 9 - - ---- 9/9/9/9/9 9/9 \"GET /a?b HTTP/9.9\""
            .replace("Nov", &text[text.find('/').unwrap() + 1..][..3]),
        "{line}"
    );
    assert!(text.contains(" 200 43 - - ---- "), "{line}");
    client.write_all(b"nonsense\r\n\r\n").unwrap();
    let line = syslog.line();
    assert!(line.contains(" f f/<NOSRV> ") || line.contains("<NOSRV> "), "{line}");
    assert!(
        line.contains(" 400 ") && line.contains(" PR-- ") && line.trim_end().ends_with("\"<BADREQ>\""),
        "{line}"
    );
}

#[test]
fn failures_are_logged_with_their_state() {
    let syslog = Syslog::new();
    let silent = origin(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    for (more, server, state) in
        [(" retries 0", nobody(), " 503 "), (" timeout server 50ms", silent, " 504 ")].map(
            |(more, server, status)| {
                (more, server, (status, if status == " 503 " { " SC-- " } else { " sH-- " }))
            },
        )
    {
        let (socket, address) = listener();
        let _program = Manylane::start(&format!(
            "{DEFAULTS} mode http\n log {} local0\n option httplog\n{more}\nlisten l\n bind {}\n server s \
                {server}\n",
            syslog.address(),
            fd(&socket)
        ));
        let mut client = connect(address);
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        read_all(&mut client);
        let line = syslog.line();
        assert!(line.contains(state.0) && line.contains(state.1) && line.contains(" l/s "), "{line}");
    }
}

/// A client that closes before its first byte gets a response and a log line, unless the file says not to.
#[test]
fn connections_without_a_byte_are_logged_but_for_dontlognull() {
    let syslog = Syslog::new();
    let (socket, address) = listener();
    for (more, answered) in [("", true), (" option dontlognull", true), (" option http-ignore-probes", false)]
    {
        let _program = Manylane::start(&format!(
            "{DEFAULTS} mode http\n log {} local0\n option httplog\n{more}\nlisten l\n bind {}\n server s \
                {}\n",
            syslog.address(),
            fd(&socket),
            server()
        ));
        let mut null = connect(address);
        null.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_all(&mut null).starts_with("HTTP/1.1 400 "), answered, "{more}");
        // Either of the two may be logged first.
        let mut cut = connect(address);
        cut.write_all(b"GET / HTTP/1.1\r\n").unwrap();
        cut.shutdown(Shutdown::Write).unwrap();
        assert!(read_all(&mut cut).starts_with("HTTP/1.1 400 "), "{more}");
        for _ in 0..if more.is_empty() { 2 } else { 1 } {
            let line = syslog.line();
            let port = if more.is_empty() { String::new() } else { cut.local_addr().unwrap().to_string() };
            assert!(line.contains(" 400 ") && line.contains(" CR-- ") && line.contains("<BADREQ>"), "{line}");
            assert!(line.contains(&port), "{more}: {line}");
        }
    }
}

/// The time in the log counts from the accept to the refusal.
#[test]
fn a_client_that_sends_nothing_in_time_has_a_line_with_that_time() {
    let syslog = Syslog::new();
    let (socket, address) = listener();
    let _program = Manylane::start(&format!(
        "{DEFAULTS} mode http\n timeout http-request 100ms\n log {} format raw local0\n log-format \"%Ti %TR \
            %Ta %Tt %t %tr %ST %ts\"\n\
         listen l\n bind {}\n server s {}\n",
        syslog.address(),
        fd(&socket),
        server()
    ));
    assert!(read_all(&mut connect(address)).starts_with("HTTP/1.1 408 "));
    let line = syslog.line();
    let words: Vec<&str> = line.split_whitespace().collect();
    let [idle, request, active, total, accepted, begun, status, state] = words[..] else { panic!("{line}") };
    assert_eq!([idle, request, status, state], ["0", "-1", "408", "cR"], "{line}");
    assert!(active.parse::<u64>().unwrap() >= 99 && total == active && accepted == begun, "{line}");
}

#[test]
fn sessions_are_logged_and_formats_are_ones_own() {
    let syslog = Syslog::new();
    let (socket, address) = listener();
    let config = |format: &str| {
        format!(
            "{DEFAULTS} log {} format raw local0\n{format}\nlisten l\n bind {}\n server s {}\n",
            syslog.address(),
            fd(&socket),
            echo()
        )
    };
    for (format, expected) in [
        (" option tcplog", "9.9.9.9:9 [9/Mon/9:9:9:9.9] l l/s 9/9/9 9 -- 9/9/9/9/9 9/9"),
        (" log-format \"%f|%b|%s|%ts|%B|%U\"", "l|l|s|--|9|9"),
    ] {
        let _program = Manylane::start(&config(format));
        let mut client = connect(address);
        client.write_all(b"hello").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_all(&mut client), "hello");
        let line = syslog.line();
        let month = line.split('/').nth(1).unwrap_or_default().to_owned();
        let observed =
            if format.contains("tcplog") { shape(&line).replace(&month, "Mon") } else { shape(&line) };
        assert_eq!(observed, expected, "{line}");
        assert!(!line.contains("/1970:"), "the time of the connection is known: {line}");
    }
}

/// In haproxy since 2.7 or later: `do-log` and `set-retries`.
#[test]
fn rules_log_and_say_how_often_servers_are_tried() {
    let syslog = Syslog::new();
    let (socket, address) = listener();
    let _program = Manylane::start(&format!(
        "{DEFAULTS} mode http\n log {} format raw local0\n retries 3\n\
         frontend f\n bind {}\n log-format \"%[capture.req.uri] %ST %rc %ts\"\n \
         http-request do-log if {{ path /log }}\n default_backend b\n\
         backend b\n http-request set-retries 1\n server s {}\n",
        syslog.address(),
        fd(&socket),
        nobody()
    ));
    let mut client = connect(address);
    write!(client, "GET /log HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    assert!(read_all(&mut client).starts_with("HTTP/1.1 503 "));
    assert_eq!(syslog.line().trim_end(), "/log -1 0 --");
    assert_eq!(syslog.line().trim_end(), "/log 503 1 SC");
}

/// In haproxy since 2.7 or later: `do-log` in `http-after-response`, with rules after it.
#[test]
fn rules_behind_a_line_of_a_response_are_obeyed() {
    let syslog = Syslog::new();
    let (socket, address) = listener();
    let _program = Manylane::start(&format!(
        "{DEFAULTS} mode http\n log {} format raw local0\nlisten l\n bind {}\n log-format \"%[var(txn.at)] \
            %ST\"\n \
         http-request return status 200\n http-after-response set-var(txn.at) str(before)\n \
         http-after-response do-log\n http-after-response do-log if {{ status 404 }}\n \
         http-after-response set-var(txn.at) str(behind)\n http-after-response set-header x-behind yes\n",
        syslog.address(),
        fd(&socket),
    ));
    let mut client = connect(address);
    write!(client, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let answer = read_all(&mut client);
    assert!(answer.contains("x-behind: yes\r\n"), "{answer}");
    assert!(syslog.line().starts_with("before "));
    assert_eq!(syslog.line().trim_end(), "behind 200");
}

/// In haproxy since 2.7 or later: `do-log` in rules of `tcp-request` and `tcp-response`.
#[test]
fn rules_for_connections_and_contents_log_what_is_known_by_then() {
    let syslog = Syslog::new();
    let (socket, address) = listener();
    let _program = Manylane::start(&format!(
        "{DEFAULTS} mode tcp\n log {} format raw local0\n\
         frontend f\n bind {}\n log-format \"%b %s %B %[var(sess.at)]\"\n \
         tcp-request connection set-var(sess.at) str(connection)\n tcp-request connection do-log\n \
         tcp-request session set-var(sess.at) str(session)\n tcp-request session do-log if {{ src 127.0.0.1 \
         }}\n \
         tcp-request session do-log if {{ src 192.0.2.1 }}\n \
         tcp-request content set-var(sess.at) str(content)\n tcp-request content do-log\n default_backend b\n\
         backend b\n server s {}\n tcp-response inspect-delay 9s\n \
         tcp-response content set-var(sess.at) str(response) if {{ res.len gt 0 }}\n tcp-response content \
         do-log\n",
        syslog.address(),
        fd(&socket),
        origin(|mut stream| stream.write_all(b"hello").unwrap())
    ));
    assert_eq!(read_all(&mut connect(address)), "hello");
    for expected in [
        "f <NOSRV> 0 connection",
        "f <NOSRV> 0 session",
        "f <NOSRV> 0 content",
        "b s 0 response",
        "b s 5 response",
    ] {
        assert_eq!(syslog.line().trim_end(), expected);
    }
}

/// Otherwise, a client could cause a line for each byte that it sends.
#[test]
fn a_rule_before_one_that_waits_writes_one_line() {
    let syslog = Syslog::new();
    let (socket, address) = listener();
    let _program = Manylane::start(&format!(
        "{DEFAULTS} mode tcp\n log {} format raw local0\nfrontend f\n bind {}\n log-format \"%b %s %B\"\n \
         tcp-request inspect-delay 1h\n tcp-request content do-log\n \
         tcp-request content accept if {{ req.len ge 3 }}\n default_backend b\nbackend b\n server s {}\n",
        syslog.address(),
        fd(&socket),
        origin(|mut stream| stream.write_all(b"hello").unwrap())
    ));
    let mut client = connect(address);
    assert_eq!(syslog.line().trim_end(), "f <NOSRV> 0"); // nothing has come
    client.write_all(b"abc").unwrap();
    assert_eq!(read_all(&mut client), "hello");
    assert_eq!(syslog.line().trim_end(), "b s 5");
}

/// Number of requests served from the backend's queue while one waited there, itself included; rules may read
/// it, too.
#[test]
fn a_line_tells_how_many_were_served_from_the_queue_before() {
    let syslog = Syslog::new();
    let (socket, address) = listener();
    let folder = Folder::new();
    let control = folder.0.join("cli");
    let (go, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let server = origin(move |mut stream| {
        let mut bytes = [0; 4096];
        while matches!(stream.read(&mut bytes), Ok(1..)) {
            gate.lock().unwrap().recv().unwrap();
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_err() {
                return;
            }
        }
    });
    let config = ONE_LANE; // one lane, so one order
    let _program = Manylane::start_ready(&format!(
        "global\n stats socket {}\n{config} mode http\n log {} format raw local0\n\
         frontend f\n bind {}\n log-format \"%sq/%bq %rc\"\n http-response set-header queue %bq\n \
         default_backend b\n\
         backend b\n server s {server} maxconn 1\n",
        control.display(),
        syslog.address(),
        fd(&socket),
    ));
    let mut clients = Vec::new();
    for waiting in 0..3 {
        let mut client = connect(address);
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        clients.push(client);
        // The request was served, or is queued.
        until(|| {
            let table = ask(&control, "show stat b 2 -1");
            let row =
                table.lines().find(|line| line.starts_with("b,BACKEND,")).unwrap_or_default().to_owned();
            row.starts_with(&format!("b,BACKEND,{waiting},"))
                && row.split(',').nth(4) == Some(&(waiting + 1).to_string())
        });
    }
    for (number, client) in clients.iter_mut().enumerate() {
        go.send(()).unwrap();
        let answer = read_all(client);
        assert!(answer.contains(&format!("\r\nqueue: {number}\r\n")), "{answer}");
        assert_eq!(syslog.line().trim_end(), format!("0/{number} 0"));
    }
}

/// The times of a connection's first request include that of a PROXY header, later ones do not.
#[test]
fn the_time_of_a_proxy_header_is_a_handshake() {
    let syslog = Syslog::new();
    let (socket, address) = listener();
    let folder = Folder::new();
    let control = folder.0.join("cli");
    let _program = Manylane::start_ready(&format!(
        "global\n stats socket {}\n{ONE_LANE} mode http\n log {} format raw local0\n\
         listen l\n bind {} accept-proxy\n log-format \"%Th %Ti %TR %Tq %Ta %Tu %Tt\"\n server s {}\n",
        control.display(),
        syslog.address(),
        fd(&socket),
        server()
    ));
    let mut client = connect(address);
    until(|| ask(&control, "show stat l 1 -1").contains("\nl,FRONTEND,,,1,"));
    ask(&control, "show stat l 1 -1"); // the lane that responds has also checked for the header
    // It was accepted. Nothing arrives, so this takes its whole time.
    client.set_read_timeout(Some(Duration::from_millis(40))).unwrap();
    client.read_exact(&mut [0]).unwrap_err();
    client.set_read_timeout(Some(common::TIMEOUT)).unwrap();
    client.write_all(b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n").unwrap();
    for first in [true, false] {
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut answer = [0; 43];
        client.read_exact(&mut answer).unwrap();
        assert!(answer.ends_with(b"hello"));
        let line = syslog.line();
        let times: Vec<i64> = line.split_whitespace().map(|time| time.parse().unwrap()).collect();
        let [handshake, idle, request, until_request, active, user, total] = times[..] else {
            panic!("{line}")
        };
        assert_eq!(handshake >= 39, first, "{line}");
        assert_eq!(until_request, handshake + idle + request, "{line}");
        // Each value is truncated to milliseconds.
        assert!((0..=1).contains(&(user - active - handshake)), "{line}");
        assert!((0..=1).contains(&(total - user - idle)), "{line}");
    }
}

/// A line to a ring is kept for `show events`, and sent to the ring's server in the ring's format.
#[test]
fn a_ring_keeps_lines_and_sends_them_to_its_server() {
    let collector = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (web, address) = listener();
    let folder = common::Folder::new();
    let socket = folder.0.join("control");
    let program = Manylane::start(&format!(
        "global\n stats socket {}\n{}ring lines\n description \"what happened\"\n format rfc5424\n maxlen \
            100\n size 20k\n timeout connect 5s\n \
         timeout server 5s\n server collector {} log-proto octet-count\n{DEFAULTS} mode http\n log \
         ring@lines local0\n log-format \"%HP\"\nfrontend f\n bind {}\n \
         http-request return status 200\n",
        socket.display(),
        "",
        collector.local_addr().unwrap(),
        fd(&web),
    ));
    let get = |path: &str| common::get(address, path);
    get("/first");
    let (mut sent, _) = collector.accept().unwrap();
    let mut received = Vec::new();
    while !received.ends_with(b"/first") {
        let mut byte = [0];
        sent.read_exact(&mut byte).unwrap();
        received.push(byte[0]);
    }
    let received = String::from_utf8(received).unwrap();
    let (length, line) = received.split_once(' ').unwrap();
    assert!(length.parse::<usize>().unwrap() == line.len() && line.starts_with("<134>1 "), "{received}");
    let ask = |line: &str| {
        let mut client = std::os::unix::net::UnixStream::connect(&socket).unwrap();
        writeln!(client, "{line}").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(
        ask("show events").contains("lines      : type=buffer, what happened\n"),
        "{}",
        ask("show events")
    );
    let holds = |what: &str| {
        let begin = std::time::Instant::now();
        while !ask("show events lines").contains(what) {
            assert!(begin.elapsed() < common::TIMEOUT, "{}", ask("show events lines"));
        }
    };
    holds(" /first\n");
    assert!(ask("show events nothing").contains("No such event sink"));
    get(&format!("/long{}", "x".repeat(200)));
    holds("/longxxx");
    let lines = ask("show events lines");
    assert!(lines.contains(" /first\n") && lines.lines().all(|line| line.len() <= 100), "{lines}");
    drop(program);
}

/// `show events -w` also shows new lines, `-nw` only these, until the client sends anything.
#[test]
fn events_are_shown_as_they_come_until_the_client_says_something() {
    let (web, address) = listener();
    let folder = common::Folder::new();
    let socket = folder.0.join("control");
    let _program = Manylane::start_ready(&format!(
        "global\n stats socket {}\nring lines\n format raw\n{DEFAULTS} mode http\n log ring@lines local0\n \
            log-format \"%HP\"\nfrontend f\n bind {}\n \
         http-request return status 200\n",
        socket.display(),
        fd(&web),
    ));
    let get = |path: &str| common::get(address, path);
    let ask = |line: &str| {
        let client = std::os::unix::net::UnixStream::connect(&socket).unwrap();
        client.set_read_timeout(Some(common::TIMEOUT)).unwrap();
        writeln!(&client, "{line}").unwrap();
        BufReader::new(client)
    };
    let next = |client: &mut BufReader<_>| {
        let mut line = String::new();
        client.read_line(&mut line).unwrap();
        line
    };
    let mut all = ask("show events lines -w");
    get("/first");
    assert_eq!(next(&mut all), "/first\n");
    get("/second");
    assert_eq!(next(&mut all), "/second\n");
    let mut new = ask("show events lines -nw");
    new.get_ref().set_nonblocking(true).unwrap();
    let shown = loop {
        get("/third"); // repeated until the command runs
        let mut line = String::new();
        match new.read_line(&mut line) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            read => break (read.unwrap(), line),
        }
    };
    assert_eq!(shown, (7, "/third\n".to_owned()));
    assert_eq!(next(&mut all), "/third\n");
    for client in [&mut all, &mut new] {
        client.get_ref().set_nonblocking(false).unwrap();
        client.get_ref().write_all(b"\n").unwrap();
        let mut rest = String::new();
        client.read_to_string(&mut rest).unwrap();
        assert!(
            rest.ends_with('\n') && rest.lines().all(|line| line.is_empty() || line == "/third"),
            "{rest}"
        );
    }
    // Each line ends with NUL, those that come as well as those that are there.
    let mut zeros = String::new();
    ask("show events lines -0").read_to_string(&mut zeros).unwrap();
    assert!(zeros.starts_with("/first\0/second\0/third\0") && zeros.ends_with("/third\0\n"), "{zeros:?}");
    let mut zeros = ask("show events lines -w -0");
    let mut until_nul = |part: &str| {
        let mut line = Vec::new();
        while !line.ends_with(part.as_bytes()) {
            assert!(zeros.read_until(0, &mut line).unwrap() > 0, "{line:?}");
        }
        assert!(!line.contains(&b'\n'), "{line:?}");
    };
    until_nul("/third\0");
    get("/fourth");
    until_nul("/fourth\0");
    drop(zeros);
    // A following command counts as input, too.
    let mut rest = String::new();
    ask("show events lines -n -w; show events nothing").read_to_string(&mut rest).unwrap();
    assert!(rest.contains("No such event sink"), "{rest}");
    rest.clear();
    ask("show events lines -x").read_to_string(&mut rest).unwrap();
    assert!(rest.starts_with("unknown option"), "{rest}");
}

/// Rounds of all lanes.
fn rounds(control: &std::path::Path) -> u64 {
    let table = ask(control, "show lanes");
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    // The header begins with `#`.
    let at = rows.clone().find_map(|row| row.iter().position(|word| *word == "rounds")).unwrap() - 1;
    rows.filter_map(|row| row.get(at)?.parse::<u64>().ok()).sum()
}

/// Targets that accept nothing more: a local socket, a stream server, a pipe. Lanes stay idle beside them,
/// and replaced generations leave nothing behind.
#[test]
fn targets_that_nobody_reads_cost_no_rounds_and_no_descriptors_of_generations_that_are_gone() {
    let folder = common::Folder::new();
    let (full, control) = (folder.0.join("full"), folder.0.join("control"));
    let _unread = std::os::unix::net::UnixDatagram::bind(&full).unwrap();
    let stream = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (_reader, pipe) = std::io::pipe().unwrap();
    nix::fcntl::fcntl(&pipe, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty())).unwrap();
    let silent = origin(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let (web, address) = listener();
    let program = Manylane::start_ready(&format!(
        "global\n stats socket {} level admin\n{ONE_LANE} mode http\n retries 0\n timeout \
            server 1s\nfrontend f\n bind {}\n log {} len 2000 local0\n \
         log tcp@{} len 2000 local0\n log fd@{} len 2000 local0\n log-format \"%HP\"\n http-request return \
         status 200 unless {{ path /silent }}\n \
         default_backend b\nbackend b\n server s {silent}\n",
        control.display(),
        fd(&web),
        full.display(),
        stream.local_addr().unwrap(),
        pipe.as_raw_fd(),
    ));
    let request = format!("GET /{} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "x".repeat(1000));
    let flood = || {
        for _ in 0..2 {
            let mut client = connect(address);
            for _ in 0..100 {
                client.write_all(request.as_bytes()).unwrap();
                let mut answer = BufReader::new(&client);
                let mut line = String::new();
                while line != "\r\n" {
                    line.clear();
                    assert!(answer.read_line(&mut line).unwrap() > 0);
                }
            }
        }
    };
    flood();
    let (began, before) = (std::time::Instant::now(), rounds(&control));
    let mut waits = connect(address);
    waits.write_all(b"GET /silent HTTP/1.0\r\n\r\n").unwrap();
    assert!(read_all(&mut waits).starts_with("HTTP/1.1 504 ")); // a second later
    let more = rounds(&control) - before;
    assert!(more < 200 + 200 * began.elapsed().as_secs(), "{more} rounds in {:?}", began.elapsed());
    let descriptors = || {
        let all = std::fs::read_dir(format!("/proc/{}/fd", program.pid())).unwrap();
        all.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok()).collect::<Vec<_>>()
    };
    let at_work = descriptors();
    for _ in 0..4 {
        assert!(ask(&control, "reload").contains("Reloaded: generation"));
        flood();
    }
    let begin = Instant::now();
    while descriptors().len() > at_work.len() {
        if begin.elapsed() > common::TIMEOUT {
            let found = descriptors();
            let (tasks, sessions) = (ask(&control, "show tasks"), ask(&control, "show sess all"));
            panic!("{at_work:?} became {found:?}, with {tasks} and {sessions}");
        }
        manylane_tests::look_again();
    }
    // Lines lost by earlier generations still count.
    let info = ask(&control, "show info");
    let lost = info.lines().find_map(|line| line.strip_prefix("DroppedLogs: ")).unwrap();
    assert!(lost.parse::<u64>().unwrap() >= 100, "{lost}");
}
