//! Add and delete of an own element, in nanoseconds per pair and lane, with fairness: the figures of the README.
//!
//! `cargo run --release -p manylane-list --example hammer [seconds a run]`
//!
//! Other programs on the machine cannot be switched off, so time is cut into windows of half a millisecond and
//! the best and the median window are shown. Fairness is least / most served thread over the whole run.

use manylane_list::{MtList, Node};
use manylane_sync::CachePadded;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Pairs between two looks at the clock.
const BATCH: u32 = 100;
/// Long against a batch, short against the time slice of the kernel.
const WINDOW: Duration = Duration::from_micros(500);

#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// All at the head of one list.
    Head,
    /// Each next to its own resident element in the middle of one list.
    Resident,
}

/// Pairs done in each window by each thread.
fn run(threads: usize, place: Place, time: Duration) -> Vec<Vec<u32>> {
    let list = MtList::new();
    let start = Barrier::new(threads);
    let windows = (time.as_nanos() / WINDOW.as_nanos()) as usize;
    let began = std::sync::OnceLock::new();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    // A padded value pads the node.
                    let make = || Box::pin(Node::new(&list, CachePadded::new(())));
                    let (resident, fence, own) = (make(), make(), make());
                    let (resident, fence, own) = (resident.as_ref(), fence.as_ref(), own.as_ref());
                    if place == Place::Resident {
                        resident.add();
                        // Between this thread's place and the next one's, so that they share no neighbour.
                        fence.insert_after(resident);
                    }
                    start.wait();
                    let began = *began.get_or_init(Instant::now);
                    let mut done = vec![0; windows];
                    loop {
                        for _ in 0..BATCH {
                            match place {
                                Place::Head => own.add(),
                                Place::Resident => assert!(own.insert_after(resident)),
                            }
                            assert!(own.delete());
                        }
                        let window = (began.elapsed().as_nanos() / WINDOW.as_nanos()) as usize;
                        if window >= windows {
                            return done;
                        }
                        done[window] += BATCH;
                    }
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker never panics")).collect()
    })
}

fn main() {
    let seconds = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(1.0);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!(
        "{:<9} {:>7} {:>15} {:>15} {:>9}",
        "place", "threads", "best ns/pair", "median ns/pair", "fairness"
    );
    for (name, place) in [("head", Place::Head), ("resident", Place::Resident)] {
        for threads in [1, 2, 8] {
            let done = run(threads, place, Duration::from_secs_f64(seconds));
            let mut windows: Vec<u32> = (0..done[0].len()).map(|w| done.iter().map(|d| d[w]).sum()).collect();
            windows.sort_unstable();
            // Per lane: each of the threads that can run at once has had the whole window.
            let cost = |pairs: u32| WINDOW.as_nanos() as f64 * threads.min(cores) as f64 / f64::from(pairs);
            let served: Vec<u64> = done.iter().map(|d| d.iter().copied().map(u64::from).sum()).collect();
            let (least, most) = (served.iter().min(), served.iter().max());
            println!(
                "{name:<9} {threads:>7} {:>15.1} {:>15.1} {:>9.2}",
                cost(windows[windows.len() * 98 / 100]),
                cost(windows[windows.len() / 2]),
                *least.unwrap_or(&0) as f64 / *most.unwrap_or(&1) as f64,
            );
        }
    }
}
