//! Simulated throughput ratios stay near those measured on a real machine (`VALIDATION.md`).
#![cfg(manylane_sim)]

#[path = "../examples/validate/cases.rs"]
mod cases;

use cases::{CASES, THREADS};

/// Name, measured throughput with 2, 8 and 32 threads by that with one, and the factor by which each simulated ratio may differ.
/// Where the factor is above 1.5, `VALIDATION.md` says why.
const MEASURED: [(&str, [f64; 3], [f64; 3]); 5] = [
    ("shared atomic counter", [0.376, 0.367, 0.385], [1.5, 1.5, 1.5]),
    ("per-lane counters", [1.956, 1.931, 1.944], [1.5, 1.5, 1.5]),
    ("falsely shared counters", [1.517, 1.756, 1.888], [1.5, 1.5, 1.5]),
    ("mutex-protected list", [0.382, 0.226, 0.151], [1.8, 1.5, 1.5]),
    ("read-locked rwlock", [0.187, 0.187, 0.190], [1.5, 1.5, 1.5]),
];

#[test]
fn simulated_ratios_are_within_the_stated_factor_of_the_measured_ones() {
    let mut wrong = Vec::new();
    for ((name, run), (recorded, ratios, factors)) in CASES.into_iter().zip(MEASURED) {
        assert_eq!(name, recorded, "the two tables list the same cases");
        let alone = run(THREADS[0]);
        for ((threads, measured), allowed) in THREADS[1..].iter().zip(ratios).zip(factors) {
            let simulated = run(*threads) / alone;
            let error = (simulated / measured).max(measured / simulated);
            println!(
                "{name}, {threads} threads: measured {measured:.3}, simulated {simulated:.3}, error {error:.2}"
            );
            if error > allowed {
                wrong.push(format!("{name}, {threads} threads: {error:.2} > {allowed}"));
            }
        }
    }
    assert!(wrong.is_empty(), "simulated ratios too far from measured ones: {wrong:?}");
}
