//! Connections to servers, on real sockets.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

mod common;

use common::{Folder, assert_option, endpoint, ip, on_lane};
use manylane_io::options::{SocketOption, congestion_control, option, reset_on_close};
use manylane_io::{Errno, Io, socket};
use manylane_net::{
    AcceptError, CommonOptions, ConnPurpose, ConnectOptions, Connection, Connector, Endpoint, Expected,
    KeepAlive, ListenOptions, Packets, SPLICE_FROM, SocketError, Source, SplicePolicy, Step, UseSource,
    listen,
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixListener;
use std::time::Duration;

fn local_address(connection: &Connection) -> SocketAddr {
    socket::local_address(connection.stream().unwrap().as_fd()).unwrap().try_into().unwrap()
}

async fn connect(io: &Io, to: &Endpoint, options: ConnectOptions) -> Result<Connection, SocketError> {
    Connector::new(options).connect(io, to, None, None).await
}

#[test]
fn a_connection_has_every_option() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = Endpoint::Ip(listener.local_addr().unwrap());
    on_lane(|io| async move {
        let options = ConnectOptions {
            source: Some(Source::new("127.0.0.9".parse().unwrap())),
            mss: Some(1000),
            common: CommonOptions {
                user_timeout: Some(Duration::from_micros(1)),
                keep_alive: Some(KeepAlive {
                    count: Some(9),
                    idle: Some(Duration::from_secs(60)),
                    interval: Some(Duration::from_secs(10)),
                }),
                no_linger: true,
                congestion_control: Some("reno".into()),
                tos: Some(0x10),
                receive_buffer: Some(20_000),
                send_buffer: Some(30_000),
                unsent: Some(4_000),
                ..Default::default()
            },
            ..Default::default()
        };
        let stream = connect(&io, &to, options).await.unwrap();
        // not 0, which is the system's own
        assert_option(stream.stream().unwrap(), SocketOption::UserTimeout, 1);
        assert_option(stream.stream().unwrap(), SocketOption::KeepAlive, 1);
        assert_option(stream.stream().unwrap(), SocketOption::KeepAliveCount, 9);
        assert_option(stream.stream().unwrap(), SocketOption::KeepAliveIdle, 60);
        assert_option(stream.stream().unwrap(), SocketOption::KeepAliveInterval, 10);
        assert_option(stream.stream().unwrap(), SocketOption::NoDelay, 1);
        assert_option(stream.stream().unwrap(), SocketOption::Tos, 0x10);
        assert_option(stream.stream().unwrap(), SocketOption::ReceiveBuffer, 40_000);
        assert_option(stream.stream().unwrap(), SocketOption::SendBuffer, 60_000);
        assert_option(stream.stream().unwrap(), SocketOption::NotSentLowWater, 4_000);
        assert_option(stream.stream().unwrap(), SocketOption::BindAddressNoPort, 1);
        assert_eq!(congestion_control(stream.stream().unwrap().as_fd()).as_deref(), Ok("reno"));
        assert_eq!(reset_on_close(stream.stream().unwrap().as_fd()), Ok(true));
        let (served, peer) = listener.accept().unwrap();
        assert_eq!((peer, local_address(&stream)), (local_address(&stream), peer));
        assert_eq!(peer.ip().to_string(), "127.0.0.9");
        // The server sends no larger segments than announced.
        let largest = manylane_io::options::option(served.as_fd(), SocketOption::MaxSegment).unwrap();
        assert!(largest <= 1000, "{largest}");
    });
}

/// The system is not asked for the properties of a socket that was made here: this saves three calls for each
/// connection to a server.
#[test]
fn what_is_known_of_a_connection_is_not_asked() {
    let folder = Folder::new();
    let path = folder.join("s");
    let _unix = UnixListener::bind(&path).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let unix = endpoint(path.to_str().unwrap());
    on_lane(move |io| async move {
        let lane = io.here().lane();
        let others = || manylane_io::report().into_iter().find(|report| report.lane == lane).unwrap().others;
        let path: manylane_io::SocketAddrAny = rustix::net::SocketAddrUnix::new(&path).unwrap().into();
        let inet = manylane_io::socket::AddressFamily::INET;
        let local = manylane_io::socket::AddressFamily::UNIX;
        for (to, family, address) in [(Endpoint::Ip(at), inet, at.into()), (unix, local, path)] {
            let socket = manylane_io::socket::open(family, manylane_io::socket::Shape::Stream).unwrap();
            let before = others();
            let queried = io.connect(socket, address).await.unwrap();
            let asking = others() - before;
            let before = others();
            let known = connect(&io, &to, ConnectOptions::default()).await.unwrap();
            assert_eq!(others() - before + 3, asking, "{to:?}");
            let flags = rustix::fs::fcntl_getfl(known.stream().unwrap()).unwrap();
            assert!(flags.contains(rustix::fs::OFlags::NONBLOCK));
            drop(queried);
        }
    });
}

/// Disconnecting a socket resets its connection, as closing it may. The socket then makes the next
/// connection, which sees nothing of the earlier one.
#[test]
fn a_socket_makes_one_connection_after_the_other() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = Endpoint::Ip(listener.local_addr().unwrap());
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    on_lane(move |io| async move {
        let connector = Connector::new(ConnectOptions { late_ack: true, ..ConnectOptions::default() });
        assert!(connector.is_plain());
        let mut stream = None;
        for _ in 0..100 {
            let made = match stream.take() {
                None => connector.connect(&io, &to, None, None).await,
                Some(stream) => connector.connect_again(&io, stream, &to, ConnPurpose::default(), None).await,
            };
            let Connection::Socket(made) = made.unwrap() else { panic!("it is a socket") };
            let (mut served, _) = listener.accept().unwrap();
            made.disconnect().unwrap();
            assert_eq!(served.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
            assert_option(&made, SocketOption::NoDelay, 1);
            stream = Some(made);
        }
        // The acknowledgement of the handshake is omitted again, so that the server never accepts a
        // connection that carries nothing. On a busy machine the system sometimes sends it before the reset.
        listener.set_nonblocking(true).unwrap();
        let mut stream = stream.take().unwrap();
        let mut was_late = false;
        for _ in 0..50 {
            let served = ConnPurpose { speaks_first: true, ..ConnPurpose::default() };
            let made = connector.connect_again(&io, stream, &to, served, None).await.unwrap();
            let Connection::Socket(made) = made else { panic!("it is a socket") };
            let accepted = listener.accept();
            made.disconnect().unwrap();
            stream = made;
            was_late = accepted.is_err();
            if was_late {
                break;
            }
        }
        assert!(was_late);
        let made = stream;
        let refused = connector
            .connect_again(&io, made, &Endpoint::Ip(closed), ConnPurpose::default(), None)
            .await
            .unwrap_err();
        assert_eq!((refused.step(), refused.errno()), (Step::Connect, Errno::CONNREFUSED));
        let own = ConnectOptions { interface: Some("lo".into()), ..ConnectOptions::default() };
        assert!(!Connector::new(own).is_plain());
    });
}

/// Without the privilege for marks, there is a connection without a mark.
#[test]
fn packets_of_one_connection_are_marked_and_those_of_the_next_are_not() {
    let listeners: Vec<_> =
        ["127.0.0.1:0", "[::1]:0"].into_iter().filter_map(|at| TcpListener::bind(at).ok()).collect();
    let to: Vec<_> = listeners.iter().map(|listener| Endpoint::Ip(listener.local_addr().unwrap())).collect();
    on_lane(|io| async move {
        let connector = Connector::new(ConnectOptions::default());
        for to in to {
            let packets = Packets { mark: Some(7), tos: Some(0x28) };
            let marked = connector
                .connect_for(&io, &to, ConnPurpose { packets, ..ConnPurpose::default() }, None)
                .await
                .unwrap();
            let marked = marked.stream().unwrap();
            let v6 = matches!(&to, Endpoint::Ip(address) if address.is_ipv6());
            let of_service = if v6 { SocketOption::TrafficClass } else { SocketOption::Tos };
            assert_option(marked, of_service, 0x28);
            let mark = option(marked.as_fd(), SocketOption::Mark);
            assert!([Ok(7), Ok(0)].contains(&mark), "{mark:?}");
            Packets { mark: None, tos: Some(0x08) }.mark(marked.as_fd());
            assert_option(marked, of_service, 0x08);
            assert_eq!(option(marked.as_fd(), SocketOption::Mark), mark, "what is not said stays");
            let next = connector.connect(&io, &to, None, None).await.unwrap();
            assert_option(next.stream().unwrap(), of_service, 0);
        }
    });
}

/// A server cannot accept a connection before the handshake is acknowledged, which the kernel delays only
/// briefly: if the thread did not run meanwhile, the test tries again with the next connection.
#[test]
fn the_handshake_is_acknowledged_with_the_first_bytes_where_there_are_some() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let to = Endpoint::Ip(listener.local_addr().unwrap());
    on_lane(|io| async move {
        for (late_ack, speaks_first) in [(true, true), (true, false), (false, true)] {
            let connector = Connector::new(ConnectOptions { late_ack, ..Default::default() });
            let mut was_late = false;
            for _ in 0..50 {
                let served = ConnPurpose { speaks_first, ..ConnPurpose::default() };
                let stream = connector.connect_for(&io, &to, served, None).await.unwrap();
                let accepted = listener.accept();
                stream.send(&mut common::chain(b"hello")).await.unwrap();
                if accepted.is_err() {
                    was_late = true;
                    while listener.accept().is_err() {} // the bytes are here, or about to come
                    break;
                }
            }
            assert_eq!(was_late, late_ack && speaks_first, "{late_ack} {speaks_first}");
        }
    });
}

#[test]
fn fast_open_sends_the_first_bytes_with_the_handshake_or_after_it() {
    let options = ListenOptions { fast_open: Some(16), ..Default::default() };
    let bound = listen(&endpoint("127.0.0.1:1"), &options).unwrap();
    let to = bound.endpoint().clone();
    on_lane(|io| async move {
        let acceptor = bound.acceptor(&io).unwrap();
        for _ in 0..2 {
            let stream =
                connect(&io, &to, ConnectOptions { fast_open: true, ..Default::default() }).await.unwrap();
            assert_option(stream.stream().unwrap(), SocketOption::FastOpenConnect, 1);
            let mut chain = common::chain(b"hello");
            stream.send(&mut chain).await.unwrap();
            let served = acceptor.accept().await.unwrap().into_connection(&io);
            assert_eq!(&*served.recv().await.unwrap().unwrap(), b"hello");
        }
    });
}

#[test]
fn source_ports_come_from_the_range_and_those_in_use_are_passed_over() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = Endpoint::Ip(listener.local_addr().unwrap());
    on_lane(|io| async move {
        // Two ports of a range are in use: one by a listener, one by a connection to the same address.
        let (low, high) = (20_000, 20_005);
        let address = "127.0.0.77".parse().unwrap();
        let taken = TcpListener::bind(SocketAddr::new(address, low + 1)).unwrap();
        let source = Source { address, ports: Some(low..=high), present: None };
        let connector = Connector::new(ConnectOptions { source: Some(source), ..Default::default() });
        let mut streams = Vec::new();
        for _ in 0..5 {
            streams.push(connector.connect(&io, &to, None, None).await.unwrap());
        }
        let mut ports: Vec<_> = streams.iter().map(|stream| local_address(stream).port()).collect();
        ports.sort();
        assert_eq!(ports, [low, low + 2, low + 3, low + 4, low + 5]);
        let error = connector.connect(&io, &to, None, None).await.unwrap_err();
        assert_eq!(error.step(), Step::Source, "{error}");
        assert!(matches!(error.errno(), Errno::ADDRNOTAVAIL | Errno::ADDRINUSE), "{error}");
        drop(taken);
    });
}

/// `source :21000-21010` names no family: it is for servers of both.
#[test]
fn ports_without_an_address_are_of_the_servers_family() {
    let any: [std::net::IpAddr; 2] = ["0.0.0.0".parse().unwrap(), "::".parse().unwrap()];
    for server in ["127.0.0.1:0", "[::1]:0"] {
        let listener = match TcpListener::bind(server) {
            Ok(listener) => listener,
            Err(error) => {
                println!("NOT SHOWN HERE: connections to {server}: {error}");
                continue;
            }
        };
        let to = Endpoint::Ip(listener.local_addr().unwrap());
        on_lane(move |io| async move {
            for address in any {
                let source = Source { address, ports: Some(21_000..=21_010), present: None };
                let options = ConnectOptions { source: Some(source), ..Default::default() };
                let stream = connect(&io, &to, options).await.unwrap();
                assert!((21_000..=21_010).contains(&local_address(&stream).port()), "{address} to {to}");
            }
        });
    }
}

#[test]
fn all_kinds_of_unix_sockets_are_connected_to() {
    let folder = Folder::new();
    let name = format!("manylane-net-connect-{}", std::process::id());
    for to in [
        Endpoint::Unix(folder.join("s")),
        endpoint(&format!("abns@{name}")),
        endpoint(&format!("abnsz@{name}")),
    ] {
        on_lane(|io| async move {
            let bound = listen(&to, &ListenOptions::default()).unwrap();
            let acceptor = bound.acceptor(&io).unwrap();
            let client = connect(&io, &to, ConnectOptions::default()).await.unwrap();
            let served = acceptor.accept().await.unwrap().into_connection(&io);
            served.send(&mut common::chain(b"hello")).await.unwrap();
            assert_eq!(&*client.recv().await.unwrap().unwrap(), b"hello");
        });
    }
}

#[test]
fn a_socket_pair_carries_one_end_of_each_connection() {
    let (ours, theirs) = socket::pair(socket::Shape::Stream).unwrap();
    let to = Endpoint::SocketPair(ours.as_raw_fd());
    let bound = listen(&Endpoint::SocketPair(theirs.as_raw_fd()), &ListenOptions::default()).unwrap();
    on_lane(|io| async move {
        let acceptor = bound.acceptor(&io).unwrap();
        let mut connections = Vec::new();
        for _ in 0..9 {
            connections.push(connect(&io, &to, ConnectOptions::default()).await.unwrap());
        }
        // A descriptor that is no stream is skipped.
        let strange = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        manylane_io::passing::send_descriptor(ours.as_fd(), strange.as_fd()).unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        manylane_io::passing::send_descriptor(ours.as_fd(), file.as_fd()).unwrap();
        connections.push(connect(&io, &to, ConnectOptions::default()).await.unwrap());
        for client in connections {
            let served = acceptor.accept().await.unwrap().into_connection(&io);
            served.send(&mut common::chain(b"hello")).await.unwrap();
            assert_eq!(&*client.recv().await.unwrap().unwrap(), b"hello");
        }
        drop((theirs, bound));
        let after = connect(&io, &to, ConnectOptions::default());
        // The other side comes while this one waits already.
        let (served, client) = both(acceptor.accept(), after).await;
        drop((served.unwrap(), client.unwrap()));
        drop(ours);
        assert!(matches!(acceptor.accept().await, Err(AcceptError::End)));
    });
}

/// Returns the outputs of both, whichever completes first.
async fn both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (std::pin::pin!(a), std::pin::pin!(b));
    let (mut first, mut second) = (None, None);
    std::future::poll_fn(move |context| {
        if first.is_none()
            && let std::task::Poll::Ready(output) = a.as_mut().poll(context)
        {
            first = Some(output);
        }
        if second.is_none()
            && let std::task::Poll::Ready(output) = b.as_mut().poll(context)
        {
            second = Some(output);
        }
        match (first.take(), second.take()) {
            (Some(a), Some(b)) => std::task::Poll::Ready((a, b)),
            (a, b) => {
                (first, second) = (a, b);
                std::task::Poll::Pending
            }
        }
    })
    .await
}

#[test]
fn a_descriptor_that_is_no_passage_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let number = listener.as_raw_fd();
    assert_eq!(
        listen(&Endpoint::SocketPair(number), &ListenOptions::default()).unwrap_err().to_string(),
        format!(
            "cannot listen on 'sockpair@{number}': the descriptor cannot be used: Protocol wrong type for \
                socket (os error \
             91); the socket is of another kind than the statement needs"
        )
    );
    let folder = Folder::new();
    let listener = UnixListener::bind(folder.join("s")).unwrap();
    let number = listener.as_raw_fd();
    on_lane(move |io| async move {
        assert_eq!(
            connect(&io, &Endpoint::SocketPair(number), ConnectOptions::default())
                .await
                .unwrap_err()
                .to_string(),
            format!(
                "cannot connect to 'sockpair@{number}': the descriptor cannot be used: Transport endpoint is \
                    not connected \
                 (os error 107); the socket is not connected"
            )
        );
        drop(listener);
    });
}

/// R-A7, R-A8
#[test]
fn connections_inside_of_the_process_carry_the_very_bytes_and_make_no_system_calls() {
    let name = format!("local@net-{}", std::process::id());
    let to = endpoint(&name);
    on_lane(move |io| async move {
        let bound = listen(&to, &ListenOptions::default()).unwrap();
        let acceptor = bound.acceptor(&io).unwrap();
        // Calls of the driver for this lane; other tests run on other lanes.
        let calls = || {
            let own = manylane_io::report().into_iter().find(|report| report.lane.is_current());
            own.map(|report| (report.reads, report.writes, report.accepts, report.connects, report.opened))
        };
        let before = calls();
        let client = connect(&io, &to, ConnectOptions::default()).await.unwrap();
        let served = acceptor.accept().await.unwrap().into_connection(&io);
        let mut chain = common::chain(&[7; 16 << 10]);
        let sent = chain.segments().map(|segment| segment.as_ptr()).collect::<Vec<_>>();
        client.send(&mut chain).await.unwrap();
        let mut received = Vec::new();
        let mut bytes = 0;
        while bytes < 16 << 10 {
            let segment = served.recv().await.unwrap().unwrap();
            bytes += segment.len();
            received.push(segment.as_ptr());
        }
        assert_eq!(received, sent);
        client.finish().await.unwrap();
        assert!(served.recv().await.unwrap().is_none());
        served.send(&mut common::chain(b"hello")).await.unwrap();
        assert_eq!(&*client.recv().await.unwrap().unwrap(), b"hello");
        assert_eq!(calls(), before, "the driver had nothing to do");
        served.close().await.unwrap();
        assert!(client.recv().await.unwrap().is_none());

        assert_eq!(
            listen(&to, &ListenOptions::default()).unwrap_err().to_string(),
            format!(
                "cannot listen on '{to}': the address was refused: Address already in use (os error 98); \
                    stop the program \
                 that has it, or choose another"
            )
        );
        drop((acceptor, bound));
        assert_eq!(
            connect(&io, &to, ConnectOptions::default()).await.unwrap_err().to_string(),
            format!("cannot connect to '{to}': the connection failed: Connection refused (os error 111)")
        );
    });
}

/// R-B7
#[test]
fn long_bodies_between_plain_sockets_are_spliced() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = Endpoint::Ip(listener.local_addr().unwrap());
    let local = endpoint(&format!("local@splice-{}", std::process::id()));
    on_lane(move |io| async move {
        let a = connect(&io, &to, ConnectOptions::default()).await.unwrap();
        let b = connect(&io, &to, ConnectOptions::default()).await.unwrap();
        let _bound = listen(&local, &ListenOptions::default()).unwrap();
        let inside = connect(&io, &local, ConnectOptions::default()).await.unwrap();
        let policy = SplicePolicy::default();
        let (short, long) = (Expected::Bytes(SPLICE_FROM - 1), Expected::Bytes(SPLICE_FROM));
        assert!(policy.streams(&a, &b, short).is_none());
        assert!(policy.streams(&a, &b, Expected::UntilEnd { forwarded: 0 }).is_none());
        assert!(policy.streams(&a, &b, Expected::UntilEnd { forwarded: SPLICE_FROM }).is_some());
        assert!(policy.streams(&inside, &b, long).is_none());
        let (from, onto) = policy.streams(&a, &b, long).unwrap();
        assert_eq!((from.as_fd().as_raw_fd(), onto.as_fd().as_raw_fd()), (raw(&a), raw(&b)));
        assert!(SplicePolicy { from: u64::MAX }.streams(&a, &b, long).is_none());
    });
}

fn raw(connection: &Connection) -> i32 {
    connection.stream().unwrap().as_fd().as_raw_fd()
}

#[test]
fn as_many_connections_wait_as_the_backlog_says_and_one() {
    let name = format!("manylane-net-backlog-{}", std::process::id());
    let to = endpoint(&format!("abns@{name}")); // the system reports a full queue at once
    for backlog in [2, 5] {
        let to = to.clone();
        on_lane(move |io| async move {
            let _bound = listen(&to, &ListenOptions { backlog, ..Default::default() }).unwrap();
            let mut waiting = Vec::new();
            let error = loop {
                match connect(&io, &to, ConnectOptions::default()).await {
                    Ok(connection) => waiting.push(connection),
                    Err(error) => break error,
                }
                assert!(waiting.len() < 16, "the queue holds more than it should");
            };
            assert_eq!(waiting.len(), backlog as usize + 1);
            assert_eq!(error.errno(), Errno::AGAIN);
        });
    }
}

#[test]
fn a_deadline_ends_the_attempt() {
    // A listener with a full queue does not answer.
    let options = ListenOptions { backlog: 0, ..Default::default() };
    let bound = listen(&endpoint("127.0.0.1:1"), &options).unwrap();
    let to = bound.endpoint().clone();
    on_lane(|io| async move {
        let connector = Connector::new(ConnectOptions::default());
        let mut waiting = Vec::new();
        let error = loop {
            let deadline = io.here().now() + Duration::from_millis(50);
            match connector.connect(&io, &to, None, Some(deadline)).await {
                Ok(stream) => waiting.push(stream),
                Err(error) => break error,
            }
            assert!(waiting.len() < 16, "the queue holds more than it should");
        };
        assert_eq!(error.to_string(), format!("cannot connect to '{to}': it timed out"));
        assert_eq!((error.step(), error.errno()), (Step::Time, Errno::TIMEDOUT));
        // The attempt's descriptor is closed; io_uring has to release it first.
        while io.open() > waiting.len() {
            io.here().yield_now().await;
        }
    });
}

#[test]
fn what_the_system_refuses_is_one_sentence_with_the_address_and_its_error() {
    // An address where nobody else listens.
    let [_, a, b, c] = std::process::id().to_be_bytes();
    let closed =
        TcpListener::bind(SocketAddr::from(([127, 128 | a, b, c], 0))).unwrap().local_addr().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let open = listener.local_addr().unwrap();
    let folder = Folder::new();
    let full = UnixListener::bind(folder.join("full")).unwrap();
    shorten_queue(&full);
    on_lane(move |io| async move {
        let refusal = async |to: Endpoint, options| connect(&io, &to, options).await.unwrap_err().to_string();
        let plain = ConnectOptions::default;
        assert_eq!(
            refusal(Endpoint::Ip(closed), plain()).await,
            format!("cannot connect to '{closed}': the connection failed: Connection refused (os error 111)")
        );
        let path = folder.join("missing");
        assert_eq!(
            refusal(Endpoint::Unix(path.clone()), plain()).await,
            format!(
                "cannot connect to '{}': the connection failed: No such file or directory (os error 2)",
                path.display()
            )
        );
        let from = |text: &str| Some(Source::new(text.parse().unwrap()));
        assert_eq!(
            refusal(Endpoint::Ip(open), ConnectOptions { source: from("192.0.2.1"), ..plain() }).await,
            format!(
                "cannot connect to '{open}': 'source' was refused: Cannot assign requested address (os error \
                    99); no \
                 network device has this address, or all of its ports are in use"
            )
        );
        let present = Source { present: Some(UseSource::Client), ..Source::new("0.0.0.0".parse().unwrap()) };
        assert_eq!(
            refusal(Endpoint::Ip(open), ConnectOptions { source: Some(present), ..plain() }).await,
            format!(
                "cannot connect to '{open}': 'usesrc' expects the address of a client, found none; leave \
                    it out for checks"
            )
        );
        assert_eq!(
            refusal(endpoint("fd@3"), plain()).await,
            "cannot connect to 'fd@3': sockets of this kind cannot be connected to in this way"
        );
        // A unix socket with a full queue reports that at once.
        let full = folder.join("full");
        let mut waiting = Vec::new();
        let error = loop {
            match connect(&io, &Endpoint::Unix(full.clone()), plain()).await {
                Ok(stream) => waiting.push(stream),
                Err(error) => break error.to_string(),
            }
            assert!(waiting.len() < 16, "the queue holds more than it should");
        };
        assert_eq!(
            error,
            format!(
                "cannot connect to '{}': the connection failed: Resource temporarily unavailable (os error \
                    11); the \
                 server's backlog is full",
                full.display()
            )
        );
        while io.open() > waiting.len() {
            io.here().yield_now().await;
        }
    });
}

/// Makes the queue of a listener as short as possible.
fn shorten_queue(listener: &UnixListener) {
    socket::listen(listener.as_fd(), 0).unwrap();
}

#[test]
fn bytes_go_both_ways_through_a_range_of_addresses() {
    for text in ["127.0.0.1:1", "[::1]:1"] {
        let bound = match listen(&endpoint(text), &ListenOptions::default()) {
            Ok(bound) => bound,
            Err(error) => {
                common::not_shown(text, error);
                continue;
            }
        };
        let to = bound.endpoint().clone();
        let server = std::thread::spawn(move || {
            let listener = TcpListener::from(bound.duplicate().unwrap());
            listener.set_nonblocking(false).unwrap();
            let (mut served, _) = listener.accept().unwrap();
            let mut bytes = [0; 5];
            served.read_exact(&mut bytes).unwrap();
            served.write_all(&bytes).unwrap();
            ip(bound.endpoint())
        });
        on_lane(move |io| async move {
            let stream = connect(&io, &to, ConnectOptions::default()).await.unwrap();
            stream.send(&mut common::chain(b"hello")).await.unwrap();
            assert_eq!(&*stream.recv().await.unwrap().unwrap(), b"hello");
        });
        common::within_a_minute(|| server.join().unwrap());
    }
}
