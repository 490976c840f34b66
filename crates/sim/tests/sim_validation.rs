//! Simulated throughput ratios stay near those measured on a real machine (`VALIDATION.md`).
#![cfg(manylane_sim)]

#[path = "../examples/validate/cases.rs"]
mod cases;

use cases::{CASES, THREADS};

/// By how much a simulated ratio may differ from the measured one.
const FACTOR: f64 = 1.5;

/// Name, and measured throughput with 2, 8 and 32 threads by that with one.
const MEASURED: [(&str, [f64; 3]); 5] = [
    ("shared atomic counter", [0.392, 0.383, 0.393]),
    ("per-lane counters", [1.996, 1.990, 1.982]),
    ("falsely shared counters", [1.279, 1.565, 1.847]),
    ("mutex-protected list", [0.381, 0.305, 0.288]),
    ("read-locked rwlock", [0.210, 0.207, 0.212]),
];

#[test]
fn simulated_ratios_are_within_a_factor_of_the_measured_ones() {
    let mut wrong = Vec::new();
    for ((name, run), (recorded, ratios)) in CASES.into_iter().zip(MEASURED) {
        assert_eq!(name, recorded, "the two tables list the same cases");
        let alone = run(THREADS[0]);
        for (threads, measured) in THREADS[1..].iter().zip(ratios) {
            let simulated = run(*threads) / alone;
            let error = (simulated / measured).max(measured / simulated);
            println!(
                "{name}, {threads} threads: measured {measured:.3}, simulated {simulated:.3}, error {error:.2}"
            );
            if error > FACTOR {
                wrong.push(format!("{name}, {threads} threads: {error:.2} > {FACTOR}"));
            }
        }
    }
    assert!(wrong.is_empty(), "simulated ratios too far from measured ones: {wrong:?}");
}
