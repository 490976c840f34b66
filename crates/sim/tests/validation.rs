//! Simulated throughput ratios stay near those measured on a real machine (`VALIDATION.md`).
#![cfg(manylane_sim)]

#[path = "../examples/validate/cases.rs"]
mod cases;

use cases::{CASES, THREADS};

/// Name, measured throughput with 2, 8 and 32 threads by that with one, and the factor by which each simulated ratio may differ.
/// Where the factor is above 1.5, `VALIDATION.md` says why.
const MEASURED: [(&str, [f64; 3], [f64; 3]); 5] = [
    ("shared atomic counter", [0.371, 0.420, 0.398], [1.5, 1.5, 1.5]),
    ("per-lane counters", [1.994, 1.901, 1.945], [1.5, 1.5, 1.5]),
    ("falsely shared counters", [1.538, 1.458, 1.721], [1.5, 1.5, 1.5]),
    ("mutex-protected list", [0.307, 0.336, 0.342], [2.4, 1.5, 1.5]),
    ("read-locked rwlock", [0.217, 0.339, 0.272], [1.5, 1.5, 1.5]),
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
