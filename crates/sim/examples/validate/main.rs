//! Prints the table of `crates/sim/VALIDATION.md`: real figures, or with `--cfg manylane_sim` simulated ones.

mod cases;

use cases::{CASES, THREADS};

/// Each real figure is the median of so many samples; a simulated one repeats exactly.
const SAMPLES: usize = if cfg!(manylane_sim) { 1 } else { 15 };

fn main() {
    let machine = if cfg!(manylane_sim) { "simulated" } else { "real" };
    println!("{machine}: operations per second, and how many times those of one thread");
    print!("{:<26}", "case");
    for threads in THREADS {
        print!("{:>14} ", format!("{threads} threads"));
    }
    println!();
    for (name, run) in CASES {
        // Interleaved, so that a noisy moment hits every number of threads.
        let mut samples = THREADS.map(|_| Vec::new());
        for _ in 0..SAMPLES {
            for (list, threads) in samples.iter_mut().zip(THREADS) {
                list.push(run(threads));
            }
        }
        let medians = samples.map(|mut list| {
            list.sort_by(f64::total_cmp);
            list[list.len() / 2]
        });
        print!("{name:<26}");
        for median in medians {
            print!("{:>8.2}M {:<5.3}", median / 1e6, median / medians[0]);
        }
        println!();
    }
}
