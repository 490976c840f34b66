//! Sequences of operations on sockets beside a simple model, for the property test and the fuzzer.
//!
//! The model is a queue for each direction. One thread runs all operations without waiting, so the model
//! knows every result in advance.

use crate::{Error, Kind, Socket};
use manylane_buf::Chain;
use std::collections::VecDeque;
use std::net::Shutdown;

/// One direction of a pair.
#[derive(Default)]
struct Direction {
    messages: VecDeque<Vec<u8>>,
    ended: bool,
    gone: bool,
}

impl Direction {
    fn len(&self) -> usize {
        self.messages.iter().map(Vec::len).sum()
    }
}

/// The bytes of the sequence; 0 after its end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn next(&mut self) -> usize {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        usize::from(*first)
    }
}

/// The limit of both buffers in a run.
const LIMIT: usize = 40_000;

/// Runs the operations encoded in `bytes` on a pair of sockets and on the model.
///
/// # Panics
/// If the two differ.
pub fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let kind = [Kind::Stream, Kind::SeqPacket][input.next() % 2];
    let (a, b) = Socket::pair(kind);
    let mut ends = [Some(a), Some(b)];
    for socket in ends.iter().flatten() {
        socket.set_recv_limit(LIMIT).expect("it is more than 0");
    }
    // `to[i]` has the data that end `i` receives.
    let mut to = [Direction::default(), Direction::default()];
    let mut stamp = 0u8;
    while !input.0.is_empty() {
        let (operation, end) = (input.next(), input.next() % 2);
        let Some(socket) = &ends[end] else { continue };
        match operation % 8 {
            0..=2 => {
                let len = [0, 1, 64, 113, 1024, 1025, 5000, 20_000][input.next() % 8] + input.next() % 3;
                stamp = stamp.wrapping_add(1);
                let message: Vec<u8> = (0..len).map(|i| stamp ^ (i >> 4) as u8).collect();
                send(socket, kind, &message, operation % 8 == 2, &mut to[1 - end]);
            }
            3..=5 => {
                let max = [0, 1, 63, 500, 3000, 100_000][input.next() % 6];
                receive(socket, kind, max, operation % 8 == 5, &mut to[end]);
            }
            6 => {
                let how = [Shutdown::Read, Shutdown::Write, Shutdown::Both][input.next() % 3];
                socket.shutdown(how).expect("it was connected");
                if how != Shutdown::Read {
                    to[1 - end].ended = true;
                }
                if how != Shutdown::Write {
                    to[end].gone = true;
                    to[end].messages.clear();
                }
            }
            _ => {
                ends[end] = None;
                to[end].gone = true;
                to[end].messages.clear();
                to[1 - end].ended = true;
            }
        }
        for (socket, to) in ends.iter().zip(&to) {
            if let Some(socket) = socket {
                assert_eq!(socket.queued(), to.len(), "bytes that wait");
            }
        }
    }
}

fn send(socket: &Socket, kind: Kind, message: &[u8], by_reference: bool, to: &mut Direction) {
    let sent = if by_reference {
        let mut chain = Chain::new();
        chain.append(message).expect("there is memory");
        let sent = socket.try_send_chain(&mut chain);
        let left = message.len() - sent.as_ref().map_or(0, |n| *n);
        assert_eq!(chain.len(), left, "what was not sent is the caller's");
        sent
    } else {
        socket.try_send(message)
    };
    if kind == Kind::Stream && message.is_empty() {
        assert!(matches!(sent, Ok(0)), "{sent:?}");
        return;
    }
    if to.gone || to.ended {
        assert!(matches!(sent, Err(Error::BrokenPipe)), "{sent:?}");
        return;
    }
    let fits = match kind {
        Kind::Stream => message.len().min(LIMIT - to.len()),
        _ => {
            let used = to.len() + to.messages.len() * crate::MESSAGE_COST;
            if used + message.len() + crate::MESSAGE_COST <= LIMIT { message.len() } else { usize::MAX }
        }
    };
    match sent {
        Ok(n) => {
            assert_eq!(n, fits);
            to.messages.push_back(message[..n].to_vec());
        }
        Err(Error::WouldBlock) => assert!(fits == usize::MAX || (kind == Kind::Stream && fits == 0)),
        Err(error) => panic!("{error}"),
    }
}

fn receive(socket: &Socket, kind: Kind, max: usize, by_reference: bool, to: &mut Direction) {
    let got = if by_reference {
        socket.try_recv_chain(max).map(|chain| chain.to_vec())
    } else {
        let mut buffer = vec![0; max];
        socket.try_recv(&mut buffer).map(|n| {
            buffer.truncate(n);
            buffer
        })
    };
    if kind == Kind::Stream && max == 0 {
        assert!(matches!(&got, Ok(bytes) if bytes.is_empty()), "{got:?}");
        return;
    }
    if to.messages.is_empty() {
        match got {
            Ok(bytes) => assert!(bytes.is_empty() && (to.ended || to.gone), "bytes out of nothing"),
            Err(Error::WouldBlock) => assert!(!to.ended && !to.gone, "the end was not reported"),
            Err(error) => panic!("{error}"),
        }
        return;
    }
    if kind == Kind::SeqPacket {
        let first = to.messages.front().expect("it is not empty");
        if by_reference && first.len() > max {
            assert!(matches!(got, Err(Error::MessageTooLong { .. })), "{got:?}");
            return;
        }
        let first = to.messages.pop_front().expect("it is not empty");
        assert_eq!(got.expect("there is a message"), first[..first.len().min(max)]);
        return;
    }
    let got = got.expect("there are bytes");
    assert!(!got.is_empty() && got.len() <= max, "at least one byte, at most as many as asked for");
    let mut rest = &got[..];
    while !rest.is_empty() {
        let first = to.messages.front_mut().expect("no more was received than sent");
        let n = first.len().min(rest.len());
        assert!(first[..n] == rest[..n], "in order");
        first.drain(..n);
        rest = &rest[n..];
        if first.is_empty() {
            to.messages.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_pair_does_what_two_queues_would_do(operations in prop::collection::vec(any::<u8>(), 0..400)) {
            super::run(&operations);
        }
    }
}
