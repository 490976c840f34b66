//! Every interleaving of two or three lanes that use a `ConnLimit`: no permit is given twice, and no task
//! waits while a permit is free.
#![cfg(loom)]

use manylane_plan::ConnLimit;
use manylane_sync::atomic::{AtomicUsize, Ordering};
use manylane_sync::{Arc, model, thread};
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};

/// Counts its wake-ups.
struct Notify(AtomicUsize);

impl Wake for Notify {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn notify() -> (std::sync::Arc<Notify>, Waker) {
    let notify = std::sync::Arc::new(Notify(AtomicUsize::new(0)));
    (notify.clone(), Waker::from(notify))
}

/// One task releases its permit while another begins to wait and is polled once more spuriously: the waiter
/// gets the permit, or is woken for it.
#[test]
fn who_waits_while_a_permit_is_given_back_is_woken() {
    model(|| {
        let conn_limit = Arc::new(ConnLimit::new(1));
        assert!(conn_limit.try_enter());
        let leaving = {
            let conn_limit = conn_limit.clone();
            thread::spawn(move || conn_limit.leave())
        };
        let (rung, waker) = notify();
        let mut entering = pin!(conn_limit.enter());
        let mut context = Context::from_waker(&waker);
        let mut outcome = entering.as_mut().poll(&mut context);
        if outcome.is_pending() {
            outcome = entering.as_mut().poll(&mut context);
        }
        leaving.join().expect("no assertion failed");
        if outcome.is_pending() {
            assert!(rung.0.load(Ordering::SeqCst) > 0, "a wake-up was lost");
            outcome = entering.as_mut().poll(&mut context);
        }
        assert_eq!(outcome, Poll::Ready(()));
        assert!(!conn_limit.try_enter(), "there is one permit");
        conn_limit.leave();
        assert!(conn_limit.try_enter(), "nothing was lost");
    });
}

/// Two tasks wait, and one gives up while the permit is released: the other one gets it.
#[test]
fn a_permit_is_not_lost_with_one_who_gives_up() {
    model(|| {
        let conn_limit = Arc::new(ConnLimit::new(1));
        assert!(conn_limit.try_enter());
        let (_, impatient) = notify();
        let (rung, waker) = notify();
        let mut stays = pin!(conn_limit.enter());
        let leaving = {
            let mut gives_up = pin!(conn_limit.enter());
            assert!(gives_up.as_mut().poll(&mut Context::from_waker(&impatient)).is_pending());
            assert!(stays.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            let conn_limit = conn_limit.clone();
            thread::spawn(move || conn_limit.leave())
            // Dropped here, at any moment of the release.
        };
        leaving.join().expect("no assertion failed");
        assert!(rung.0.load(Ordering::SeqCst) > 0, "who stays is woken");
        assert!(stays.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
    });
}

/// Two tasks compete for one permit while it is released: both get it, one after the other.
#[test]
fn two_who_want_the_same_permit_both_have_it() {
    model(|| {
        let conn_limit = Arc::new(ConnLimit::new(1));
        assert!(conn_limit.try_enter());
        let inside = Arc::new(AtomicUsize::new(1));
        let other = {
            let (conn_limit, inside) = (conn_limit.clone(), inside.clone());
            thread::spawn(move || {
                if conn_limit.try_enter() {
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two with one permit");
                    inside.fetch_sub(1, Ordering::SeqCst);
                    conn_limit.leave();
                }
            })
        };
        let (rung, waker) = notify();
        let mut context = Context::from_waker(&waker);
        let mut entering = pin!(conn_limit.enter());
        assert!(entering.as_mut().poll(&mut context).is_pending(), "it is taken");
        inside.fetch_sub(1, Ordering::SeqCst);
        conn_limit.leave();
        let mut outcome = entering.as_mut().poll(&mut context);
        other.join().expect("no assertion failed");
        if outcome.is_pending() {
            assert!(rung.0.load(Ordering::SeqCst) > 0, "a wake-up was lost");
            outcome = entering.as_mut().poll(&mut context);
        }
        assert!(outcome.is_ready());
        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two with one permit");
    });
}
