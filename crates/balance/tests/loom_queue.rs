//! Limits and queues: every interleaving of two or three lanes. Nobody waits while there is room, no place is
//! lost or given twice (R-G2).
#![cfg(loom)]

use manylane_balance::{Algorithm, Balancer, Index, Options, Priority, ServerSpec, Servers, Turn, Waiter};
use manylane_sched::Time;
use manylane_sync::atomic::{AtomicBool, Ordering};
use manylane_sync::{Arc, model, thread};

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

fn one_place() -> (Arc<Balancer<Notify>>, Index) {
    let spec = ServerSpec { maxconn: 1, ..ServerSpec::new("s", 1) };
    let servers = Servers::new([spec]).expect("one server");
    let options = Options { lanes: 2, lanes_per_group: 1, ..Options::default() };
    let balancer = Balancer::waking(servers, Algorithm::First, options);
    let index = balancer.servers().index(0).expect("there is one");
    (Arc::new(balancer), index)
}

/// At the end all is as at the beginning: there is the one place, and nobody waits.
fn all_is_back(b: &Balancer<Notify>, s: Index) {
    assert_eq!((b.waiting(s), b.waiting_for_any()), (0, 0));
    b.take(s, NOW).expect("the place is free");
    assert!(b.take(s, NOW).is_err(), "there is one place");
}

/// One lane releases while another takes or waits, for this server or any.
fn release_beside_waiting(any: bool) {
    model(move || {
        let (b, s) = one_place();
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
            // All is over, so the turn must have come.
            assert!(notify.rung(), "a wake-up was lost");
            match b.poll(position, notify) {
                Turn::Granted(index, _) => assert_eq!(index, s),
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

/// Who leaves while its turn comes either has the place or the next one does.
fn leave_beside_release(any: bool) {
    model(move || {
        let (b, s) = one_place();
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
fn a_place_is_not_lost_with_one_who_leaves_the_queue_of_the_server() {
    leave_beside_release(false);
}

#[test]
fn a_place_is_not_lost_with_one_who_leaves_the_queue_of_the_backend() {
    leave_beside_release(true);
}

/// Two wait, the first leaves while the place is released: the other gets it.
#[test]
fn a_place_passes_by_one_who_leaves_to_one_who_stays() {
    model(|| {
        let (b, s) = one_place();
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
        assert!(matches!(b.poll(position, stays), Turn::Granted(index, _) if index == s));
        b.release(s);
        all_is_back(&b, s);
    });
}

/// A server goes down while somebody begins to wait for it: it is told.
#[test]
fn who_begins_to_wait_for_a_server_that_goes_down_is_sent_elsewhere() {
    use manylane_balance::Admin;
    model(|| {
        let (b, s) = one_place();
        b.take(s, NOW).expect("it is free");
        let waiting = {
            let b = b.clone();
            thread::spawn(move || {
                let notify = Notify::new();
                (b.enqueue(s, Priority::default(), NOW, notify.clone()).expect("no maxqueue"), notify)
            })
        };
        b.set_admin(s, Admin::Maintenance, NOW);
        let (_ticket, notify) = waiting.join().expect("no assertion failed");
        assert!(notify.rung(), "it must not wait for a server that is gone");
        assert_eq!(b.waiting(s), 0);
    });
}

/// A limit goes down while a place is released: whoever waits for any server afterwards gets the room there
/// is.
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
        let _ticket = b.enqueue_any(Priority::default(), NOW, notify.clone());
        assert!(notify.rung(), "there is room, and it waits");
    });
}

/// Two balancers share two places (`shared_limit`). While a lane takes one by the first and another lane
/// gives one back there, somebody comes to the second: in the end there is room for him there.
fn comes_beside_another_balancer(any: bool) {
    model(move || {
        let two = || {
            let spec = ServerSpec { maxconn: 2, ..ServerSpec::new("s", 1) };
            let options = Options { lanes: 2, lanes_per_group: 1, ..Options::default() };
            Balancer::waking(Servers::new([spec]).expect("one server"), Algorithm::First, options)
        };
        let (first, mut second) = (Arc::new(two()), two());
        let s = first.servers().index(0).expect("there is one");
        first.take(s, NOW).expect("it is free");
        second.join(s, &first, s);
        let second = Arc::new(second);
        let told = move |first: &Balancer<Notify>, second: &Balancer<Notify>| {
            if first.tell_others(s) && second.could_let_in(s) {
                second.look_again(s, NOW);
            }
        };
        let coming = {
            let second = second.clone();
            thread::spawn(move || {
                let notify = Notify::new();
                if second.take(s, NOW).is_ok() {
                    return None;
                }
                let position = match any {
                    true => second.enqueue_any(Priority::default(), NOW, notify.clone()),
                    false => {
                        second.enqueue(s, Priority::default(), NOW, notify.clone()).expect("no maxqueue")
                    }
                };
                Some((position, notify))
            })
        };
        let taking = {
            let (first, second) = (first.clone(), second.clone());
            thread::spawn(move || {
                first.take(s, NOW).expect("there are two places, or somebody is in the midst of taking one");
                told(&first, &second);
            })
        };
        first.release(s);
        told(&first, &second);
        taking.join().expect("no assertion failed");
        if let Some((position, notify)) = coming.join().expect("no assertion failed") {
            assert!(notify.rung(), "a wake-up was lost");
            assert!(matches!(second.poll(position, notify), Turn::Granted(..)));
        }
        assert_eq!((first.waiting(s), second.waiting(s), second.waiting_for_any()), (0, 0, 0));
        // Whatever happened, the limits are what is left.
        second.tell_others(s);
        let room = |b: &Balancer<Notify>| (0..3).take_while(|_| b.take(s, NOW).is_ok()).count();
        assert_eq!(room(&first), 0, "one by each");
    });
}

#[test]
fn no_wake_up_is_lost_between_balancers_that_share_places() {
    comes_beside_another_balancer(false);
}

#[test]
fn no_wake_up_is_lost_between_balancers_that_share_places_where_one_waits_for_any() {
    comes_beside_another_balancer(true);
}

/// A limit changes while another lane looks whether it has: in the end it is what was set last, also where
/// the one who looks found what was before.
#[test]
fn what_is_set_is_not_undone_by_one_who_looks_again() {
    model(|| {
        let (b, s) = one_place();
        let looking = {
            let b = b.clone();
            thread::spawn(move || b.look_again(s, NOW))
        };
        assert!(b.set_maxconn(s, 2, NOW));
        looking.join().expect("no assertion failed");
        b.take(s, NOW).expect("there are two places");
        b.take(s, NOW).expect("there are two places");
        assert!(b.take(s, NOW).is_err(), "there are two places");
    });
}

/// The same where the one who looks goes to write what another has set before, and who sets finds nothing to
/// write.
#[test]
fn what_is_set_back_is_not_undone_by_the_one_who_set_before() {
    model(|| {
        let (b, s) = one_place();
        let setting = {
            let b = b.clone();
            thread::spawn(move || {
                assert!(b.set_maxconn(s, 2, NOW));
                assert!(b.set_maxconn(s, 1, NOW));
            })
        };
        b.look_again(s, NOW);
        setting.join().expect("no assertion failed");
        all_is_back(&b, s);
    });
}

/// Two balancers share one place. Somebody who waits by the second leaves while a place that the first gave
/// back is offered there, and somebody comes to the first: the place that was held for the one who has left
/// is noted, if nobody told of it.
#[test]
fn room_that_was_held_for_one_who_had_left_is_not_forgotten() {
    model(|| {
        let (first, s) = one_place();
        let (second, _) = one_place();
        let mut second = Arc::try_unwrap(second).expect("nobody else has it");
        first.take(s, NOW).expect("it is free");
        second.join(s, &first, s);
        let second = Arc::new(second);
        let told = move |from: &Balancer<Notify>, to: &Balancer<Notify>| {
            if from.tell_others(s) && to.could_let_in(s) {
                to.look_again(s, NOW);
            }
        };
        let waiting = second.enqueue_any(Priority::default(), NOW, Notify::new());
        let leaving = {
            let (first, second) = (first.clone(), second.clone());
            thread::spawn(move || {
                if let Some(index) = second.leave(waiting) {
                    second.release(index);
                }
                told(&second, &first);
            })
        };
        let coming = {
            let first = first.clone();
            thread::spawn(move || {
                let notify = Notify::new();
                if first.take(s, NOW).is_ok() {
                    return None;
                }
                Some((
                    first.enqueue(s, Priority::default(), NOW, notify.clone()).expect("no maxqueue"),
                    notify,
                ))
            })
        };
        first.release(s);
        told(&first, &second);
        leaving.join().expect("no assertion failed");
        let came = coming.join().expect("no assertion failed");
        let hid = second.has_hidden_room() || first.has_hidden_room();
        if hid {
            told(&second, &first);
        }
        if let Some((position, notify)) = came {
            assert!(notify.rung(), "a wake-up was lost");
            assert!(matches!(first.poll(position, notify), Turn::Granted(..)));
        }
        assert_eq!((first.waiting(s), second.waiting(s), second.waiting_for_any()), (0, 0, 0));
    });
}
