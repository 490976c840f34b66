//! Server options that are visible at the server: the source address, and the beginning of a connection.

use crate::common;

use common::watch::{Syslog, ask, both, until};
use common::{
    DEFAULTS, Folder, Manylane, ONE_LANE, TIMEOUT, connect, fd, listener, nobody, origin, own_address,
    read_all,
};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};

/// A server that responds once with an empty response. It reports the client's address and everything up to
/// the empty line of the request.
fn watched() -> (SocketAddr, Receiver<(SocketAddr, Vec<u8>)>) {
    let (tell, receiver) = channel();
    let address = origin(move |mut stream| {
        let (mut all, mut piece) = (Vec::new(), [0; 4096]);
        while !all.windows(4).any(|end| end == b"\r\n\r\n" && all.len() > 40) {
            match stream.read(&mut piece) {
                Ok(length) if length > 0 => all.extend(&piece[..length]),
                _ => return,
            }
        }
        tell.send((stream.peer_addr().unwrap(), all)).unwrap();
        let _ = stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n");
    });
    (address, receiver)
}

/// What a server sees of a request with this field, through a proxy with these lines.
fn header_of(mode: &str, more: &str, options: &str, before: &str, field: &str) -> (SocketAddr, Vec<u8>) {
    received_while(mode, more, options, before, field, || ())
}

/// The same; runs `work` before the program ends.
fn received_while(
    mode: &str,
    more: &str,
    options: &str,
    before: &str,
    field: &str,
    work: impl FnOnce(),
) -> (SocketAddr, Vec<u8>) {
    let (server, receiver) = watched();
    let (socket, address) = listener();
    let _program = Manylane::start(&format!(
        "{DEFAULTS} mode {mode}\nlisten l\n bind {}\n{more} server s {server} {options}\n",
        fd(&socket)
    ));
    let mut client = connect(address);
    let request = format!("{before}GET /path HTTP/1.0\r\nHost: longer.than.a.header\r\n{field}\r\n");
    client.write_all(request.as_bytes()).unwrap();
    let answer = read_all(&mut client);
    assert!(answer.contains(" 200 "), "{answer}");
    work();
    receiver.recv().unwrap()
}

/// TLVs of a PROXY protocol header of version 2 for IPv4.
fn tlvs(bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let end = 16 + usize::from(u16::from_be_bytes([bytes[14], bytes[15]]));
    let mut rest = &bytes[28..end];
    let mut all = Vec::new();
    while let [kind, high, low, more @ ..] = rest {
        let (value, behind) = more.split_at(usize::from(u16::from_be_bytes([*high, *low])));
        all.push((*kind, value.to_vec()));
        rest = behind;
    }
    all
}

#[test]
fn a_proxy_header_tells_what_formats_make() {
    let options =
        "send-proxy-v2 set-proxy-v2-tlv-fmt(0xEE) %[path] set-proxy-v2-tlv-fmt(224) \"%[req.hdr(host)] %HM\"";
    let (_, bytes) = header_of("http", "", options, "", "");
    let reported = tlvs(&bytes);
    assert_eq!(reported, [(0xee, b"/path".to_vec()), (0xe0, b"longer.than.a.header GET".to_vec())]);
}

/// TLVs that do not fit the header are left out and the others are sent. The limits are the header's length
/// and the lane's buffer for a text.
#[test]
fn a_field_that_does_not_fit_a_proxy_header_is_left_out_and_logged_once() {
    let syslog = common::watch::Syslog::new();
    let more = format!(" log {} local0\n", syslog.address());
    let long = |times: usize| vec!["%[req.hdr(x-long)]"; times].concat();
    let options = format!(
        "send-proxy-v2 proxy-v2-options crc32c set-proxy-v2-tlv-fmt(0xE1) {} set-proxy-v2-tlv-fmt(0xE2) {} \
         set-proxy-v2-tlv-fmt(0xE3) {} set-proxy-v2-tlv-fmt(0xE4) end",
        long(3),
        long(2),
        long(12),
    );
    let value = "x".repeat(1500);
    let mut line = String::new(); // written at the end of the lane's round
    let (_, bytes) = received_while("http", &more, &options, "", &format!("X-Long: {value}\r\n"), || {
        line = syslog.wait("does not fit a header of the PROXY protocol and is left out");
    });
    let reported = tlvs(&bytes);
    assert_eq!(reported[0].0, 3, "the checksum");
    let short: Vec<_> = reported[1..].iter().map(|(kind, value)| (*kind, value.len())).collect();
    assert_eq!(short, [(0xe2, 2 * value.len()), (0xe4, 3)]);
    assert!(line.contains("Server l/s: field 0xe"), "{line}");
}

/// The authority in the header of the previous proxy is passed on, and each stream has an id, also in TCP
/// mode.
#[test]
fn a_proxy_header_passes_the_authority_on_with_an_id_of_the_stream() {
    let more = " unique-id-format id-%[src_port]\n tcp-request connection expect-proxy layer4\n";
    let options = "send-proxy-v2 proxy-v2-options authority,unique-id";
    let before =
        "\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x13\x01\x02\x03\x04\x01\x02\x03\x05\x00\x07\x00\x50\x02\0\x04host";
    for mode in ["tcp", "http"] {
        let (_, bytes) = header_of(mode, more, options, before, "");
        assert_eq!(tlvs(&bytes), [(2, b"host".to_vec()), (5, b"id-7".to_vec())], "{mode}");
    }
}

/// Data of one request in the header does not apply to the client's next request.
#[test]
fn a_connection_whose_header_is_of_one_request_serves_no_other() {
    let (sender, headers) = channel();
    let server = origin(move |mut stream| {
        let mut bytes = [0; 4096];
        let Ok(length) = stream.read(&mut bytes) else { return };
        let _ = sender.send(bytes[..length].to_vec()); // the test may have ended
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        let _ = stream.read(&mut bytes); // until the proxy closes
    });
    let (socket, address) = listener();
    let _program = Manylane::start(&format!(
        "{DEFAULTS} mode http\nlisten l\n bind {}\n server s {server} send-proxy-v2 \
            set-proxy-v2-tlv-fmt(0xEE) %[req.hdr(x-user)]\n",
        fd(&socket)
    ));
    let mut client = connect(address);
    for user in ["ann", "bob"] {
        client.write_all(format!("GET / HTTP/1.1\r\nHost: x\r\nX-User: {user}\r\n\r\n").as_bytes()).unwrap();
        let observed = headers.recv_timeout(TIMEOUT).unwrap();
        assert_eq!(tlvs(&observed), [(0xee, user.as_bytes().to_vec())]);
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\nok") {
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            answer.push(byte[0]);
        }
    }
}

/// Returns true if this process may use foreign source addresses: it has `CAP_NET_ADMIN`.
pub(crate) fn may_pretend() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(effective.trim(), 16).unwrap() & 1 << 12 != 0
}

#[test]
fn a_server_sees_the_address_that_a_field_of_the_request_has() {
    if !may_pretend() {
        return eprintln!("NOT SHOWN HERE: usesrc: this process has no CAP_NET_ADMIN");
    }
    for (which, field, ip) in [
        ("x-from", "X-From: 127.0.0.7, 127.0.0.8\r\n", "127.0.0.8"),
        ("x-from,1", "X-From: 127.0.0.7, 127.0.0.8\r\n", "127.0.0.7"),
        ("x-from,-2", "X-From: 127.0.0.7\r\nX-From: 127.0.0.8\r\n", "127.0.0.7"),
        ("x-from,-3", "X-From: 127.0.0.7, 127.0.0.8\r\n", "127.0.0.1"),
        ("x-from", "X-From: nobody\r\n", "127.0.0.1"),
        ("x-from", "", "127.0.0.1"),
    ] {
        let options = format!("source 0.0.0.0 usesrc hdr_ip({which})");
        let (peer, _) = header_of("http", "", &options, "", field);
        assert_eq!(peer.ip().to_string(), ip, "{which} {field}");
    }
}

/// Two servers with one permit each. A request keeps the first one busy, so its former client goes to the
/// other one.
#[test]
fn a_session_does_not_wait_for_its_last_server_behind_more_than_max_keep_alive_queue() {
    let (reached, at) = channel();
    let named = |name: &'static str, reached: std::sync::mpsc::Sender<()>| {
        origin(move |mut stream| {
            let mut bytes = [0; 4096];
            while let Ok(length) = stream.read(&mut bytes) {
                if length == 0 {
                    return;
                }
                if bytes[..length].starts_with(b"GET /stay ") {
                    reached.send(()).unwrap();
                    continue; // no response
                }
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{name}");
                stream.write_all(answer.as_bytes()).unwrap();
            }
        })
    };
    let (a, b) = (named("a", reached.clone()), named("b", reached));
    let (socket, address) = listener();
    let _program = Manylane::start(&format!(
        "{ONE_LANE} mode http\nlisten l\n bind {}\n option prefer-last-server\n \
            max-keep-alive-queue 0\n \
         server a {a} maxconn 1\n server b {b} maxconn 1\n",
        fd(&socket)
    ));
    let ask = |client: &mut std::net::TcpStream| {
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let (mut answer, mut byte) = (Vec::new(), [0]);
        while !answer.windows(4).any(|end| end == b"\r\n\r\n") || answer.ends_with(b"\n") {
            client.read_exact(&mut byte).unwrap();
            answer.push(byte[0]);
        }
        char::from(byte[0])
    };
    let (mut first, mut second, mut third) = (connect(address), connect(address), connect(address));
    let own = ask(&mut first);
    // The turns may begin anew once more while the program starts.
    until(|| {
        second = connect(address);
        ask(&mut second) != own
    });
    assert_eq!(ask(&mut first), own);
    let taken = ask(&mut third);
    third.write_all(b"GET /stay HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    at.recv().unwrap();
    let driven_out = if own == taken { &mut first } else { &mut second };
    let free = if taken == 'a' { 'b' } else { 'a' };
    assert_eq!(ask(driven_out), free, "the third client's request is on the other one");
}

/// Cases in which a request leaves a server that refuses it: lines of a proxy, a field of the request, and
/// whether HAProxy, too, leaves it after the first attempt.
const LEAVES: [(&str, &str, bool); 9] = [
    ("option redispatch\n balance roundrobin", "", true),
    ("option redispatch\n balance static-rr", "", true),
    ("option redispatch\n balance random", "", true),
    ("option redispatch\n balance leastconn", "", false),
    ("option redispatch\n balance first", "", false),
    ("option redispatch 1\n balance leastconn", "", true),
    ("option redispatch 1\n balance first", "", true),
    ("option redispatch 1\n balance roundrobin\n cookie C", "Cookie: C=dead\r\n", true),
    ("option redispatch 1\n balance hdr(n)", "", false),
];

/// Pauses of a request that has no other server. Each lasts for as long as one of a request that leaves a
/// server would.
const PAUSES: usize = 11;

/// Nothing waits before the attempt at another server: more requests than the pauses of one beside them leave
/// their server, one after the other, and are served before that one ends.
#[test]
fn a_dead_server_is_left_without_a_pause() {
    let addresses = std::cell::RefCell::new(Vec::new());
    let config = |log: &Syslog, socket: &Path| {
        let alive = origin(|mut stream| {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n");
        });
        let defaults = ONE_LANE;
        let mut config = format!(
            "global\n stats socket {} level admin\n{defaults} mode http\n log {} local0\n log-format \"%b %s \
             %ST %rc line\"\n",
            socket.display(),
            log.address(),
        );
        let mut addresses = addresses.borrow_mut();
        addresses.clear();
        for (number, (lines, ..)) in LEAVES.iter().enumerate() {
            let (waits, leaves) = (own_address(), own_address());
            config += &format!(
                "listen waits{number}\n bind {waits}\n retries {PAUSES}\n server dead {}\n\
                 listen leaves{number}\n bind {leaves}\n {lines}\n server dead {} cookie dead\n \
                 server alive {alive}\n",
                nobody(),
                nobody(),
            );
            addresses.push((waits, leaves));
        }
        config
    };
    let is_haproxy = std::cell::Cell::new(false);
    both(config, |played| {
        let (mut waiting, addresses) = (Vec::new(), addresses.borrow());
        let cases = LEAVES.iter().zip(addresses.iter()).enumerate();
        for (number, ((lines, field, haproxy_too), (waits, leaves))) in cases {
            if is_haproxy.get() && !haproxy_too {
                continue;
            }
            let mut client = connect(*waits);
            client.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
            waiting.push((number, client));
            until(|| played.columns(&format!("waits{number}"), "FRONTEND", &["req_tot"]) == ["1"]);
            let (mut requested, mut left) = (0, 0);
            while left <= 2 * PAUSES {
                assert!(requested < 80 * PAUSES, "{lines}: nearly no request goes to the dead server");
                let mut client = connect(*leaves);
                client
                    .write_all(format!("GET / HTTP/1.0\r\n{field}N: {requested}\r\n\r\n").as_bytes())
                    .unwrap();
                read_all(&mut client);
                requested += 1;
                // Those beside former cases may end.
                let line = played.log.wait(&format!("s{number} "));
                let end = ["0", "+1"].map(|tries| format!("leaves{number} alive 200 {tries} line"));
                assert!(end.iter().any(|end| line.ends_with(end)), "{lines}: {line}");
                left += usize::from(line.ends_with(&end[1]));
            }
        }
        // The first one was in such a pause.
        let first = format!("waits{}", waiting[0].0);
        until(|| played.columns(&first, "dead", &["wretr"]) != ["0"]);
        is_haproxy.set(true);
    });
}

/// A key has selected a server, which goes into maintenance while it has the request.
#[test]
fn a_server_that_went_out_of_service_is_left_at_once_where_a_key_has_chosen_it() {
    let (socket, address) = listener();
    let (log, folder) = (Syslog::new(), Folder::new());
    let control = folder.0.join("control");
    let (tell, receiver) = channel();
    let first = std::sync::Arc::new(std::sync::Mutex::new(Some(tell)));
    let server = |name: &'static str| {
        let first = first.clone();
        origin(move |mut stream| {
            let _ = stream.read(&mut [0; 4096]);
            if let Some(tell) = first.lock().unwrap().take() {
                let (go, wait) = channel::<()>();
                tell.send((name, go)).unwrap();
                let _ = wait.recv(); // then it closes without a response
                return;
            }
            let _ = stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n");
        })
    };
    let _program = Manylane::start(&format!(
        "{DEFAULTS} mode http\n option redispatch\n retry-on all-retryable-errors\n balance uri\n log {} \
            local0\n log-format \"%s %ST %rc line\"\n\
         global\n stats socket {} level admin\nlisten l\n bind {}\n server one {}\n server two {}\n",
        log.address(),
        control.display(),
        fd(&socket),
        server("one"),
        server("two")
    ));
    let mut client = connect(address);
    client.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let (name, go) = receiver.recv_timeout(TIMEOUT).unwrap();
    assert_eq!(ask(&control, &format!("set server l/{name} state maint")).trim(), "");
    drop(go);
    read_all(&mut client);
    let other = if name == "one" { "two" } else { "one" };
    let line = log.wait(" line");
    assert!(line.contains(&format!("{other} 200 +1 line")), "{line}");
}

/// A server under checks dies with its connections. Until its checks fail, a request costs one further
/// attempt at most, and none is lost; once it is down, no request tries it.
#[test]
fn a_server_that_dies_under_checks_costs_an_attempt_and_no_answer() {
    let (socket, address) = listener();
    let (log, folder) = (Syslog::new(), Folder::new());
    let control = folder.0.join("control");
    let (victim, victim_at) = listener();
    let open = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let serve = |mut stream: std::net::TcpStream| {
        while stream.read(&mut [0; 4096]).is_ok_and(|length| length > 0) {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    };
    let (accepting, kept) = (victim.try_clone().unwrap(), open.clone());
    std::thread::spawn(move || {
        while let Ok((stream, _)) = accepting.accept() {
            kept.lock().unwrap().push(stream.try_clone().unwrap());
            std::thread::spawn(move || serve(stream));
        }
    });
    let _program = Manylane::start(&format!(
        "global\n stats socket {} level admin\n{DEFAULTS} mode http\n option redispatch\n \
         balance roundrobin\n \
         log {} local0\n log-format \"%s %ST %rc line\"\nlisten l\n bind {}\n \
         default-server check inter 200ms fall 3\n \
         server victim {victim_at}\n server alive {}\n",
        control.display(),
        log.address(),
        fd(&socket),
        origin(serve)
    ));
    let asks = || {
        let mut client = connect(address);
        client.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        assert!(read_all(&mut client).contains(" 200 "));
        let line = log.wait(" line");
        line.rsplit("]: ").next().unwrap().to_owned()
    };
    let is = |state: &str| {
        let shown = ask(&control, "show stat");
        shown.lines().any(|line| line.starts_with("l,victim,") && line.contains(state))
    };
    until(|| asks().starts_with("victim 200 0"));
    rustix::net::shutdown(&victim, rustix::net::Shutdown::Both).unwrap();
    for stream in open.lock().unwrap().drain(..) {
        let _ = stream.shutdown(std::net::Shutdown::Both);
    }
    let mut left = 0;
    for _ in 0..50 {
        let line = asks();
        assert!(["alive 200 0 line", "alive 200 +1 line"].contains(&&*line), "{line}");
        left += usize::from(line.contains("+1"));
    }
    until(|| is(",DOWN,"));
    for _ in 0..20 {
        assert_eq!(asks(), "alive 200 0 line");
    }
    println!("{left} requests left the dead server");
}
