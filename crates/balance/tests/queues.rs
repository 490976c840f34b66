//! Limits and queues: which requests wait, which is next, and what is left behind (R-G2).
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

mod common;
use common::*;
use manylane_balance::*;
use manylane_sched::Time;
use manylane_sync::Reader;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Waiter that counts how often it was woken.
#[derive(Clone, Default)]
struct Notify(Arc<AtomicUsize>);

impl Waiter for Notify {
    fn wake(self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Notify {
    fn rung(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

fn limited(specs: &[(u32, u32)], options: Options) -> Balancer<Notify> {
    let spec = |(n, &(maxconn, maxqueue)): (usize, &(u32, u32))| ServerSpec {
        maxconn,
        maxqueue,
        ..ServerSpec::new(format!("s{n}"), n as u32 + 1)
    };
    let servers = Servers::new(specs.iter().enumerate().map(spec)).unwrap();
    Balancer::waking(servers, Algorithm::RoundRobin, options)
}

fn index(b: &Balancer<Notify>, n: usize) -> Index {
    b.servers().index(n).unwrap()
}

fn granted(turn: QueueState) -> Index {
    match turn {
        QueueState::Granted(index, _) => index,
        other => panic!("{other:?}"),
    }
}

const NOW: Time = Time::from_millis(5);

#[test]
fn a_permit_goes_to_the_first_who_waits_and_nobody_overtakes() {
    let b = limited(&[(1, 0)], Options::default());
    let s = index(&b, 0);
    b.take(s, NOW).unwrap();
    let notifies = [(); 3].map(|()| Notify::default());
    let mut positions: Vec<QueuePosition> = notifies
        .iter()
        .map(|notify| b.enqueue(s, Priority::default(), NOW, notify.clone()).unwrap())
        .collect();
    assert_eq!((b.waiting(s), b.load(s)), (3, 4));
    for (number, notify) in (1..).zip(&notifies) {
        b.release(s);
        assert_eq!(b.take(s, NOW), Err(ServerFull), "the permit was never free");
        assert_eq!(notify.rung(), 1);
        let QueueState::Granted(server, served) = b.poll(positions.remove(0), notify.clone()) else {
            panic!("{number}")
        };
        assert_eq!((server, served), (s, number), "all were there from the beginning");
    }
    b.release(s);
    assert_eq!(
        (b.waiting(s), b.load(s), b.served_from_queue(Some(s)), b.served_from_queue(None)),
        (0, 0, 3, 0)
    );
    b.take(s, NOW).unwrap();
}

#[test]
fn classes_come_before_time_and_offsets_shift_time() {
    let b = limited(&[(1, 0)], Options::default());
    let s = index(&b, 0);
    b.take(s, NOW).unwrap();
    let enter = |class, offset, at| {
        let notify = Notify::default();
        (b.enqueue(s, Priority { class, offset }, Time::from_millis(at), notify.clone()).unwrap(), notify)
    };
    let waiting = [
        enter(0, 0, 100),
        enter(0, -60, 150),
        enter(5, 0, 1),
        enter(-1, 0, 900),
        enter(i16::MIN, i32::MAX, 1000),
        enter(0, i32::MAX, 100),
    ];
    let mut order = Vec::new();
    for _ in 0..waiting.len() {
        b.release(s);
        order.push(
            waiting
                .iter()
                .position(|(_, notify)| notify.rung() == 1 && !order_has(&order, notify, &waiting))
                .unwrap(),
        );
    }
    fn order_has(order: &[usize], notify: &Notify, waiting: &[(QueuePosition, Notify)]) -> bool {
        order.iter().any(|&n| Arc::ptr_eq(&waiting[n].1.0, &notify.0))
    }
    assert_eq!(order, [4, 3, 1, 0, 5, 2]);
    for (position, notify) in waiting {
        granted(b.poll(position, notify));
    }
}

#[test]
fn a_lane_serves_its_own_first_unless_others_wait_for_a_millisecond_more() {
    let options = Options { lanes: manylane_sync::lane::MAX_LANES, lanes_per_group: 1, ..Options::default() };
    let b = limited(&[(1, 0)], options);
    let s = index(&b, 0);
    let enter = |class, later| {
        let (notify, at) = (Notify::default(), NOW + Duration::from_micros(later));
        (b.enqueue_any(Priority { class, offset: 0 }, at, notify.clone()), notify)
    };
    for (others_class, later, own_is_first) in [(0, 999, true), (0, 1000, false), (-1, 0, false)] {
        b.take(s, NOW).unwrap();
        let other = thread::scope(|scope| scope.spawn(|| enter(others_class, 0)).join().unwrap());
        let own = enter(0, later);
        b.release(s);
        assert_eq!((own.1.rung() == 1, other.1.rung() == 1), (own_is_first, !own_is_first), "{later}");
        for (position, notify) in if own_is_first { [own, other] } else { [other, own] } {
            granted(b.poll(position, notify));
            b.release(s);
        }
    }
}

#[test]
fn maxqueue_refuses_and_leastconn_counts_such_a_queue_as_room() {
    let b = limited(&[(1, 2)], Options::default());
    let s = index(&b, 0);
    b.take(s, NOW).unwrap();
    let first = b.enqueue(s, Priority::default(), NOW, Notify::default()).unwrap();
    let second = b.enqueue(s, Priority::default(), NOW, Notify::default()).unwrap();
    assert_eq!(b.enqueue(s, Priority::default(), NOW, Notify::default()).unwrap_err(), QueueFull);
    assert_eq!(b.leave(first), None);
    let third = b.enqueue(s, Priority::default(), NOW, Notify::default()).unwrap();
    b.leave(second);
    b.leave(third);
    assert_eq!((b.waiting(s), b.load(s)), (0, 1));

    let reader = Reader::new();
    let spec = |id, maxqueue| ServerSpec { maxconn: 1, maxqueue, ..ServerSpec::new(format!("s{id}"), id) };
    let b = Balancer::new(
        Servers::new([spec(1, 1), spec(2, 0)]).unwrap(),
        Algorithm::LeastConn,
        Options::default(),
    );
    for n in 0..2 {
        b.take(at(&b, n), NOW).unwrap();
    }
    assert_eq!(b.pick(&reader, &Input::new(NOW)), Ok(at(&b, 0)), "its queue has room");
    let waker = std::task::Waker::noop();
    let position = b.enqueue(at(&b, 0), Priority::default(), NOW, waker.clone()).unwrap();
    assert_eq!(b.pick(&reader, &Input::new(NOW)), Err(NoPick::AllFull));
    b.leave(position);
}

#[test]
fn who_waits_for_any_server_gets_the_first_permit_of_all() {
    let b = limited(&[(1, 0), (1, 0)], Options::default());
    let (s, t) = (index(&b, 0), index(&b, 1));
    b.take(s, NOW).unwrap();
    b.take(t, NOW).unwrap();
    let (early, late) = (Notify::default(), Notify::default());
    let any = b.enqueue_any(Priority::default(), Time::from_millis(10), early.clone());
    let own = b.enqueue(t, Priority::default(), Time::from_millis(20), late.clone()).unwrap();
    b.release(t);
    assert_eq!((early.rung(), late.rung()), (1, 0), "it came first");
    assert_eq!(granted(b.poll(any, early)), t);
    let again = Notify::default();
    let any = b.enqueue_any(Priority::default(), Time::from_millis(30), again.clone());
    b.release(t);
    assert_eq!((again.rung(), late.rung()), (0, 1), "now the other did");
    granted(b.poll(own, late));
    b.release(s);
    assert_eq!(granted(b.poll(any, again)), s);
    assert_eq!((b.waiting_for_any(), b.total_load()), (0, 2));
}

#[test]
fn room_that_comes_up_any_way_reaches_those_who_wait_for_any_server() {
    let spec = |id, maxconn| ServerSpec { maxconn, ..ServerSpec::new(format!("s{id}"), id) };
    let backup = ServerSpec { backup: true, ..spec(3, 0) };
    let servers = Servers::new([spec(1, 1), spec(2, 1), backup]).unwrap();
    let b: Balancer<Notify> = Balancer::waking(servers, Algorithm::RoundRobin, Options::default());
    let [s, t, u] = [0, 1, 2].map(|n| index(&b, n));
    b.set_operation(t, Operation::Down, NOW);
    b.take(s, NOW).unwrap();
    let notifies = [(); 4].map(|()| Notify::default());
    let mut positions = notifies.iter().map(|notify| b.enqueue_any(Priority::default(), NOW, notify.clone()));
    let mut positions: Vec<_> = positions.by_ref().collect();
    b.set_operation(t, Operation::Up, NOW); // a server that comes up
    assert_eq!(granted(b.poll(positions.remove(0), notifies[0].clone())), t);
    b.set_admin(t, Admin::Drain, NOW);
    b.release(t); // it admits no other request
    assert_eq!(notifies[1].rung(), 0);
    b.set_operation(s, Operation::Down, NOW); // then the backup serves, without a limit
    for notify in &notifies[1..] {
        assert_eq!(granted(b.poll(positions.remove(0), notify.clone())), u);
    }
}

#[test]
fn who_waits_for_a_server_that_goes_down_is_sent_elsewhere() {
    let b = limited(&[(1, 0)], Options::default());
    let s = index(&b, 0);
    b.take(s, NOW).unwrap();
    let notify = Notify::default();
    let position = b.enqueue(s, Priority::default(), NOW, notify.clone()).unwrap();
    b.set_admin(s, Admin::Drain, NOW);
    assert_eq!(notify.rung(), 0, "what belongs to a server that drains stays");
    b.set_operation(s, Operation::Down, NOW);
    assert_eq!(notify.rung(), 1);
    assert!(matches!(b.poll(position, notify), QueueState::Elsewhere));
    assert_eq!((b.waiting(s), b.load(s)), (0, 1));
    let late = b.enqueue(s, Priority::default(), NOW, Notify::default()).unwrap();
    assert!(
        matches!(b.poll(late, Notify::default()), QueueState::Elsewhere),
        "nor does anybody begin to wait for it"
    );
}

#[test]
fn the_limit_follows_the_backends_load_from_minconn_to_maxconn() {
    let spec = ServerSpec { maxconn: 10, minconn: 2, ..ServerSpec::new("s", 1) };
    let mut b: Balancer<Notify> =
        Balancer::waking(Servers::new([spec]).unwrap(), Algorithm::RoundRobin, Options::default());
    b.set_fullconn(20);
    let s = index(&b, 0);
    for n in 0..2 {
        b.take(s, Time::from_millis(10 + n)).unwrap();
    }
    assert_eq!(b.take(s, Time::from_millis(20)), Err(ServerFull), "10 of 20 are not there yet");
    let mut positions = Vec::new();
    let notifies: Vec<Notify> = (0..18).map(|_| Notify::default()).collect();
    for notify in &notifies {
        positions.push(b.enqueue(s, Priority::default(), Time::from_millis(30), notify.clone()).unwrap());
    }
    // Another request reads the load of 20: the whole limit applies.
    assert_eq!(b.take(s, Time::from_millis(40)), Err(ServerFull));
    assert_eq!(notifies.iter().filter(|notify| notify.rung() == 1).count(), 8);
    assert_eq!(b.waiting(s), 10);
    for position in positions {
        if let Some(granted) = b.leave(position) {
            b.release(granted);
        }
    }
    assert_eq!((b.waiting(s), b.load(s)), (0, 2));
}

#[test]
fn slow_start_raises_weight_and_limit_in_steps() {
    let slow = ServerSpec {
        weight: 100,
        maxconn: 50,
        slowstart: Duration::from_secs(10),
        ..ServerSpec::new("slow", 1)
    };
    let other = ServerSpec { weight: 100, ..ServerSpec::new("other", 2) };
    let b: Balancer<Notify> =
        Balancer::waking(Servers::new([slow, other]).unwrap(), Algorithm::RoundRobin, Options::default());
    let (s, reader) = (index(&b, 0), Reader::new());
    assert_eq!(b.servers()[s].state().effective_weight(), 1600, "not at the start of the program");
    assert_eq!(b.tick(NOW), None);
    b.set_operation(s, Operation::Down, NOW);
    let up = Time::from_millis(60_000);
    b.set_operation(s, Operation::Up, up);
    let share = |now| {
        let of = |_| b.pick(&reader, &Input::new(now)).unwrap() == s;
        (0..1010).filter(|&n| of(n)).count()
    };
    assert!(share(up) <= 2, "{}", share(up));
    let mut next = b.tick(up).expect("a slow start is under way");
    assert_eq!(next.since(up), Duration::from_millis(500));
    let mut last = 0;
    let mut ticks = 1;
    while let Some(after) = b.tick(next) {
        let weight = b.servers()[s].state().effective_weight();
        assert!(weight > last, "{weight} after {last}");
        last = weight;
        next = after;
        ticks += 1;
    }
    assert_eq!(ticks, 20);
    assert_eq!(b.servers()[s].state().effective_weight(), 1600);
    // Half of the slow start has passed: half of the limit.
    b.set_admin(s, Admin::Maintenance, next);
    let again = next + Duration::from_secs(60);
    b.set_admin(s, Admin::Ready, again);
    b.tick(again + Duration::from_secs(5));
    let taken = (0..50).take_while(|_| b.take(s, again + Duration::from_secs(5)).is_ok()).count();
    assert_eq!(taken, 25);
}

/// A slow start continues when another balancer succeeds, with the `slowstart` of that one.
#[test]
fn a_slow_start_goes_on_as_the_youngest_balancer_has_it() {
    let made = |seconds| {
        let slowstart = Duration::from_secs(seconds);
        let slow = ServerSpec { weight: 100, maxconn: 50, slowstart, ..ServerSpec::new("slow", 1) };
        Balancer::<Notify>::waking(Servers::new([slow]).unwrap(), Algorithm::RoundRobin, Options::default())
    };
    let (first, mut second, mut last) = (made(10), made(20), made(0));
    let s = index(&first, 0);
    first.set_operation(s, Operation::Down, NOW);
    first.set_operation(s, Operation::Up, NOW);
    let half = NOW + Duration::from_secs(5);
    assert!(first.tick(half).is_some());
    let weight = || first.servers()[s].state().effective_weight();
    assert_eq!(weight(), 800);
    second.succeed(&first, Some, half);
    assert!(first.tick(half).is_none() && second.tick(half).is_some());
    assert_eq!(weight(), 400);
    let taken = (0..50).take_while(|_| first.take(s, half).is_ok()).count();
    assert_eq!(taken, 12, "a quarter of the limit");
    last.succeed(&second, Some, half);
    assert_eq!(weight(), 1600);
    assert_eq!((0..50).take_while(|_| first.take(s, half).is_ok()).count(), 38);
}

/// Threads that serve, wait, leave and end: no permit is lost or given twice, and no request waits for ever.
#[test]
fn nothing_is_lost_or_doubled_when_many_threads_take_wait_and_leave() {
    /// Atomics, because ThreadSanitizer does not see the order that std's locks make when a thread waits for
    /// them.
    #[derive(Clone)]
    struct Park {
        woken: Arc<AtomicBool>,
        thread: Thread,
    }
    impl Waiter for Park {
        fn wake(self) {
            self.woken.store(true, Ordering::SeqCst);
            self.thread.unpark();
        }
    }
    const LIMIT: u32 = 2;
    let spec = |id: u32| ServerSpec {
        maxconn: LIMIT,
        maxqueue: (id == 1).into(),
        ..ServerSpec::new(format!("s{id}"), id)
    };
    let servers = Servers::new((1..=2).map(spec)).unwrap();
    let options = Options { lanes: 8, lanes_per_group: 2, ..Options::default() };
    let b: Balancer<Park> = Balancer::waking(servers, Algorithm::RoundRobin, options);
    let serving = [const { AtomicUsize::new(0) }; 2];
    thread::scope(|scope| {
        for seed in 0..8u64 {
            let (b, serving) = (&b, &serving);
            scope.spawn(move || {
                let mut reader = Reader::new();
                let mut random = seed * 7919 + 1;
                for _ in 0..4000 {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let park = Park { woken: Arc::default(), thread: thread::current() };
                    let target = b.servers().index((random >> 40) as usize % 2).unwrap();
                    let position = match (random >> 33) % 4 {
                        0 => match b.take(target, NOW) {
                            Ok(()) => Ok(target),
                            Err(ServerFull) => {
                                match b.enqueue(target, Priority::default(), NOW, park.clone()) {
                                    Ok(position) => Err(position),
                                    Err(QueueFull) => continue,
                                }
                            }
                        },
                        _ => match b.pick(&reader, &Input::new(NOW)) {
                            Ok(index) if b.take(index, NOW).is_ok() => Ok(index),
                            _ => Err(b.enqueue_any(Priority::default(), NOW, park.clone())),
                        },
                    };
                    reader.quiescent();
                    let server = match position {
                        Ok(server) => server,
                        Err(position) if (random >> 50) % 3 == 0 => match b.leave(position) {
                            Some(server) => server,
                            None => continue,
                        },
                        Err(mut position) => loop {
                            match b.poll(position, park.clone()) {
                                QueueState::Granted(server, _) => break server,
                                QueueState::Elsewhere => unreachable!("no server goes down"),
                                QueueState::Waiting(still) => position = still,
                            }
                            let until = Instant::now() + Duration::from_secs(20);
                            while !park.woken.swap(false, Ordering::SeqCst) {
                                assert!(Instant::now() < until, "lost: {b:?}");
                                thread::park_timeout(Duration::from_secs(20));
                            }
                        },
                    };
                    let now = serving[server.get()].fetch_add(1, Ordering::SeqCst);
                    assert!(now < LIMIT as usize, "{now} more than the limit");
                    thread::yield_now();
                    serving[server.get()].fetch_sub(1, Ordering::SeqCst);
                    b.release(server);
                }
            });
        }
    });
    assert_eq!(b.total_load(), 0);
    for n in 0..2 {
        let s = b.servers().index(n).unwrap();
        assert_eq!(b.waiting(s), 0);
        for _ in 0..LIMIT {
            b.take(s, NOW).unwrap();
        }
        assert_eq!(b.take(s, NOW), Err(ServerFull));
    }
}

#[test]
fn a_wait_that_is_dropped_leaves_and_passes_on_what_it_was_granted() {
    use std::task::{Context, Poll, Waker};
    let spec = ServerSpec { maxconn: 1, ..ServerSpec::new("s", 1) };
    let b = Balancer::new(Servers::new([spec]).unwrap(), Algorithm::RoundRobin, Options::default());
    let s = at(&b, 0);
    b.take(s, NOW).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let enter = || b.wait(b.enqueue(s, Priority::default(), NOW, Waker::noop().clone()).unwrap());
    let (mut first, second, mut third) = (Box::pin(enter()), enter(), Box::pin(enter()));
    assert!(first.as_mut().poll(&mut context).is_pending());
    drop(second);
    b.release(s); // grants the permit to the first waiter, which is dropped without a look
    drop(first);
    match third.as_mut().poll(&mut context) {
        Poll::Ready(QueueState::Granted(index, _)) => b.release(index),
        other => panic!("{other:?}"),
    }
    assert_eq!((b.load(s), b.waiting(s)), (0, 0));
}

use std::future::Future;

/// A `maxconn` is exact over all balancers of a server, and a waiter of one balancer gets the permit that
/// another one releases.
#[test]
fn balancers_of_one_server_share_its_permits() {
    let spec = |name: &str, id| ServerSpec { maxconn: 3, ..ServerSpec::new(name, id) };
    let before = limited(&[(3, 0)], Options::default());
    let s = index(&before, 0);
    before.take(s, NOW).unwrap();
    before.take(s, NOW).unwrap();
    let next = before.follow([spec("s0", 1), spec("s1", 2)], |number| number == 0, NOW).unwrap();
    assert!(next.shares(s, &before, s) && !next.shares(index(&next, 1), &before, s));
    next.take(s, NOW).unwrap();
    assert_eq!((before.take(s, NOW), next.take(s, NOW)), (Err(ServerFull), Err(ServerFull)));
    // One more balancer follows, and one that another file has made.
    let last = next.follow([spec("s0", 1), spec("s1", 2), spec("s2", 3)], |number| number < 2, NOW).unwrap();
    let specs = [ServerSpec { maxconn: 9, ..ServerSpec::new("x", 1) }, spec("s0", 2)];
    let mut other: Balancer<Notify> =
        Balancer::waking(Servers::new(specs).unwrap(), Algorithm::RoundRobin, Options::default());
    let of_other = index(&other, 1);
    other.succeed(&last, |index| (index == of_other).then_some(s), NOW);
    assert_eq!((last.take(s, NOW), other.take(of_other, NOW)), (Err(ServerFull), Err(ServerFull)));
    other.take(index(&other, 0), NOW).unwrap();
    let notify = Notify::default();
    let waiting = other.enqueue(of_other, Priority::default(), NOW, notify.clone()).unwrap();
    assert_eq!((notify.rung(), before.waiting(s)), (0, 1));
    before.release(s);
    assert_eq!(notify.rung(), 1);
    assert_eq!(granted(other.poll(waiting, notify)), of_other);
    assert_eq!(last.take(s, NOW), Err(ServerFull));
    // A balancer that ends leaves everything to the others.
    before.release(s);
    next.release(s);
    other.release(of_other);
    drop((before, next, other));
    for _ in 0..3 {
        last.take(s, NOW).unwrap();
    }
    assert_eq!(last.take(s, NOW), Err(ServerFull));
}

/// Requests that wait in several balancers, for the server or for any, are served in the order of their
/// arrival.
#[test]
fn who_came_first_is_served_first_whichever_balancer_it_came_by() {
    let before = limited(&[(1, 0)], Options::default());
    let s = index(&before, 0);
    before.take(s, NOW).unwrap();
    let mut next = limited(&[(1, 0)], Options::default());
    next.succeed(&before, Some, NOW);
    let notifies: Vec<_> = (0..4).map(|_| Notify::default()).collect();
    let at = |number: usize| Time::from_millis(10 + number as u64);
    let positions = [
        next.enqueue_any(Priority::default(), at(0), notifies[0].clone()),
        before.enqueue(s, Priority::default(), at(1), notifies[1].clone()).unwrap(),
        next.enqueue(s, Priority::default(), at(2), notifies[2].clone()).unwrap(),
        before.enqueue_any(Priority::default(), at(3), notifies[3].clone()),
    ];
    let rung = || notifies.iter().map(Notify::rung).collect::<Vec<_>>();
    let mut holder = &before;
    for (number, position) in positions.into_iter().enumerate() {
        holder.release(s);
        assert_eq!(rung(), (0..4).map(|one| usize::from(one <= number)).collect::<Vec<_>>());
        holder = if number % 3 == 0 { [&next, &before][number / 3] } else { [&before, &next][number - 1] };
        assert_eq!(granted(holder.poll(position, notifies[number].clone())), s);
    }
    holder.release(s);
    assert_eq!((before.waiting(s), before.waiting_for_any(), next.waiting_for_any()), (0, 0, 0));
    before.take(s, NOW).unwrap();
}

/// A change of a server in one balancer reaches the picks and the waiters of another.
#[test]
fn what_one_balancer_changes_the_others_know() {
    let before = limited(&[(1, 0), (1, 0)], Options::default());
    let (s, other) = (index(&before, 0), index(&before, 1));
    let mut next = limited(&[(1, 0)], Options::default());
    next.succeed(&before, Some, NOW);
    let reader = Reader::new();
    let pick = |b: &Balancer<Notify>| b.pick(&reader, &Input::new(NOW));
    next.set_admin(s, Admin::Maintenance, NOW);
    assert_eq!((pick(&before), pick(&next)), (Ok(other), Err(NoPick::NoneUsable)));
    // A waiter of the earlier balancer is sent elsewhere, or admitted.
    before.set_admin(s, Admin::Ready, NOW);
    assert_eq!(pick(&next), Ok(s));
    before.take(s, NOW).unwrap();
    before.take(other, NOW).unwrap();
    let (sent, let_in) = (Notify::default(), Notify::default());
    let position = before.enqueue(s, Priority::default(), NOW, sent.clone()).unwrap();
    let any = before.enqueue_any(Priority::default(), NOW, let_in.clone());
    next.set_admin(s, Admin::Maintenance, NOW);
    assert_eq!((sent.rung(), let_in.rung()), (1, 0));
    assert!(matches!(before.poll(position, sent), QueueState::Elsewhere));
    before.release(s);
    assert_eq!(let_in.rung(), 0, "the server takes nobody");
    next.set_admin(s, Admin::Ready, NOW);
    assert_eq!(let_in.rung(), 1);
    assert_eq!(granted(before.poll(any, let_in)), s);
    // A limit, and the inputs that the youngest balancer has for it.
    assert!(next.set_maxconn(s, 2, NOW));
    next.take(s, NOW).unwrap();
    assert_eq!((before.take(s, NOW), next.take(s, NOW)), (Err(ServerFull), Err(ServerFull)));
}

/// The settings of several servers change at once: one snapshot, and each limit.
#[test]
fn many_servers_change_at_once() {
    let b = limited(&[(1, 0), (1, 0), (0, 0)], Options::default());
    b.take(index(&b, 0), NOW).unwrap();
    let notify = Notify::default();
    let waiting = b.enqueue(index(&b, 0), Priority::default(), NOW, notify.clone()).unwrap();
    b.update_all(NOW, |index, before| {
        let admin = if index.get() == 1 { Admin::Drain } else { Admin::Ready };
        let standing = Availability { own: admin, ..before.standing };
        Settings { standing, weight: index.get() as u16 + 1, maxconn: before.maxconn + 1 }
    });
    assert_eq!(notify.rung(), 1);
    assert_eq!(granted(b.poll(waiting, notify)).get(), 0);
    let state = |n| b.servers()[index(&b, n)].state();
    assert_eq!((0..3).map(|n| state(n).weight()).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!((0..3).map(|n| state(n).maxconn()).collect::<Vec<_>>(), [2, 2, 0], "one has no limit");
    assert_eq!(b.serving().map(Index::get).collect::<Vec<_>>(), [0, 2]);
}

/// A server whose requests were not counted gets a limit from a balancer that has one, and loses it with that
/// balancer.
#[test]
fn a_limit_comes_and_goes_with_the_balancer_that_has_it() {
    let before = limited(&[(0, 0)], Options::default());
    let s = index(&before, 0);
    let mut next = limited(&[(1, 0)], Options::default());
    next.succeed(&before, Some, NOW);
    before.take(s, NOW).unwrap(); // not counted
    next.take(s, NOW).unwrap();
    assert_eq!(next.take(s, NOW), Err(ServerFull));
    let mut last = limited(&[(0, 0)], Options::default());
    last.succeed(&next, Some, NOW);
    last.update_all(NOW, |_, own| Settings { maxconn: 0, ..own });
    next.take(s, NOW).unwrap();
    assert_eq!(last.servers()[s].state().maxconn(), 0);
    drop(last);
    drop(next);
    assert_eq!(before.servers()[s].state().maxconn(), 0);
}

/// This holds for any number of balancers, also for requests that began while another balancer was made.
#[test]
fn a_limit_holds_for_any_number_of_balancers() {
    const EACH: usize = 2;
    let most = 40 * EACH as u32;
    let mut all = vec![limited(&[(most, 0)], Options::default())];
    let s = index(&all[0], 0);
    for number in 1..50 {
        let mut next = limited(&[(most, 0)], Options::default());
        let before = all.last().unwrap();
        next.succeed(before, Some, NOW);
        for _ in 0..EACH {
            assert_eq!(before.take(s, NOW).is_ok(), number <= 40, "{number}");
        }
        all.push(next);
    }
    let last = all.pop().unwrap();
    let notifies: Vec<_> = (0..2).map(|_| Notify::default()).collect();
    let wait = |on: &Balancer<Notify>, notify: &Notify| {
        on.enqueue(s, Priority::default(), NOW, notify.clone()).unwrap()
    };
    let positions = [wait(&all[45], &notifies[0]), wait(&last, &notifies[1])];
    for released in 0..2 {
        all[0].release(s);
        assert_eq!((notifies[0].rung(), notifies[1].rung()), (1, released));
    }
    for (on, (position, notify)) in [&all[45], &last].into_iter().zip(positions.into_iter().zip(notifies)) {
        on.release(granted(on.poll(position, notify)));
    }
    for balancer in &all[1..40] {
        (0..EACH).for_each(|_| balancer.release(s));
    }
    drop(all);
    (0..most).for_each(|_| last.take(s, NOW).unwrap());
    assert_eq!(last.take(s, NOW), Err(ServerFull));
}

/// Lanes that take, wait and leave in two balancers never exceed the limit, and lose no wake-up.
#[test]
fn a_limit_is_exact_while_lanes_come_by_two_balancers() {
    const MOST: usize = 3;
    let before = limited(&[(MOST as u32, 0)], Options { lanes: 4, ..Options::default() });
    let s = index(&before, 0);
    let mut next = limited(&[(MOST as u32, 0)], Options { lanes: 4, ..Options::default() });
    next.succeed(&before, Some, NOW);
    let (served, peak) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let serve = || {
        let now = served.fetch_add(1, Ordering::SeqCst) + 1;
        peak.fetch_max(now, Ordering::SeqCst);
        thread::yield_now();
        served.fetch_sub(1, Ordering::SeqCst);
    };
    thread::scope(|scope| {
        for lane in 0..4 {
            let (before, next, serve) = (&before, &next, &serve);
            scope.spawn(move || {
                for round in 0..2000 {
                    let b = if (lane + round) % 2 == 0 { before } else { next };
                    if b.take(s, NOW).is_err() {
                        let notify = Notify::default();
                        let mut position = match round % 3 {
                            0 => b.enqueue_any(Priority::default(), NOW, notify.clone()),
                            _ => b.enqueue(s, Priority::default(), NOW, notify.clone()).unwrap(),
                        };
                        let begun = Instant::now();
                        loop {
                            match b.poll(position, notify.clone()) {
                                QueueState::Waiting(waits) => position = waits,
                                turn => break assert_eq!(granted(turn), s),
                            }
                            assert!(begun.elapsed() < Duration::from_secs(60), "a wake-up was lost");
                            thread::yield_now();
                        }
                    }
                    serve();
                    b.release(s);
                }
            });
        }
    });
    assert!(peak.load(Ordering::SeqCst) <= MOST, "{peak:?}");
    assert_eq!((before.waiting(s), before.waiting_for_any(), next.waiting_for_any()), (0, 0, 0));
    (0..MOST).for_each(|_| next.take(s, NOW).unwrap());
    assert_eq!(next.take(s, NOW), Err(ServerFull));
}
