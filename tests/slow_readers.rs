//! Clients that read slowly or not at all: each has its timeout and no more, and the server is not blamed
//! (R-G1).

use crate::common;

use common::watch::{Syslog, ask, until};
use common::{Folder, Manylane, TIMEOUT, descriptors, fd, listener, origin};
use rustix::net::{AddressFamily, SocketType};
use std::cell::Cell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Exceeds the socket buffers of a client that does not read, and what io_uring holds in addition.
const TOO_MUCH: usize = 40_000;

/// Small socket buffers for clients, so that the program has to wait. Heads may be large.
const GLOBAL: &str = "global\n nbthread 1\n warn-blocked-traffic-after 1s\n tune.sndbuf.client 4096\n \
                      tune.bufsize 65536\n";

/// All timeouts except the client's.
const TIMES: &str = "defaults\n mode http\n timeout server 1h\n timeout connect 5s\n timeout tunnel 1h\n";

/// A client with small socket buffers.
pub(crate) fn small(address: SocketAddr) -> TcpStream {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 1).unwrap();
    rustix::net::connect(&socket, &address).unwrap();
    let client = TcpStream::from(socket);
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    client.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    client
}

/// Header fields of this size in total.
fn fields(bytes: usize) -> String {
    format!("X: {}\r\n", "x".repeat(995)).repeat(bytes / 1000)
}

/// Reads a request's head; returns false at the end of the connection.
fn head(reader: &mut impl BufRead) -> bool {
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|n| n > 0) {
        if line == "\r\n" {
            return true;
        }
        line.clear();
    }
    false
}

/// A server that responds with `first` and then `then` to each request.
fn server(first: String, then: &'static str) -> SocketAddr {
    origin(move |mut stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while head(&mut reader) {
            let sent = stream.write_all(first.as_bytes()).and_then(|()| stream.write_all(then.as_bytes()));
            if sent.is_err() {
                return;
            }
        }
    })
}

/// Checks that clients that send `sent` and read nothing are closed.
fn are_let_go(config: &str, sent: &[u8]) {
    let (socket, address) = listener();
    let program = Manylane::start_ready(&config.replace("@bind", &fd(&socket)));
    let before = descriptors(program.pid());
    let observed = Cell::new(false);
    let _clients: Vec<TcpStream> = (0..8)
        .map(|_| {
            let mut client = small(address);
            // From the first accepted connection on, their number must go down.
            until(|| observed.get() || descriptors(program.pid()) > before);
            observed.set(true);
            let _ = client.write_all(sent); // as much as is accepted
            client
        })
        .collect();
    until(|| descriptors(program.pid()) <= before);
}

#[test]
fn a_client_that_does_not_take_a_100_is_let_go() {
    // The body does not come with the head, so the proxy sends 100, however fast it arrives.
    let request = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 70000\r\nExpect: 100-continue\r\n\r\n";
    let sent = format!("{request}{}", "x".repeat(70_000)).repeat(1000);
    are_let_go(
        &format!(
            "{GLOBAL}{TIMES} timeout client 3s\nfrontend f\n bind @bind\n option http-buffer-request\n \
             http-request return status 204\n"
        ),
        sent.as_bytes(),
    );
}

#[test]
fn a_client_that_does_not_take_an_early_hint_is_let_go() {
    let rule = format!(" http-request early-hint X {}\n", "x".repeat(1000)).repeat(TOO_MUCH / 1000);
    are_let_go(
        &format!(
            "{GLOBAL}{TIMES} timeout client 3s\nfrontend f\n bind @bind\n{rule} http-request return status \
             200\n"
        ),
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    );
}

const UPGRADE: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";

/// A server that accepts a tunnel with a long head.
fn upgrades() -> SocketAddr {
    let fields = fields(TOO_MUCH);
    server(
        format!("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n{fields}\r\n"),
        "",
    )
}

#[test]
fn a_client_that_does_not_take_the_head_of_a_tunnel_is_let_go() {
    let times = TIMES.replace("timeout tunnel 1h", "timeout client 3s");
    are_let_go(&format!("{GLOBAL}{times}listen l\n bind @bind\n server s {}\n", upgrades()), UPGRADE);
}

/// A command ends a tunnel whose client does not read the head.
#[test]
fn a_tunnel_that_has_not_begun_is_ended_from_elsewhere() {
    let (socket, address) = listener();
    let folder = Folder::new();
    let control = folder.0.join("control");
    let program = Manylane::start_ready(&format!(
        "{GLOBAL} stats socket {} level admin\n{TIMES} timeout client 1h\nlisten l\n bind {}\n server s {}\n",
        control.display(),
        fd(&socket),
        upgrades()
    ));
    let before = descriptors(program.pid());
    let mut client = small(address);
    client.write_all(UPGRADE).unwrap();
    until(|| descriptors(program.pid()) >= before + 2);
    until(|| {
        ask(&control, "shutdown sessions server l/s");
        // The command's own connection may still be open; the tunnel has two.
        descriptors(program.pid()) <= before + 1
    });
}

/// The server has sent its response: a client that does not read it has timed out, and the server has not
/// failed.
#[test]
fn a_server_is_not_blamed_for_a_client_that_does_not_take_what_comes_first() {
    let (socket, address) = listener();
    let (folder, syslog) = (Folder::new(), Syslog::new());
    let control = folder.0.join("control");
    let first = format!("HTTP/1.1 103 Early Hints\r\n{}\r\n", fields(TOO_MUCH));
    let times = TIMES.replace("server 1h", "server 3s");
    let _program = Manylane::start_ready(&format!(
        "{GLOBAL} stats socket {} level admin\n{times} timeout client 3s\n log {} local0\n option \
         httplog\nlisten l\n bind {}\n server s {} observe layer7 error-limit 1 on-error mark-down check \
         inter 1h\n",
        control.display(),
        syslog.address(),
        fd(&socket),
        server(first, "")
    ));
    let mut client = small(address);
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let line = syslog.wait("GET / ");
    assert!(line.contains(" cH-- ") && line.contains(" 408 "), "{line}");
    let state = ask(&control, "show servers state l");
    let server = state.lines().find(|line| line.contains(" s ")).unwrap();
    assert_eq!(server.split(' ').nth(5), Some("2"), "it is up: {server}");
}

/// Sizes of responses that fit only partly into the socket buffers, while io_uring holds the rest.
const SIZES: [usize; 8] = [3000, 5000, 7000, 9000, 11_000, 13_000, 15_000, 17_000];

/// Clients that have requested these sizes and read nothing.
fn clients_that_wait(address: SocketAddr) -> Vec<(TcpStream, usize)> {
    let ask = |bytes: usize| {
        let mut client = small(address);
        client.write_all(format!("GET /{bytes} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).unwrap();
        (client, bytes)
    };
    SIZES.map(ask).into()
}

/// Reads whole responses and the end of the connections.
fn are_whole(clients: Vec<(TcpStream, usize)>) {
    for (client, bytes) in clients {
        let mut reader = BufReader::new(client);
        assert!(head(&mut reader), "{bytes}");
        let mut body = Vec::new();
        reader.read_to_end(&mut body).unwrap();
        assert_eq!(body.len(), bytes);
    }
}

/// Responds with the number of bytes in the path, and reports that.
fn bodies() -> (SocketAddr, mpsc::Receiver<()>) {
    let (tell, receiver) = mpsc::channel();
    let server = origin(move |mut stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 || !head(&mut reader) {
                return;
            }
            let bytes = line.split(['/', ' ']).nth(2).unwrap().parse().unwrap();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n{}", "x".repeat(bytes));
            stream.write_all(answer.as_bytes()).unwrap();
            let _ = tell.send(());
        }
    });
    (server, receiver)
}

/// The time between two requests starts when the client has its response; here more time passes before the
/// client reads.
#[test]
fn a_response_is_whole_for_a_client_that_reads_it_late() {
    let (socket, address) = listener();
    let (server, receiver) = bodies();
    let _program = Manylane::start_ready(&format!(
        "{GLOBAL}{TIMES} timeout client 1h\n timeout http-keep-alive 100ms\nlisten l\n bind {}\n server s \
         {}\n",
        fd(&socket),
        server
    ));
    let clients = clients_that_wait(address);
    SIZES.iter().for_each(|_| receiver.recv_timeout(TIMEOUT).unwrap());
    // A client that reads at once is closed after its time, so the time of the others has passed, too.
    let mut prompt = small(address);
    prompt.write_all(b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    are_whole(vec![(prompt, 1)]);
    are_whole(clients);
}

/// A response is complete although the program is told to end before the client reads.
#[test]
fn a_response_is_whole_for_a_client_that_reads_it_when_the_program_ends() {
    let (socket, address) = listener();
    let (server, receiver) = bodies();
    let mut program = Manylane::start_ready(&format!(
        "{GLOBAL}{TIMES} timeout client 1h\nlisten l\n bind {}\n server s {}\n",
        fd(&socket),
        server
    ));
    let clients = clients_that_wait(address);
    SIZES.iter().for_each(|_| receiver.recv_timeout(TIMEOUT).unwrap());
    let mut prompt = small(address);
    prompt.write_all(b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    receiver.recv_timeout(TIMEOUT).unwrap();
    program.signal(nix::sys::signal::Signal::SIGUSR1);
    // The program accepts further requests for a moment after the response; when that is over, so are the
    // moments of earlier ones.
    are_whole(vec![(prompt, 1)]);
    are_whole(clients);
    assert!(program.wait().success());
}

/// A client that does not read its response is closed.
#[test]
fn a_client_that_does_not_take_its_response_is_let_go() {
    let (socket, address) = listener();
    let (server, receiver) = bodies();
    let program = Manylane::start_ready(&format!(
        "{GLOBAL}{TIMES} timeout client 1s\n option http-server-close\nlisten l\n bind {}\n server s {}\n",
        fd(&socket),
        server
    ));
    let before = descriptors(program.pid());
    let _clients = clients_that_wait(address);
    SIZES.iter().for_each(|_| receiver.recv_timeout(TIMEOUT).unwrap());
    until(|| descriptors(program.pid()) <= before);
}

/// TCP mode: servers have sent their data and closed, and clients do not read. Each client has its timeout,
/// also for data that io_uring holds after the server has closed.
#[test]
fn a_client_that_does_not_read_is_let_go_when_its_server_has_ended() {
    let (socket, address) = listener();
    let (tell, receiver) = mpsc::channel();
    let server = origin(move |mut stream| {
        let mut size = [0];
        stream.read_exact(&mut size).unwrap();
        let _ = stream.write_all(&vec![b'x'; 1000 * usize::from(size[0])]);
        drop(stream);
        tell.send(()).unwrap();
    });
    let times = TIMES.replace("mode http", "mode tcp").replace(" timeout tunnel 1h\n", "");
    let program = Manylane::start_ready(&format!(
        "{GLOBAL}{times} timeout client 1s\nlisten l\n bind {}\n server s {server}\n",
        fd(&socket)
    ));
    let before = descriptors(program.pid());
    let clients: Vec<TcpStream> = (2..60)
        .map(|size| {
            let mut client = small(address);
            client.write_all(&[size]).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            client
        })
        .collect();
    clients.iter().for_each(|_| receiver.recv_timeout(TIMEOUT).unwrap());
    until(|| descriptors(program.pid()) <= before);
}

/// A client waits for 100, and its server for the body: the client has timed out, and the server has not
/// failed.
#[test]
fn a_server_is_not_blamed_for_a_client_that_keeps_its_body() {
    let (socket, address) = listener();
    let (folder, syslog) = (Folder::new(), Syslog::new());
    let control = folder.0.join("control");
    let server = origin(|mut stream| drop(std::io::copy(&mut stream, &mut std::io::sink())));
    let times = TIMES.replace("server 1h", "server 1s");
    let _program = Manylane::start_ready(&format!(
        "{GLOBAL} stats socket {} level admin\n{times} timeout client 1s\n log {} local0\n option \
         httplog\nlisten l\n bind {}\n server s {server} observe layer7 error-limit 1 on-error mark-down \
         check inter 1h\n",
        control.display(),
        syslog.address(),
        fd(&socket)
    ));
    let mut client = small(address);
    client
        .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        .unwrap();
    let line = syslog.wait("POST / ");
    assert!(line.contains(" cH-- ") && line.contains(" 408 "), "{line}");
    let state = ask(&control, "show servers state l");
    let server = state.lines().find(|line| line.contains(" s ")).unwrap();
    assert_eq!(server.split(' ').nth(5), Some("2"), "it is up: {server}");
}

/// An HTTP/2 client that has sent a request, with this stream window.
fn ask_over_2(address: SocketAddr, window: u32) -> TcpStream {
    let mut client = common::connect(address);
    let settings = [&[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4][..], &window.to_be_bytes()].concat();
    // `GET http://a/`, with fields of the static table except the authority.
    let request = [0, 0, 6, 1, 5, 0, 0, 0, 1, 0x82, 0x86, 0x84, 0x01, 1, b'a'];
    client.write_all(&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &settings[..], &request].concat()).unwrap();
    client
}

/// Reads the next frame of the first stream: its type, whether it is the last, and its payload.
fn frame(client: &mut impl Read) -> (u8, bool, Vec<u8>) {
    loop {
        let mut head = [0; 9];
        client.read_exact(&mut head).unwrap();
        let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
        client.read_exact(&mut payload).unwrap();
        if head[8] == 1 && matches!(head[3], 0 | 1 | 3) {
            return (head[3], head[4] & 1 != 0, payload);
        }
    }
}

/// A server sends interim responses as long as they are accepted: they wait at the server while its HTTP/2
/// client reads nothing, and continue afterwards.
#[test]
fn interim_responses_wait_until_a_client_of_http_2_reads() {
    /// Limit of data accepted from the server: four socket buffers and some heads.
    const MOST: usize = 4 << 20;
    /// The server stops here if it is not held back.
    const END: usize = 32 << 20;
    // Larger than the HPACK table, so each one takes its full size.
    let hint = format!("HTTP/1.1 103 Early Hints\r\nX: {}\r\n\r\n", "x".repeat(5_000));
    let (tell, receiver) = mpsc::channel();
    let server = origin(move |mut stream| {
        rustix::net::sockopt::set_socket_send_buffer_size(&stream, 65_536).unwrap();
        stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
        assert!(head(&mut BufReader::new(stream.try_clone().unwrap())));
        let (mut sent, mut held) = (0, false);
        while sent < END && !(held && sent % hint.len() == 0) {
            match stream.write(&hint.as_bytes()[sent % hint.len()..]) {
                Ok(taken) => sent += taken,
                Err(_) if !held => {
                    held = true;
                    tell.send(sent).unwrap();
                    stream.set_write_timeout(Some(TIMEOUT)).unwrap();
                }
                Err(error) => panic!("nothing is taken any more: {error}"),
            }
        }
        if !held {
            tell.send(sent).unwrap();
        }
        let end = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        stream.write_all(end.as_bytes()).unwrap();
        tell.send(sent / hint.len()).unwrap();
    });
    let (socket, address) = listener();
    let _program = Manylane::start_ready(&format!(
        "{GLOBAL} tune.rcvbuf.server 65536\n{TIMES} timeout client 1h\nlisten l\n bind {}\n server s \
         {server}\n",
        fd(&socket)
    ));
    let client = ask_over_2(address, 65_535);
    let sent = receiver.recv_timeout(TIMEOUT).unwrap();
    println!("{sent} bytes were taken");
    assert!(sent < MOST, "{sent} bytes");
    let mut client = BufReader::new(client);
    let mut heads = 0;
    let body = loop {
        match frame(&mut client) {
            (1, false, _) => heads += 1,
            (_, end, body) => break (end, body),
        }
    };
    assert_eq!(body, (true, b"ok".to_vec()));
    assert_eq!(heads, receiver.recv_timeout(TIMEOUT).unwrap() + 1);
}

/// A client that opens its window only after the head of the response: interim responses are not data.
#[test]
fn interim_responses_do_not_wait_for_a_window() {
    let (socket, address) = listener();
    let first = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(3);
    let _program = Manylane::start_ready(&format!(
        "{GLOBAL}{TIMES} timeout client 1h\nlisten l\n bind {}\n server s {}\n",
        fd(&socket),
        server(first, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    ));
    let mut client = ask_over_2(address, 0);
    for _ in 0..4 {
        let (kind, end, _) = frame(&mut client);
        assert_eq!((kind, end), (1, false));
    }
    client.write_all(&[0, 0, 4, 8, 0, 0, 0, 0, 1, 0, 0, 0, 2]).unwrap();
    assert_eq!(frame(&mut client), (0, true, b"ok".to_vec()));
}

/// A client that keeps its window closed has `timeout client` for each stream, and its connection goes on.
#[test]
fn a_window_of_http_2_that_stays_closed_ends_its_stream() {
    let (socket, address) = listener();
    let _program = Manylane::start_ready(&format!(
        "{GLOBAL}{TIMES} timeout client 1s\n timeout http-keep-alive 1h\nlisten l\n bind {}\n server s {}\n",
        fd(&socket),
        server(String::new(), "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    ));
    let begin = Instant::now();
    let mut client = ask_over_2(address, 0);
    let (kind, end, _) = frame(&mut client);
    assert_eq!((kind, end), (1, false));
    let (kind, _, _) = frame(&mut client);
    assert_eq!(kind, 3, "a reset");
    let time = begin.elapsed();
    assert!((Duration::from_millis(950)..TIMEOUT).contains(&time), "{time:?}");
}

/// Responses without a body to clients of HTTP/2 that read nothing: each stream holds its head, and no more.
/// Later the clients get all of them.
#[test]
fn heads_that_a_client_of_http_2_does_not_read_are_bounded() {
    const CLIENTS: usize = 10;
    const STREAMS: usize = 100;
    const HEAD: usize = 14_000;
    /// Memory of a stream, as in SECURITY.md.
    const MOST: usize = 2 * HEAD + 16_384;
    for driver in ["epoll", "io_uring"] {
        let (tell, reported) = mpsc::channel();
        let answer = format!("HTTP/1.1 200 OK\r\n{}Content-Length: 0\r\n\r\n", fields(HEAD));
        let server = origin(move |mut stream| {
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            while head(&mut reader) {
                if stream.write_all(answer.as_bytes()).is_err() {
                    return;
                }
                tell.send(()).unwrap();
            }
        });
        let (socket, address) = listener();
        let config = format!(
            "{GLOBAL}{TIMES} timeout client 1h\nlisten l\n bind {}\n server s {server}\n",
            fd(&socket)
        );
        let program = Manylane::start_ready_as(&config, common::command().env("MANYLANE_DRIVER", driver));
        let before = program.memory();
        let mut all = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\0\x04\x01\0\0\0\0".to_vec();
        for stream in 0..STREAMS as u32 {
            all.extend([0, 0, 6, 1, 5]);
            all.extend((2 * stream + 1).to_be_bytes());
            all.extend([0x82, 0x86, 0x84, 0x41, 1, b'a']);
        }
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let mut client = small(address);
                client.write_all(&all).unwrap();
                client
            })
            .collect();
        (0..CLIENTS * STREAMS).for_each(|_| reported.recv_timeout(TIMEOUT).unwrap());
        let more = (program.memory() - before) << 10;
        println!("{driver}: {} bytes a client", more / CLIENTS);
        assert!(more < CLIENTS * STREAMS * MOST, "{driver}: {} bytes a client", more / CLIENTS);
        for client in clients {
            let mut client = BufReader::new(client);
            let mut ends = 0;
            while ends < STREAMS {
                let mut begin = [0; 9];
                client.read_exact(&mut begin).unwrap();
                let length = usize::from(begin[1]) << 8 | usize::from(begin[2]);
                client.read_exact(&mut vec![0; length]).unwrap();
                ends += usize::from(begin[3] == 1 && begin[4] & 1 != 0);
            }
        }
    }
}
