//! Connections to servers, on real sockets.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

mod common;

use common::{Folder, assert_option, endpoint, ip, on_lane};
use manylane_io::options::{SocketOption, reset_on_close};
use manylane_io::{Errno, Io, Stream, socket};
use manylane_net::{
    CommonOptions, ConnectOptions, Connector, Endpoint, KeepAlive, ListenOptions, Present, SocketError,
    Source, Step, listen,
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixListener;
use std::time::Duration;

fn local_address(stream: &Stream) -> SocketAddr {
    socket::local_address(stream.as_fd()).unwrap().try_into().unwrap()
}

async fn connect(io: &Io, to: &Endpoint, options: ConnectOptions) -> Result<Stream, SocketError> {
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
                tos: Some(0x10),
                ..Default::default()
            },
            ..Default::default()
        };
        let stream = connect(&io, &to, options).await.unwrap();
        assert_option(&stream, SocketOption::UserTimeout, 1); // not 0, which is the system's own
        assert_option(&stream, SocketOption::KeepAlive, 1);
        assert_option(&stream, SocketOption::KeepAliveCount, 9);
        assert_option(&stream, SocketOption::KeepAliveIdle, 60);
        assert_option(&stream, SocketOption::KeepAliveInterval, 10);
        assert_option(&stream, SocketOption::NoDelay, 1);
        assert_option(&stream, SocketOption::Tos, 0x10);
        assert_option(&stream, SocketOption::BindAddressNoPort, 1);
        assert_eq!(reset_on_close(stream.as_fd()), Ok(true));
        let (served, peer) = listener.accept().unwrap();
        assert_eq!((peer, local_address(&stream)), (local_address(&stream), peer));
        assert_eq!(peer.ip().to_string(), "127.0.0.9");
        // The server sends no larger segments than it was told.
        let largest = manylane_io::options::option(served.as_fd(), SocketOption::MaxSegment).unwrap();
        assert!(largest <= 1000, "{largest}");
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
            assert_option(&stream, SocketOption::FastOpenConnect, 1);
            let mut chain = common::chain(b"hello");
            stream.send(&mut chain).await.unwrap();
            let served = acceptor.accept().await.unwrap().into_stream(&io);
            assert_eq!(&*served.recv().await.unwrap().unwrap(), b"hello");
        }
    });
}

#[test]
fn source_ports_come_from_the_range_and_those_in_use_are_passed_over() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = Endpoint::Ip(listener.local_addr().unwrap());
    on_lane(|io| async move {
        // Of a range, two ports are in use: one by a listener, one by a connection to the same place.
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
            let served = acceptor.accept().await.unwrap().into_stream(&io);
            served.send(&mut common::chain(b"hello")).await.unwrap();
            assert_eq!(&*client.recv().await.unwrap().unwrap(), b"hello");
        });
    }
}

#[test]
fn a_socket_pair_carries_one_end_of_each_connection() {
    let (ours, theirs) = socket::pair(socket::Shape::Stream).unwrap();
    let to = Endpoint::SocketPair(ours.as_raw_fd());
    on_lane(|io| async move {
        let client = connect(&io, &to, ConnectOptions::default()).await.unwrap();
        let manylane_io::passing::Received::Descriptor(served) =
            manylane_io::passing::receive_descriptor(theirs.as_fd()).unwrap()
        else {
            panic!("no descriptor")
        };
        let served = io.stream(served).unwrap();
        served.send(&mut common::chain(b"hello")).await.unwrap();
        assert_eq!(&*client.recv().await.unwrap().unwrap(), b"hello");
        drop(theirs);
        assert_eq!(
            connect(&io, &to, ConnectOptions::default()).await.unwrap_err().to_string(),
            format!("cannot connect to '{to}': the descriptor was not passed on: Broken pipe (os error 32)")
        );
        drop(ours);
    });
}

#[test]
fn a_deadline_ends_the_attempt() {
    // A listener whose queue is full does not answer.
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
        assert_eq!(error.to_string(), format!("cannot connect to '{to}': the time for it ran out"));
        assert_eq!((error.step(), error.errno()), (Step::Time, Errno::TIMEDOUT));
        assert_eq!(io.open(), waiting.len(), "the attempt's descriptor is closed");
    });
}

#[test]
fn what_the_system_refuses_is_one_sentence_with_the_address_and_its_error() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let open = listener.local_addr().unwrap();
    let folder = Folder::new();
    let full = UnixListener::bind(folder.join("full")).unwrap();
    rustix_listen_0(&full);
    on_lane(|io| async move {
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
                "cannot connect to '{open}': 'source' was refused: Cannot assign requested address (os error 99); no \
                 network device has this address, or all of its ports are in use"
            )
        );
        let present = Source { present: Some(Present::Client), ..Source::new("0.0.0.0".parse().unwrap()) };
        assert_eq!(
            refusal(Endpoint::Ip(open), ConnectOptions { source: Some(present), ..plain() }).await,
            format!(
                "cannot connect to '{open}': 'usesrc' needs the address of a client, and there is none; leave it out for \
                 checks"
            )
        );
        assert_eq!(
            refusal(endpoint("fd@3"), plain()).await,
            "cannot connect to 'fd@3': sockets of this kind are not connected to in this way"
        );
        // The queue of a unix socket that is full is told at once.
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
                "cannot connect to '{}': the connection failed: Resource temporarily unavailable (os error 11); the \
                 server's backlog is full",
                full.display()
            )
        );
        assert_eq!(io.open(), waiting.len());
    });
}

/// Makes the queue of a listener as short as can be.
fn rustix_listen_0(listener: &UnixListener) {
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
        server.join().unwrap();
    }
}
