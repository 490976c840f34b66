//! Steady state uses nothing of the global allocator, and no state of a lane is left after the end of its
//! tasks.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(unsafe_code)] // a global allocator that counts
#![allow(clippy::unwrap_used)] // helpers of tests are covered, too

use manylane_sched::{Class, Config, Here, Lane, TaskKind, Time};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

static KIND: TaskKind = TaskKind::new("steady");

thread_local! {
    /// Number of allocations of this thread.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call passes to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: by contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: by contract.
        unsafe { System.dealloc(memory, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A session: wakes itself, is woken by a timer in time and by a postponed one, and changes its class.
async fn session(here: Here, niced: bool) {
    if niced {
        here.set_nice(-3).unwrap();
    }
    here.yield_now().await;
    here.set_class(Class::Heavy);
    here.yield_now().await;
    here.set_class(Class::Urgent);
    let mut idle = here.sleep(Duration::from_secs(60));
    here.sleep(Duration::from_millis(3)).await;
    idle.reset(here.now() + Duration::from_millis(500));
    here.timeout(Duration::from_secs(1), idle).await.unwrap();
}

#[test]
fn tasks_wake_ups_and_timers_take_nothing_from_the_global_allocator_after_a_while() {
    // A busy machine makes a round late, and the first late round of a lane allocates memory for its
    // profiles: here, before the count.
    manylane_sched::set_profiling(manylane_sched::Profiling::On);
    let mut lane = Lane::new(Config::new()).unwrap();
    let here = lane.here();
    let mut now = Time::now();
    let mut pass = |lane: &mut Lane| {
        for n in 0..500 {
            here.spawn(&KIND, Class::Normal, session(here, n % 5 == 0)).unwrap();
        }
        let mut more = true;
        while more {
            let round = lane.round(now);
            more = round.more || round.next_timer.is_some();
            now = if round.more { now } else { now + Duration::from_millis(1) };
        }
    };
    pass(&mut lane);
    pass(&mut lane);
    let before = ALLOCATIONS.get();
    pass(&mut lane);
    assert_eq!(ALLOCATIONS.get() - before, 0);
    let report = manylane_sched::report().into_iter().find(|report| report.lane == lane.id()).unwrap();
    assert_eq!((report.live, report.run_queue(), report.late_wakes), (0, 0, 0));
    assert_eq!((report.spawned, report.completed, report.timers), (1500, 1500, 3000));
}
