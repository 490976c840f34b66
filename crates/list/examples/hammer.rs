//! Add and delete of an own element, in nanoseconds per pair and lane, with fairness: the figures of the
//! README.
//!
//! `cargo run --release -p manylane-list --example hammer [seconds a run]`
//!
//! Other programs on the machine cannot be switched off. So time is cut into windows of half a millisecond,
//! and the best and the median window are shown. Fairness is least / most served thread over the whole run,
//! counted by pairs, and by pairs per second of processor time (which the kernel may distribute unevenly;
//! Linux only).

use manylane_list::{MtList, Node};
use manylane_sync::CachePadded;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Number of pairs between two reads of the clock.
const BATCH: u32 = 100;
/// Length of a window: long against a batch, short against the kernel's time slice.
const WINDOW: Duration = Duration::from_micros(500);

#[derive(Clone, Copy, PartialEq)]
enum Where {
    /// All at the head of one list.
    Head,
    /// Each next to its own resident element in the middle of one list.
    Resident,
}

/// Returns the processor time of this thread so far, if the kernel tells it.
fn processor_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

/// Work of a thread.
struct Done {
    /// Number of pairs in each window.
    pairs: Vec<u32>,
    processor_time: Option<Duration>,
}

impl Done {
    fn total(&self) -> f64 {
        self.pairs.iter().copied().map(f64::from).sum()
    }

    fn rate(&self) -> f64 {
        self.processor_time.map_or(f64::NAN, |time| self.total() / time.as_secs_f64())
    }
}

/// Returns the least value divided by the largest.
fn fairness(served: impl Iterator<Item = f64> + Clone) -> f64 {
    served.clone().fold(f64::INFINITY, f64::min) / served.fold(0.0, f64::max)
}

fn run(threads: usize, place: Where, time: Duration) -> Vec<Done> {
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
                    if place == Where::Resident {
                        resident.add();
                        // Between this thread's place and the next one's, so that they share no neighbour.
                        fence.insert_after(resident);
                    }
                    start.wait();
                    let began = *began.get_or_init(Instant::now);
                    let before = processor_time();
                    let mut pairs = vec![0; windows];
                    loop {
                        for _ in 0..BATCH {
                            match place {
                                Where::Head => own.add(),
                                Where::Resident => assert!(own.insert_after(resident)),
                            }
                            assert!(own.delete());
                        }
                        let window = (began.elapsed().as_nanos() / WINDOW.as_nanos()) as usize;
                        if window >= windows {
                            let spent = processor_time().zip(before).map(|(after, before)| after - before);
                            return Done { pairs, processor_time: spent };
                        }
                        pairs[window] += BATCH;
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
    println!("place     threads    best ns/pair  median ns/pair  fairness  by processor time");
    for (name, place) in [("head", Where::Head), ("resident", Where::Resident)] {
        for threads in [1, 2, 8] {
            let done = run(threads, place, Duration::from_secs_f64(seconds));
            let mut windows: Vec<u32> =
                (0..done[0].pairs.len()).map(|w| done.iter().map(|d| d.pairs[w]).sum()).collect();
            windows.sort_unstable();
            // For each lane: each of the threads that can run at once has had the whole window.
            let cost = |pairs: u32| WINDOW.as_nanos() as f64 * threads.min(cores) as f64 / f64::from(pairs);
            println!(
                "{name:<9} {threads:>7} {:>15.1} {:>15.1} {:>9.2} {:>18.2}",
                cost(windows[windows.len() * 98 / 100]),
                cost(windows[windows.len() / 2]),
                fairness(done.iter().map(Done::total)),
                fairness(done.iter().map(Done::rate)),
            );
        }
    }
}
