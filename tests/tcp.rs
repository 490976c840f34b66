//! TCP mode, end to end (R-G1).

use crate::common;

use common::{
    DEFAULTS, Manylane, TIMEOUT, connect, echo, end_of, fd, listener, named, nobody, origin, read_all, reset,
};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, SocketAddrV4, TcpListener};
use std::sync::mpsc;

#[test]
fn connections_go_to_the_servers_in_turn() {
    let (socket, address) = listener();
    let (one, two) = (named("one"), named("two"));
    let config = format!(
        "{DEFAULTS} balance roundrobin\nlisten l\n bind {} thread 1\n server s1 {one}\n server s2 {two}\n",
        fd(&socket)
    );
    let _program = Manylane::start(&config.replace("nbthread 2", "nbthread 1"));
    let mut said: Vec<String> = (0..4).map(|_| read_all(&mut connect(address))).collect();
    said.sort();
    assert_eq!(said, ["one", "one", "two", "two"]);
}

#[test]
fn a_half_closed_connection_carries_the_other_direction_to_its_end() {
    let (socket, address) = listener();
    for options in ["", " option splice-auto\n", " option splice-request\n option splice-response\n"] {
        let config = format!("{DEFAULTS}{options}listen l\n bind {}\n server s {}\n", fd(&socket), echo());
        let _program = Manylane::start(&config);
        let mut stream = connect(address);
        let sent: Vec<u8> = (0..3_000_001u32).map(|n| (n % 251) as u8).collect();
        let mut writer = stream.try_clone().unwrap();
        let copy = sent.clone();
        let writing = std::thread::spawn(move || {
            writer.write_all(&copy).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        writing.join().unwrap();
        assert!(got == sent, "{options}: {} bytes of {}", got.len(), sent.len());
    }
}

#[test]
fn a_server_that_refuses_is_left_for_another() {
    let (socket, address) = listener();
    let config = format!(
        "{DEFAULTS} retries 1\n option redispatch\n balance first\n\
         listen l\n bind {}\n server dead {}\n server alive {}\n",
        fd(&socket),
        nobody(),
        named("alive")
    );
    let _program = Manylane::start(&config);
    assert_eq!(read_all(&mut connect(address)), "alive");
}

#[test]
fn without_a_server_the_connection_is_closed() {
    let (socket, address) = listener();
    let config = format!(
        "{DEFAULTS} timeout connect 50ms\n retries 0\nlisten l\n bind {}\n server dead {}\n",
        fd(&socket),
        nobody()
    );
    let _program = Manylane::start(&config);
    assert_eq!(read_all(&mut connect(address)), "");
}

#[test]
fn a_backup_server_serves_when_no_other_may() {
    let (socket, address) = listener();
    let config = format!(
        "{DEFAULTS}listen l\n bind {}\n server s1 {} disabled\n server s2 {} weight 0\n server b {} backup\n",
        fd(&socket),
        named("disabled"),
        named("no weight"),
        named("backup")
    );
    let _program = Manylane::start(&config);
    assert_eq!(read_all(&mut connect(address)), "backup");
}

#[test]
fn a_silent_client_is_closed_after_its_timeout() {
    let (socket, address) = listener();
    let config =
        format!("{DEFAULTS} timeout client 2s\nlisten l\n bind {}\n server s {}\n", fd(&socket), echo());
    let _program = Manylane::start(&config);
    let begun = std::time::Instant::now();
    let mut stream = connect(address);
    stream.write_all(b"hello").unwrap();
    assert_eq!(read_all(&mut stream), "hello");
    assert!(begun.elapsed().as_secs() >= 2);
}

#[test]
fn the_proxy_protocol_is_read_and_sent() {
    let (socket, address) = listener();
    for (option, signature) in [
        ("send-proxy", "PROXY TCP4 192.0.2.7 192.0.2.8 1234 80\r\n".as_bytes()),
        ("send-proxy-v2", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x07\xc0\0\x02\x08\x04\xd2\0\x50"),
    ] {
        let config = format!(
            "{DEFAULTS}listen l\n bind {} accept-proxy\n server s {} {option}\n",
            fd(&socket),
            echo()
        );
        let _program = Manylane::start(&config);
        let mut stream = connect(address);
        // In two pieces, the second of which contains the first bytes after the header.
        stream.write_all(b"PROXY TCP4 192.0.2.7 192.").unwrap();
        stream.flush().unwrap();
        stream.write_all(b"0.2.8 1234 80\r\nhello").unwrap();
        let mut got = vec![0; signature.len() + 5];
        stream.read_exact(&mut got).unwrap();
        assert_eq!(got, [signature, b"hello"].concat(), "{option}");

        let mut liar = connect(address);
        liar.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let mut rest = Vec::new();
        assert!(matches!(liar.read_to_end(&mut rest), Ok(0) | Err(_)));
    }
}

/// R-A8
#[test]
fn proxies_are_chained_inside_of_the_process() {
    let (socket, address) = listener();
    let name = format!("chain-{}", std::process::id());
    let config = format!(
        "{DEFAULTS}listen outer\n bind {}\n server inner local@{name} send-proxy\n\
         listen inner\n bind local@{name} accept-proxy\n server s {} send-proxy\n",
        fd(&socket),
        echo()
    );
    let _program = Manylane::start(&config);
    let mut stream = connect(address);
    let expected = format!(
        "PROXY TCP4 127.0.0.1 127.0.0.1 {} {}\r\nhello",
        stream.local_addr().unwrap().port(),
        address.port()
    );
    stream.write_all(b"hello").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut stream), expected);
}

#[test]
fn connections_beyond_maxconn_wait_for_a_permit() {
    for maxconn in ["global\n maxconn 1\n", "frontend f\n maxconn 1\n", " maxconn 1\n"] {
        let (socket, address) = listener();
        let (tell, receiver) = mpsc::channel();
        let tell = std::sync::Mutex::new(tell);
        let server = origin(move |mut stream| {
            tell.lock().unwrap().send(()).unwrap();
            let _ = std::io::copy(&mut stream.try_clone().unwrap(), &mut stream);
        });
        let (global, front, bind) = match maxconn.split_once('\n') {
            Some(("global", rest)) => (rest, "", ""),
            Some(("frontend f", rest)) => ("", rest, ""),
            _ => ("", "", maxconn.trim_end()),
        };
        let config = format!(
            "{DEFAULTS}global\n{global}frontend f\n bind {}{bind}\n{front} default_backend b\nbackend b\n \
                server s {server}\n",
            fd(&socket)
        );
        let _program = Manylane::start(&config);
        let mut first = connect(address);
        first.write_all(b"x").unwrap();
        receiver.recv_timeout(common::TIMEOUT).unwrap();
        let mut second = connect(address);
        second.write_all(b"y").unwrap();
        let mut byte = [0];
        first.read_exact(&mut byte).unwrap();
        first.write_all(b"z").unwrap();
        // After two round trips on the first connection, the second one would have arrived.
        first.read_exact(&mut byte).unwrap();
        assert!(receiver.try_recv().is_err(), "{maxconn}");
        drop(first);
        receiver.recv_timeout(common::TIMEOUT).unwrap();
        second.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"y");
    }
}

/// `timeout tunnel` applies to a half-closed connection without a timeout of its own.
#[test]
fn a_tunnel_that_is_half_closed_has_the_time_of_a_tunnel() {
    let (socket, address) = listener();
    let (keep, kept) = mpsc::channel();
    let server = origin(move |stream| keep.send(stream).unwrap()); // silent, and stays open
    let _program = Manylane::start(&format!(
        "global\n nbthread 2\ndefaults\n timeout client 1h\n timeout server 1h\n timeout connect 1h\n \
            timeout tunnel 300ms\n mode tcp\n\
         listen l\n bind {}\n server s {server}\n",
        fd(&socket)
    ));
    let mut client = connect(address);
    client.write_all(b"abc").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let _server = kept.recv_timeout(common::TIMEOUT).unwrap();
    assert_eq!(read_all(&mut client), "");
}

/// An origin that reads three bytes, reports that, and then reports how its connection ends.
fn three_and_the_end() -> (SocketAddr, mpsc::Receiver<Result<(), ErrorKind>>) {
    let (tell, receiver) = mpsc::channel();
    let server = origin(move |mut stream| {
        stream.read_exact(&mut [0; 3]).unwrap();
        tell.send(Ok(())).unwrap();
        tell.send(end_of(&mut stream)).unwrap();
    });
    (server, receiver)
}

/// A server that reads to the end must not take truncated input for complete.
#[test]
fn the_reset_of_a_client_is_one_for_the_server() {
    let (socket, address) = listener();
    let name = format!("reset-{}", std::process::id());
    let chained = format!("listen outer\n bind {}\n server inner local@{name}\n", fd(&socket));
    for (options, front) in
        [("", ""), (" option splice-request\n option splice-response\n", ""), ("", &*chained)]
    {
        let (server, receiver) = three_and_the_end();
        let bind = if front.is_empty() { fd(&socket) } else { format!("local@{name}") };
        let config = format!("{DEFAULTS}{options}{front}listen l\n bind {bind}\n server s {server}\n");
        let _program = Manylane::start(&config);
        for ends_well in [false, true] {
            let mut client = connect(address);
            client.write_all(b"abc").unwrap();
            receiver.recv_timeout(TIMEOUT).unwrap().unwrap();
            if ends_well {
                drop(client)
            } else {
                reset(client)
            }
            let expected = if ends_well { Ok(()) } else { Err(ErrorKind::ConnectionReset) };
            assert_eq!(receiver.recv_timeout(TIMEOUT).unwrap(), expected, "{options}");
        }
    }
}

#[test]
fn without_lingering_servers_are_reset_where_clients_end() {
    let (socket, address) = listener();
    let (server, receiver) = three_and_the_end();
    let _program = Manylane::start(&format!(
        "{DEFAULTS}frontend f\n bind {}\n default_backend b\nbackend b\n option nolinger\n server s \
            {server}\n",
        fd(&socket)
    ));
    let mut client = connect(address);
    client.write_all(b"abc").unwrap();
    receiver.recv_timeout(TIMEOUT).unwrap().unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(receiver.recv_timeout(TIMEOUT).unwrap(), Err(ErrorKind::ConnectionReset));
    assert_eq!(end_of(&mut client), Ok(()), "who is not told of that sees an end");
}

/// Health checks of other programs connect and close: that must not look like an error to them.
#[test]
fn who_leaves_before_its_proxy_header_is_closed_and_not_reset() {
    let (socket, address) = listener();
    let config = format!("{DEFAULTS}listen l\n bind {} accept-proxy\n server s {}\n", fd(&socket), nobody());
    let _program = Manylane::start(&config);
    for (said, ended) in [("", Ok(())), ("PROXY x", Err(ErrorKind::ConnectionReset))] {
        let mut client = connect(address);
        client.write_all(said.as_bytes()).unwrap();
        let _ = client.shutdown(Shutdown::Write); // it may have been reset already
        assert_eq!(end_of(&mut client), ended, "{said:?}");
    }
}

/// The first bytes of a Remote Desktop Protocol client, with a server's address in the cookie.
fn desktop(address: SocketAddrV4) -> Vec<u8> {
    let (ip, port) = (u32::from_le_bytes(address.ip().octets()), address.port().swap_bytes());
    let mut bytes = b"\x03\0\0\x2f\x2a\xe0\0\0\0\0\0".to_vec();
    bytes.extend(format!("Cookie: msts={ip}.{port}.0000\r\n\x01\0\x08\0\0\0\0\0").bytes());
    bytes
}

/// A server that reads to the end and then sends its name.
fn patient(name: &'static str) -> SocketAddrV4 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let SocketAddr::V4(address) = listener.local_addr().unwrap() else { panic!("it is of IPv4") };
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            if client.read_to_end(&mut Vec::new()).is_ok() {
                let _ = client.write_all(name.as_bytes());
            }
        }
    });
    address
}

/// `persist rdp-cookie`: the client goes to the server whose address is in its cookie. If no server has that
/// address, or the server takes no streams, the client goes to any other.
#[test]
fn a_cookie_of_rdp_names_the_server() {
    let (one, two) = (patient("one"), patient("two"));
    let (socket, at) = listener();
    let folder = common::Folder::new();
    let commands = folder.0.join("cli");
    let config = format!(
        "global\n stats socket {} level admin\n{DEFAULTS}listen l\n mode tcp\n bind {}\n tcp-request \
         inspect-delay 5s\n tcp-request content accept if RDP_COOKIE\n persist rdp-cookie\n balance \
         roundrobin\n server one {one}\n server two {two}\n",
        commands.display(),
        fd(&socket),
    );
    let _program = Manylane::start(&config.replace("nbthread 2", "nbthread 1"));
    let goes_to = |address| {
        let mut client = connect(at);
        client.write_all(&desktop(address)).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut name = String::new();
        client.read_to_string(&mut name).unwrap();
        name
    };
    for _ in 0..3 {
        assert_eq!((goes_to(one), goes_to(two)), ("one".into(), "two".into()));
    }
    let nobodys: SocketAddrV4 = "127.0.0.1:1".parse().unwrap();
    let mut both = [goes_to(nobodys), goes_to(nobodys)];
    both.sort();
    assert_eq!(both, ["one", "two"], "an address of no server is in nobody's way");
    common::watch::ask(&commands, "set server l/one state maint");
    assert_eq!(goes_to(one), "two", "the server takes no streams");
}
