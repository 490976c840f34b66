//! Listeners on real sockets: their addresses, their options, what they leave behind, and what they refuse.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

mod common;

use common::{Folder, assert_option, endpoint, ip, on_lane};
use manylane_io::Errno;
use manylane_io::options::{SocketOption, congestion_control, option, reset_on_close};
use manylane_net::{
    Bound, CommonOptions, Endpoint, HandedOver, Incoming, KeepAlive, ListenOptions, SocketError, Step,
    UnixOptions, V6, bind_datagrams, listen, listen_or_take,
};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::time::Duration;

const LOCAL: &str = "127.0.0.1:1";

/// Listens as a process that nobody hands sockets over to.
fn listen_sharded(
    endpoint: &Endpoint,
    options: &ListenOptions,
    shards: usize,
) -> Result<Vec<Bound>, SocketError> {
    let mut none = HandedOver::default();
    let all = listen_or_take(endpoint, options, shards, &mut none)?;
    none.begin(false)?.complete().map_or(Ok(all), Err)
}

fn is_listening(bound: &Bound) -> bool {
    option(bound.socket().unwrap(), SocketOption::Listening) == Ok(1)
}

fn all_options() -> ListenOptions {
    ListenOptions {
        backlog: 77,
        defer_accept: Some(Duration::from_millis(2500)),
        mss: Some(1200),
        fast_open: Some(99),
        quick_ack: false,
        common: CommonOptions {
            user_timeout: Some(Duration::from_millis(12_345)),
            keep_alive: Some(KeepAlive {
                count: Some(5),
                idle: Some(Duration::from_secs(31)),
                interval: Some(Duration::from_millis(6001)),
            }),
            no_linger: true,
            congestion_control: Some("reno".into()),
            tos: Some(0x20),
            receive_buffer: Some(20_000),
            send_buffer: Some(30_000),
            unsent: Some(4_000),
            ..CommonOptions::default()
        },
        ..ListenOptions::default()
    }
}

fn assert_all_options(socket: impl AsFd) {
    let socket = socket.as_fd();
    assert_option(socket, SocketOption::UserTimeout, 12_345);
    assert_option(socket, SocketOption::KeepAlive, 1);
    assert_option(socket, SocketOption::KeepAliveCount, 5);
    assert_option(socket, SocketOption::KeepAliveIdle, 31);
    assert_option(socket, SocketOption::KeepAliveInterval, 7);
    assert_option(socket, SocketOption::NoDelay, 1);
    assert_option(socket, SocketOption::Tos, 0x20);
    // The kernel doubles the value for its bookkeeping.
    assert_option(socket, SocketOption::ReceiveBuffer, 40_000);
    assert_option(socket, SocketOption::SendBuffer, 60_000);
    assert_option(socket, SocketOption::NotSentLowWater, 4_000);
    assert_eq!(congestion_control(socket).as_deref(), Ok("reno"));
    assert_eq!(reset_on_close(socket), Ok(true));
}

#[test]
fn a_listener_has_every_option_and_hands_it_to_its_connections() {
    let bound = listen(&endpoint(LOCAL), &all_options()).unwrap();
    assert!(is_listening(&bound));
    assert_all_options(bound.socket().unwrap());
    assert_option(bound.socket().unwrap(), SocketOption::ReuseAddress, 1);
    assert_option(bound.socket().unwrap(), SocketOption::ReusePort, 1);
    assert_option(bound.socket().unwrap(), SocketOption::FastOpen, 99);
    assert_option(bound.socket().unwrap(), SocketOption::QuickAck, 0);
    assert_option(bound.socket().unwrap(), SocketOption::MaxSegment, 1200);
    // The kernel counts retransmissions: those after 1 and 3 s cover 3 s.
    assert_option(bound.socket().unwrap(), SocketOption::DeferAccept, 3);
    let address = ip(bound.endpoint());
    on_lane(move |io| async move {
        let acceptor = bound.acceptor(&io).unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(b"x").unwrap(); // the accept is deferred until then
        let Incoming::Socket(accepted) = acceptor.accept().await.unwrap() else { panic!("not the system's") };
        assert_all_options(&accepted);
        let agreed = option(accepted.as_fd(), SocketOption::MaxSegment).unwrap();
        assert!(agreed <= 1200, "{agreed}");
        assert_eq!(
            ip(&Endpoint::Ip(std::net::SocketAddr::try_from(accepted.peer().unwrap().unwrap()).unwrap())),
            client.local_addr().unwrap()
        );
    });
}

#[test]
fn nothing_is_set_that_was_not_requested() {
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let bound = listen(&endpoint(LOCAL), &ListenOptions { reuse_port: false, ..Default::default() }).unwrap();
    for which in SocketOption::ALL {
        if matches!(which, SocketOption::NoDelay | SocketOption::ReuseAddress | SocketOption::PendingError) {
            continue;
        }
        assert_eq!(option(bound.socket().unwrap(), *which), option(plain.as_fd(), *which), "{which}");
    }
}

#[test]
fn ipv6_listeners_take_ipv4_as_configured() {
    if let Err(error) = TcpListener::bind("[::1]:0") {
        return common::not_shown("v4v6 and v6only", error);
    }
    for (v6, expected) in [(V6::Both, 0), (V6::Only, 1)] {
        let options = ListenOptions { v6, ..all_options() };
        let bound = listen(&endpoint("[::]:1"), &options).unwrap();
        assert_option(bound.socket().unwrap(), SocketOption::V6Only, expected);
        assert_option(bound.socket().unwrap(), SocketOption::TrafficClass, 0x20);
        let port = ip(bound.endpoint()).port();
        assert!(TcpStream::connect(("::1", port)).is_ok());
        // Another test may have this port of IPv4 at the same time, and accept.
        let client = TcpStream::connect(("127.0.0.1", port)).map(|client| client.local_addr().unwrap());
        let listener = TcpListener::from(bound.duplicate().unwrap()); // it does not block
        let peers = std::iter::from_fn(|| listener.accept().ok()).map(|(_, peer)| peer);
        let mut peers = peers.map(|peer| std::net::SocketAddr::new(peer.ip().to_canonical(), peer.port()));
        assert_eq!(client.is_ok_and(|client| peers.any(|peer| peer == client)), v6 == V6::Both, "{v6:?}");
    }
}

#[test]
fn shards_share_one_port_and_all_take_connections() {
    let shards = listen_sharded(&endpoint(LOCAL), &ListenOptions::default(), 4).unwrap();
    let address = ip(shards[0].endpoint());
    assert!(shards.iter().all(|shard| ip(shard.endpoint()) == address));
    let clients: Vec<_> = (0..64).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut accepted = 0;
    for shard in shards {
        let listener = TcpListener::from(shard.duplicate().unwrap()); // it does not block
        accepted += listener.incoming().map_while(Result::ok).count();
    }
    assert_eq!(accepted, clients.len());

    let alone = ListenOptions { reuse_port: false, ..Default::default() };
    assert_eq!(
        listen_sharded(&endpoint(LOCAL), &alone, 2).unwrap_err().to_string(),
        "cannot listen on '127.0.0.1:0': 'shards' and 'noreuseport' exclude each other, since shards share \
            their address; leave one out"
    );
    let folder = Folder::new();
    let one = listen_sharded(&Endpoint::Unix(folder.join("s")), &alone, 4).unwrap();
    assert_eq!(one.len(), 1);
}

#[test]
fn datagrams_come_to_a_bound_socket() {
    let options =
        ListenOptions { common: CommonOptions { tos: Some(8), ..Default::default() }, ..Default::default() };
    let bound = bind_datagrams(&endpoint(LOCAL), &options).unwrap();
    assert!(!is_listening(&bound));
    assert_option(bound.socket().unwrap(), SocketOption::Tos, 8);
    assert_option(bound.socket().unwrap(), SocketOption::ReuseAddress, 0);
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.send_to(b"hello", ip(bound.endpoint())).unwrap();
    let mut bytes = [0; 16];
    let socket = UdpSocket::from(bound.duplicate().unwrap());
    socket.set_nonblocking(false).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert_eq!(socket.recv(&mut bytes).expect("the datagram came within a minute"), 5);

    let folder = Folder::new();
    let bound = bind_datagrams(&Endpoint::Unix(folder.join("log")), &options).unwrap();
    let sender = UnixDatagram::unbound().unwrap();
    sender.send_to(b"hello", folder.join("log")).unwrap();
    assert_eq!(UnixDatagram::from(bound.duplicate().unwrap()).recv(&mut bytes).unwrap(), 5);
}

#[test]
fn a_unix_socket_has_its_mode_and_owner_and_goes_with_its_listener() {
    let folder = Folder::new();
    let path = folder.join("s");
    let unix = UnixOptions { mode: Some(0o604), ..Default::default() };
    let bound = listen(&Endpoint::Unix(path.clone()), &ListenOptions { unix, ..Default::default() }).unwrap();
    assert_eq!(folder.names(), ["s"], "the other name is gone");
    let file = std::fs::metadata(&path).unwrap();
    assert!(file.file_type().is_socket());
    assert_eq!(file.permissions().mode() & 0o777, 0o604);
    on_lane({
        let path = path.clone();
        move |io| async move {
            let acceptor = bound.acceptor(&io).unwrap();
            let mut client = UnixStream::connect(&path).unwrap();
            let served = acceptor.accept().await.unwrap().into_connection(&io);
            served.send(&mut common::chain(b"x")).await.unwrap();
            served.flush().await.unwrap(); // the read occupies the lane, which may still have the byte
            client.read_exact(&mut [0]).unwrap();
        }
    });
    assert!(folder.names().is_empty());

    let unix = UnixOptions { mode: Some(0o600), user: Some(12_345), group: Some(54_321) };
    match listen(&Endpoint::Unix(path.clone()), &ListenOptions { unix, ..Default::default() }) {
        Ok(_bound) => {
            let file = std::fs::metadata(&path).unwrap();
            assert_eq!((file.uid(), file.gid(), file.permissions().mode() & 0o777), (12_345, 54_321, 0o600));
        }
        Err(error) => {
            let expected = format!(
                "cannot listen on '{}': 'mode', 'user' or 'group' was refused: Operation not permitted (os \
                    error 1)",
                path.display()
            );
            assert_eq!(error.to_string(), expected, "not root: the owner stays");
        }
    }
    assert!(folder.names().is_empty());
}

#[test]
fn a_stale_unix_socket_is_replaced_and_a_successors_is_left_alone() {
    let folder = Folder::new();
    let path = folder.join("s");
    drop(UnixListener::bind(&path).unwrap()); // std leaves the file
    assert_eq!(UnixStream::connect(&path).unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    let first = listen(&Endpoint::Unix(path.clone()), &ListenOptions::default()).unwrap();
    let early = UnixStream::connect(&path).unwrap();
    let second = listen(&Endpoint::Unix(path.clone()), &ListenOptions::default()).unwrap();
    let late = UnixStream::connect(&path).unwrap();
    let accept = |bound: &Bound| {
        UnixListener::from(bound.duplicate().unwrap()).incoming().map_while(Result::ok).count()
    };
    assert_eq!((accept(&first), accept(&second)), (1, 1), "each client came to who listened then");
    drop((early, late, first));
    assert_eq!(folder.names(), ["s"]);
    assert!(UnixStream::connect(&path).is_ok());
    drop(second);
    assert!(folder.names().is_empty());
}

#[test]
fn abstract_names_are_found_by_others_in_both_forms() {
    let name = format!("manylane-net-{}", std::process::id());
    let padded = name.clone() + &"\0".repeat(107 - name.len());
    for (text, system) in [(format!("abns@{name}"), padded), (format!("abnsz@{name}"), name.clone())] {
        let bound = listen(&endpoint(&text), &ListenOptions::default()).unwrap();
        assert_eq!(bound.endpoint().to_string(), text);
        let address = std::os::unix::net::SocketAddr::from_abstract_name(system).unwrap();
        UnixStream::connect_addr(&address).unwrap();
        assert_eq!(
            listen(&endpoint(&text), &ListenOptions::default()).unwrap_err().to_string(),
            format!(
                "cannot listen on '{text}': the address was refused: Address already in use (os error 98); \
                    stop the \
                 program that has it, or choose another"
            )
        );
    }
}

#[test]
fn an_inherited_descriptor_listens_with_the_options_and_its_original_stays() {
    for listening in [true, false] {
        let parent = if listening {
            TcpListener::bind("127.0.0.1:0").unwrap().into()
        } else {
            let socket = manylane_io::socket::open(
                manylane_io::socket::AddressFamily::INET,
                manylane_io::socket::Shape::Stream,
            );
            let socket = socket.unwrap();
            let any: std::net::SocketAddr = "127.0.0.1:0".parse().unwrap();
            manylane_io::socket::bind(socket.as_fd(), &any.into()).unwrap();
            socket
        };
        let options = ListenOptions { defer_accept: None, ..all_options() };
        let bound = listen(&Endpoint::Descriptor(parent.as_raw_fd()), &options).unwrap();
        assert!(is_listening(&bound));
        assert_all_options(bound.socket().unwrap());
        let address = ip(bound.endpoint());
        assert_eq!(address, TcpListener::from(parent.try_clone().unwrap()).local_addr().unwrap());
        on_lane(move |io| async move {
            let acceptor = bound.acceptor(&io).unwrap();
            let client = TcpStream::connect(address).unwrap();
            acceptor.accept().await.unwrap();
            drop(client);
        });
        // The parent's own socket is still there: the next process may inherit it.
        assert!(TcpStream::connect(address).is_ok());
    }
}

/// Returns the error for `text`.
fn refusal(text: &str) -> String {
    listen(&endpoint(text), &ListenOptions::default()).unwrap_err().to_string()
}

#[test]
fn what_the_system_refuses_is_one_sentence_with_the_address_and_its_error() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    assert_eq!(
        refusal(&address.to_string()),
        format!(
            "cannot listen on '{address}': the address was refused: Address already in use (os error 98); \
                stop the \
             program that has it, or choose another"
        )
    );
    assert_eq!(
        refusal("192.0.2.1:80"),
        "cannot listen on '192.0.2.1:80': the address was refused: Cannot assign requested address (os error \
            99); no \
         network device has this address; 'transparent' allows it all the same"
    );
    let folder = Folder::new();
    let missing = folder.join("missing").join("s");
    let missing = missing.display();
    assert_eq!(
        refusal(&format!("{missing}")),
        format!(
            "cannot listen on '{missing}': the address was refused: No such file or directory (os error 2); \
                make the \
             folder first"
        )
    );
    let file = folder.join("precious");
    std::fs::write(&file, "data").unwrap();
    assert_eq!(
        refusal(&file.display().to_string()),
        format!(
            "cannot listen on '{}': the socket cannot take its place: File exists (os error 17); a file \
                that is no socket has this path: move it, or choose another path",
            file.display()
        )
    );
    assert_eq!(std::fs::read(&file).unwrap(), b"data");
    let long = Endpoint::Unix(folder.join(&"x".repeat(100)));
    let error = listen(&long, &ListenOptions::default()).unwrap_err();
    assert_eq!((error.step(), error.errno()), (Step::Bind, Errno::NAMETOOLONG));
    assert_eq!(folder.names(), ["precious"]);

    // Far above the number of descriptors that a process may open.
    assert_eq!(
        refusal("fd@1073741816"),
        "cannot listen on 'fd@1073741816': the descriptor cannot be used: Bad file descriptor (os error 9); \
            the parent process \
            left no such descriptor open"
    );
    let file = std::fs::File::open(&file).unwrap();
    let number = file.as_raw_fd();
    assert_eq!(
        refusal(&format!("fd@{number}")),
        format!(
            "cannot listen on 'fd@{number}': the descriptor cannot be used: Socket operation on non-socket \
                (os error 88); \
             the descriptor is no socket"
        )
    );
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    let number = datagrams.as_raw_fd();
    assert_eq!(
        refusal(&format!("fd@{number}")),
        format!(
            "cannot listen on 'fd@{number}': the descriptor cannot be used: Protocol wrong type for socket \
                (os error 91); \
             the socket is of another kind than the statement needs"
        )
    );
}

#[test]
fn an_option_that_is_refused_is_named() {
    let cases: [(ListenOptions, &str); 4] = [
        (
            ListenOptions { mss: Some(10), ..Default::default() },
            "cannot listen on '127.0.0.1:0': 'mss' (TCP_MAXSEG) was refused: Invalid argument (os error 22)",
        ),
        (
            ListenOptions {
                common: CommonOptions {
                    keep_alive: Some(KeepAlive {
                        idle: Some(Duration::from_secs(40_000)),
                        ..Default::default()
                    }),
                    ..Default::default()
                },
                ..Default::default()
            },
            "cannot listen on '127.0.0.1:0': 'clitcpka-idle' (TCP_KEEPIDLE) was refused: Invalid argument \
                (os error 22)",
        ),
        (
            ListenOptions { interface: Some("no such dev".into()), ..Default::default() },
            "cannot listen on '127.0.0.1:0': 'interface' (SO_BINDTODEVICE) was refused: No such device (os \
                error 19); \
             'ip link' shows the devices",
        ),
        (
            ListenOptions {
                common: CommonOptions { congestion_control: Some("none such".into()), ..Default::default() },
                ..Default::default()
            },
            "cannot listen on '127.0.0.1:0': 'cc' (TCP_CONGESTION) was refused: No such file or directory \
                (os error 2); \
             'sysctl net.ipv4.tcp_available_congestion_control' shows the algorithms",
        ),
    ];
    for (options, expected) in cases {
        assert_eq!(listen(&endpoint(LOCAL), &options).unwrap_err().to_string(), expected);
    }
}
