//! Picks: each algorithm on one lane and on several (R-G1, R-G2).
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

mod common;
use common::*;
use manylane_balance::*;
use manylane_sched::Time;
use manylane_sync::Reader;

#[test]
fn roundrobin_gives_turns_by_weight_and_skips_who_does_not_take_part() {
    let b = balancer(Algorithm::RoundRobin, &[3, 2, 1]);
    let reader = Reader::new();
    assert_eq!(picks(&b, &reader, 6), [0, 1, 0, 2, 0, 1]);
    b.set_operation(at(&b, 0), Operation::Down, Time::ZERO);
    assert_eq!(counts(&picks(&b, &reader, 300), 3), [0, 200, 100]);
    b.set_operation(at(&b, 0), Operation::Up, Time::ZERO);
    b.set_admin(at(&b, 1), Admin::Drain, Time::ZERO);
    assert_eq!(counts(&picks(&b, &reader, 400), 3), [300, 0, 100]);
}

#[test]
fn roundrobin_begins_with_the_first_server_on_the_first_lane_that_picks() {
    // The other lane takes a number first, as a thread that serves no request may.
    let (other, b) = (manylane_sync::lane::current(), balancer(Algorithm::RoundRobin, &[1; 8]));
    let first = std::thread::scope(|scope| {
        let lane = scope.spawn(|| {
            assert_ne!(manylane_sync::lane::current(), other);
            picks(&b, &Reader::new(), 3)
        });
        lane.join().unwrap()
    });
    assert_eq!(first, [0, 1, 2]);
    assert_eq!(picks(&b, &Reader::new(), 3), [4, 5, 6], "the second lane begins elsewhere");
}

#[test]
fn leastconn_joins_the_least_loaded_and_gives_equal_ones_turns() {
    let b = balancer(Algorithm::LeastConn, &[1, 1, 1]);
    let reader = Reader::new();
    let (a, c) = (at(&b, 0), at(&b, 2));
    assert_eq!(picks_held(&b, &reader, 6), [0, 1, 2, 0, 1, 2]);
    b.release(c);
    b.release(c);
    b.release(a);
    assert_eq!(picks_held(&b, &reader, 2), [2, 0], "an idle one first, then the one with one request");
}

#[test]
fn leastconn_keeps_loads_in_the_proportion_of_weights() {
    let b = balancer(Algorithm::LeastConn, &[10, 20, 70]);
    let reader = Reader::new();
    let picked = picks_held(&b, &reader, 1000);
    for (count, share) in counts(&picked, 3).into_iter().zip([100usize, 200, 700]) {
        assert!(count.abs_diff(share) <= 2, "{count} of {share}");
    }
}

#[test]
fn first_fills_servers_in_the_order_of_their_ids() {
    let specs = [30, 10, 20].map(|id| ServerSpec { maxconn: 2, ..ServerSpec::new(format!("s{id}"), id) });
    let b = Balancer::new(Servers::new(specs).unwrap(), Algorithm::First, Options::default());
    let reader = Reader::new();
    assert_eq!(picks_held(&b, &reader, 6), [1, 1, 2, 2, 0, 0]);
    assert_eq!(b.pick(&reader, &Input::new(Time::ZERO)), Err(NoPick::AllFull));
    b.release(at(&b, 2));
    assert_eq!(picks_held(&b, &reader, 1), [2]);
    assert_eq!(b.take(at(&b, 2), Time::ZERO), Err(ServerFull));
}

#[test]
fn sticky_stays_with_a_server_and_does_not_go_back() {
    let b = balancer(Algorithm::Sticky, &[1, 5, 1]);
    let reader = Reader::new();
    let down = |n, operation| b.set_operation(at(&b, n), operation, Time::ZERO);
    assert_eq!(picks(&b, &reader, 3), [0, 0, 0]);
    down(0, Operation::Down);
    assert_eq!(picks(&b, &reader, 2), [1, 1]);
    down(0, Operation::Up);
    assert_eq!(picks(&b, &reader, 2), [1, 1], "who comes back is the last");
    b.set_weight(at(&b, 1), 0, Time::ZERO).unwrap();
    assert_eq!(picks(&b, &reader, 2), [2, 2]);
    b.set_weight(at(&b, 1), 5, Time::ZERO).unwrap();
    down(2, Operation::Down);
    assert_eq!(picks(&b, &reader, 2), [0, 0]);
    down(0, Operation::Down);
    assert_eq!(picks(&b, &reader, 2), [1, 1]);
    down(1, Operation::Down);
    assert_eq!(b.pick(&reader, &Input::new(Time::ZERO)), Err(NoPick::NoneUsable));
}

#[test]
fn sticky_goes_on_where_the_first_is_full() {
    let specs = (1..=3u32).map(|id| ServerSpec { maxconn: 1, ..ServerSpec::new(format!("s{id}"), id) });
    let b = Balancer::new(Servers::new(specs).unwrap(), Algorithm::Sticky, Options::default());
    let reader = Reader::new();
    assert_eq!(picks_held(&b, &reader, 3), [0, 1, 2]);
    assert_eq!(b.pick(&reader, &Input::new(Time::ZERO)), Err(NoPick::AllFull));
}

#[test]
fn every_algorithm_without_key_skips_full_servers_and_says_when_all_are() {
    let reader = Reader::new();
    for algorithm in WITHOUT_KEY {
        let specs = (1..=100u32).map(|id| ServerSpec { maxconn: 1, ..ServerSpec::new(format!("s{id}"), id) });
        let b = Balancer::new(Servers::new(specs).unwrap(), algorithm, Options::default());
        let mut picked = picks_held(&b, &reader, 100);
        picked.sort_unstable();
        assert!(picked.iter().copied().eq(0..100), "{algorithm:?}: each once: {picked:?}");
        let input = Input::new(Time::ZERO);
        assert_eq!(b.pick(&reader, &input), Err(NoPick::AllFull), "{algorithm:?}");
        b.release(at(&b, 77));
        assert_eq!(b.pick(&reader, &input), Ok(at(&b, 77)), "{algorithm:?}");
    }
}

#[test]
fn backups_serve_when_no_other_does_the_first_alone_or_all() {
    let reader = Reader::new();
    for (all_backups, expected) in [(false, vec![2]), (true, vec![2, 3])] {
        let specs =
            (1..=4u32).map(|id| ServerSpec { backup: id > 2, ..ServerSpec::new(format!("s{id}"), id) });
        let options = Options { all_backups, ..Options::default() };
        for algorithm in WITHOUT_KEY {
            let b = Balancer::new(Servers::new(specs.clone()).unwrap(), algorithm, options);
            let mut picked = picks_held(&b, &reader, 40);
            picked.sort_unstable();
            picked.dedup();
            assert!(picked.iter().all(|&p| p < 2), "{algorithm:?} {picked:?}");
            b.set_operation(at(&b, 0), Operation::Down, Time::ZERO);
            b.set_admin(at(&b, 1), Admin::Maintenance, Time::ZERO);
            let mut picked = picks_held(&b, &reader, 40);
            picked.sort_unstable();
            picked.dedup();
            match algorithm {
                Algorithm::First => assert_eq!(picked, [2]),
                _ => assert_eq!(picked, expected, "{algorithm:?}"),
            }
            b.set_weight(at(&b, 2), 0, Time::ZERO).unwrap();
            b.set_weight(at(&b, 3), 0, Time::ZERO).unwrap();
            assert_eq!(b.pick(&reader, &Input::new(Time::ZERO)), Err(NoPick::NoneUsable), "{algorithm:?}");
        }
    }
}

#[test]
fn random_and_ewma_draw_by_weight() {
    let reader = Reader::new();
    for algorithm in [Algorithm::Random { draws: 1 }, Algorithm::Ewma { draws: 1 }] {
        let b = balancer(algorithm, &[1, 2, 7]);
        let counts = counts(&picks(&b, &reader, 100_000), 3);
        for (count, share) in counts.into_iter().zip([10_000usize, 20_000, 70_000]) {
            // Five standard deviations.
            assert!(count.abs_diff(share) < 5 * 145, "{algorithm:?}: {count} of {share}");
        }
    }
}

/// No lane repeats the numbers of another some turns later. A pick draws two, so the numbers of
/// every second lane would be aligned.
#[test]
fn lanes_draw_different_numbers() {
    let b = balancer(Algorithm::Random { draws: 1 }, &[1; 1000]);
    let draw = || picks(&b, &Reader::new(), 500);
    // Each thread has a lane of its own while the others live.
    let own = draw();
    let others = std::thread::scope(|scope| {
        let two = scope.spawn(|| (draw(), std::thread::scope(|inner| inner.spawn(draw).join().unwrap())));
        two.join().unwrap()
    });
    let lanes = [own, others.0, others.1];
    let mut runs = std::collections::HashSet::new();
    let all: Vec<_> = lanes.iter().flat_map(|lane| lane.windows(8)).collect();
    assert!(all.iter().all(|run| runs.insert(run)));
}

#[test]
fn two_draws_keep_loads_closer_together_than_one() {
    let reader = Reader::new();
    let spread = |draws| {
        let b = balancer(Algorithm::Random { draws }, &[1; 50]);
        let counts = counts(&picks_held(&b, &reader, 5000), 50);
        counts.iter().max().unwrap() - counts.iter().min().unwrap()
    };
    let (one, two) = (spread(1), spread(2));
    assert!(two * 4 < one, "{two} with two draws, {one} with one");
}

#[test]
fn ewma_leaves_a_slow_server_and_comes_back_to_it() {
    let b = balancer(Algorithm::Ewma { draws: 2 }, &[1, 1, 1, 1]);
    let reader = Reader::new();
    let now = Time::from_millis(1000);
    for n in 0..4 {
        let took = if n == 3 { 200 } else { 2 };
        b.report(at(&b, n), std::time::Duration::from_millis(took), now);
    }
    let share = |now| {
        let input = Input::new(now);
        (0..4000).filter(|_| b.pick(&reader, &input).unwrap().get() == 3).count()
    };
    // Both draws must be the slow server: one time in sixteen.
    let slow = share(now);
    assert!((150..350).contains(&slow), "{slow} of 4000");
    b.report(at(&b, 0), std::time::Duration::from_millis(2), Time::from_millis(120_000));
    let later = share(Time::from_millis(120_000));
    assert!(later > 600, "two minutes later it is tried like others: {later} of 4000");
}

#[test]
fn a_server_to_avoid_is_picked_only_when_it_is_the_only_one() {
    let reader = Reader::new();
    for algorithm in WITHOUT_KEY {
        let b = balancer(algorithm, &[1, 1]);
        let input = Input { avoid: Some(at(&b, 0)), ..Input::new(Time::ZERO) };
        for _ in 0..10 {
            assert_eq!(b.pick(&reader, &input), Ok(at(&b, 1)), "{algorithm:?}");
        }
        b.set_admin(at(&b, 1), Admin::Drain, Time::ZERO);
        assert_eq!(b.pick(&reader, &input), Ok(at(&b, 0)), "{algorithm:?}");
    }
}

#[test]
fn weights_out_of_range_and_names_that_are_there_twice_are_refused_with_the_reason() {
    let two = |a: ServerSpec, b: ServerSpec| Servers::new([a, b]).unwrap_err().to_string();
    let spec = ServerSpec::new;
    assert_eq!(two(spec("a", 1), spec("a", 2)), "two servers are named `a`: give each a name of its own");
    assert_eq!(two(spec("a", 1), spec("b", 1)), "two servers have the id 1: give each an id of its own");
    let heavy = ServerSpec { weight: 257, ..spec("b", 2) };
    assert_eq!(two(spec("a", 1), heavy), "server `b` has the weight 257: weights go from 0 to 256");
    let b = balancer(Algorithm::StaticRr, &[5]);
    assert_eq!(
        b.set_weight(at(&b, 0), 6, Time::ZERO).unwrap_err().to_string(),
        "the backend's algorithm is static: a server's weight can only be 0 or its configured 5"
    );
    let b = balancer(Algorithm::RoundRobin, &[5]);
    assert_eq!(
        b.set_weight(at(&b, 0), 300, Time::ZERO).unwrap_err().to_string(),
        "weight 300 is out of range: use 0 to 256"
    );
}

#[test]
fn a_balancer_that_follows_another_goes_on_with_its_servers() {
    let spec = |name: &str, id| ServerSpec::new(name, id);
    let servers = Servers::new([spec("a", 1), spec("b", 2)]).unwrap();
    let before = Balancer::new(servers, Algorithm::LeastConn, Options { lanes: 1, ..Options::default() });
    let at = |balancer: &Balancer, name: &str| balancer.servers().by_name(name).unwrap();
    let (a, b, now) = (at(&before, "a"), at(&before, "b"), Time::ZERO);
    for index in [a, a, b, b] {
        before.take(index, now).unwrap();
    }
    let specs = [spec("a", 1), spec("b", 2), spec("c", 3)];
    let next = before.follow(specs, |number| number < 2, now).unwrap();
    let reader = Reader::new();
    let pick = |balancer: &Balancer| balancer.pick(&reader, &Input::new(now));
    // Requests on the other servers count: the new server is the least loaded, twice.
    for _ in 0..2 {
        let picked = pick(&next).unwrap();
        assert_eq!(next.servers()[picked].name(), "c");
        next.take(picked, now).unwrap();
    }
    // The earlier balancer does not know the new server.
    assert!(pick(&before).is_ok_and(|index| index == a || index == b));
    // A request that began in the earlier balancer ends there, and both balancers count that.
    before.release(a);
    assert_eq!((before.load(a), next.load(a)), (1, 1));
    // Both balancers share the states, too.
    before.set_admin(b, Admin::Maintenance, now);
    assert_eq!(next.servers()[b].state().admin(), Admin::Maintenance);
    assert_eq!(next.serving().count(), 2);
    // A deleted server keeps its position for a later server, but its name finds nothing.
    let gone = ServerSpec { gone: true, ..spec("b", 2) };
    let last = next.follow([spec("a", 1), gone, spec("c", 3)], |number| number != 1, now).unwrap();
    assert_eq!((last.servers().by_name("b"), last.servers().by_id(2)), (None, None));
    let again = last.follow([spec("a", 1), spec("d", 2), spec("c", 3)], |number| number != 1, now).unwrap();
    assert_eq!(at(&again, "d").get(), 1);
    assert_eq!(again.servers()[at(&again, "d")].state().admin(), Admin::Ready);
}

/// A list that outgrows its table of loads still knows the loads of its servers.
#[test]
fn what_the_balancer_before_serves_counts_however_long_the_list_becomes() {
    let specs = |count: u32| (1..=count).map(|id| ServerSpec::new(format!("s{id}"), id));
    let options = Options { lanes: 1, ..Options::default() };
    let first = Balancer::new(Servers::new(specs(32)).unwrap(), Algorithm::LeastConn, options);
    for number in 0..32 {
        first.take(at(&first, number), Time::ZERO).unwrap();
    }
    let mut balancers = vec![first];
    for count in 33..=70 {
        let last = balancers.last().unwrap();
        balancers.push(last.follow(specs(count), |number| number + 1 < count as usize, Time::ZERO).unwrap());
        let (now, next) = (Time::from_millis(u64::from(count)), balancers.last().unwrap());
        let picked = next.pick(&Reader::new(), &Input::new(now)).unwrap();
        assert_eq!(picked.get(), count as usize - 1, "all others are at work");
        next.take(picked, now).unwrap();
        assert_eq!((next.load(at(next, 0)), next.total_load()), (1, u64::from(count)));
    }
    balancers[0].release(at(&balancers[0], 0));
    assert_eq!(balancers.last().unwrap().load(at(&balancers[0], 0)), 0);
}
