//! Lines to real sockets and pipes.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use jiff::tz::TimeZone;
use manylane_io::{Driver, DriverChoice, Kind};
use manylane_logs::{
    Framing, LaneLogs, MIN_RING, MOST_LINES, Ring, RingServer, Sink, Target, TargetSpec, Timeouts,
};
use manylane_sched::{BlockingPool, Config, Lane};
use manylane_sync::Arc;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixListener};

#[test]
fn each_line_is_a_datagram_over_udp() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let target = log_numbers(spec(Sink::Udp(server.local_addr().unwrap())), 100);
    assert_eq!(counts(&target), (100, 0));
    let mut bytes = [0; 2048];
    for n in 0..100 {
        let length = server.recv(&mut bytes).unwrap();
        assert_eq!(bytes[..length], *format!("<6>line {n}\n").as_bytes());
    }
}

#[test]
fn each_line_is_a_datagram_to_a_local_socket_by_path_and_by_abstract_name() {
    let folder = folder("datagrams");
    let path = folder.join("log");
    let name = format!("manylane-logs-{}", std::process::id());
    let address = {
        use std::os::linux::net::SocketAddrExt;
        std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap()
    };
    for (server, sink) in [
        (UnixDatagram::bind(&path).unwrap(), Sink::Unix(path.clone())),
        (UnixDatagram::bind_addr(&address).unwrap(), Sink::Abstract(name.clone().into_bytes())),
    ] {
        let target = log_numbers(spec(sink), 5);
        assert_eq!(counts(&target), (5, 0));
        let mut bytes = [0; 2048];
        for n in 0..5 {
            let length = server.recv(&mut bytes).unwrap();
            assert_eq!(bytes[..length], *format!("<6>line {n}\n").as_bytes());
        }
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_daemon_that_is_not_there_loses_lines_by_count_and_gets_them_when_it_is() {
    let folder = folder("absent");
    let path = folder.join("log");
    let bound = path.clone();
    let target = on_lane(spec(Sink::Unix(path)), |here, logs, target| async move {
        for _ in 0..3 {
            logs.log(0, &line(b"in vain"));
        }
        until(here, &target, 3).await;
        assert_eq!(counts(&target), (0, 3));
        let server = UnixDatagram::bind(&bound).unwrap();
        logs.log(0, &line(b"heard"));
        until(here, &target, 4).await;
        let mut bytes = [0; 64];
        let length = server.recv(&mut bytes).unwrap();
        assert_eq!(bytes[..length], *b"<6>heard\n");
    });
    assert_eq!(counts(&target), (1, 3));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_daemon_that_does_not_read_stops_no_lane_and_loses_what_finds_no_room() {
    let folder = folder("blocked");
    let path = folder.join("log");
    let server = UnixDatagram::bind(&path).unwrap();
    let target = on_lane(spec(Sink::Unix(path)), |here, logs, target| async move {
        // Far more than the socket and a batch hold; the lane works between lines.
        let all = 3 * MOST_LINES as u64;
        for n in 0..all {
            logs.log(0, &line(b"flood"));
            if n % 100 == 0 {
                here.yield_now().await;
            }
        }
        let (sent, lost) = counts(&target);
        assert!(lost > 0, "{sent} sent, {lost} lost");
        // The server reads again: waiting lines arrive, and every line is accounted for.
        server.set_nonblocking(true).unwrap();
        let mut received = 0;
        let mut bytes = [0; 64];
        while counts(&target).0 + counts(&target).1 < all || received < counts(&target).0 {
            match server.recv(&mut bytes) {
                Ok(length) => {
                    assert_eq!(bytes[..length], *b"<6>flood\n");
                    received += 1;
                }
                Err(_) => here.yield_now().await,
            }
        }
        assert_eq!(received, counts(&target).0);
    });
    let (sent, lost) = counts(&target);
    assert_eq!(sent + lost, 3 * MOST_LINES as u64);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn lines_go_over_tcp_by_ends_of_line_and_by_lengths() {
    for (framing, first) in
        [(Framing::Lines, "<6>line 0\n<6>line 1\n"), (Framing::OctetCount, "9 <6>line 09 <6>line 1")]
    {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let reading = std::thread::spawn(move || {
            let mut text = String::new();
            server.accept().unwrap().0.read_to_string(&mut text).unwrap();
            text
        });
        let target = on_lane(spec(Sink::Tcp(address, framing)), |here, logs, target| async move {
            for n in 0..2000 {
                logs.log(0, &line(format!("line {n}").as_bytes()));
            }
            until(here, &target, 2000).await;
        });
        assert_eq!(counts(&target), (2000, 0));
        let text = reading.join().unwrap();
        assert!(text.starts_with(first), "{text:.40}");
        assert!(text.trim_end().ends_with("<6>line 1999"));
        assert_eq!(text.matches("<6>line").count(), 2000);
    }
}

#[test]
fn a_stream_that_breaks_is_opened_again() {
    let folder = folder("stream");
    let path = folder.join("log");
    let server = UnixListener::bind(&path).unwrap();
    let target = on_lane(spec(Sink::UnixStream(path, Framing::Lines)), |here, logs, target| async move {
        logs.log(0, &line(b"one"));
        until(here, &target, 1).await;
        let (first, _) = server.accept().unwrap();
        let mut reader = BufReader::new(first);
        let mut text = String::new();
        reader.read_line(&mut text).unwrap();
        assert_eq!(text, "<6>one\n");
        drop(reader);
        // Lines are lost until the break is noticed; then one arrives.
        server.set_nonblocking(true).unwrap();
        let mut logged = 1;
        let second = loop {
            logs.log(0, &line(b"again"));
            logged += 1;
            until(here, &target, logged).await;
            if let Ok((second, _)) = server.accept() {
                break second;
            }
        };
        second.set_nonblocking(false).unwrap();
        let mut text = String::new();
        BufReader::new(second).read_line(&mut text).unwrap();
        assert_eq!(text, "<6>again\n");
        assert!(counts(&target).1 > 0, "the break lost at least one");
    });
    assert!(counts(&target).0 >= 2);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_pipe_gets_whole_lines_and_one_that_nobody_reads_stops_no_lane() {
    let (mut read, write) = std::io::pipe().unwrap();
    let target = on_lane(spec(Sink::Descriptor(write.into())), |here, logs, target| async move {
        let long = [b'x'; 900];
        for _ in 0..2000 {
            logs.log(0, &line(&long));
            here.yield_now().await; // a full pipe does not stop the lane
        }
        let (sent, lost) = counts(&target);
        assert!(lost > 0, "a pipe holds less than 1.8 MB: {sent} sent, {lost} lost");
        rustix::io::ioctl_fionbio(&read, true).unwrap(); // the lane must go on to count what was written
        let mut bytes = vec![0; 1 << 16];
        let mut text = Vec::new();
        while counts(&target).0 + counts(&target).1 < 2000 || text.len() < counts(&target).0 as usize * 904 {
            match read.read(&mut bytes) {
                Ok(length) => text.extend_from_slice(&bytes[..length]),
                Err(_) => here.yield_now().await,
            }
        }
        let lines = text.split_inclusive(|&b| b == b'\n');
        assert!(lines.clone().all(|line| line.len() == 904 && line.starts_with(b"<6>xxx")));
        assert_eq!(lines.count() as u64, counts(&target).0);
    });
    assert_eq!(counts(&target).0 + counts(&target).1, 2000);
}

#[test]
fn a_descriptor_that_is_a_datagram_socket_is_sent_datagrams() {
    let (server, client) = UnixDatagram::pair().unwrap();
    let target = log_numbers(spec(Sink::Descriptor(client.into())), 3);
    assert_eq!(counts(&target), (3, 0));
    let mut bytes = [0; 64];
    for n in 0..3 {
        let length = server.recv(&mut bytes).unwrap();
        assert_eq!(bytes[..length], *format!("<6>line {n}\n").as_bytes());
    }
}

#[test]
fn lines_longer_than_a_cluster_arrive_whole_and_too_long_ones_are_lost_alone() {
    let folder = folder("long");
    let path = folder.join("log");
    let server = UnixDatagram::bind(&path).unwrap();
    let long = TargetSpec { length: 65_535, ..spec(Sink::Unix(path)) };
    on_lane(long, |here, logs, target| async move {
        let text = vec![b'y'; 40_000];
        logs.log(0, &line(&text));
        logs.log(0, &line(b"short"));
        until(here, &target, 2).await;
        assert_eq!(counts(&target), (2, 0));
        let mut bytes = vec![0; 1 << 17];
        assert_eq!(server.recv(&mut bytes).unwrap(), 40_004);
        assert_eq!(server.recv(&mut bytes).unwrap(), 9);
    });
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let long = TargetSpec { length: 65_535, ..spec(Sink::Udp(udp.local_addr().unwrap())) };
    let target = on_lane(long, |here, logs, target| async move {
        let text = vec![b'y'; 65_535]; // more than a UDP datagram holds
        logs.log(0, &line(&text));
        logs.log(0, &line(b"short"));
        until(here, &target, 2).await;
    });
    assert_eq!(counts(&target), (1, 1));
    std::fs::remove_dir_all(folder).unwrap();
}

/// As with HAProxy, `len` includes the line end of a raw line, and of one written to a descriptor.
#[test]
fn lines_are_cut_to_their_length() {
    use manylane_logs::Format;
    let text = [b'z'; 200];
    for format in [Format::Raw, Format::Short] {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sink = Sink::Udp(server.local_addr().unwrap());
        on_lane(TargetSpec { length: 80, format, ..spec(sink) }, move |here, logs, target| async move {
            logs.log(0, &line(&text));
            until(here, &target, 1).await;
        });
        assert_eq!(server.recv(&mut [0; 300]).unwrap(), 80, "{format:?}");
        let (mut read, write) = std::io::pipe().unwrap();
        let spec = TargetSpec { length: 80, format, ..spec(Sink::Descriptor(write.into())) };
        on_lane(spec, move |here, logs, target| async move {
            logs.log(0, &line(&text));
            until(here, &target, 1).await;
        });
        assert_eq!(read.read(&mut [0; 300]).unwrap(), 80, "{format:?}");
    }
}

/// Lines that a ring's server cannot take wait in the ring, until they are overwritten.
#[test]
fn lines_that_the_ring_still_has_reach_a_server_that_comes_back() {
    // An address of this process only, so that no other gets the port meanwhile.
    let [_, a, b, c] = std::process::id().to_be_bytes();
    let listener = TcpListener::bind(SocketAddr::from(([127, 128 | a, b, c], 0))).unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let ring = Arc::new(Ring::new("r", "", MIN_RING));
    let sink = Sink::Tcp(address, Framing::OctetCount);
    let server = Arc::new(RingServer::new(ring.clone(), sink, Timeouts::default()).unwrap());
    let target = Arc::new(Target::new(spec(Sink::Ring(ring))).unwrap());
    let mut lane = Lane::new(Config::new()).unwrap();
    let here = lane.here();
    let mut driver = Driver::new(here, DriverChoice::Only(Kind::Epoll)).unwrap();
    let io = driver.io();
    let pool = Arc::new(BlockingPool::default());
    let logs = LaneLogs::new(here, io.clone(), pool, TimeZone::UTC, [target.clone()]);
    let (of_target, of_server) = (target.clone(), server.clone());
    let received = lane
        .block_on(&mut driver, async move {
            for n in 0..41_u64 {
                logs.log(0, &line(format!("{n:0995}").as_bytes()));
            }
            until(here, &target, 41).await;
            server.start(here, &io, None);
            server.start(here, &io, None); // its task runs already
            let listener = TcpListener::bind(address).unwrap();
            while server.counts().read_cheap_one(|counts| &counts.sent) < 16 {
                here.yield_now().await;
            }
            let (mut client, _) = listener.accept().unwrap();
            server.close();
            while Arc::strong_count(&server) > 2 {
                here.yield_now().await;
            }
            let mut received = Vec::new();
            client.read_to_end(&mut received).unwrap();
            String::from_utf8(received).unwrap()
        })
        .unwrap();
    // Bytes of a line in the ring: 3 for the level, the text, a line end, and 4 for its length.
    let fits = MIN_RING as u64 / (3 + 995 + 1 + 4);
    let expected: String = (41 - fits..41).map(|n| format!("998 <6>{n:0995}")).collect();
    assert_eq!(received, expected);
    assert_eq!(counts(&of_target), (41, 0));
    let of_server = of_server.counts().read_cheap();
    assert_eq!((of_server[0], of_server[1]), (fits, 0));
}
