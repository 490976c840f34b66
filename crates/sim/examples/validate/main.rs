//! Prints the table of `crates/sim/VALIDATION.md`: real figures, or with `--cfg manylane_sim` simulated ones:
//! `validate [CORES]`.
//!
//! Real figures are those of the cores that the process may use: `taskset -c 0` selects one.

mod cases;

use cases::{CASES, THREADS};

/// Number of samples: each real figure is their median; a simulated one repeats exactly.
const SAMPLES: usize = if cfg!(manylane_sim) { 1 } else { 15 };

/// Returns the requested number of cores; two by default.
fn cores() -> usize {
    let requested = std::env::args().nth(1).map_or(Ok(2), |cores| cores.parse());
    let cores = requested.ok().filter(|cores| (1..=32).contains(cores)).unwrap_or_else(|| {
        eprintln!("validate: expects how many cores, from 1 to 32");
        std::process::exit(1)
    });
    let usable = std::thread::available_parallelism().map_or(1, usize::from);
    if cfg!(not(manylane_sim)) && usable != cores {
        eprintln!("validate: this process may use {usable} cores, not {cores}; say which with 'taskset -c'");
        std::process::exit(1)
    }
    cores
}

fn main() {
    let machine = if cfg!(manylane_sim) { "simulated" } else { "real" };
    let cores = cores();
    println!("{machine}, {cores} cores: operations per second, and how many times those of one thread");
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
                list.push(run(cores, threads));
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
