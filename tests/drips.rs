//! Input that arrives byte by byte takes memory by its size, wherever it waits for its end (SECURITY.md,
//! *What one connection can make us hold*).

use crate::common;

use common::{DEFAULTS, Manylane, TIMEOUT, connect, fd, listener, origin};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Instant;

const CLIENTS: usize = 40;

/// Bytes of each client. With a cluster for each byte they would take 120 MB in all.
const BYTES: usize = 1400;

/// Limit for the additional memory of bytes that arrive one by one, in kilobytes.
const MORE: usize = 2048;

/// One lane, since the lanes' own memory would count twice; and long timeouts for single bytes on a busy
/// machine.
fn defaults() -> String {
    DEFAULTS.replace("nbthread 2", "nbthread 1").replace("30s", "300s")
}

/// A name that no other program uses: a killed program may keep its name for a moment.
fn name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("manylane-drips-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Waits until the program has read everything on sockets with this port: its own port, or that of its peers.
fn all_is_read(port: u16, of_peer: bool) {
    let begin = Instant::now();
    let unread = || {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        table.lines().skip(1).any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (own, peer) = (words[1], words[2]);
            let there = if of_peer { peer } else { own }.ends_with(&format!(":{port:04X}"));
            let (unsent, unread) = words[4].split_once(':').unwrap();
            let theirs = if of_peer { own } else { peer }.ends_with(&format!(":{port:04X}"));
            words[3] == "01" && (there && unread != "00000000" || theirs && unsent != "00000000")
        })
    };
    while unread() {
        assert!(begin.elapsed() < TIMEOUT, "what was sent is not read");
        std::thread::yield_now();
    }
}

/// Rounds between two checks whether everything was read: a check takes longer than a round. If the program
/// read only at these times, single bytes in clusters of their own would still take 7 MB.
const ROUNDS: usize = 16;

/// Sends [`BYTES`] to each stream, `step` at a time, in turns.
fn send(streams: &mut [TcpStream], step: usize, all_is_read: impl Fn()) {
    for round in 0..BYTES / step {
        for stream in &mut *streams {
            stream.write_all(&vec![b'x'; step]).unwrap();
        }
        if round % ROUNDS == 0 {
            all_is_read();
        }
    }
    all_is_read();
}

/// Memory of a program with this configuration after clients have sent `begin` and then [`BYTES`] in pieces
/// of `step`.
fn memory_with_clients(config: &str, begin: &str, step: usize) -> usize {
    let (socket, address) = listener();
    let server = origin(|mut stream| drop(stream.read_to_end(&mut Vec::new())));
    let config = config.replace("@bind", &fd(&socket)).replace("@server", &server.to_string());
    let config = config.replace("@name", &name());
    let waits = " timeout http-request 300s";
    let program = Manylane::start_ready(&format!("{}{waits}\n{config}", defaults()));
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let client = connect(address);
            client.set_nodelay(true).unwrap();
            client
        })
        .collect();
    for client in &mut clients {
        client.write_all(begin.as_bytes()).unwrap();
    }
    send(&mut clients, step, || all_is_read(address.port(), false));
    let memory = program.memory();
    for client in &mut clients {
        // All wait: no client got a response or was disconnected.
        client.set_nonblocking(true).unwrap();
        assert_eq!(client.read(&mut [0]).map_err(|error| error.kind()), Err(std::io::ErrorKind::WouldBlock));
    }
    memory
}

#[track_caller]
fn drops_take_no_more(config: &str, begin: &str) {
    let (at_once, drops) = (memory_with_clients(config, begin, BYTES), memory_with_clients(config, begin, 1));
    assert!(drops <= at_once + MORE, "{drops} KB drop by drop, {at_once} KB at once");
}

const PROXY: &str = "listen l\n bind @bind\n mode http\n server s @server\n";

#[test]
fn a_head_that_comes_drop_by_drop_takes_no_more_than_at_once() {
    drops_take_no_more(PROXY, "GET / HTTP/1.1\r\nHost: a\r\nX: ");
}

#[test]
fn a_body_that_is_waited_for_takes_no_more_drop_by_drop() {
    let config = format!("{PROXY} option http-buffer-request\n");
    drops_take_no_more(&config, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000\r\n\r\n");
    let config = format!("{PROXY} http-request wait-for-body time 300s\n");
    drops_take_no_more(&config, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1000\r\n");
}

#[test]
fn trailers_take_no_more_drop_by_drop() {
    drops_take_no_more(
        PROXY,
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: ",
    );
}

#[test]
fn what_rules_of_tcp_wait_for_takes_no_more_drop_by_drop() {
    let rules = " tcp-request inspect-delay 300s\n tcp-request content accept if { req.len gt 15000 }\n";
    drops_take_no_more(&format!("listen l\n bind @bind\n mode tcp\n server s @server\n{rules}"), "");
    let rules = " tcp-request inspect-delay 300s\n tcp-request content accept if HTTP\n";
    drops_take_no_more(
        &format!("listen l\n bind @bind\n mode tcp\n server s @server\n{rules}"),
        "GET / HTTP/1.1\r\nX: ",
    );
}

#[test]
fn a_header_of_the_proxy_protocol_takes_no_more_drop_by_drop() {
    let begin = "\r\n\r\n\0\r\nQUIT\n\x21\x11\x0f\x00"; // announces 3,840 more bytes
    drops_take_no_more("listen l\n bind @bind accept-proxy\n mode http\n server s @server\n", begin);
}

/// Reads to the end of a head.
fn asks_by_a_head(stream: &mut TcpStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut part = [0; 4096];
        let length = stream.read(&mut part).unwrap();
        assert!(length > 0, "the head is cut");
        head.extend_from_slice(&part[..length]);
    }
}

/// Memory of a program with this configuration when it has [`CLIENTS`] connections to servers. Each server
/// has read what `asks` reads, and sent `begin` and then [`BYTES`] in pieces of `step`. If there is a
/// `request`, as many clients send it.
fn memory_with_servers(
    config: impl FnOnce(SocketAddr) -> String,
    request: Option<&str>,
    asks: fn(&mut TcpStream),
    begin: &'static [u8],
    step: usize,
) -> usize {
    let (socket, address) = listener();
    let (tell, told) = mpsc::channel();
    let server: SocketAddr = origin(move |mut stream| {
        asks(&mut stream);
        stream.set_nodelay(true).unwrap();
        stream.write_all(begin).unwrap();
        let _ = tell.send(stream); // the program may have ended
    });
    let listen = "listen served\n bind @bind\n mode http\n";
    let config = config(server);
    let config = if request.is_none() { format!("{listen}{config}") } else { config };
    let config = config.replace("@bind", &fd(&socket));
    let program = Manylane::start_ready(&format!("{}{config}", defaults()));
    let clients: Vec<_> = request
        .into_iter()
        .flat_map(|request| {
            (0..CLIENTS).map(move |_| {
                let mut client = connect(address);
                client.write_all(request.as_bytes()).unwrap();
                client
            })
        })
        .collect();
    let mut servers: Vec<_> = (0..CLIENTS).map(|_| told.recv_timeout(TIMEOUT).unwrap()).collect();
    send(&mut servers, step, || all_is_read(server.port(), true));
    let memory = program.memory();
    for server in &mut servers {
        // The program waits for more: it has not closed the connection. That of a ring may have sent lines.
        server.set_nonblocking(true).unwrap();
        let peeked = server.peek(&mut [0]).map_err(|error| error.kind());
        assert!(matches!(peeked, Ok(1) | Err(std::io::ErrorKind::WouldBlock)), "{peeked:?}");
    }
    drop(clients);
    memory
}

#[track_caller]
fn drops_of_servers_take_no_more(
    config: impl Fn(SocketAddr) -> String,
    request: Option<&str>,
    asks: fn(&mut TcpStream),
    begin: &'static [u8],
) {
    let at_once = memory_with_servers(&config, request, asks, begin, BYTES);
    let drops = memory_with_servers(&config, request, asks, begin, 1);
    let begin = String::from_utf8_lossy(begin);
    assert!(drops <= at_once + MORE, "{begin}: {drops} KB drop by drop, {at_once} KB at once");
}

#[test]
fn what_servers_send_drop_by_drop_takes_no_more_than_at_once() {
    let wait = " http-response wait-for-body time 300s\n";
    let bodies = b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n";
    let chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1000\r\n";
    let all: [(&str, &'static [u8]); 3] = [("", b"HTTP/1.1 200 OK\r\nX: "), (wait, bodies), (wait, chunks)];
    for (rules, begin) in all {
        let config = |server| format!("listen l\n bind @bind\n mode http\n server s {server}\n{rules}");
        let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        drops_of_servers_take_no_more(config, Some(request), asks_by_a_head, begin);
    }
}

/// A rule that waits for a chunked body, with one byte and a long extension in each chunk: the framing is
/// stored with the body, so it is limited, too.
#[test]
fn a_body_that_is_waited_for_is_bounded_with_what_frames_it() {
    /// Chunks of 16,000 bytes each: 16 MB for a kilobyte of body.
    const CHUNKS: usize = 1_000;
    /// Limit of the bytes that the server has sent when the response begins: stored data, and the buffers of
    /// four sockets.
    const MOST: usize = 4 << 20;
    let (tell, told) = mpsc::channel();
    let server = origin(move |mut stream| {
        asks_by_a_head(&mut stream);
        rustix::net::sockopt::set_socket_send_buffer_size(&stream, 65_536).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
        let chunk = format!("1;{}\r\nx\r\n", "e".repeat(15_992));
        for _ in 0..CHUNKS {
            stream.write_all(chunk.as_bytes()).unwrap();
            tell.send(chunk.len()).unwrap();
        }
        stream.write_all(b"0\r\n\r\n").unwrap();
    });
    let (socket, address) = listener();
    let tune = "nbthread 1\n tune.rcvbuf.server 65536\n tune.sndbuf.client 65536";
    let _program = Manylane::start_ready(&format!(
        "{}listen l\n bind {}\n mode http\n server s {server}\n http-response wait-for-body time 300s\n",
        defaults().replace("nbthread 1", tune),
        fd(&socket)
    ));
    let mut client = connect(address);
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let begin = "HTTP/1.1 200 OK";
    let mut first = [0; 15];
    client.read_exact(&mut first).unwrap();
    assert_eq!(first, begin.as_bytes());
    let sent: usize = told.try_iter().sum();
    println!("{sent} bytes were sent when the response began");
    assert!(sent < MOST, "{sent} bytes");
    // It arrives complete.
    let (mut piece, mut tail, mut data) = (vec![0; 65_536], Vec::new(), 0);
    while !tail.ends_with(b"\r\n0\r\n\r\n") {
        let length = client.read(&mut piece).unwrap();
        assert!(length > 0, "it is cut");
        data += piece[..length].iter().filter(|&&byte| byte == b'x').count();
        tail.extend_from_slice(&piece[..length]);
        tail.drain(..tail.len().saturating_sub(16));
    }
    assert_eq!(data, CHUNKS);
}

#[test]
fn answers_to_checks_take_no_more_drop_by_drop() {
    let backend = |server: SocketAddr, rules: &str, options: &str| {
        format!(
            "backend b\n timeout check 300s\n{rules} server-template s {CLIENTS} {server} {options} \
                inter 1s\n"
        )
    };
    let http = |server| backend(server, " option httpchk GET /\n http-check expect string never\n", "check");
    drops_of_servers_take_no_more(http, None, asks_by_a_head, b"HTTP/1.1 200 OK\r\nX: ");
    let body = b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n";
    drops_of_servers_take_no_more(http, None, asks_by_a_head, body);
    let tcp = |server| backend(server, " option tcp-check\n tcp-check expect string never\n", "check");
    drops_of_servers_take_no_more(tcp, None, |_| {}, b"");
    let agent = |server: SocketAddr| {
        backend(server, "", &format!("agent-check agent-port {} agent-inter 1s", server.port()))
    };
    drops_of_servers_take_no_more(agent, None, |_| {}, b"");
}

#[test]
fn answers_of_name_servers_over_tcp_take_no_more_drop_by_drop() {
    let names = |server: SocketAddr| {
        let servers: String = (0..CLIENTS)
            .map(|n| format!(" server s{n} n{n}.example:80 resolvers r resolve-prefer ipv4 init-addr none\n"))
            .collect();
        format!(
            "resolvers r\n nameserver n tcp@{server}\n timeout resolve 300s\n timeout retry 300s\nbackend \
                b\n{servers}"
        )
    };
    let asks = |stream: &mut TcpStream| {
        let mut length = [0; 2];
        stream.read_exact(&mut length).unwrap();
        stream.read_exact(&mut vec![0; u16::from_be_bytes(length).into()]).unwrap();
    };
    drops_of_servers_take_no_more(names, None, asks, b"\xff\xff");
}

/// Data of the servers of rings is dropped.
#[test]
fn what_servers_of_rings_send_takes_no_more_drop_by_drop() {
    let rings = |server: SocketAddr| {
        let rings = (0..CLIENTS).map(|n| format!("ring r{n}\n format raw\n server s {server}\n"));
        let targets = (0..CLIENTS).map(|n| format!(" log ring@r{n} local0\n"));
        let all = rings.chain(["listen l\n bind @bind\n mode http\n option httplog\n".into()]).chain(targets);
        all.collect::<String>() + " http-request return status 200\n"
    };
    let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    drops_of_servers_take_no_more(rings, Some(request), |_| {}, b"");
}

/// Data from one proxy of this program to another one waits for its end there: inside the process, and
/// through a socket.
#[test]
fn what_comes_through_a_second_proxy_takes_no_more_drop_by_drop() {
    for inner in ["local@", "abns@"].map(|kind| format!("{kind}@name")) {
        drops_take_no_more(
            &format!(
                "listen outer\n bind @bind\n mode tcp\n server s {inner}\nlisten l\n bind {inner}\n mode \
                    http\n server s @server\n"
            ),
            "GET / HTTP/1.1\r\nHost: a\r\nX: ",
        );
    }
}

/// A request that waits for a name server that never answers.
#[test]
fn a_request_that_waits_for_a_name_takes_no_more_drop_by_drop() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let resolvers = format!(
        "resolvers r\n nameserver n {}\n timeout resolve 300s\n timeout retry 300s\n",
        silent.local_addr().unwrap()
    );
    let rule = " http-request do-resolve(txn.a,r,ipv4) str(a.example)\n option http-buffer-request\n";
    drops_take_no_more(
        &format!("{resolvers}{PROXY}{rule}"),
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1400\r\n\r\n",
    );
}

/// Number of tunnel clients, and the bytes that each tries to send.
const TUNNELS: (usize, usize) = (4, 24_000);

/// A client that cannot send for so long is stuck: everything that fits was accepted.
const STUCK: std::time::Duration = std::time::Duration::from_millis(100);

/// Memory of a program with tunnels whose servers do not read, after each client has sent as much as was
/// accepted, in pieces of `step`. A client sends `begin` and reads a head, if there is one.
fn memory_with_tunnels(rules: &str, begin: &str, answer: &'static str, step: usize) -> usize {
    let (socket, address) = listener();
    let (servers, server) = listener();
    rustix::net::sockopt::set_socket_recv_buffer_size(&servers, 4096).unwrap();
    let config = rules.replace("@bind", &fd(&socket)).replace("@server", &server.to_string());
    let config = config.replace("@name", &name());
    // Small socket buffers, so that data waits in the program.
    let program = Manylane::start_ready(&format!(
        "global\n tune.sndbuf.server 4096\n tune.rcvbuf.client 4096\n{}{config}",
        defaults()
    ));
    let (mut clients, kept): (Vec<_>, Vec<_>) = (0..TUNNELS.0)
        .map(|_| {
            let mut client = connect(address);
            client.set_nodelay(true).unwrap();
            client.write_all(begin.as_bytes()).unwrap();
            let mut server = servers.accept().unwrap().0;
            server.set_read_timeout(Some(TIMEOUT)).unwrap();
            if !begin.is_empty() {
                asks_by_a_head(&mut server);
                server.write_all(answer.as_bytes()).unwrap();
                asks_by_a_head(&mut client); // a response head ends like a request head
            }
            client.set_write_timeout(Some(STUCK)).unwrap();
            rustix::net::sockopt::set_socket_send_buffer_size(&client, 4096).unwrap();
            (client, server)
        })
        .unzip();
    let sending = clients.iter_mut().map(|client| {
        move || {
            let mut sent = 0;
            while sent < TUNNELS.1 && client.write_all(&vec![b'x'; step]).is_ok() {
                sent += step;
            }
            sent
        }
    });
    let sent: usize = std::thread::scope(|scope| {
        let all: Vec<_> = sending.map(|send| scope.spawn(send)).collect();
        all.into_iter().map(|each| each.join().unwrap()).sum()
    });
    let memory = program.memory();
    println!("{begin:?}: {sent} bytes in pieces of {step}, {memory} KB");
    drop((clients, kept));
    memory
}

#[test]
fn tunnels_whose_receiver_is_slow_take_no_more_drop_by_drop() {
    let tcp = "listen l\n bind @bind\n mode tcp\n server s @server\n";
    let two = "listen outer\n bind @bind\n mode tcp\n server s local@@name\nlisten l\n bind local@@name\n \
        mode tcp\n server s @server\n";
    let upgrade = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: \
        websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
    let upgraded = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: \
        websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
    let connect = "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n";
    let connected = "HTTP/1.1 200 OK\r\n\r\n";
    for (rules, begin, answer) in
        [(tcp, "", ""), (two, "", ""), (PROXY, upgrade, upgraded), (PROXY, connect, connected)]
    {
        let at_once = memory_with_tunnels(rules, begin, answer, 1000);
        let drops = memory_with_tunnels(rules, begin, answer, 1);
        assert!(drops <= at_once + MORE, "{begin}: {drops} KB drop by drop, {at_once} KB at once");
    }
}

/// Clients of the master CLI: as many as it serves at a time.
const MASTERED: usize = 10;

/// Memory of a master whose clients have sent the beginning of a line or payload in pieces of `step`.
fn memory_of_a_master(begin: &str, step: usize) -> usize {
    let (socket, address) = (listener(), common::own_address());
    let config = format!("{}listen l\n bind {}\n mode http\n", defaults(), fd(&socket.0));
    let (program, mut said) = Manylane::start_heard(&config, &["-W", "-S", &address.to_string()]);
    while !said.next().unwrap().unwrap().contains("Loading success.") {}
    let mut clients: Vec<_> = (0..MASTERED)
        .map(|_| {
            let mut client = connect(address);
            client.set_nodelay(true).unwrap();
            client.write_all(begin.as_bytes()).unwrap();
            client
        })
        .collect();
    send(&mut clients, step, || all_is_read(address.port(), false));
    program.memory()
}

#[test]
fn commands_for_a_master_take_no_more_drop_by_drop() {
    for begin in ["show proc ", "@1 add map #0 <<\n"] {
        let (at_once, drops) = (memory_of_a_master(begin, BYTES), memory_of_a_master(begin, 1));
        assert!(drops <= at_once + MORE, "{begin}: {drops} KB drop by drop, {at_once} KB at once");
    }
}

/// Number of clients that have sent a part of a head, and its bytes.
const SLOW: (usize, usize) = (1500, 200);

/// Limit of memory for each of them, in bytes: its task, a cluster of 2,176, and state of parser and log. For
/// a debug build, whose state is larger; a release build takes 3,700 with epoll and 3,900 with io_uring. With
/// an active request's block for each client a debug build would take 16,200.
const SLOW_BYTES: usize = 6 * 1024;

/// A session with an incomplete head goes idle, and continues where it was.
#[test]
fn a_slow_head_in_one_piece_takes_little() {
    let (socket, address) = listener();
    let rules = " option httplog
 log 127.0.0.1:9 local0
 http-request return status 200 hdr X %[req.hdr(x)]";
    let config = format!(
        "{} timeout http-request 300s\nlisten l\n bind {}\n mode http\n{rules}\n",
        defaults(),
        fd(&socket)
    );
    let program = Manylane::start_ready(&config);
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(SLOW.1 - 28));
    let connect_slow = |count| {
        let connect_one = |_| {
            let mut client = connect(address);
            client.write_all(head.as_bytes()).unwrap();
            client
        };
        let clients: Vec<_> = (0..count).map(connect_one).collect();
        all_is_read(address.port(), false);
        clients
    };
    let mut clients = connect_slow(SLOW.0 / 4); // memory that the program allocates once is there then
    let begin = program.memory();
    clients.append(&mut connect_slow(SLOW.0));
    let each = program.memory().saturating_sub(begin) * 1024 / SLOW.0;
    assert!(each <= SLOW_BYTES, "{each} bytes for each client");
    let value = format!("\r\nX: {}end\r\n", "x".repeat(SLOW.1 - 28)).to_lowercase();
    for client in &mut clients {
        client.write_all(b"e").unwrap();
    }
    all_is_read(address.port(), false);
    for client in &mut clients {
        client.write_all(b"nd\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.to_lowercase().contains(&value), "{answer}");
    }
}

/// Number of clients in a burst, and the bytes of each one's partial head: some 30 MB in all.
const BURST: (usize, usize) = (1500, 14_000);

/// Memory of a burst returns to the system when its clients have left: every few seconds a lane releases half
/// of the memory that it does not need.
#[test]
fn memory_of_a_burst_goes_back_when_it_is_over() {
    let (socket, address) = listener();
    let server = origin(|mut stream| drop(stream.read_to_end(&mut Vec::new())));
    let config = PROXY.replace("@bind", &fd(&socket)).replace("@server", &server.to_string());
    let waits = " timeout http-request 300s";
    let program = Manylane::start_ready(&format!("{}{waits}\n{config}", defaults()));
    let begin = program.memory();
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(BURST.1));
    let clients: Vec<_> = (0..BURST.0)
        .map(|_| {
            let mut client = connect(address);
            client.write_all(head.as_bytes()).unwrap();
            client
        })
        .collect();
    all_is_read(address.port(), false);
    let peak = program.memory();
    assert!(peak > begin + BURST.0 * BURST.1 / 1024, "{begin} KB, then {peak} KB: no burst");
    drop(clients);
    let over = Instant::now();
    // The rest are partially used pages.
    let left = begin + (peak - begin) / 3;
    while program.memory() > left {
        assert!(
            over.elapsed() < 4 * TIMEOUT,
            "{begin} KB, then {peak} KB, and {} KB are left",
            program.memory()
        );
        std::thread::yield_now();
    }
}

#[test]
fn commands_take_no_more_drop_by_drop() {
    let socket = "global\n stats socket @bind level admin\n stats maxconn 60\n stats timeout 300s\n";
    drops_take_no_more(&format!("{socket}backend b\n mode http\n server s @server\n"), "show info ");
    drops_take_no_more(&format!("{socket}backend b\n mode http\n server s @server\n"), "add map #0 <<\n");
}

/// Number of clients of a process with limited memory, and the bytes that each makes it hold: more than fit.
const TOO_MANY: (usize, usize) = (800, 120_000);

/// A process with little memory, clients that fill it, and the lines of its standard error.
fn without_memory() -> (Manylane, SocketAddr, Vec<TcpStream>, mpsc::Receiver<String>) {
    let (socket, address) = listener();
    let rules = " http-request return status 200 if { path /small }\n option http-buffer-request\n";
    let config = format!(
        "global\n tune.bufsize 131072\n{} timeout http-request 300s\nlisten l\n bind {}\n mode http\n server \
            s 127.0.0.1:9\n{rules}",
        defaults(),
        fd(&socket)
    );
    let (program, mut said) = Manylane::start_heard(&config, &["-V", "-m", "100"]);
    while !said.next().unwrap().unwrap().contains("lanes are ready") {}
    let (tell, lines) = mpsc::channel();
    std::thread::spawn(move || said.map_while(Result::ok).try_for_each(|line| tell.send(line)));
    let begin = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 130000\r\n\r\n";
    let clients: Vec<_> = (0..TOO_MANY.0)
        .map(|_| {
            let mut client = connect(address);
            // A client that was disconnected cannot send everything.
            let _ = client.write_all(begin.as_bytes()).and_then(|()| client.write_all(&[b'x'; TOO_MANY.1]));
            client
        })
        .collect();
    clients.iter().for_each(|client| client.set_nonblocking(true).unwrap());
    let is_ended = |client: &TcpStream| {
        client.peek(&mut [0]).map_err(|error| error.kind()) != Err(std::io::ErrorKind::WouldBlock)
    };
    let began = Instant::now();
    while !clients.iter().any(is_ended) {
        assert!(began.elapsed() < TIMEOUT, "all of them had their memory: the bound was not met");
        std::thread::yield_now();
    }
    all_is_read(address.port(), false);
    std::mem::forget(socket); // keeps connections in its queue until they are accepted
    (program, address, clients, lines)
}

/// Under `-m`, clients that need more memory than there is are disconnected; the process continues and serves
/// the next one.
#[test]
fn memory_that_is_bounded_ends_streams_and_not_the_process() {
    let (mut program, address, clients, _lines) = without_memory();
    assert!(program.runs(), "the process has ended");
    drop(clients);
    let began = Instant::now();
    loop {
        let mut client = connect(address);
        let mut answer = String::new();
        let asked = client.write_all(b"GET /small HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let _ = asked.and_then(|()| client.read_to_string(&mut answer)); // it may be too early
        if answer.starts_with("HTTP/1.1 200 ") {
            return;
        }
        assert!(began.elapsed() < TIMEOUT, "nobody is served: {answer}");
        std::thread::yield_now();
    }
}

/// Clients cannot use up the memory for signals and reports: the process handles a signal, reports it, and
/// ends with its last client.
#[test]
fn a_process_without_memory_hears_signals() {
    let (mut program, _, clients, lines) = without_memory();
    program.signal(nix::sys::signal::Signal::SIGUSR1);
    common::watch::until(|| !waits(program.pid()));
    drop(clients);
    let began = Instant::now();
    while program.runs() {
        assert!(began.elapsed() < TIMEOUT, "the process does not end");
        std::thread::yield_now();
    }
    let (status, said) = (program.wait(), lines.iter().collect::<Vec<_>>());
    assert!(status.success(), "{status}: {said:?}");
    assert!(said.iter().any(|line| line.contains("Proxy l stopped (cumulated conns")), "{said:?}");
}

/// Returns true while a signal is pending for a process.
fn waits(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).unwrap();
    pending.trim() != "0000000000000000"
}
