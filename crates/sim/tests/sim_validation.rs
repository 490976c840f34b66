//! Simulated throughput ratios stay near those measured on a real machine (`VALIDATION.md`).
#![cfg(manylane_sim)]

#[path = "../examples/validate/cases.rs"]
mod cases;

use cases::{CASES, THREADS};

/// Largest difference of a simulated ratio from the measured one.
const FACTOR: f64 = 1.5;

/// Name, and measured throughput with 2, 8 and 32 threads relative to that with one: on one core, then on
/// two.
const MEASURED: [(&str, [[f64; 3]; 2]); 5] = [
    ("shared atomic counter", [[1.002, 1.002, 0.995], [0.392, 0.383, 0.393]]),
    ("per-lane counters", [[1.003, 1.003, 0.993], [1.996, 1.990, 1.982]]),
    ("falsely shared counters", [[1.004, 0.998, 1.002], [1.279, 1.565, 1.847]]),
    ("mutex-protected list", [[1.003, 0.999, 0.985], [0.381, 0.305, 0.288]]),
    ("read-locked rwlock", [[1.013, 1.005, 0.983], [0.210, 0.207, 0.212]]),
];

#[test]
fn simulated_ratios_are_within_a_factor_of_the_measured_ones() {
    let mut wrong = Vec::new();
    for ((name, run), (recorded, by_cores)) in CASES.into_iter().zip(MEASURED) {
        assert_eq!(name, recorded, "the two tables list the same cases");
        for (cores, ratios) in (1..).zip(by_cores) {
            let alone = run(cores, THREADS[0]);
            for (threads, measured) in THREADS[1..].iter().zip(ratios) {
                let simulated = run(cores, *threads) / alone;
                let error = (simulated / measured).max(measured / simulated);
                let row = format!("{name}, {cores} cores, {threads} threads");
                println!("{row}: measured {measured:.3}, simulated {simulated:.3}, error {error:.2}");
                if error > FACTOR {
                    wrong.push(format!("{row}: {error:.2} > {FACTOR}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "simulated ratios too far from measured ones: {wrong:?}");
}
