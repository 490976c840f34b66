//! Health checks, end to end: servers go down and up, and the events are reported.

use crate::common;

use common::watch::{Haproxy, Syslog, ask, until};
use common::{
    DEFAULTS, Folder, Manylane, ONE_LANE, TIMEOUT, connect, fd, held_pipe, listener, nobody, origin, own_ip,
    read_all,
};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex, mpsc};
use std::time::Duration;

/// Long intervals while a check runs, for busy machines, and short ones where the next check matters.
const INTER: &str = "inter 1s fastinter 20ms downinter 20ms";

/// As `INTER`, for servers whose health never settles: they are checked at the fast interval, and each check
/// may take long.
const UNSETTLED: &str = "inter 60s fastinter 20ms downinter 20ms";

/// An origin that responds with its name; its status can be changed.
fn server(name: &'static str, status: &Arc<AtomicU16>) -> SocketAddr {
    let status = status.clone();
    origin(move |mut stream| {
        let mut bytes = [0; 4096];
        if stream.read(&mut bytes).is_ok_and(|length| length > 0) {
            let (status, length) = (status.load(Ordering::Relaxed), name.len());
            let head =
                format!("HTTP/1.1 {status} As Said\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
            let _ = stream.write_all(format!("{head}{name}").as_bytes());
        }
    })
}

fn get(address: SocketAddr) -> String {
    let mut client = connect(address);
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    read_all(&mut client)
}

#[test]
fn a_server_goes_down_comes_up_and_stops_as_its_answers_say() {
    let status = Arc::new(AtomicU16::new(200));
    let (a, b) = (server("a", &status), server("b", &Arc::new(AtomicU16::new(200))));
    let (log, folder) = (Syslog::new(), Folder::new());
    let socket = folder.0.join("control");
    let (web, address) = listener();
    let _program = Manylane::start(&format!(
        "global\n stats socket {} level admin\n nbthread 2\n{DEFAULTS} mode http\n log {} local0\nfrontend \
            front\n bind {}\n default_backend back\n\
         backend back\n option httpchk GET /health\n timeout check 60s\n http-check disable-on-404\n server \
         a {a} check {INTER} rise 2 fall 2\n server b {b} backup\n",
        socket.display(),
        log.address(),
        fd(&web),
    ));
    let served = |by: &str| {
        let answer = get(address);
        assert!(answer.ends_with(&format!("\r\n\r\n{by}")), "{answer}");
    };
    served("a");
    // A client may have the whole response before the lane has released the server, and the line below counts
    // sessions.
    until(|| {
        let stat = ask(&socket, "show stat back 4 -1");
        stat.lines().any(|line| line.starts_with("back,a,0,0,0,"))
    });
    status.store(500, Ordering::Relaxed);
    let line = log.wait("Server back/a is");
    assert!(
        line.contains("is DOWN, reason: Layer7 wrong status, code: 500, info: \"As Said\", check duration: "),
        "{line}"
    );
    assert!(
        line.ends_with(
            "ms. 0 active and 1 backup servers left. Running on backup. 0 sessions active, 0 requeued, 0 \
                remaining in queue."
        ),
        "{line}"
    );
    served("b");
    let stat = ask(&socket, "show stat back 4 -1");
    let row: Vec<&str> = stat.lines().find(|line| line.starts_with("back,a,")).unwrap().split(',').collect();
    assert_eq!((row[17], row[22], row[37], row[56]), ("DOWN", "1", "500", "As Said"), "{stat}");
    assert!(row[36].ends_with("L7STS"), "{stat}");
    status.store(200, Ordering::Relaxed);
    let line = log.wait("Server back/a is");
    assert!(line.contains("is UP, reason: Layer7 check passed, code: 200, check duration: "), "{line}");
    assert!(
        line.ends_with("ms. 1 active and 1 backup servers online. 0 sessions requeued, 0 total in queue."),
        "{line}"
    );
    served("a");
    status.store(404, Ordering::Relaxed);
    let line = log.wait("Server back/a is");
    assert!(line.contains("is stopping, reason: Layer7 check conditionally passed, code: 404"), "{line}");
    served("b");
    assert!(ask(&socket, "show stat back 4 -1").contains(",NOLB,"));
    status.store(200, Ordering::Relaxed);
    log.wait("Server back/a is UP");
    served("a");
}

#[test]
fn a_backend_without_a_server_that_works_says_so_and_answers_503() {
    let log = Syslog::new();
    let (web, address) = listener();
    let _program = Manylane::start(&format!(
        "{DEFAULTS} mode http\n log {} local0\nlisten l\n bind {}\n server a {} check {INTER}\n server b {} \
            check {INTER} backup\n",
        log.address(),
        fd(&web),
        nobody(),
        nobody(),
    ));
    // The order of the two is not defined.
    let first = log.wait("erver l/");
    assert!(
        first.contains("is DOWN, reason: Layer4 connection problem, info: \"Connection refused\""),
        "{first}"
    );
    log.wait("proxy l has no server available!");
    assert!(get(address).starts_with("HTTP/1.1 503 "));
}

#[test]
fn a_server_that_begins_down_serves_when_its_checks_say_so() {
    let status = Arc::new(AtomicU16::new(500));
    let a = server("a", &status);
    let log = Syslog::new();
    let (web, address) = listener();
    let _program = Manylane::start(&format!(
        "{DEFAULTS} mode http\n log {} local0\n option httpchk\n timeout check 60s\n option \
            log-health-checks\nlisten l\n bind {}\n server a {a} check {INTER} rise 2 init-state \
             fully-down\n",
        log.address(),
        fd(&web),
    ));
    let line = log.wait("Health check for server l/a failed, reason: Layer7 wrong status, code: 500");
    assert!(line.ends_with(", status: 0/2 DOWN."), "{line}");
    assert!(get(address).starts_with("HTTP/1.1 503 "));
    status.store(200, Ordering::Relaxed);
    assert!(log.wait("Health check for server l/a succeeded").ends_with(", status: 1/2 DOWN."));
    assert!(log.wait("Health check for server l/a succeeded").ends_with(", status: 3/3 UP."));
    // Text of the line before must not appear again.
    assert!(log.wait("Server l/a is UP").contains("is UP. 1 active"));
    assert!(get(address).ends_with("\r\n\r\na"));
}

#[test]
fn a_server_that_comes_back_from_maintenance_is_up_until_a_check_fails() {
    let status = Arc::new(AtomicU16::new(500));
    let a = server("a", &status);
    let (log, folder) = (Syslog::new(), Folder::new());
    let socket = folder.0.join("control");
    let (web, address) = listener();
    // After the first check there is none for a minute.
    let _program = Manylane::start(&format!(
        "global\n stats socket {} level admin\n{DEFAULTS} mode http\n log {} local0\nlisten l\n bind {}\n \
            option httpchk\n server a {a} check inter 60s\n",
        socket.display(),
        log.address(),
        fd(&web),
    ));
    log.wait("Server l/a is DOWN");
    assert!(get(address).starts_with("HTTP/1.1 503 "));
    assert_eq!(ask(&socket, "set server l/a state maint"), "\n");
    // The lane runs once a second. 6: checked; 8: paused.
    until(|| ask(&socket, "show servers state l").contains(" 0 14 0 "));
    assert_eq!(ask(&socket, "set server l/a state ready"), "\n");
    until(|| ask(&socket, "show stat l 4 -1").contains(",UP 1/3,"));
    status.store(200, Ordering::Relaxed);
    assert!(get(address).ends_with("\r\n\r\na"));
}

#[test]
fn a_section_has_the_steps_of_its_defaults_until_it_has_its_own() {
    let (tell, receiver) = mpsc::channel();
    let a = origin(move |mut stream| {
        let mut bytes = [0; 4096];
        let length = stream.read(&mut bytes).unwrap_or(0);
        let _ = stream.write_all(b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        let request = String::from_utf8_lossy(&bytes[..length]).into_owned();
        let _ = tell.send(request.split("\r\n\r\n").next().unwrap().to_owned());
    });
    for (own, request, state) in [
        ("", "GET /base HTTP/1.1\r\nhost: d\r\nconnection: close", "DOWN"),
        (" http-check disable-on-404\n", "GET /base HTTP/1.1\r\nhost: d\r\nconnection: close", "DOWN"),
        (" http-check expect status 302\n", "GET /base HTTP/1.1\r\nconnection: close", "UP"),
        (" option httpchk GET /own\n", "GET /own HTTP/1.0", "UP"),
    ] {
        let log = Syslog::new();
        let (web, _) = listener();
        let _program = Manylane::start(&format!(
            "{DEFAULTS} mode http\n log {} local0\n option log-health-checks\n option httpchk GET /base \
                HTTP/1.1\n http-check send hdr Host d\n \
             http-check expect status 200\nlisten l\n bind {}\n{own} server a {a} check inter 60s\n",
            log.address(),
            fd(&web),
        ));
        assert!(log.wait("Health check for server l/a").ends_with(&format!(" {state}.")), "{own}");
        assert_eq!(receiver.recv_timeout(TIMEOUT).unwrap(), request, "{own}");
    }
}

#[test]
fn a_server_that_is_silent_is_down_after_timeout_check() {
    let silent = origin(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let log = Syslog::new();
    let (web, _) = listener();
    let _program = Manylane::start(&format!(
        "{DEFAULTS} mode http\n log {} local0\n option httpchk\n timeout check 30ms\nlisten l\n bind {}\n \
            server a {silent} check {UNSETTLED}\n",
        log.address(),
        fd(&web),
    ));
    assert!(log.wait("Server l/a is DOWN").contains("reason: Layer7 timeout, check duration: "));
}

#[test]
fn a_lane_makes_no_more_checks_at_once_than_it_may() {
    let (open, most) = (Arc::new((Mutex::new(0), Condvar::new())), Arc::new(AtomicUsize::new(0)));
    let (tell, receiver) = mpsc::channel();
    let (at_once, bounded) = (most.clone(), Arc::new(AtomicUsize::new(0)));
    let bound_now = bounded.clone();
    let address = origin(move |mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let (count, changed) = &*open;
        let mut now = count.lock().unwrap();
        *now += 1;
        at_once.fetch_max(*now, Ordering::Relaxed);
        changed.notify_all();
        // Where a second check may run, wait for it; where none may, give it some time to appear.
        let time = if bound_now.load(Ordering::Relaxed) > 1 { TIMEOUT } else { Duration::from_millis(50) };
        let alone = |_: &mut usize| at_once.load(Ordering::Relaxed) < 2;
        now = changed.wait_timeout_while(now, time, alone).unwrap().0;
        *now -= 1;
        drop(now); // before the response ends the check
        let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n");
        let _ = tell.send(());
    });
    for (bound, expected) in [(1, 1), (2, 2)] {
        bounded.store(bound, Ordering::Relaxed);
        let (web, _) = listener();
        let global =
            format!("global\n nbthread 1\n tune.max-checks-per-thread {bound}\n max-spread-checks 1ms\n");
        let servers: String =
            (0..3).map(|number| format!(" server s{number} {address} check inter 60s\n")).collect();
        let config =
            format!("{DEFAULTS} mode http\n option httpchk\n{global}listen l\n bind {}\n{servers}", fd(&web));
        let _program = Manylane::start(&config);
        for _ in 0..3 {
            receiver.recv_timeout(TIMEOUT).unwrap();
        }
        assert_eq!(most.swap(0, Ordering::Relaxed), expected);
    }
}

#[test]
fn steps_over_tcp_are_taken_in_order_at_the_port_of_the_checks() {
    let (tell, receiver) = mpsc::channel();
    let talk = origin(move |mut stream| {
        let mut heard = Vec::new();
        let _ = stream.write_all(b"220 ready\r\n");
        let mut bytes = [0; 64];
        while let Ok(length @ 1..) = stream.read(&mut bytes) {
            heard.extend_from_slice(&bytes[..length]);
            if heard.ends_with(b"NOOP\r\n") {
                let _ = stream.write_all(b"500 no\r\n");
                break;
            }
        }
        let _ = tell.send(String::from_utf8(heard).unwrap());
    });
    let log = Syslog::new();
    let (web, _) = listener();
    let _program = Manylane::start(&format!(
        "{DEFAULTS} mode tcp\n log {} local0\nlisten l\n bind {}\n option tcp-check\n timeout check 60s\n \
            tcp-check connect default\n tcp-check expect string 220\n \
         tcp-check send \"NOOP\\r\\n\"\n tcp-check expect comment \"a noop\" rstring ^250\n server a {} \
         check check-send-proxy port {} {UNSETTLED}\n",
        log.address(),
        fd(&web),
        nobody(),
        talk.port(),
    ));
    let line = log.wait("Server l/a is DOWN");
    let why = "reason: Layer7 invalid response, info: \"TCPCHK did not match content (regex) at step 4 \
        comment: a noop\"";
    assert!(line.contains(why), "{line}");
    let heard = receiver.recv_timeout(TIMEOUT).unwrap();
    let addresses = heard
        .strip_prefix("PROXY TCP4 127.0.0.1 127.0.0.1 ")
        .and_then(|rest| rest.strip_suffix("\r\nNOOP\r\n"));
    assert!(addresses.is_some_and(|ports| ports.ends_with(&format!(" {}", talk.port()))), "{heard}");
}

/// The PROXY header of a check says LOCAL; with `pp2-never-send-local` it says PROXY, for servers that do not
/// know LOCAL.
#[test]
fn the_header_of_a_check_says_whose_it_is() {
    for (global, command) in [("", 0x20), (" pp2-never-send-local\n", 0x21)] {
        let (tell, receiver) = mpsc::channel();
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        std::thread::spawn(move || {
            // The address comes from accept: after the check's reset it is unknown.
            while let Ok((mut stream, from)) = server.accept() {
                let mut fixed = [0; 16];
                stream.read_exact(&mut fixed).unwrap();
                let mut rest = vec![0; usize::from(fixed[15])];
                stream.read_exact(&mut rest).unwrap();
                let _ = tell.send((fixed[12], fixed[13], rest, from));
            }
        });
        let (web, _) = listener();
        let _program = Manylane::start(&format!(
            "{DEFAULTS} mode tcp\nglobal\n{global}listen l\n bind {}\n server s {address} check \
                send-proxy-v2\n",
            fd(&web)
        ));
        let (said, family, rest, from) = receiver.recv_timeout(TIMEOUT).unwrap();
        assert_eq!(said, command, "{global}");
        let ports = [from.port().to_be_bytes(), address.port().to_be_bytes()].concat();
        let addresses = [&[127, 0, 0, 1, 127, 0, 0, 1][..], &ports].concat();
        let expected = if command == 0x20 { (0, Vec::new()) } else { (0x11, addresses) };
        assert_eq!((family, rest), expected, "{global}");
    }
}

/// A server that sends `hello`, and then the next of `answers` for each message.
fn talker(hello: &'static [u8], answers: &'static [&'static [u8]]) -> SocketAddr {
    origin(move |mut stream| {
        let _ = stream.write_all(hello);
        let mut bytes = [0; 4096];
        for answer in answers {
            if !stream.read(&mut bytes).is_ok_and(|length| length > 0) {
                return;
            }
            let _ = stream.write_all(answer);
        }
        let _ = stream.read_to_end(&mut Vec::new()); // until the check ends
    })
}

/// Log lines of the first check of each backend, in their order, without durations.
fn first_checks(log: &Syslog, backends: usize) -> Vec<String> {
    let mut lines = vec![String::new(); backends];
    while lines.iter().any(String::is_empty) {
        let line = log.wait("Health check for server b");
        let line = line.split_once("Health check for server b").unwrap().1;
        let (number, reported) = line.split_once("/a ").unwrap();
        let (before, after) = reported.split_once(", check duration: ").unwrap();
        lines[number.parse::<usize>().unwrap()] = format!("{before}, {}", after.split_once(", ").unwrap().1);
    }
    lines
}

#[test]
fn services_that_are_known_by_heart_are_judged_as_haproxy_judges_them() {
    let mysql: &[u8] = b"\x13\0\0\0\x0a8.0.1\0\x01\0\0\0abcdefgh";
    let mail: &[u8] = b"220 mail ready\r\n";
    const HTTP: &[u8] = b"HTTP/1.1 200 Fine\r\nContent-Length: 4\r\nX-A: one, two\r\n\r\ngood";
    type Case = (&'static str, &'static [u8], &'static [&'static [u8]]);
    let cases: &[Case] = &[
        ("option redis-check", b"", &[b"+PONG\r\n"]),
        ("option mysql-check", mysql, &[]),
        ("option mysql-check", b"\x0f\0\0\0\xff\x69\x04Host blocked", &[]),
        ("option mysql-check user hap", mysql, &[b"\x07\0\0\x02\0\0\0\x02\0\0\0"]),
        ("option mysql-check user hap pre-41", mysql, &[b"\x09\0\0\x02\xff\x15\x04denied"]),
        ("option pgsql-check user hap", b"", &[b"R\0\0\0\x08\0\0\0\0"]),
        ("option pgsql-check user hap", b"", &[b"E\0\0\0\x30SFATAL\0C28000\0Mno such role\0\0"]),
        ("option smtpchk", mail, &[b"250 mail\r\n", b"221 bye\r\n"]),
        ("option smtpchk EHLO mydomain.org", mail, &[b"250-mail\r\n250-SIZE\r\n250 OK\r\n", b"221 bye\r\n"]),
        ("option smtpchk", b"554 no service\r\n", &[]),
        ("option ldap-check", b"", &[b"0\x0c\x02\x01\x01a\x07\x0a\x01\0\x04\0\x04\0"]),
        ("option ldap-check", b"", &[b"0\x0c\x02\x01\x01a\x07\x0a\x01\x35\x04\0\x04\0"]),
        ("option ssl-hello-chk", b"", &[b"\x15\x03\0\0\x02\x02\x28"]),
        ("option ssl-hello-chk", b"", &[b"HTTP/1.0 400 Bad Request\r\n\r\n"]),
        ("option tcp-check\n tcp-check expect on-success great ok-status L4OK string good", b"good", &[]),
        ("option tcp-check\n tcp-check expect string good", b"good", &[]),
        (
            "option tcp-check\n tcp-check expect min-recv 3 error-status L6RSP comment cc on-error oops \
                rstring good",
            b"bad",
            &[],
        ),
        ("option tcp-check\n tcp-check expect min-recv 3 rbinary ^63", b"bad", &[]),
        ("option httpchk GET /\n http-check expect hdr name X-a value two", b"", &[HTTP]),
        (
            "option httpchk GET /\n http-check expect comment cc ! fhdr name -m beg x- value -m reg one,.two",
            b"",
            &[HTTP],
        ),
        ("option httpchk GET /\n http-check expect error-status L7RSP status 201", b"", &[HTTP]),
        ("option httpchk GET /\n http-check expect on-success great string good", b"", &[HTTP]),
    ];
    let folder = Folder::new();
    let config = |log: &Syslog| {
        let mut config = format!(
            "global\n max-spread-checks 100ms\n log {} local0\ndefaults\n log global\n option \
                log-health-checks\n timeout connect 60s\n \
             timeout client 60s\n timeout server 60s\n timeout check 60s\nfrontend f\n bind {}\n",
            log.address(),
            folder.0.join("f.sock").display(),
        );
        for (number, (lines, hello, answers)) in cases.iter().enumerate() {
            let mode = if lines.contains("http") { "http" } else { "tcp" };
            let address = talker(hello, answers);
            config +=
                &format!("backend b{number}\n mode {mode}\n {lines}\n server a {address} check inter 60s\n");
        }
        config
    };
    let log = Syslog::new();
    let program = Manylane::start(&config(&log));
    let ours = first_checks(&log, cases.len());
    drop(program);
    let log = Syslog::new();
    let Some(_haproxy) = Haproxy::start(&folder.file("haproxy.cfg", &config(&log))) else {
        println!("There is no HAProxy 3.2: not compared");
        return;
    };
    for ((case, ours), theirs) in cases.iter().zip(ours).zip(first_checks(&log, cases.len())) {
        assert_eq!(ours, theirs, "{}", case.0);
    }
}

#[test]
fn what_is_wrong_with_checks_is_said_with_its_position() {
    let folder = Folder::new();
    for (lines, sentence) in [
        (" server a 127.0.0.1:1 check inter", "'inter' expects <delay>, found none"),
        (" server a 127.0.0.1:1 check rise 0", "rise"),
        (" server a 127.0.0.1 check", "has no port, and its checks have none either"),
        (" server a 127.0.0.1:1 check addr 1.2.3.4.5.6.7:x:y", "'addr' : "),
        (" option httpchk GET / HTTP/3.0", "expected a version such as HTTP/1.1, found 'HTTP/3.0'"),
        (
            " option httpchk\n http-check expect status 2xx",
            "expected statuses or ranges such as 200,301-399, found '2xx'",
        ),
        (" option httpchk\n http-check expect string", "'http-check expect' expects"),
        (" option httpchk\n http-check expect rstring (", "this regular expression is refused"),
        (" option httpchk\n http-check expect string a b", "expected one word as the pattern, found 'b'"),
        (
            " option httpchk\n http-check expect status 200 comment c status 300",
            "expected one word as the pattern, found 'status'",
        ),
        (
            " option httpchk\n http-check expect comment c",
            "'http-check expect' : 'a pattern' expects a value, found none",
        ),
        (" no option httpchk", "'option httpchk' expects no 'no' before it"),
        (" default option tcp-check", "'option tcp-check' expects no 'default' before it"),
        (
            " option tcp-check\n tcp-check set-var(check.x) int(1)\n tcp-check send a\n tcp-check connect",
            "expects 'tcp-check connect' as the first step, found another one",
        ),
        (
            " option httpchk\n http-check expect status 200\n http-check connect",
            "expects 'http-check connect' as the first step, found another one",
        ),
        (" option httpchk\n http-check expect hdr nam x", "'hdr' expects name or name-lf, found 'nam'"),
        (" option httpchk\n http-check expect hdr name -m big x", "'-m' expects str, beg, end, sub or reg"),
        (" option httpchk\n http-check expect hdr name x value", "'value' expects a value, found none"),
        (" option httpchk\n http-check expect on-error %[dat] status 200", "unknown fetch method 'dat'"),
        (" option httpchk\n http-check expect status-code x status 200", "unknown fetch method 'x'"),
        (
            " option httpchk\n http-check expect hdr name-lf -m reg x",
            "'-m' expects str, beg, end or sub before a format (or 'name'), found 'reg'",
        ),
        (
            " option httpchk\n http-check connect\n http-check expect status 200",
            "expects an 'http-check send' before it, found none",
        ),
        (
            " option httpchk\n http-check connect\n http-check connect",
            "expects an 'http-check expect' before it, found none",
        ),
        (
            " option httpchk\n http-check expect status 200\n http-check send uri /b",
            "expects an 'http-check connect' before it, found none",
        ),
        (
            " option httpchk\n http-check connect proto h3",
            "'http-check connect' : 'proto' expects h1 or h2, found 'h3'",
        ),
        (
            " option httpchk\n http-check connect ssl sni",
            "'http-check connect' : 'sni' expects a value, found none",
        ),
        (" option tcp-check\n tcp-check connect proto h1", "'proto' expects none, found 'h1'"),
        (" option tcp-check\n tcp-check connect addr here", "'addr' expects <ip>[:<port>], found '"),
        (
            " option tcp-check\n tcp-check set-var check.a int(1)",
            "expects a variable in parentheses: tcp-check set-var(check.name)",
        ),
        (" option tcp-check\n tcp-check set-car(check.a) int(1)", "found 'set-car'; did you mean 'set-var'?"),
        (
            " option tcp-check\n tcp-check unset-var(check.a) b",
            "'tcp-check unset-var' expects no further argument, found 'b'",
        ),
        (
            " option external-check\n external-check command /bin/true",
            "expects 'external-check' in the global section, found none",
        ),
        (
            " option tcp-check\n server a 127.0.0.1:1 check check-proto h1",
            "'check-proto' expects none, found 'h1': the checks of this backend speak no HTTP",
        ),
        (
            " option tcp-check\n tcp-check expect ok-status L7STS string x",
            "'ok-status' expects one of L7OK, L7OKC, L6OK, L4OK, found 'L7STS'",
        ),
        (
            " option tcp-check\n tcp-check expect min-recv 99999 string x",
            "'min-recv' expects -1, or a number of bytes up to 16384",
        ),
        (" option mysql-check user", "expects user <name>, found 1 argument"),
        (" option mysql-check root", "expects user <name>, found 'root'"),
        (" option mysql-check user a post-42", "expects 'post-41' or 'pre-41', found 'post-42'"),
        (" option pgsql-check", "'option pgsql-check' expects user <name>, found none"),
        (" option httpchk\n http-check send hdr X %[dat]", "unknown fetch method 'dat'"),
        (" option httpchk\n http-check send meth", "'meth' expects a value, found none"),
        (" option tcp-check\n tcp-check send-binary 0g", "an even number of hexadecimal digits"),
        (
            " option tcp-check\n tcp-check connect port 0",
            "'port' expects a number from 1 to 65535, or an expression",
        ),
        (
            " server a [::1]:1 socks4 127.0.0.1:2",
            "'socks4' expects a server with an IPv4 address: SOCKS4 has no other",
        ),
        (" server a 127.0.0.1:1 socks4 127.0.0.1", "'socks4'"),
    ] {
        let file = folder.file("wrong.cfg", &format!("{DEFAULTS}listen l\n bind 127.0.0.1:1\n{lines}\n"));
        let output = common::command().arg("-c").arg("-f").arg(file).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(sentence) && !output.status.success(), "{lines}: {said}");
    }
    let file = folder
        .file("idle.cfg", &format!("{DEFAULTS}listen l\n bind 127.0.0.1:1\n http-check expect status 200\n"));
    let output = common::command().arg("-c").arg("-f").arg(file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("'http-check expect' has no effect here") && output.status.success(), "{said}");
}

/// A checking program gets its arguments, and exactly the environment that HAProxy's manual lists.
#[test]
fn a_program_that_checks_is_informed_of_what_it_checks() {
    let folder = Folder::new();
    let (new, ready) = (folder.0.join("told"), folder.0.join("ready"));
    let script = folder.script(
        "check.sh",
        &format!(
            "{{ echo \"$@\"; env | grep -v -e '^_=' -e '^PWD=' -e '^SHLVL=' -e '^OLDPWD=' -e '^PATH=' | \
                sort; }} > {new}\nmv {new} {ready}\nexit 7",
            new = new.display(),
            ready = ready.display()
        ),
    );
    let (log, ip) = (Syslog::new(), own_ip());
    let port = std::net::TcpListener::bind((ip, 0)).unwrap().local_addr().unwrap().port();
    let config = |log: &Syslog| {
        format!(
            "global\n external-check\n insecure-fork-wanted\n max-spread-checks 100ms\n{DEFAULTS} mode \
                http\n log {} local0\n option log-health-checks\nlisten l\n bind {ip}:{port}\n id 5\n option \
                external-check\n \
             external-check command {}\n server s 127.0.0.9:99 id 3 maxconn 20 check inter 60s\n",
            log.address(),
            script.display(),
        )
    };
    let said = |log: &Syslog| {
        let line = log.wait("Health check for server l/s failed");
        assert!(line.contains("reason: External check error, code: 7, check duration: "), "{line}");
        std::fs::read_to_string(&ready).unwrap()
    };
    let program = Manylane::start(&config(&log));
    let ours = said(&log);
    drop(program);
    let expected = format!(
        "{ip} {port} 127.0.0.9 99\nHAPROXY_PROXY_ADDR={ip}\nHAPROXY_PROXY_ID=5\nHAPROXY_PROXY_NAME=l\n\
            HAPROXY_PROXY_PORT={port}\nHAPROXY_SERVER_ADDR=127.0.0.9\n\
         HAPROXY_SERVER_CURCONN=0\nHAPROXY_SERVER_ID=3\nHAPROXY_SERVER_MAXCONN=20\nHAPROXY_SERVER_NAME=s\n\
         HAPROXY_SERVER_PORT=99\nHAPROXY_SERVER_PROTO=h1\nHAPROXY_SERVER_SSL=0\n"
    );
    assert_eq!(ours, expected);
    let log = Syslog::new();
    let Some(_haproxy) = Haproxy::start(&folder.file("haproxy.cfg", &config(&log))) else {
        println!("There is no HAProxy 3.2: not compared");
        return;
    };
    assert_eq!(ours, said(&log));
}

/// A listener that the process has inherited (`fd@`) is not the program's.
#[test]
fn a_program_inherits_no_listener() {
    use std::os::fd::AsRawFd;
    let folder = Folder::new();
    let (new, ready) = (folder.0.join("new"), folder.0.join("ready"));
    let script = folder.script(
        "check.sh",
        &format!(
            "readlink /proc/$$/fd/* > {new}\nmv {new} {ready}",
            new = new.display(),
            ready = ready.display()
        ),
    );
    let (web, _) = listener();
    let name = std::fs::read_link(format!("/proc/self/fd/{}", web.as_raw_fd())).unwrap();
    let _program = Manylane::start(&format!(
        "global\n external-check\n{DEFAULTS} mode http\nlisten l\n bind {}\n option external-check\n \
            external-check command {}\n server s 127.0.0.9:99 check inter 60s\n",
        fd(&web),
        script.display()
    ));
    until(|| ready.exists());
    let open = std::fs::read_to_string(&ready).unwrap();
    let name = name.to_str().unwrap();
    assert!(open.contains("/dev/null") && !open.contains(name), "{name} is not to be in:\n{open}");
}

/// A program that takes too long gets `SIGTERM`, then `SIGKILL`; none is left running. A program that a
/// signal ends has failed.
#[test]
fn a_program_that_takes_too_long_is_ended() {
    let folder = Folder::new();
    let script = |name: &str, lines: &str| {
        folder.script(name, &format!("cd {}\n{lines}", folder.0.display())).display().to_string()
    };
    // The shell itself waits, for input that never comes, so no other process has to be ended.
    let polite = script("polite.sh", "trap ': > told; exit 0' TERM\nmkfifo f.$$\nread line <> f.$$");
    // The program that replaces the shell keeps ignoring the signal.
    let own = "echo $$ > deaf.new\nmv deaf.new deaf";
    let deaf = script("deaf.sh", &format!("trap '' TERM\n[ -e deaf ] || {{\n{own}\n}}\nexec cat pipe"));
    // It ends with the test at the latest, which has the other end.
    let _held = held_pipe(&folder.0.join("pipe"));
    let killed = script("killed.sh", "kill -9 $$");
    let (log, web) = (Syslog::new(), listener().0);
    let backend = |name: &str, command: &str, inter: &str| {
        format!(
            "backend {name}\n option external-check\n external-check command {command}\n server s \
                127.0.0.9:99 check inter {inter}\n"
        )
    };
    let _program = Manylane::start(&format!(
        "global\n external-check\n max-spread-checks 100ms\n{DEFAULTS} mode http\n log {} local0\n option \
            log-health-checks\nfrontend f\n bind {}\n{}{}{}",
        log.address(),
        fd(&web),
        backend("killed", &killed, "60s"),
        backend("polite", &polite, "2s"),
        backend("deaf", &deaf, "2s"),
    ));
    let line = log.wait("Health check for server killed/s failed");
    assert!(line.contains("reason: External check error, code: -1, check"), "{line}");
    let line = log.wait("Health check for server polite/s failed");
    assert!(line.contains("reason: External check timeout, code: 0, check duration: "), "{line}");
    // On a busy machine the program may be ended before it installs its trap; then the next one is.
    until(|| folder.0.join("told").exists());
    let mut pid = String::new();
    until(|| {
        pid = std::fs::read_to_string(folder.0.join("deaf")).unwrap_or_default();
        !pid.is_empty()
    });
    until(|| !std::path::Path::new("/proc").join(pid.trim()).exists());
    let line = log.wait("Health check for server deaf/s failed");
    assert!(line.contains("reason: External check timeout, code: 0, check duration: "), "{line}");
}

/// `check-reuse-pool`: many checks use one connection, as long as the server leaves it open.
#[test]
fn checks_use_idle_connections_and_leave_theirs() {
    let connections = AtomicUsize::new(0);
    let (tell, receiver) = mpsc::channel();
    let address = origin(move |mut stream| {
        let own = connections.fetch_add(1, Ordering::Relaxed);
        let (mut heard, mut bytes) = (Vec::new(), [0; 4096]);
        while let Ok(length @ 1..) = stream.read(&mut bytes) {
            heard.extend_from_slice(&bytes[..length]);
            if heard.ends_with(b"\r\n\r\n") {
                let _ = tell.send((own, String::from_utf8(std::mem::take(&mut heard)).unwrap()));
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            }
        }
    });
    let (web, _) = listener();
    let _program = Manylane::start(&format!(
        "{ONE_LANE} mode http\nlisten l\n bind {}\n option httpchk\n timeout check \
            60s\n http-check send meth GET uri /health ver HTTP/1.1 hdr Host x\n \
         server a {address} check check-reuse-pool init-state fully-down rise 1000 {UNSETTLED}\n",
        fd(&web)
    ));
    let came: Vec<(usize, String)> = (0..5).map(|_| receiver.recv_timeout(TIMEOUT).unwrap()).collect();
    for (own, heard) in &came {
        assert_eq!((*own, &**heard), (came[0].0, "GET /health HTTP/1.1\r\nhost: x\r\n\r\n"), "{came:?}");
    }
}

/// A server that hangs is checked on one idle connection only, however many there are: each would take
/// `timeout check` while the server stays up.
#[test]
fn a_server_that_hangs_is_asked_on_one_idle_connection() {
    const IDLE: usize = 16;
    let (hangs, unanswered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let all_there = Barrier::new(IDLE);
    let (hung, requested) = (hangs.clone(), unanswered.clone());
    let endpoint = origin(move |mut stream| {
        let (mut heard, mut bytes) = (Vec::new(), [0; 4096]);
        while let Ok(length @ 1..) = stream.read(&mut bytes) {
            heard.extend_from_slice(&bytes[..length]);
            if !heard.ends_with(b"\r\n\r\n") {
                continue;
            }
            if !heard.starts_with(b"GET /health ") {
                all_there.wait();
            } else if hung.load(Ordering::SeqCst) {
                requested.fetch_add(1, Ordering::SeqCst);
                continue; // reads on: the check ends
            }
            heard.clear();
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let (log, folder) = (Syslog::new(), Folder::new());
    let socket = folder.0.join("control");
    let (web, address) = listener();
    let _program = Manylane::start(&format!(
        "{DEFAULTS} mode http\nglobal\n nbthread 1\n stats socket {}\nlisten l\n bind {}\n log {} local0\n \
            option httpchk\n timeout check 5s\n \
         http-check send meth GET uri /health ver HTTP/1.1 hdr Host x\n http-reuse safe\n \
         server a {endpoint} check check-reuse-pool inter 2s downinter 60s fall 1 pool-purge-delay 60s\n",
        socket.display(),
        fd(&web),
        log.address(),
    ));
    // All requests are at the server at the same time, so each has its own connection.
    let clients: Vec<_> = (0..IDLE).map(|_| std::thread::spawn(move || get(address))).collect();
    for client in clients {
        let answer = client.join().unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    until(|| idle_of(&socket, "l", "a") >= IDLE);
    hangs.store(true, Ordering::SeqCst);
    let line = log.wait("Server l/a is DOWN");
    assert!(line.contains("reason: Layer7 timeout, check duration: "), "{line}");
    assert_eq!(unanswered.load(Ordering::SeqCst), 1, "{line}");
}

/// Number of idle connections to a server.
fn idle_of(socket: &std::path::Path, backend: &str, server: &str) -> usize {
    let text = ask(socket, "show stat");
    let mut rows = text.lines().map(|row| row.split(',').collect::<Vec<_>>());
    let head = rows.next().unwrap();
    let column = head.iter().position(|name| *name == "srv_icur").unwrap();
    let row = rows.find(|row| row.starts_with(&[backend, server])).unwrap();
    row[column].parse().unwrap()
}

/// Answers of servers to checks, and whether they pass without an option.
const ODD_ANSWERS: [(&str, bool); 7] = [
    ("HTTP/1.1 200 OK\nContent-Length: 1\n\na", true),
    ("HTTP/1.1  200  OK\r\nContent-Length: 1\r\n\r\na", true),
    ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na", true),
    ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", true),
    ("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", true),
    ("HTTP/1.1 200 OK\r\nX: a\u{1}b\r\nContent-Length: 1\r\n\r\na", false),
    ("HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 1\r\n\r\na", false),
];

/// An answer that breaks a rule passes a check where the options of its backend let it pass to clients.
#[test]
fn checks_follow_the_options_for_violations() {
    let options = [
        ("strict", "option http-strict-framing"),
        ("usual", ""),
        ("unsafe", "option accept-unsafe-violations-in-http-response"),
    ];
    let mut config = String::new();
    for (number, (answer, _)) in ODD_ANSWERS.iter().enumerate() {
        let server = origin(|mut stream| {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer.as_bytes());
            let _ = stream.read(&mut [0]); // until the program closes
        });
        for (name, option) in options {
            config += &format!(
                "backend {name}{number}\n {option}\n option httpchk\n http-check expect string a\n timeout \
                    check 60s\n server s {server} check inter 1s\n"
            );
        }
    }
    let folder = Folder::new();
    let socket = folder.0.join("control");
    let _program = Manylane::start_ready(&format!(
        "global\n stats socket {}\n nbthread 2\n{DEFAULTS} mode http\n{config}",
        socket.display()
    ));
    for (number, (answer, passes)) in ODD_ANSWERS.iter().enumerate() {
        for ((name, _), expected) in options.iter().zip([false, *passes, true]) {
            let mut row = Vec::new();
            until(|| {
                let stat = ask(&socket, "show stat -1 4 -1");
                let named =
                    stat.lines().find(|line| line.starts_with(&format!("{name}{number},s,"))).unwrap();
                row = named.split(',').map(str::to_owned).collect();
                !row.contains(&"INI".to_owned())
            });
            assert_eq!(row.contains(&"L7OK".to_owned()), expected, "{name}: {answer:?}: {row:?}");
        }
    }
}
