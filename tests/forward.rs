//! `log-forward` sections and backends in `mode log`, end to end.

use crate::common;

use common::watch::{Syslog, ask, until};
use common::{DEFAULTS, Ended, Folder, Manylane, TIMEOUT, check, connect, end_of, fd, listener};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// A datagram socket for the program to inherit, and where to send to.
fn inbox() -> (UdpSocket, String, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    nix::fcntl::fcntl(&socket, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty())).unwrap();
    let (name, address) = (format!("fd@{}", socket.as_raw_fd()), socket.local_addr().unwrap());
    (socket, name, address)
}

fn sender() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").unwrap()
}

/// A number of `show info`.
fn info(socket: &Path, name: &str) -> u64 {
    let said = ask(socket, "show info");
    let line = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    line.unwrap_or_else(|| panic!("{name} is not in {said}")).parse().unwrap()
}

/// A column of a line of `show stat`.
fn stat(socket: &Path, proxy: &str, server: &str, column: &str) -> String {
    let said = ask(socket, "show stat");
    let mut lines = said.lines().map(|line| line.trim_start_matches("# ").split(',').collect::<Vec<_>>());
    let index = lines.next().unwrap().iter().position(|name| *name == column).unwrap();
    let line = lines.find(|line| line.len() > 1 && line[0] == proxy && line[1] == server);
    line.unwrap_or_else(|| panic!("{proxy}/{server} is not in {said}"))[index].to_owned()
}

#[test]
fn datagrams_and_streams_are_forwarded_in_the_format_of_each_target() {
    let (text, syslog, kept) = (Syslog::new(), Syslog::new(), Syslog::new());
    let folder = Folder::new();
    let (cli, local) = (folder.0.join("cli"), folder.0.join("log"));
    let ((socket, address), (_inbox, inbox, udp)) = (listener(), inbox());
    let _program = Manylane::start_ready(&format!(
        "global\n stats socket {}\nlog-forward f\n bind {}\n dgram-bind {inbox}\n dgram-bind unix@{}\n \
            log {} format raw local0\n log {} format rfc5424 local0\n log {} len 65535 local0\n",
        cli.display(),
        fd(&socket),
        local.display(),
        text.address(),
        syslog.address(),
        kept.address()
    ));
    sender().send_to(b"<13>Nov  1 07:24:06 myhost tag[12]: by datagram\n", udp).unwrap();
    assert_eq!(text.wait("datagram"), "by datagram");
    let line = syslog.wait("datagram");
    let (year, rest) = line.strip_prefix("<13>1 ").unwrap().split_at(4);
    assert!(year.parse::<u32>().is_ok(), "{line}");
    assert_eq!(rest, "-11-01T07:24:06-00:00 myhost tag 12 - - by datagram");
    assert_eq!(kept.wait("datagram"), "<13>Nov  1 07:24:06 myhost tag[12]: by datagram");

    let own = UnixDatagram::unbound().unwrap();
    own.send_to(b"<13>from here", &local).unwrap();
    let line = syslog.wait("from here");
    assert!(line.ends_with(" - - - - - from here"), "a local sender has no address: {line}");

    let mut client = connect(address);
    client.write_all(b"<14>by line\r\n11 <15>counted<14>begun").unwrap();
    assert_eq!(text.wait("by line"), "by line");
    assert_eq!(text.wait("counted"), "counted");
    assert!(kept.wait("counted").ends_with(" 127.0.0.1 counted"), "whose host is the sender");
    client.write_all(b" and ended\n").unwrap();
    assert_eq!(text.wait("begun"), "begun and ended");

    let long = [b"<13>".to_vec(), vec![b'x'; 20_000]].concat();
    sender().send_to(&long, udp).unwrap();
    assert_eq!(text.wait("xxx").len(), 1023, "cut to its target's length");
    assert_eq!(info(&cli, "CumRecvLogs"), 6);
    assert!(!ask(&cli, "show stat").contains("f,FRONTEND"), "as in HAProxy");
}

#[test]
fn what_is_no_message_ends_the_connection_and_what_is_too_long() {
    let text = Syslog::new();
    let ((socket, address), (other, lines)) = (listener(), listener());
    let _program = Manylane::start(&format!(
        "log-forward f\n bind {}\n log {} format raw local0\nlog-forward g\n bind {}\n option \
            assume-rfc6587-ntf\n log {} format raw local0\n",
        fd(&socket),
        text.address(),
        fd(&other),
        text.address()
    ));
    let long = [b"<13>".to_vec(), vec![b'x'; 20_000]].concat();
    for broken in [b"hello\n".to_vec(), b"0 x".to_vec(), b"99999 x".to_vec(), long] {
        let mut client = connect(address);
        client.write_all(b"<13>before\n").unwrap();
        client.write_all(&broken).unwrap();
        assert_eq!(text.wait(""), "before");
        let _ = end_of(&mut client); // it is reset if unread input was left
    }
    let mut client = connect(lines);
    client.write_all(b"5 hello\n").unwrap();
    assert_eq!(text.wait(""), "5 hello");
}

#[test]
fn silent_clients_are_closed_and_no_more_are_served_than_maxconn() {
    let text = Syslog::new();
    let (socket, address) = listener();
    // One lane accepts them in turn, and what they send is there when it does.
    let (mut first, mut second) = (connect(address), connect(address));
    first.write_all(b"<13>first\n").unwrap();
    second.write_all(b"<13>second\n").unwrap();
    let _program = Manylane::start(&format!(
        "global\n nbthread 1\nlog-forward f\n bind {}\n maxconn 1\n timeout client 200ms\n log {} format raw \
         local0\n",
        fd(&socket),
        text.address()
    ));
    assert_eq!(text.wait(""), "first");
    assert_eq!(end_of(&mut first), Ok(()));
    assert_eq!(text.wait(""), "second", "when the first has ended");
}

#[test]
fn hosts_are_named_as_the_option_says_and_messages_need_not_be_taken_apart() {
    for (option, expected) in [
        ("option host replace", "<13>Nov 21 07:24:06 127.0.0.1 tag: x"),
        ("option host fill", "<13>Nov 21 07:24:06 myhost tag: x"),
        ("option host keep", "<13>Nov 21 07:24:06 myhost tag: x"),
        ("option host append", "<13>Nov 21 07:24:06 myhost,127.0.0.1 tag: x"),
        ("option dont-parse-log", "<13>Nov 21 07:24:06 myhost tag: x"),
    ] {
        let (kept, text) = (Syslog::new(), Syslog::new());
        let (_inbox, inbox, udp) = inbox();
        let _program = Manylane::start(&format!(
            "log-forward f\n dgram-bind {inbox}\n {option}\n log {} local0\n log {} format short local0 err \
                warning\n",
            kept.address(),
            text.address()
        ));
        sender().send_to(b"<13>Nov 21 07:24:06 myhost tag: x", udp).unwrap();
        assert_eq!(kept.wait(""), expected, "{option}");
        // A message without a level counts as one of the highest level.
        if option == "option dont-parse-log" {
            assert_eq!(text.wait(""), "<4><13>Nov 21 07:24:06 myhost tag: x");
        } else {
            sender().send_to(b"<3>Nov 21 07:24:06 myhost tag: error", udp).unwrap();
            assert_eq!(text.wait(""), "<4>error", "{option}");
        }
    }
}

#[test]
fn a_log_backend_balances_lines_over_its_servers_that_are_up() {
    let servers = [Syslog::new(), Syslog::new(), Syslog::new()];
    let folder = Folder::new();
    let cli = folder.0.join("cli");
    let (_inbox, inbox, udp) = inbox();
    let lines: String = servers
        .iter()
        .enumerate()
        .map(|(number, server)| format!(" server s{number} udp@{}\n", server.address()))
        .collect();
    let _program = Manylane::start_ready(&format!(
        "global\n stats socket {} level admin\nlog-forward f\n dgram-bind {inbox}\n log backend@turns format \
            raw local0\n log backend@sticky format raw local0\n log backend@keys format raw sample 1:1 \
            local0\nbackend turns\n mode log\n{lines}\nbackend sticky\n mode log\n balance sticky\n{lines}\n\
            backend keys\n mode log\n balance log-hash field(1,:),lower\n{lines}",
        cli.display()
    ));
    for proxy in ["turns", "sticky"] {
        assert_eq!(stat(&cli, proxy, "BACKEND", "mode"), "syslog");
    }
    // Of three lines, each server of 'turns' gets one, the first of 'sticky' gets all, and one server of
    // 'keys' gets both lines of a key.
    let own = sender();
    for line in ["<13>k:1", "<13>K:2", "<13>other"] {
        own.send_to(line.as_bytes(), udp).unwrap();
    }
    until(|| info(&cli, "CumRecvLogs") == 3);
    let mut observed: Vec<Vec<String>> = vec![Vec::new(); servers.len()];
    // Received lines may not have been sent yet. So send marks, and collect what each server has got before
    // its mark, until all nine lines are there.
    until(|| {
        for (server, lines) in servers.iter().zip(&mut observed) {
            own.send_to(b"mark", server.address()).unwrap();
            lines.extend(server.until("mark"));
        }
        observed.iter().map(Vec::len).sum::<usize>() >= 9
    });
    let total = |text: &str| observed.iter().flatten().filter(|line| line.as_str() == text).count();
    assert_eq!((total("k:1"), total("K:2"), total("other")), (3, 3, 3), "{observed:?}");
    for (number, lines) in observed.iter().enumerate() {
        assert!(!lines.is_empty(), "{number} has had no turn: {observed:?}");
    }
    assert!(observed[0].len() >= 4, "{observed:?}");

    assert_eq!(info(&cli, "DroppedLogs"), 0);
    for server in ["s0", "s1", "s2"] {
        ask(&cli, &format!("disable server turns/{server}"));
    }
    assert_eq!(stat(&cli, "turns", "BACKEND", "status"), "DOWN");
    ask(&cli, "disable server sticky/s0");
    own.send_to(b"<13>fourth", udp).unwrap();
    servers[1].wait("fourth");
    until(|| info(&cli, "DroppedLogs") == 1);
    ask(&cli, "enable server sticky/s0");
    own.send_to(b"<13>fifth", udp).unwrap();
    servers[1].wait("fifth");
    let said = ask(&cli, "add server turns/x udp@127.0.0.1:9");
    assert_eq!(said.trim(), "Dynamic servers cannot be used with log backends.");
}

#[test]
fn lines_of_proxies_go_to_servers_over_tcp_in_their_framing() {
    for (option, expected) in [("", "hello 200\n"), (" log-proto octet-count", "9 hello 200")] {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let (socket, address) = listener();
        let _program = Manylane::start(&format!(
            "{DEFAULTS}frontend f\n bind {}\n mode http\n log backend@b format raw local0\n log-format \
                \"hello %ST\"\n http-request return status 200\nbackend b\n mode log\n server s {}{option}\n",
            fd(&socket),
            server.local_addr().unwrap()
        ));
        let mut client = connect(address);
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let (mut log, _) = server.accept().unwrap();
        log.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut line = vec![0; expected.len()];
        log.read_exact(&mut line).unwrap();
        assert_eq!(String::from_utf8_lossy(&line), expected);
    }
}

/// A slow target delays no other one, and lines without room are counted.
#[test]
fn a_server_that_does_not_read_holds_up_nobody() {
    let quick = Syslog::new();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = Folder::new();
    let cli = folder.0.join("cli");
    let (socket, address) = listener();
    let _program = Manylane::start_ready(&format!(
        "global\n nbthread 1\n stats socket {}\nlog-forward f\n bind {}\n log backend@slow len 8192 local0\n \
            log {} format raw local0\nbackend slow\n mode log\n timeout connect 1m\n timeout server 1m\n \
            server s {} log-bufsize 16384\n",
        cli.display(),
        fd(&socket),
        quick.address(),
        silent.local_addr().unwrap()
    ));
    let mut client = connect(address);
    let line = [b"<13>".to_vec(), vec![b'x'; 8000], b"\n".to_vec()].concat();
    until(|| {
        (0..100).for_each(|_| client.write_all(&line).unwrap());
        info(&cli, "DroppedLogs") > 0
    });
    client.write_all(b"<13>through\n").unwrap();
    quick.wait("through");
}

#[test]
fn a_reload_loses_no_datagram_and_keeps_the_socket() {
    let text = Syslog::new();
    let folder = Folder::new();
    let (cli, config) = (folder.0.join("cli"), folder.0.join("test.cfg"));
    let (_inbox, inbox, udp) = inbox();
    let write = |format: &str| {
        let text = format!(
            "global\n stats socket {} level admin\nlog-forward f\n dgram-bind {inbox}\n log {} format \
                {format} local0\n",
            cli.display(),
            text.address()
        );
        std::fs::write(&config, text).unwrap();
    };
    write("raw");
    let _program = Ended(common::command().arg("-f").arg(&config).spawn().unwrap());
    let own = sender();
    let mut number = 0;
    let mut reach = |before: &str| {
        loop {
            number += 1;
            own.send_to(format!("<13>{number}").as_bytes(), udp).unwrap();
            let line = text.wait("");
            assert!(line.ends_with(&number.to_string()), "{line} {number}");
            if line.starts_with(before) {
                break;
            }
        }
    };
    reach("");
    for format in ["short", "raw", "priority"] {
        write(format);
        let reload = std::thread::spawn({
            let cli = cli.clone();
            move || ask(&cli, "reload")
        });
        reach(if format == "raw" {
            ""
        } else if format == "short" {
            "<5>"
        } else {
            "<13>"
        });
        let said = reload.join().unwrap();
        assert!(!said.contains("Not reloaded"), "{said}");
    }
}

/// The last calls of a generation read more than the share of a round.
#[test]
fn what_is_left_in_a_socket_at_the_end_is_forwarded() {
    const COUNT: usize = 300;
    let (folder, (socket, inbox, udp)) = (Folder::new(), inbox());
    rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 1 << 20).unwrap();
    let cli = folder.0.join("cli");
    let file = folder.file(
        "test.cfg",
        &format!(
            "global\n stats socket {} level admin\nlog-forward f\n dgram-bind {inbox}\n log \
                stdout format raw local0 info\n",
            cli.display()
        ),
    );
    let piped = std::process::Stdio::piped;
    let mut program = common::command();
    program.arg("-V").arg("-f").arg(file).stdout(piped()).stderr(piped());
    let mut child = Ended(program.spawn().unwrap());
    let mut said = BufReader::new(child.0.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(said.any(|line| line.contains("lanes are ready")));
    let drained = std::thread::spawn(move || said.for_each(drop));
    ask(&cli, "disable frontend f");
    let own = sender();
    (0..COUNT).for_each(|number| {
        own.send_to(format!("<13>number {number}").as_bytes(), udp).unwrap();
    });
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(child.0.id() as i32),
        nix::sys::signal::Signal::SIGUSR1,
    )
    .unwrap();
    until(|| child.0.try_wait().unwrap().is_some());
    let output = BufReader::new(child.0.stdout.take().unwrap());
    let lines = output.lines().map(Result::unwrap).filter(|line| line.starts_with("number ")).count();
    assert!(child.0.wait().unwrap().success());
    drained.join().unwrap();
    assert_eq!(lines, COUNT);
}

#[test]
fn a_disabled_section_receives_nothing_until_it_is_enabled() {
    let text = Syslog::new();
    let folder = Folder::new();
    let cli = folder.0.join("cli");
    let (_inbox, inbox, udp) = inbox();
    let _program = Manylane::start_ready(&format!(
        "global\n stats socket {} level admin\nlog-forward f\n dgram-bind {inbox}\n log {} format raw local0 \
            info\n",
        cli.display(),
        text.address()
    ));
    ask(&cli, "disable frontend f");
    text.wait("Paused frontend f");
    sender().send_to(b"<13>waits", udp).unwrap();
    ask(&cli, "enable frontend f");
    // Two lanes send these lines, in any order.
    let mut lines = [text.wait(""), text.wait("")];
    lines.sort_unstable_by_key(|line| line == "waits");
    assert!(lines[0].ends_with("Resumed frontend f.") && lines[1] == "waits", "{lines:?}");
    assert_eq!(info(&cli, "CumRecvLogs"), 1);
}

#[test]
fn bad_sections_are_refused_with_position_and_remedy() {
    for (config, expected) in [
        (
            "log-forward f\n log backend@b local0\n dgram-bind 127.0.0.1:1\n",
            "expects the name of a backend behind 'backend@', found 'b'",
        ),
        (
            "log-forward f\n log backend@b local0\n dgram-bind 127.0.0.1:1\nbackend b\n server s [::1]:1\n",
            "expects a backend in 'mode log'",
        ),
        ("log-forward f\n option host mine\n", "'option host' expects replace|fill|keep|append"),
        ("log-forward f\n dgram-bind tcp@127.0.0.1:1\n", "does not take streams"),
        ("log-forward f\n mode http\n", "'mode' not allowed in 'log-forward' section"),
        ("frontend f\n mode log\n bind 127.0.0.1:1\n", "'mode log' is for backends"),
        ("backend b\n mode log\n balance source\n", "expects log-hash, random, roundrobin or sticky"),
        ("backend b\n mode log\n balance log-hash nonsense\n", "unknown converter"),
        ("backend b\n mode log\n balance log-hash lower\n hash-type consistent\n", "'hash-type map-based'"),
        ("backend b\n mode log\n server s udp@127.0.0.1\n", "an address with a port"),
        ("backend b\n mode log\n server s 127.0.0.1:1 send-proxy\n", "'log-proto', 'log-bufsize'"),
        ("backend b\n mode log\n server s unix@/x\n", "expects an IP address and a port"),
        (
            "backend b\n mode tcp\n server s udp@127.0.0.1:1\n",
            "'server' expects datagrams (udp@) in 'mode log' only, found 'mode tcp'",
        ),
        (
            "frontend f\n bind 127.0.0.1:1\n default_backend b\nbackend b\n mode log\n",
            "expects a backend in 'mode tcp' or 'mode http', found 'b'",
        ),
    ] {
        let output = check(config, &[]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(expected), "{config}\n{said}");
        assert!(!output.status.success(), "{config}\n{said}");
    }
}

#[test]
fn a_limit_of_datagrams_below_the_buffers_is_warned_of() {
    let said = |bufsize: u32, line: &str| {
        let config =
            format!("global\n tune.bufsize {bufsize}\nlog-forward f\n {line}\n log 127.0.0.1:1 local0\n");
        let output = check(&config, &[]);
        assert!(output.status.success(), "{config}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let long = said(32768, "dgram-bind 127.0.0.1:1");
    let expected = "'dgram-bind' takes at most 16384 bytes of a datagram, although 'tune.bufsize' is 32768";
    assert!(long.contains("test.cfg:4") && long.contains(expected), "{long}");
    assert!(!said(16384, "dgram-bind 127.0.0.1:1").contains("of a datagram"));
    assert!(!said(32768, "bind 127.0.0.1:1").contains("of a datagram"));
}

/// Without `format`, messages keep their own format, whatever is usual for the target.
#[test]
fn standard_output_gets_messages_as_they_came() {
    let (_inbox, inbox, udp) = inbox();
    let folder = Folder::new();
    let file = folder.file("test.cfg", &format!("log-forward f\n dgram-bind {inbox}\n log stdout local0\n"));
    let child = common::command().arg("-f").arg(file).stdout(std::process::Stdio::piped()).spawn();
    let mut child = Ended(child.unwrap());
    let sent = "<165>1 2026-11-21T07:24:06.270201+00:00 host app 12 ID47 [a@1 b=\"c\"] text here";
    sender().send_to(sent.as_bytes(), udp).unwrap();
    let mut line = String::new();
    BufReader::new(child.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line.trim_end(), sent);
}
