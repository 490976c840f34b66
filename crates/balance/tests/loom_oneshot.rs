//! Transfers between two lanes: every interleaving of giving, waiting and leaving. One of the two lanes owns
//! the value, and no wake-up is lost (R-G5).
#![cfg(loom)]

use manylane_balance::{Waiter, oneshot};
use manylane_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use manylane_sync::{Arc, model, thread};
use std::task::Poll;

#[derive(Clone)]
struct Notify(Arc<AtomicBool>);

impl Waiter for Notify {
    fn wake(self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A connection that is counted while it is open.
struct Connection(Arc<AtomicUsize>);

impl Connection {
    fn open(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count.clone())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A lane that waits for an answer gets it, or is woken for it.
fn request_beside_reply(gives: bool) {
    model(move || {
        let open = Arc::new(AtomicUsize::new(0));
        let (mut request, reply) = oneshot();
        let other = {
            let open = open.clone();
            thread::spawn(move || {
                if gives {
                    assert!(reply.give(Connection::open(&open)).is_ok(), "somebody waits");
                } else {
                    drop(reply);
                }
            })
        };
        let notify = Notify(Arc::new(AtomicBool::new(false)));
        let first = request.poll(|| notify.clone());
        other.join().expect("no assertion failed");
        let answer = match first {
            Poll::Ready(answer) => answer,
            Poll::Pending => {
                assert!(notify.0.load(Ordering::SeqCst), "a wake-up was lost");
                match request.poll(|| notify) {
                    Poll::Ready(answer) => answer,
                    Poll::Pending => panic!("the answer was given"),
                }
            }
        };
        assert_eq!(answer.is_some(), gives);
        assert_eq!(open.load(Ordering::SeqCst), usize::from(gives), "it is here, and only here");
        drop(answer);
        assert_eq!(open.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn what_is_given_arrives_and_who_waits_is_woken() {
    request_beside_reply(true);
}

#[test]
fn who_waits_is_woken_when_there_is_nothing() {
    request_beside_reply(false);
}

/// The asker leaves while the value is given: either `give` returns it, or it is closed.
#[test]
fn what_is_given_to_one_who_leaves_comes_back_or_is_closed() {
    model(|| {
        let open = Arc::new(AtomicUsize::new(0));
        let (mut request, reply) = oneshot();
        let other = {
            let open = open.clone();
            thread::spawn(move || reply.give(Connection::open(&open)).err())
        };
        let notify = Notify(Arc::new(AtomicBool::new(false)));
        let taken = match request.poll(|| notify) {
            Poll::Ready(taken) => taken,
            Poll::Pending => None,
        };
        drop(request);
        let back = other.join().expect("no assertion failed");
        assert!(taken.is_none() || back.is_none(), "it is with one of the two");
        let held = usize::from(taken.is_some()) + usize::from(back.is_some());
        assert_eq!(open.load(Ordering::SeqCst), held, "what nobody holds is closed");
    });
}
