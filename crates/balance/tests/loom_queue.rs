//! Limits and queues: every interleaving of two or three lanes. No request waits while there is room, and no
//! permit is lost or given twice (R-G2).
#![cfg(loom)]

use manylane_balance::{
    Algorithm, Balancer, Index, Options, Priority, QueuePosition, QueueState, ServerSpec, Servers, Waiter,
};
use manylane_sched::Time;
use manylane_sync::atomic::{AtomicBool, Ordering};
use manylane_sync::{Arc, Reader, model, thread};

#[derive(Clone)]
struct Notify(Arc<AtomicBool>);

impl Waiter for Notify {
    fn wake(self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Notify {
    fn new() -> Self {
        Self(Arc::new(AtomicBool::new(false)))
    }

    fn rung(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

const NOW: Time = Time::from_millis(1);

fn one_permit() -> (Arc<Balancer<Notify>>, Index) {
    let spec = ServerSpec { maxconn: 1, ..ServerSpec::new("s", 1) };
    let servers = Servers::new([spec]).expect("one server");
    let options = Options { lanes: 2, lanes_per_group: 1, ..Options::default() };
    let balancer = Balancer::waking(servers, Algorithm::First, options);
    let index = balancer.servers().index(0).expect("there is one");
    (Arc::new(balancer), index)
}

/// Asserts that the balancer is as in the beginning: the one permit is free, and no request waits.
fn all_is_back(b: &Balancer<Notify>, s: Index) {
    assert_eq!((b.waiting(s), b.waiting_for_any()), (0, 0));
    b.take(s, NOW).expect("the permit is free");
    assert!(b.take(s, NOW).is_err(), "there is one permit");
}

/// One lane releases while another takes or waits, for this server or for any.
fn release_beside_waiting(any: bool) {
    model(move || {
        let (b, s) = one_permit();
        b.take(s, NOW).expect("it is free");
        let other = {
            let b = b.clone();
            thread::spawn(move || {
                let notify = Notify::new();
                if b.take(s, NOW).is_err() {
                    let position = match any {
                        true => b.enqueue_any(Priority::default(), NOW, notify.clone()),
                        false => b.enqueue(s, Priority::default(), NOW, notify.clone()).expect("no maxqueue"),
                    };
                    return Some((position, notify));
                }
                b.release(s);
                None
            })
        };
        b.release(s);
        if let Some((position, notify)) = other.join().expect("no assertion failed") {
            // The release is over, so the turn must have come.
            assert!(notify.rung(), "a wake-up was lost");
            match b.poll(position, notify) {
                QueueState::Granted(index, _) => assert_eq!(index, s),
                other => panic!("{other:?}"),
            }
            return;
        }
        all_is_back(&b, s);
    });
}

#[test]
fn no_wake_up_is_lost_between_a_release_and_one_who_begins_to_wait_for_the_server() {
    release_beside_waiting(false);
}

#[test]
fn no_wake_up_is_lost_between_a_release_and_one_who_begins_to_wait_for_any_server() {
    release_beside_waiting(true);
}

/// A request that leaves while its turn comes either gets the permit, or the next waiter does.
fn leave_beside_release(any: bool) {
    model(move || {
        let (b, s) = one_permit();
        b.take(s, NOW).expect("it is free");
        let leaving = {
            let b = b.clone();
            thread::spawn(move || {
                let position = match any {
                    true => b.enqueue_any(Priority::default(), NOW, Notify::new()),
                    false => b.enqueue(s, Priority::default(), NOW, Notify::new()).expect("no maxqueue"),
                };
                if let Some(index) = b.leave(position) {
                    b.release(index);
                }
            })
        };
        b.release(s);
        leaving.join().expect("no assertion failed");
        all_is_back(&b, s);
    });
}

#[test]
fn a_permit_is_not_lost_with_one_who_leaves_the_queue_of_the_server() {
    leave_beside_release(false);
}

#[test]
fn a_permit_is_not_lost_with_one_who_leaves_the_queue_of_the_backend() {
    leave_beside_release(true);
}

/// Of two waiters, the first leaves while the permit is released: the other gets it.
#[test]
fn a_permit_passes_by_one_who_leaves_to_one_who_stays() {
    model(|| {
        let (b, s) = one_permit();
        b.take(s, NOW).expect("it is free");
        let stays = Notify::new();
        let position =
            b.enqueue(s, Priority::default(), Time::from_millis(2), stays.clone()).expect("no maxqueue");
        let leaving = {
            let b = b.clone();
            thread::spawn(move || {
                let position = b.enqueue(s, Priority::default(), NOW, Notify::new()).expect("no maxqueue");
                if let Some(index) = b.leave(position) {
                    b.release(index);
                }
            })
        };
        b.release(s);
        leaving.join().expect("no assertion failed");
        assert!(stays.rung(), "its turn has come");
        assert!(matches!(b.poll(position, stays), QueueState::Granted(index, _) if index == s));
        b.release(s);
        all_is_back(&b, s);
    });
}

/// A server goes down while a request begins to wait for it: the request is sent elsewhere.
#[test]
fn who_begins_to_wait_for_a_server_that_goes_down_is_sent_elsewhere() {
    use manylane_balance::Admin;
    model(|| {
        let (b, s) = one_permit();
        b.take(s, NOW).expect("it is free");
        let waiting = {
            let b = b.clone();
            thread::spawn(move || {
                let notify = Notify::new();
                (b.enqueue(s, Priority::default(), NOW, notify.clone()).expect("no maxqueue"), notify)
            })
        };
        b.set_admin(s, Admin::Maintenance, NOW);
        let (_position, notify) = waiting.join().expect("no assertion failed");
        assert!(notify.rung(), "it must not wait for a server that is gone");
        assert_eq!(b.waiting(s), 0);
    });
}

/// A limit drops while a permit is released: a request that waits for any server afterwards gets the room
/// that is left.
#[test]
fn room_is_seen_after_a_limit_that_was_lowered_beside_a_release() {
    model(|| {
        let spec = ServerSpec { maxconn: 2, ..ServerSpec::new("s", 1) };
        let servers = Servers::new([spec]).expect("one server");
        let options = Options { lanes: 2, lanes_per_group: 1, ..Options::default() };
        let b: Arc<Balancer<Notify>> = Arc::new(Balancer::waking(servers, Algorithm::First, options));
        let s = b.servers().index(0).expect("there is one");
        b.take(s, NOW).expect("it is free");
        let other = {
            let b = b.clone();
            thread::spawn(move || assert!(b.set_maxconn(s, 1, NOW)))
        };
        b.release(s);
        other.join().expect("no assertion failed");
        let notify = Notify::new();
        let _position = b.enqueue_any(Priority::default(), NOW, notify.clone());
        assert!(notify.rung(), "there is room, and it waits");
    });
}

fn two_balancers() -> (Arc<Balancer<Notify>>, Arc<Balancer<Notify>>, Index) {
    let (first, s) = one_permit();
    let (second, _) = one_permit();
    let mut second = Arc::try_unwrap(second).expect("nobody else has it");
    second.succeed(&first, Some, NOW);
    (first, Arc::new(second), s)
}

/// Takes the permit and releases it, or waits.
fn enter(b: &Balancer<Notify>, s: Index, any: bool) -> Option<(QueuePosition, Notify)> {
    let notify = Notify::new();
    if b.take(s, NOW).is_ok() {
        b.release(s);
        return None;
    }
    let position = match any {
        true => b.enqueue_any(Priority::default(), NOW, notify.clone()),
        false => b.enqueue(s, Priority::default(), NOW, notify.clone()).expect("no maxqueue"),
    };
    Some((position, notify))
}

/// Asserts that the waiter of `b` has the permit and nobody else does; or else that `other` finds it free.
fn has_its_turn(
    entered: Option<(QueuePosition, Notify)>,
    b: &Balancer<Notify>,
    other: &Balancer<Notify>,
    s: Index,
) {
    let Some((position, notify)) = entered else { return all_is_back(other, s) };
    assert!(notify.rung(), "a wake-up was lost");
    assert!(matches!(b.poll(position, notify), QueueState::Granted(index, _) if index == s));
    assert!(other.take(s, NOW).is_err(), "there is one permit");
    assert_eq!((b.waiting(s), b.waiting_for_any(), other.waiting_for_any()), (0, 0, 0));
}

/// Two balancers have the server. The first releases a permit while a request comes to the second.
fn comes_beside_another_balancer(any: bool) {
    model(move || {
        let (first, second, s) = two_balancers();
        first.take(s, NOW).expect("it is free");
        let coming = {
            let second = second.clone();
            thread::spawn(move || enter(&second, s, any))
        };
        first.release(s);
        let entered = coming.join().expect("no assertion failed");
        has_its_turn(entered, &second, &first, s);
    });
}

#[test]
fn no_wake_up_is_lost_between_balancers_of_one_server() {
    comes_beside_another_balancer(false);
}

#[test]
fn no_wake_up_is_lost_between_balancers_of_one_server_where_one_waits_for_any() {
    comes_beside_another_balancer(true);
}

/// A second balancer of the server is attached while the first releases a permit, and a request waits in the
/// new one at once (`balancer::shared`, rule 4).
fn attaches_beside_a_release(any: bool) {
    model(move || {
        let (first, s) = one_permit();
        first.take(s, NOW).expect("it is free");
        let coming = {
            let first = first.clone();
            thread::spawn(move || {
                let (second, _) = one_permit();
                let mut second = Arc::try_unwrap(second).expect("nobody else has it");
                second.succeed(&first, Some, NOW);
                let entered = enter(&second, s, any);
                (second, entered)
            })
        };
        first.release(s);
        let (second, entered) = coming.join().expect("no assertion failed");
        has_its_turn(entered, &second, &first, s);
    });
}

#[test]
fn who_waits_by_a_new_balancer_hears_of_a_permit_that_is_given_back() {
    attaches_beside_a_release(false);
}

#[test]
fn who_waits_for_any_by_a_new_balancer_hears_of_a_permit_that_is_given_back() {
    attaches_beside_a_release(true);
}

/// A request that waits for any server in the second balancer leaves while the first balancer's free permit
/// is offered there, and another request comes to the first: the permit is not lost with the request that
/// left.
#[test]
fn a_permit_that_was_offered_to_one_who_had_left_by_another_balancer_is_not_lost() {
    model(|| {
        let (first, second, s) = two_balancers();
        first.take(s, NOW).expect("it is free");
        let waiting = second.enqueue_any(Priority::default(), NOW, Notify::new());
        let leaving = {
            let second = second.clone();
            thread::spawn(move || {
                if let Some(index) = second.leave(waiting) {
                    second.release(index);
                }
            })
        };
        let coming = {
            let first = first.clone();
            thread::spawn(move || enter(&first, s, false))
        };
        first.release(s);
        leaving.join().expect("no assertion failed");
        let entered = coming.join().expect("no assertion failed");
        has_its_turn(entered, &first, &second, s);
    });
}

/// One balancer puts the server into maintenance and the other ends it: both show the state that was set
/// last.
#[test]
fn the_last_change_is_what_all_balancers_show() {
    use manylane_balance::{Admin, Input};
    model(|| {
        let (first, second, s) = two_balancers();
        let setting = {
            let second = second.clone();
            thread::spawn(move || second.set_admin(s, Admin::Maintenance, NOW))
        };
        first.set_admin(s, Admin::Drain, NOW);
        first.set_admin(s, Admin::Ready, NOW);
        setting.join().expect("no assertion failed");
        let usable = first.servers()[s].state().is_usable();
        let reader = Reader::new();
        for b in [&first, &second] {
            assert_eq!(b.pick(&reader, &Input::new(NOW)).is_ok(), usable);
        }
    });
}

/// One lane sets a limit while another recomputes it: in the end the limit is the one that was set last, even
/// if the other lane read the earlier one.
#[test]
fn what_is_set_is_not_undone_by_one_who_looks_again() {
    model(|| {
        let (b, s) = one_permit();
        let looking = {
            let b = b.clone();
            thread::spawn(move || b.set_weight(s, 1, NOW).expect("it can have any"))
        };
        assert!(b.set_maxconn(s, 2, NOW));
        looking.join().expect("no assertion failed");
        b.take(s, NOW).expect("there are two permits");
        b.take(s, NOW).expect("there are two permits");
        assert!(b.take(s, NOW).is_err(), "there are two permits");
    });
}

/// The same, if the lane that recomputes the limit writes one that was set before, and the lane that sets it
/// finds nothing to write.
#[test]
fn what_is_set_back_is_not_undone_by_the_one_who_set_before() {
    model(|| {
        let (b, s) = one_permit();
        let setting = {
            let b = b.clone();
            thread::spawn(move || {
                assert!(b.set_maxconn(s, 2, NOW));
                assert!(b.set_maxconn(s, 1, NOW));
            })
        };
        b.set_weight(s, 1, NOW).expect("it can have any");
        setting.join().expect("no assertion failed");
        all_is_back(&b, s);
    });
}
