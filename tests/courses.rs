//! Log lines: times, bytes and termination of streams.

use crate::common;

use common::watch::{Syslog, ask, until};
use common::{Folder, Manylane, check, connect, fd, listener, origin, read_all};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
const POST: &[u8] = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\nConnection: close\r\n\r\nabc";
const UPGRADE: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
const SWITCHED: &[u8] = b"HTTP/1.1 101 Yes\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";

/// A program with one logging proxy.
struct Course {
    program: Manylane,
    syslog: Syslog,
    folder: Folder,
    address: SocketAddr,
    _socket: TcpListener,
}

impl Course {
    /// `front` and `back` are lines of the frontend and the backend.
    fn new(mode: &str, front: &str, back: &str) -> Self {
        let (syslog, folder) = (Syslog::new(), Folder::new());
        let (socket, address) = listener();
        let times = if mode == "http" { "tr=%TR " } else { "" };
        let program = Manylane::start_ready(&format!(
            "global\n nbthread 1\n stats socket {}/cli\ndefaults\n mode {mode}\n timeout connect 5s\n \
                timeout client 30s\n timeout server 30s\n timeout http-request 30s\n\
             frontend f\n bind {}\n log {} format raw local0\n default_backend b\n {front}\n \
             log-format \"ts=%ts st=%ST {times}tw=%Tw tc=%Tc q=%sq/%bq up=%U down=%B by=%b/%s\"\n\
             backend b\n {back}\n",
            folder.0.display(),
            fd(&socket),
            syslog.address(),
        ));
        Self { program, syslog, folder, address, _socket: socket }
    }

    fn send(&self, bytes: &[u8]) -> TcpStream {
        let mut client = connect(self.address);
        client.write_all(bytes).unwrap();
        client
    }

    /// The next log line, by its keys.
    fn line(&self) -> BTreeMap<String, String> {
        let line = self.syslog.wait("ts=");
        line.split(' ')
            .filter_map(|word| word.split_once('='))
            .map(|(name, value)| (name.into(), value.into()))
            .collect()
    }

    fn cli(&self, line: &str) -> String {
        ask(&self.folder.0.join("cli"), line)
    }
}

fn number(line: &BTreeMap<String, String>, name: &str) -> i64 {
    line[name].parse().unwrap_or_else(|_| panic!("{name} of {line:?}"))
}

/// A server that reads and never responds.
fn silent() -> SocketAddr {
    origin(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    })
}

/// A server that accepts an upgrade and continues with `then`.
fn switching(then: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    origin(move |mut stream| {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.extend(byte);
        }
        stream.write_all(&[SWITCHED, b"hello"].concat()).unwrap(); // in one write: a tunnel may be short
        then(stream);
    })
}

/// Waits on a connection on which nothing arrives.
fn pause(client: &mut TcpStream, time: Duration) {
    client.set_read_timeout(Some(time)).unwrap();
    client.read_exact(&mut [0]).unwrap_err();
    client.set_read_timeout(Some(common::TIMEOUT)).unwrap();
}

/// Interim responses count as bytes sent to the client, from servers and from rules.
#[test]
fn responses_before_the_final_one_are_counted() {
    let server = origin(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(
            b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        );
    });
    for rule in ["", "http-request early-hint link </b>"] {
        let course = Course::new("http", rule, &format!("server s {server}"));
        let answer = read_all(&mut course.send(GET));
        assert_eq!(answer.matches("HTTP/1.1 103 ").count(), 1 + usize::from(!rule.is_empty()), "{answer}");
        let line = course.line();
        assert_eq!(number(&line, "down"), answer.len() as i64, "{line:?}: {answer}");
    }
}

#[test]
fn a_queue_that_is_left_has_its_time_and_position() {
    let course = Course::new("http", "", &format!("timeout queue 60ms\n server s {} maxconn 1", silent()));
    let _first = course.send(GET);
    until(|| course.cli("show stat b 4 -1").lines().any(|line| line.starts_with("b,s,0,0,1,")));
    let answer = read_all(&mut course.send(GET));
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    let line = course.line();
    assert_eq!(
        (&*line["ts"], &*line["q"], &*line["tc"], &*line["by"]),
        ("sQ", "0/1", "-1", "b/<NOSRV>"),
        "{line:?}"
    );
    assert!(number(&line, "tw") >= 60, "{line:?}");
    assert_eq!(number(&line, "up"), GET.len() as i64, "what came, though nobody was sent it: {line:?}");
}

#[test]
fn a_client_that_leaves_a_queue_is_logged_with_its_position() {
    let back = format!("option abortonclose\n server s {} maxconn 1", silent());
    let course = Course::new("http", "", &back);
    let _first = course.send(GET);
    until(|| course.cli("show stat b 4 -1").lines().any(|line| line.starts_with("b,s,0,0,1,")));
    let second = course.send(GET);
    until(|| course.cli("show stat b 2 -1").lines().any(|line| line.starts_with("b,BACKEND,1,")));
    drop(second);
    let line = course.line();
    assert_eq!((&*line["ts"], &*line["q"]), ("CQ", "0/1"), "{line:?}");
    assert!(number(&line, "tw") >= 0, "{line:?}");
}

#[test]
fn what_ends_a_tunnel_is_logged_and_counted_with_its_head() {
    let course = Course::new(
        "http",
        "",
        &format!(
            "timeout tunnel 60ms\n server s {}",
            switching(|mut stream| {
                let _ = stream.read_to_end(&mut Vec::new());
            })
        ),
    );
    let mut client = course.send(UPGRADE);
    assert!(read_all(&mut client).ends_with("hello"));
    let line = course.line();
    assert_eq!((&*line["ts"], &*line["st"]), ("cD", "101"), "{line:?}");
    assert_eq!(number(&line, "down"), (SWITCHED.len() + b"hello".len()) as i64, "{line:?}");
    assert!(course.program.pid() > 0);

    // A server that closes with unread bytes resets the connection.
    let course = Course::new(
        "http",
        "",
        &format!(
            "server s {}",
            switching(|stream| {
                stream.peek(&mut [0]).unwrap();
            })
        ),
    );
    let mut client = course.send(UPGRADE);
    client.read_exact(&mut vec![0; SWITCHED.len()]).unwrap();
    client.write_all(b"unread").unwrap();
    assert_eq!(course.line()["ts"], "SD");

    let (tell, receiver) = std::sync::mpsc::channel();
    let course = Course::new(
        "http",
        "",
        &format!(
            "server s {}",
            switching(move |stream| {
                let mut bytes = [0; 100];
                let _ = (&stream).read(&mut bytes);
                let _ = tell.send(());
                let _ = (&stream).read(&mut bytes);
            })
        ),
    );
    // The client reads none of the data, so its close resets the connection.
    let mut client = course.send(UPGRADE);
    client.peek(&mut [0]).unwrap();
    client.write_all(b"more").unwrap();
    receiver.recv().unwrap();
    drop(client);
    assert_eq!(course.line()["ts"], "CD");
    assert!(course.cli("show stat b 6 -1").lines().filter(|line| line.starts_with("b,")).count() == 2);
}

#[test]
fn a_client_that_stalls_amid_its_body_is_the_silent_one() {
    let course = Course::new("http", "timeout client 1500ms", &format!("server s {}", silent()));
    let mut client = course.send(POST);
    assert!(read_all(&mut client).starts_with("HTTP/1.1 408 "));
    let line = course.line();
    assert_eq!((&*line["ts"], &*line["st"], &*line["by"]), ("cH", "408", "b/s"), "{line:?}");

    // A client that closes truncates its request.
    let course = Course::new("http", "", &format!("server s {}", silent()));
    let client = course.send(POST);
    until(|| course.cli("show stat b 4 -1").lines().any(|line| line.starts_with("b,s,0,0,1,")));
    client.shutdown(Shutdown::Write).unwrap();
    let line = course.line();
    assert_eq!((&*line["ts"], &*line["st"]), ("CD", "-1"), "{line:?}");
}

/// A client that waits for 100 (Continue) still owes its body, since a server need not send 100. The timeout
/// is then the server's, but the client is to blame, as in HAProxy 3.2 (`cH`).
#[test]
fn a_client_that_waits_for_100_continue_owes_its_body() {
    const EXPECTING: &[u8] = b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: \
        3\r\nConnection: close\r\n\r\n";
    let course =
        Course::new("http", "timeout client 60ms", &format!("timeout server 120ms\n server s {}", silent()));
    assert!(read_all(&mut course.send(EXPECTING)).starts_with("HTTP/1.1 408 "));
    assert_eq!(course.line()["ts"], "cH");

    let asking = origin(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let course = Course::new("http", "timeout client 60ms", &format!("server s {asking}"));
    let answer = read_all(&mut course.send(EXPECTING));
    assert!(answer.starts_with("HTTP/1.1 100 ") && answer.contains("HTTP/1.1 408 "), "{answer}");
    assert_eq!(course.line()["ts"], "cH");
}

/// Who has not asked for a body may never get it, and what comes in its place may be another request.
#[test]
fn a_final_response_in_place_of_100_ends_both_connections() {
    const EXPECTING: &[u8] =
        b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 40\r\n\r\n";
    let (came, has_come) = std::sync::mpsc::channel();
    let early = origin(move |mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        came.send(rest).unwrap();
    });
    let course = Course::new("http", "", &format!("server s {early}"));
    let answer = read_all(&mut course.send(EXPECTING)).to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 404 ") && answer.contains("connection: close"), "{answer}");
    assert_eq!(course.line()["ts"], "--");
    assert_eq!(has_come.recv_timeout(common::TIMEOUT).unwrap(), b"", "the server's connection was kept");
}

#[test]
fn who_ends_its_own_side_stays_in_the_tarpit() {
    let front = "timeout tarpit 150ms\n http-request tarpit";
    let course = Course::new("http", front, &format!("server s {}", silent()));
    let mut client = course.send(GET);
    client.shutdown(Shutdown::Write).unwrap();
    assert!(read_all(&mut client).starts_with("HTTP/1.1 500 "));
    let line = course.line();
    assert_eq!((&*line["ts"], number(&line, "up")), ("PT", GET.len() as i64), "{line:?}");
    assert!(number(&line, "tw") >= 150, "{line:?}");
}

#[test]
fn what_rules_wait_for_is_time_in_a_line() {
    let front = "tcp-request inspect-delay 120ms\n tcp-request content accept if WAIT_END";
    let course = Course::new("tcp", front, &format!("server s {}", common::echo()));
    let mut client = course.send(b"hi");
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut client), "hi");
    let line = course.line();
    assert_eq!((&*line["ts"], &*line["q"]), ("--", "0/0"), "{line:?}");

    let mut client = course.send(b"hi");
    client.read_exact(&mut [0; 2]).unwrap();
    drop(client);
    let line = course.line();
    assert!(number(&line, "tw") >= 120, "{line:?}");

    // A body that is waited for counts as part of the request.
    let front = "http-request wait-for-body time 30s\n http-request return status 200";
    let course = Course::new("http", front, &format!("server s {}", silent()));
    let mut client = course.send(POST);
    // its head was read
    until(|| course.cli("show stat f 1 -1").lines().any(|line| line.split(',').nth(48) == Some("1")));
    pause(&mut client, Duration::from_millis(60));
    client.write_all(b"defghi").unwrap();
    read_all(&mut client);
    let line = course.line();
    assert!(number(&line, "tr") >= 59 && number(&line, "tw") == -1, "{line:?}");
    assert_eq!(number(&line, "up"), (POST.len() + b"defghi".len()) as i64, "{line:?}");
}

#[test]
fn a_request_that_nobody_was_sent_counts_as_it_came() {
    let back = format!("stats enable\n stats uri /stats\n http-request deny\n server s {}", silent());
    let course = Course::new("http", "http-request deny if { path / }", &back);
    assert!(read_all(&mut course.send(GET)).starts_with("HTTP/1.1 403 "));
    let line = course.line();
    assert_eq!((&*line["ts"], number(&line, "up")), ("PR", GET.len() as i64), "{line:?}");
    let other = [b"GET /other", &GET[5..]].concat();
    assert!(read_all(&mut course.send(&other)).starts_with("HTTP/1.1 403 "));
    let line = course.line();
    assert_eq!((&*line["by"], number(&line, "up")), ("b/<NOSRV>", other.len() as i64), "{line:?}");
    let bytes = |which| {
        course.cli(which).lines().nth(1).unwrap().split(',').nth(8).unwrap().parse::<usize>().unwrap()
    };
    assert_eq!(bytes("show stat f 1 -1"), GET.len() + other.len());
    assert_eq!(bytes("show stat b 2 -1"), other.len());
}

#[test]
fn aliases_of_http_are_refused_in_tcp_mode() {
    const NAMES: [&str; 17] = [
        "CC", "CS", "HM", "HP", "HPO", "HQ", "HU", "HV", "Ta", "Ti", "Tq", "TR", "Tr", "r", "tr", "trg",
        "trl",
    ];
    for line in ["log-format", "unique-id-format"] {
        for name in NAMES {
            for (mode, fine) in [("http", true), ("tcp", false)] {
                let out = check(
                    &format!(
                        "{} mode {mode}\n log 127.0.0.1:514 local0\nlisten l\n bind 127.0.0.1:1\n server s \
                            127.0.0.1:2\n {line} %{name}\n",
                        common::DEFAULTS
                    ),
                    &[],
                );
                let said = String::from_utf8_lossy(&out.stderr);
                assert_eq!(out.status.success(), fine, "{mode} {line} {name}: {said}");
                assert!(
                    fine || said.contains(&format!("'%{name}'")) && said.contains("reserved for HTTP mode"),
                    "{said}"
                );
            }
        }
    }
}

/// A server that reads up to `last`, reports that, and never responds.
fn reporting_server(last: &'static [u8]) -> (SocketAddr, mpsc::Receiver<()>) {
    let (tell, receiver) = mpsc::channel();
    let server = origin(move |mut stream| {
        let mut bytes = Vec::new();
        while !bytes.ends_with(last) {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            bytes.extend(byte);
        }
        tell.send(()).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    (server, receiver)
}

#[test]
fn a_bad_chunk_is_reported_by_where_its_request_was() {
    let (server, receiver) = reporting_server(b"abc\r\n");
    let course = Course::new("http", "", &format!("server s {server}"));
    let mut client =
        course.send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    receiver.recv_timeout(common::TIMEOUT).unwrap();
    client.write_all(b"x").unwrap();
    let answer = read_all(&mut client);
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    let line = course.line();
    assert_eq!((&*line["ts"], &*line["st"]), ("PH", "400"), "{line:?}");
}

#[test]
fn who_resets_its_connection_gets_no_answer() {
    let (server, receiver) = reporting_server(b"\r\n\r\n");
    let course = Course::new("http", "", &format!("option abortonclose\n server s {server}"));
    let client = course.send(GET);
    receiver.recv_timeout(common::TIMEOUT).unwrap();
    common::reset(client);
    let line = course.line();
    assert_eq!((&*line["ts"], &*line["st"]), ("CD", "-1"), "{line:?}");
}

#[test]
fn a_response_that_is_dropped_in_silence_is_logged_like_a_request() {
    let server = origin(|mut stream| {
        stream.read_exact(&mut [0; 16]).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let course = Course::new("http", "http-response silent-drop", &format!("server s {server}"));
    let _client = course.send(GET);
    let line = course.line();
    assert_eq!((&*line["ts"], &*line["st"]), ("PR", "200"), "{line:?}");
}
