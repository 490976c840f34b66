//! The program as its user sees it.
#![cfg(not(any(loom, manylane_sim)))]

use std::process::{Command, Output};

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_manylane-bench"))
        .args(arguments)
        .env_remove("MANYLANE_BENCH_SIM")
        .output()
        .expect("the program starts")
}

fn refused(arguments: &[&str], sentence: &str) {
    let output = bench(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{arguments:?} was accepted");
    assert!(error.contains(sentence), "{arguments:?}: {error}");
}

#[test]
fn bad_arguments_are_refused_with_a_sentence() {
    refused(&["scale", "--case", "conter"], "known cases: counter, memtype, pool, cluster, list, list-head");
    refused(&["scale", "--threads", "0"], "between 1 and 256");
    refused(&["scale", "--threads", "2,two"], "between 1 and 256");
    refused(&["scale", "--cores", "97"], "1 to 96 cores");
    refused(&["scale", "--runs", "0"], "0 is not in 1..=1000");
    refused(&["scale", "--real", "--simulated"], "cannot be used with");
    refused(&["evidence", "--row", "A2"], "rows are those of docs/requirements.md, R-A1 to R-G13");
    refused(&["peers", "--row", "conter"], "known rows: counter, pool");
    refused(&["instructions", "--row", "conter"], "known rows: counter, pool");
}

#[test]
fn an_absent_simulated_half_is_said_and_the_real_half_is_shown() {
    let out = std::env::temp_dir().join(format!("manylane-bench-{}", std::process::id()));
    let out_text = out.to_str().expect("a temporary path in UTF-8");
    let arguments =
        ["scale", "--case", "counter", "--threads", "1,2", "--runs", "3", "--time", "50", "--out", out_text];
    let output = bench(&[&arguments[..], &["--sim", "/nowhere/manylane-bench"]].concat());
    let (text, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{error}");
    assert!(error.contains("`make bench` builds it"), "{error}");
    assert!(text.contains("counter, real, 2 threads"), "{text}");
    assert!(text.contains("confidence"), "{text}");
    let svg = std::fs::read_to_string(out.join("counter.svg")).expect("the plot was written");
    assert!(svg.contains("counter, real") && !svg.contains("counter, simulated"), "{svg}");
    std::fs::remove_dir_all(&out).expect("just made");
}

#[test]
fn simulated_figures_are_refused_where_there_are_none() {
    refused(&["scale", "--simulated", "--sim", "/nowhere/manylane-bench"], "the simulated half is missing");
}

#[test]
fn a_row_of_the_evidence_is_measured_and_says_what_shows_it() {
    let output = bench(&["evidence", "--no-tests", "--json", "--row", "R-F3"]);
    let page: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let [row] = page["rows"].as_array().map(Vec::as_slice).expect("a list") else { panic!("{page}") };
    let text = |key: &str| row[key].as_str().expect("a text");
    assert_eq!((text("row"), text("seed")), ("R-F3", "14 -> 3.0 -> 1.8 ms"));
    assert!(text("ours").contains(" long tasks, in virtual time"), "{row}");
    assert_eq!(row["commands"][0], "manylane-bench heavy --simulated");
}

#[test]
fn without_the_simulated_half_a_row_says_why_it_is_not_measured() {
    let arguments = ["evidence", "--no-tests", "--json", "--row", "R-G2", "--sim", "/nowhere/manylane-bench"];
    let output = bench(&arguments);
    let page: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let row = page["rows"][0].to_string();
    assert!(row.contains("`make bench` builds it"), "{row}");
}

#[test]
fn results_come_as_json_on_request() {
    let output = bench(&[
        "scale",
        "--real",
        "--json",
        "--case",
        "lock",
        "--threads",
        "2",
        "--runs",
        "2",
        "--time",
        "5",
    ]);
    let results =
        manylane_bench::results::Results::from_json(&String::from_utf8_lossy(&output.stdout)).expect("JSON");
    assert_eq!(results.series.len(), 2);
    // On a busy machine, a run of 5 ms may end before its threads get a processor.
    assert!(
        results
            .series
            .iter()
            .all(|s| s.threads == 2 && s.runs.len() == 2 && s.runs.iter().all(|run| run.is_finite()))
    );
}
