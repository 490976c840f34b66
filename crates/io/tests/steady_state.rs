//! Cost of a keep-alive request in steady state: the calls that carry bytes, and nothing of the global
//! allocator.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(unsafe_code)] // an allocator that counts
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use manylane_io::{Io, IoReport, Kind};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator with a count of this thread's calls.
struct Counting;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call passes to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // Frees are not counted: a pool may return surplus objects.
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

on_both_drivers! {
    a_keep_alive_request_costs_one_read_and_one_write_on_each_side;
    a_spliced_request_costs_no_registration_and_no_allocation;
}

/// Counters of the driver, and calls of the allocator.
fn cost(io: &Io) -> (IoReport, u64) {
    let lane = io.here().lane();
    let report = manylane_io::report().into_iter().find(|report| report.lane == lane).unwrap();
    (report, CALLS.get())
}

/// Number of the lane's rounds.
fn rounds_made(io: &Io) -> u64 {
    let lane = io.here().lane();
    manylane_sched::report().into_iter().find(|report| report.lane == lane).unwrap().rounds
}

const CLIENTS: usize = 16;
const REQUESTS: u64 = 200;
/// Number of phases, of which the last is measured.
const PHASES: usize = 4;

/// A busy machine makes a round late, and the first late round of a lane allocates memory for its profiles:
/// both happen before the count.
fn measure_from_the_start() {
    manylane_sched::set_profiling(manylane_sched::Profiling::On);
}

fn a_keep_alive_request_costs_one_read_and_one_write_on_each_side(kind: Kind) {
    measure_from_the_start();
    run(kind, |io| async move {
        // Clients that are done with all their phases so far, and the phase that they may begin.
        let done = std::rc::Rc::new(Cell::new(0));
        let phase = std::rc::Rc::new(Cell::new(0));
        for _ in 0..CLIENTS {
            let (client, server) = tcp_pair(&io).await;
            spawn(&io, async move {
                while let Ok(Some(request)) = server.recv().await {
                    if server.send(&mut request.into()).await.is_err() {
                        return;
                    }
                }
            });
            let (here, done, phase) = (io.here(), done.clone(), phase.clone());
            spawn(&io, async move {
                let request = chain(&[7; 100]);
                for n in 0..PHASES {
                    while phase.get() < n {
                        // All begin together, so the last phase needs no more than the others.
                        here.yield_now().await;
                    }
                    for _ in 0..REQUESTS {
                        client.send(&mut request.share().unwrap()).await.unwrap();
                        let mut left = 100;
                        while left > 0 {
                            left -= client.recv().await.unwrap().unwrap().len();
                        }
                    }
                    done.set(done.get() + 1);
                }
            });
        }
        let here = io.here();
        let mut measured = None;
        let mut began = 0;
        for n in 0..PHASES {
            began = rounds_made(&io);
            measured = Some(cost(&io));
            phase.set(n);
            while done.get() < (n + 1) * CLIENTS {
                here.yield_now().await;
            }
        }
        let (before, calls) = measured.unwrap();
        let calls = CALLS.get() - calls; // before the report, which allocates
        let (after, rounds) = (cost(&io).0, rounds_made(&io) - began);
        let waits = after.waits - before.waits;
        // A round without submissions and completions makes no system call.
        assert!(waits <= rounds + 1, "{kind}: {waits} looks at the kernel in {rounds} rounds");
        let requests = CLIENTS as u64 * REQUESTS;
        assert_eq!(after.writes - before.writes, 2 * requests, "one write for each request and response");
        assert_eq!(after.controls - before.controls, 0, "no epoll_ctl");
        assert_eq!(after.others - before.others, 0);
        let reads = after.reads - before.reads;
        match kind {
            Kind::Epoll => assert_eq!(reads, 2 * requests, "one read for each, none in vain"),
            Kind::IoUring => assert_eq!(reads, 0, "one operation receives for the whole connection"),
        }
        assert_eq!(calls, 0, "calls of the global allocator");
    });
}

fn a_spliced_request_costs_no_registration_and_no_allocation(kind: Kind) {
    measure_from_the_start();
    run(kind, |io| async move {
        let (source, near) = tcp_pair(&io).await;
        let (far, sink) = tcp_pair(&io).await;
        let mut splicer = io.splicer();
        let request = chain(&[7; 100]);
        let mut before = None;
        for n in 0..100 {
            if n == 50 {
                before = Some(cost(&io));
            }
            source.send(&mut request.share().unwrap()).await.unwrap();
            assert_eq!(splicer.step(&near, &far, usize::MAX).await.unwrap(), 100);
            let mut left = 100;
            while left > 0 {
                left -= sink.recv().await.unwrap().unwrap().len();
            }
        }
        let (before, calls) = before.unwrap();
        let calls = CALLS.get() - calls;
        let after = cost(&io).0;
        assert_eq!((after.controls - before.controls, after.others - before.others), (0, 0));
        let splices = after.splices - before.splices;
        assert!((100..=150).contains(&splices), "{splices} splices for 50 requests");
        assert_eq!(calls, 0, "calls of the global allocator");
    });
}
