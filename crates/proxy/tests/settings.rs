//! Settings of the process that reach a lane when a generation is installed on it.

#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)] // helpers of tests are tests too

use manylane_config::cond::Build;
use manylane_config::lex::Environment;
use manylane_config::load;
use manylane_config::source::Sources;
use manylane_io::{ACCEPTS_PER_ROUND, Choice, Driver, Kind, MOST_ACCEPTS_PER_ROUND};
use manylane_proxy::generation::Wishes;
use manylane_proxy::{Generation, Local};
use manylane_sched::{Config, Lane};
use manylane_sync::Arc;

/// A generation with these lines in `global`.
fn built(global: &str) -> Generation {
    let mut sources = Sources::new();
    sources.add("test.cfg", format!("global\n{global}")).unwrap();
    let mut loaded = load(&sources, &Build::bare(), Environment::new(), false);
    let generation = Generation::build(&loaded.config, Wishes::default(), &mut loaded.found);
    assert!(loaded.found.found().is_empty(), "{:?}", loaded.found.found());
    generation
}

#[test]
fn the_smaller_one_of_maxconnrate_and_maxsessrate_bounds_the_process() {
    let now = std::time::Duration::from_secs(10);
    for (global, most) in [
        (" maxconnrate 5\n maxsessrate 3\n", 3),
        (" maxconnrate 2\n", 2),
        (" maxconnrate 0\n maxsessrate 4\n", 4),
    ] {
        let rate = built(global).rate.unwrap();
        let entered = (0..10).filter(|_| rate.enter(now).is_ok()).count();
        assert_eq!(entered, most, "{global}");
    }
    assert!(built(" maxconnrate 0\n").rate.is_none());
}

/// What a lane accepts in a round, with these lines in `global`.
fn accepts(global: &str) -> u32 {
    let generation = built(global);
    let lane = Lane::new(Config::new()).unwrap();
    let driver = Driver::new(lane.here(), Choice::Only(Kind::Epoll)).unwrap();
    let local = Local::install(driver.io(), Arc::new(generation), || {});
    local.remove();
    driver.io().accepts_per_round()
}

#[test]
fn a_lane_accepts_as_many_connections_in_a_round_as_tune_maxaccept_says() {
    assert_eq!(accepts(""), ACCEPTS_PER_ROUND);
    assert_eq!(accepts(" tune.maxaccept 16\n"), 16);
    assert_eq!(accepts(" tune.maxaccept 0\n"), ACCEPTS_PER_ROUND, "as without it");
    assert_eq!(accepts(" tune.maxaccept -1\n"), MOST_ACCEPTS_PER_ROUND);
}
