//! Many threads on few sockets lose nothing: every message comes out once, in order for each sender.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)] // helpers of tests are covered, too

use manylane_buf::Chain;
use manylane_local::{Attached, Error, Handle, Kind, Name, Socket, in_flight, sockets};
use std::sync::Mutex;
use std::time::Duration;

const SENDERS: u64 = 4;
const EACH: u64 = 5_000;

/// Messages with the sender's number and a count, through one socket with little room.
fn messages_of_many_senders_arrive_once_and_in_order(kind: Kind) {
    let (a, b) = Socket::pair(kind);
    b.set_recv_limit(20_000).unwrap();
    let got = Mutex::new(vec![Vec::new(); SENDERS as usize]);
    std::thread::scope(|scope| {
        for sender in 0..SENDERS {
            let a = &a;
            scope.spawn(move || {
                for count in 0..EACH {
                    let mut message = [0; 200];
                    message[..8].copy_from_slice(&sender.to_le_bytes());
                    message[8..16].copy_from_slice(&count.to_le_bytes());
                    let message = &message[..16 + (count % 184) as usize];
                    if count % 3 == 0 {
                        let mut chain = Chain::new();
                        chain.append(message).unwrap();
                        a.send_chain(&mut chain).unwrap();
                    } else {
                        a.send(message).unwrap();
                    }
                }
            });
        }
        // One receiver keeps the order of each sender.
        let mut left = SENDERS * EACH;
        while left > 0 {
            let mut buffer = [0; 256];
            let n = b.recv(&mut buffer).unwrap();
            let sender = u64::from_le_bytes(buffer[..8].try_into().unwrap());
            let count = u64::from_le_bytes(buffer[8..16].try_into().unwrap());
            assert_eq!(n as u64, 16 + count % 184);
            got.lock().unwrap()[sender as usize].push(count);
            left -= 1;
        }
    });
    for counts in got.into_inner().unwrap() {
        assert!(counts.into_iter().eq(0..EACH));
    }
}

/// Bytes of a stream with several receivers: the sum of all bytes is conserved.
fn bytes_of_a_stream_are_received_once() {
    let (a, b) = Socket::pair(Kind::Stream);
    b.set_recv_limit(50_000).unwrap();
    let sent: u64 = std::thread::scope(|scope| {
        let senders: Vec<_> = (0..3u64)
            .map(|sender| {
                let a = &a;
                scope.spawn(move || {
                    let mut sum = 0;
                    for i in 0..2_000u64 {
                        let len = [1, 64, 1024, 3000, 30_000][(i % 5) as usize];
                        let bytes = vec![(sender + i) as u8; len];
                        sum += bytes.iter().map(|b| u64::from(*b)).sum::<u64>();
                        assert_eq!(a.send(&bytes).unwrap(), len);
                    }
                    sum
                })
            })
            .collect();
        let receivers: Vec<_> = (0..2)
            .map(|by_reference| {
                let b = &b;
                scope.spawn(move || {
                    let (mut sum, mut buffer) = (0, [0; 5000]);
                    loop {
                        let bytes = if by_reference == 1 {
                            b.recv_chain(usize::MAX).unwrap().to_vec()
                        } else {
                            let n = b.recv(&mut buffer).unwrap();
                            buffer[..n].to_vec()
                        };
                        if bytes.is_empty() {
                            return sum;
                        }
                        sum += bytes.iter().map(|b| u64::from(*b)).sum::<u64>();
                    }
                })
            })
            .collect();
        let sent: u64 = senders.into_iter().map(|sender| sender.join().unwrap()).sum();
        a.shutdown(std::net::Shutdown::Write).unwrap();
        let got: u64 = receivers.into_iter().map(|receiver| receiver.join().unwrap()).sum();
        assert_eq!(got, sent);
        sent
    });
    assert!(sent > 0);
}

/// Threads that connect, send, pass handles and close at random; the test prints the seed.
fn connections_come_and_go_and_none_is_left() {
    let seed = std::env::var("MANYLANE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1u64);
    println!("MANYLANE_SEED={seed}");
    let names: Vec<Name> = (0..3).map(|i| Name::new(format!("stress-{i}")).unwrap()).collect();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let names = &names;
            scope.spawn(move || {
                let mut random = (seed + thread).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
                let mut next = move |n: usize| {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    (random >> 33) as usize % n
                };
                let mut own: Vec<Socket> = Vec::new();
                for _ in 0..4_000 {
                    act(&mut own, names, &mut next);
                }
            });
        }
    });
}

fn act(own: &mut Vec<Socket>, names: &[Name], next: &mut impl FnMut(usize) -> usize) {
    if own.len() > 20 {
        own.swap_remove(next(20));
    }
    let name = &names[next(names.len())];
    let any = (!own.is_empty()).then(|| next(own.len()));
    match (next(9), any) {
        (0, _) => {
            let socket = Socket::new(Kind::SeqPacket);
            if socket.bind(name).is_ok() {
                socket.listen(4).unwrap();
                own.push(socket);
            }
        }
        (1, _) => {
            let socket = Socket::new(Kind::SeqPacket);
            if socket.connect(name).is_ok() {
                own.push(socket);
            }
        }
        (2, _) => {
            let (a, b) = Socket::pair([Kind::SeqPacket, Kind::Datagram, Kind::Stream][next(3)]);
            own.extend([a, b]);
        }
        (3, Some(i)) => {
            if let Ok(socket) = own[i].try_accept() {
                own.push(socket);
            }
        }
        (4, Some(i)) => match own[i].try_send(&[7; 300]) {
            Ok(_) | Err(_) => {}
        },
        (5, Some(i)) => {
            if let Ok(received) = own[i].try_recv_message(&mut [0; 500]) {
                own.extend(received.handles.into_iter().filter_map(|handle| match handle {
                    Handle::Socket(socket) => Some(socket),
                    Handle::Object(_) => None,
                }));
            }
        }
        (6, Some(i)) => {
            let mut handles = vec![Handle::from(own[next(own.len())].clone())];
            let attached = Attached { handles: Some(&mut handles), ..Attached::default() };
            let _ = own[i].try_send_message(b"h", attached);
        }
        (7, Some(i)) => drop(own.swap_remove(i)),
        (_, Some(i)) => {
            let _ = own[i].connect(name).or_else(|error| match error {
                Error::WouldBlock => panic!("connect never waits"),
                _ => Ok::<_, Error>(()),
            });
        }
        (_, None) => {}
    }
}

/// Every round is a sleep and a wake-up on both sides.
fn no_wake_up_is_lost_between_two_that_sleep() {
    for kind in [Kind::Stream, Kind::SeqPacket] {
        let (a, b) = Socket::pair(kind);
        for socket in [&a, &b] {
            socket.set_busy_poll(Duration::ZERO);
        }
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut byte = [0];
                for _ in 0..5_000 {
                    assert_eq!(b.recv(&mut byte).unwrap(), 1);
                    b.send(&byte).unwrap();
                }
            });
            for i in 0..5_000 {
                let mut byte = [i as u8];
                a.send(&byte).unwrap();
                a.recv(&mut byte).unwrap();
                assert_eq!(byte, [i as u8]);
            }
        });
    }
}

#[test]
fn nothing_is_lost_and_nothing_is_left() {
    messages_of_many_senders_arrive_once_and_in_order(Kind::SeqPacket);
    messages_of_many_senders_arrive_once_and_in_order(Kind::Datagram);
    bytes_of_a_stream_are_received_once();
    connections_come_and_go_and_none_is_left();
    no_wake_up_is_lost_between_two_that_sleep();
    manylane_local::collect();
    assert_eq!(sockets(), []);
    assert_eq!(in_flight(), 0);
}
