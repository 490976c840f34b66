//! The rows: what each requirement asks for, the figure of its source, and what shows it here.

use super::measure::{self, Context, Measured};
use super::suites::{Machine, Suite};

/// A requirement.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) id: &'static str,
    pub(super) what: &'static str,
    /// The figure of the requirement's source, before -> after; empty if it has none.
    pub(super) seed: &'static str,
    pub(super) measured: Option<Measurement>,
    pub(super) tests: &'static [Suite],
    /// What is not built of it; empty if all is.
    pub(super) unbuilt: &'static str,
    /// Why it is missed, or what to try next, for a row that was missed when it was last recorded.
    pub(super) why_missed: &'static str,
}

/// A measurement of this program.
#[derive(Debug)]
pub(super) struct Measurement {
    /// The command that shows it, and nothing else.
    pub(super) command: &'static str,
    pub(super) run: fn(&Context) -> Result<Measured, String>,
}

const fn measured(
    command: &'static str,
    run: fn(&Context) -> Result<Measured, String>,
) -> Option<Measurement> {
    Some(Measurement { command, run })
}

const fn suite(
    machine: Machine,
    package: &'static str,
    target: &'static str,
    names: &'static [&'static str],
) -> Suite {
    Suite { package, target, names, machine, features: &[] }
}

/// Tests that only a feature of their package brings.
const fn with(features: &'static [&'static str], suite: Suite) -> Suite {
    Suite { features, ..suite }
}

const fn tests(package: &'static str, target: &'static str, names: &'static [&'static str]) -> Suite {
    suite(Machine::Real, package, target, names)
}

const fn models(package: &'static str, target: &'static str, names: &'static [&'static str]) -> Suite {
    suite(Machine::Models, package, target, names)
}

const fn budgets(package: &'static str, target: &'static str, names: &'static [&'static str]) -> Suite {
    suite(Machine::Simulator, package, target, names)
}

/// Tests of the program from outside.
const fn program(names: &'static [&'static str]) -> Suite {
    tests("tests", "e2e", names)
}

const fn row(
    id: &'static str,
    what: &'static str,
    seed: &'static str,
    measured: Option<Measurement>,
    tests: &'static [Suite],
) -> Row {
    Row { id, what, seed, measured, tests, unbuilt: "", why_missed: "" }
}

const fn unbuilt(row: Row, what: &'static str) -> Row {
    Row { unbuilt: what, ..row }
}

const fn missed(row: Row, why: &'static str) -> Row {
    Row { why_missed: why, ..row }
}

pub(super) static ROWS: &[Row] = &[
    row(
        "R-A1",
        "local sockets of three kinds",
        "",
        None,
        &[tests("local", "sockets", &[]), tests("local", "memory", &[])],
    ),
    row(
        "R-A2",
        "no lock of all sockets on a send",
        "1.69 M -> 70.7 M ops/s at 96 (+4010 % ± 88), the peak \
        at 6; \
        +1.2, +18.3, +20.4 % at 1, 2, 4",
        measured("manylane-bench evidence --row R-A2", measure::unix1),
        &[budgets("local", "sim_local", &["sending_and_receiving_on_an_own_pair"])],
    ),
    row(
        "R-A3",
        "linkage, names, sockets: three kinds of lock in this order",
        "",
        None,
        &[
            tests("local", "stress", &[]),
            tests("local", "sockets", &["name", "lists_of_the_lanes"]),
            models("local", "loom_local", &["connect_against"]),
        ],
    ),
    row(
        "R-A4",
        "two sockets are locked in a safe order, and looked at again after a relock",
        "",
        None,
        &[
            tests("local", "sockets", &["datagram_pair", "closing_a_listener"]),
            models("local", "loom_local", &["closing", "close"]),
        ],
    ),
    row(
        "R-A5",
        "a count keeps a socket alive, its last holder frees it",
        "",
        None,
        &[tests("local", "sockets", &["handles_are_counted"]), models("sync", "loom_refs", &[])],
    ),
    row(
        "R-A6",
        "handles and credentials in messages; cycles are collected",
        "",
        None,
        &[tests("local", "handles", &[]), models("local", "loom_local", &["cycle", "collector"])],
    ),
    row("R-A7", "data by reference", "", None, &[tests("local", "reference", &[])]),
    row(
        "R-A8",
        "proxies chained in the process",
        "",
        None,
        &[
            tests("net", "connect", &["connections_inside_of_the_process"]),
            program(&["proxies_are_chained_inside"]),
        ],
    ),
    row("R-B1", "chains over shared clusters", "", None, &[tests("buf", "", &["model"])]),
    missed(
        row(
            "R-B2",
            "counts in place of a ring of sharers",
            "30 -> 45 Gbit/s",
            measured("manylane-bench evidence --row R-B2", measure::splice),
            &[models("buf", "loom_count", &[]), budgets("buf", "sim_buf", &[])],
        ),
        "The row asks for no loss on real threads, too, and a thread of its own has one. As it seems, \
        that is the machine: the count is a few nanoseconds (`scale --case cluster`) of an operation \
        whose system calls take microseconds. The run without `--quick`, on a quiet machine, \
        decides.",
    ),
    row(
        "R-B3",
        "foreign memory, freed once by its function",
        "",
        None,
        &[
            tests("buf", "register", &[]),
            tests("buf", "register_together", &[]),
            tests("buf", "stress", &[]),
            tests("buf", "", &["errors"]),
        ],
    ),
    row(
        "R-B4",
        "leader and proxy compared, the better one ships",
        "equal",
        measured("manylane-bench scale --case cluster --real --threads 1,2", measure::counts),
        &[],
    ),
    row(
        "R-B5",
        "zero on free, a mark that goes one way",
        "",
        None,
        &[tests("buf", "", &["count"]), models("buf", "loom_count", &["mark"])],
    ),
    row(
        "R-B6",
        "a failed allocation leaves the input intact",
        "",
        None,
        &[tests("buf", "conservation", &[]), tests("buf", "", &["errors"]), tests("local", "memory", &[])],
    ),
    row(
        "R-B7",
        "joined sockets",
        "",
        None,
        &[tests("io", "splice", &[]), tests("net", "connect", &["spliced"])],
    ),
    row(
        "R-C1",
        "memory statistics by lane",
        "30.4 M -> 38.5 M ops/s at 48 threads (+26 %)",
        measured("manylane-bench scale --case memtype", measure::memtype),
        &[tests("stats", "mem", &["slots"])],
    ),
    row(
        "R-C2",
        "a report shows each lane and the sum",
        "",
        None,
        &[tests("stats", "mem", &["report", "sum"]), tests("pool", "pool", &["in_the_reports"])],
    ),
    row(
        "R-C3",
        "who allocates, on request",
        "",
        None,
        &[
            with(&["call-sites"], tests("stats", "mem", &["call_sites"])),
            with(&["call-sites"], tests("pool", "pool", &["call_sites"])),
        ],
    ),
    row(
        "R-D1",
        "a cache of each lane before the allocator",
        "",
        measured("manylane-bench scale --case pool", measure::lane_caches),
        &[
            tests("pool", "pool", &["a_lane_gets_back", "by_default_64_buffers"]),
            tests("buf", "steady_state", &["pool"]),
        ],
    ),
    row(
        "R-D2",
        "no list of all lanes behind the caches",
        "divided by 8 between 32 and 64 connections on \
        64 cores",
        measured("manylane-bench evidence --row R-D2", measure::pools),
        &[budgets("pool", "sim_pool", &["objects_freed_on_another_lane"])],
    ),
    row(
        "R-D3",
        "no use after free in safe code",
        "",
        None,
        &[tests("pool", "pool", &["write_after_free", "dropped_once"]), tests("pool", "model", &[])],
    ),
    row(
        "R-D4",
        "a lane short of buffers waits in its own queue",
        "",
        None,
        &[tests("io", "limit", &[]), program(&["buffers::"])],
    ),
    row(
        "R-D5",
        "the machine's double-width compare-and-swap",
        "CASP guarantees progress, LL/SC does not",
        measured("scripts/aarch64", measure::aarch64),
        &[
            with(&["global-pools"], tests("pool", "wide", &[])),
            with(&["global-pools"], models("pool", "loom_pool", &["global"])),
        ],
    ),
    row(
        "R-E1",
        "a list whose links are locks",
        "",
        measured("manylane-bench scale --case list", measure::list),
        &[tests("list", "list", &[]), models("list", "loom_list", &[])],
    ),
    missed(
        row(
            "R-E2",
            "retry loops back off",
            "without it the watchdog fired on 64 cores",
            measured("manylane-bench evidence --row R-E2", measure::relax),
            &[budgets("list", "sim_list", &["waiters_leave"])],
        ),
        "On 64 cores trying again at once wins in the simulator. It hands a line over in the order of \
        requests, so a core whose try has failed has the line, and tries again before the next \
        request takes it away; a pause of 44 ns loses it. Real machines prefer cores nearby and let \
        others starve, which is what the rule is for (crates/sim/VALIDATION.md).",
    ),
    row(
        "R-E3",
        "adding beside the head cannot livelock",
        "",
        None,
        &[
            tests("list", "list", &["refused", "came_out_once"]),
            models("list", "loom_list", &["three_threads"]),
        ],
    ),
    row(
        "R-E4",
        "no read before an exchange",
        "other cores lose the line",
        measured("manylane-bench evidence --row R-E4", measure::read_first),
        &[budgets("list", "sim_list", &["an_exchange_fetches"])],
    ),
    missed(
        row(
            "R-E5",
            "atomics are aligned",
            "unaligned: 1.8 % at 16 threads",
            measured("manylane-bench evidence --row R-E5", measure::aligned),
            &[tests("list", "list", &["small_and_aligned"])],
        ),
        "The words are each thread's own, so neither variant moves a line, and the gain is only what \
        the simulator charges for a second line. Next idea: words of neighbours, as in the array of \
        `memtype`.",
    ),
    missed(
        row(
            "R-F1",
            "a tick of each lane",
            "shared: 2 % at 16 threads",
            measured("manylane-bench evidence --row R-F1", measure::tick),
            &[tests("sched", "lane", &["nice_value"]), budgets("sched", "sim_sched", &["on_the_own_lane"])],
        ),
        "The cost of the tick is two transfers of its line in 22 us. The case assumes 8 wake-ups a \
        request; the source gives no number. The sign is that of the source, and the gain grows with \
        the cores.",
    ),
    missed(
        row(
            "R-F2",
            "no shared counters",
            "+12 % requests/s at 16 threads",
            measured(
                "manylane-bench scale --case counter; manylane-bench evidence --row R-F2",
                measure::lengths,
            ),
            &[models("stats", "loom_stats", &[])],
        ),
        "As R-F1: the cost is three transfers in 22 us. The case shares one number of queued tasks; \
        the gain of the source is that of all its counters.",
    ),
    row(
        "R-F3",
        "four classes, one heavy task a round",
        "14 -> 3.0 -> 1.8 ms",
        measured("manylane-bench heavy --simulated", measure::heavy_class),
        &[
            tests("sched", "lane", &["heavy", "low_latency"]),
            program(&["handshakes_run_in_the_class_of_heavy"]),
        ],
    ),
    row(
        "R-F4",
        "40 tasks a round",
        "613 k -> 722 k requests/s, 1.62 -> 1.40 ms, 200 -> 40 at 16 threads",
        measured("manylane-bench evidence --row R-F4", measure::depth),
        &[tests("sched", "lane", &["run_queue_depth"])],
    ),
    missed(
        row(
            "R-F5",
            "4 accepts a round",
            "274 k -> 336 k connections/s, 64 -> 4 at 16 threads",
            measured("manylane-bench evidence --row R-F5", measure::accepts),
            &[tests("io", "accept", &[])],
        ),
        "The gain belongs to 16 threads. With lanes that share two processors, many accepts a round \
        take less time of them than few (bench/tried/requests.md); 4 is the default of the source.",
    ),
    row(
        "R-F6",
        "what other lanes write on lines of its own",
        "-8 us at 1 M requests/s",
        measured("manylane-bench evidence --row R-F6", measure::layout),
        &[budgets("sched", "sim_sched", &["on_the_own_lane"])],
    ),
    row(
        "R-F7",
        "a batch is counted once a round",
        "",
        None,
        &[tests("sched", "lanes", &[]), budgets("sched", "sim_sched", &[])],
    ),
    row(
        "R-F8",
        "profiles of tasks",
        "",
        None,
        &[tests("sched", "outside", &["profile"]), program(&["profiling_is_shown"])],
    ),
    row(
        "R-F9",
        "who woke a task",
        "",
        None,
        &[tests("sched", "lane", &["after_the_end"]), tests("sched", "lanes", &["last_two_lanes"])],
    ),
    row(
        "R-F10",
        "the wake-up's short path is inlined",
        "-6 kB, +1 %",
        measured("manylane-bench peers --row wake; manylane-bench instructions --row wake", measure::inlined),
        &[],
    ),
    row(
        "R-F11",
        "a try to own looks at the owner again",
        "",
        None,
        &[tests("sched", "lanes", &[]), models("sched", "loom_sched", &["from_afar", "lane_that_ends"])],
    ),
    row("R-G1", "balancing from a configuration file", "", None, &[program(&["http::", "tcp::", "rules::"])]),
    row(
        "R-G2",
        "a server is picked without a lock",
        "432 k -> 565 k requests/s",
        measured("manylane-bench evidence --row R-G2", measure::picks),
        &[tests("balance", "picks", &[]), budgets("balance", "sim_balance", &[])],
    ),
    missed(
        row(
            "R-G3",
            "streams are listed by lane, without a lock",
            "+7 %, then +1.6 % at 4 threads",
            measured("manylane-bench evidence --row R-G3", measure::streams),
            &[program(&["an_operator_sees_streams", "younger_streams"])],
        ),
        "With 4 cores the lock is seldom contended: it is held for four writes in 11.4 us, so it \
        costs what its lines take. How long the source held its lock is not known. The sign is that \
        of the source, and the gain grows with the cores.",
    ),
    row(
        "R-G4",
        "streams are ended by the same lists",
        "",
        None,
        &[program(&["an_operator_ends_what", "an_operator_ends_streams", "sessions_end_with_their_server"])],
    ),
    row(
        "R-G5",
        "idle connections by target, name and addresses",
        "less memory a frontend connection",
        measured("manylane-bench evidence --row R-G5", measure::idle_memory),
        &[tests("balance", "idle_pools", &[]), program(&["reuse::"])],
    ),
    row("R-G6", "names in `show profiling` fit", "", None, &[program(&["profiling_is_shown"])]),
    row(
        "R-G7",
        "`except` takes networks of both families",
        "",
        None,
        &[program(&["networks_that_are_excepted"])],
    ),
    row(
        "R-G8",
        "server state files",
        "",
        None,
        &[program(&["servers_go_on_as_a_state_file", "a_state_file_that_was_cut", "names_of_a_state_file"])],
    ),
    row(
        "R-G9",
        "names of servers, services",
        "",
        None,
        &[
            tests("resolve", "asking", &[]),
            program(&["servers_of_a_service", "a_template_is_filled", "servers_follow"]),
        ],
    ),
    row(
        "R-G10",
        "one block for very small chunks",
        "2,700 chunks in 16 KiB",
        None,
        &[tests("h1", "steady_state", &["chunks"]), tests("h1", "writing", &["tiny_chunks"])],
    ),
    row(
        "R-G11",
        "a sample is changed in a copy, an empty one too",
        "",
        None,
        &[tests("expr", "samples", &["an_empty_sample"])],
    ),
    unbuilt(
        row("R-G12", "features of the library of TLS are detected", "", None, &[program(&["tls::"])]),
        "signed certificate timestamps are not built: rustls has none for servers",
    ),
    unbuilt(
        row("R-G13", "levels of QUIC's encryption are types of their own", "", None, &[]),
        "QUIC is \
        not built",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Path, PathBuf};

    /// A test as libtest knows it: its path, and the features without which it is not built.
    struct Found {
        path: String,
        features: Vec<String>,
    }

    /// Features in `cfg` attributes of one line.
    fn features_of(line: &str) -> impl Iterator<Item = String> + '_ {
        line.split("feature = \"").skip(1).filter_map(|rest| Some(rest.split('"').next()?.to_string()))
    }

    /// A macro makes tests for each driver of such a function.
    fn takes_driver(function: &str) -> bool {
        function.contains(": Kind)")
    }

    /// Reads the tests of a source file; `module` is the path of its module.
    fn read(file: &Path, module: &str, found: &mut Vec<Found>) {
        let text = std::fs::read_to_string(file).expect("a source");
        let (mut whole, mut own, mut is_test) = (Vec::new(), Vec::new(), false);
        for line in text.lines().map(str::trim_start) {
            if line.starts_with("#![cfg(") {
                whole.extend(features_of(line));
            } else if line.starts_with("#[") {
                is_test |= line.starts_with("#[test]");
                if line.starts_with("#[cfg(") {
                    own.extend(features_of(line));
                }
            } else if let Some(rest) = line.strip_prefix("fn ").filter(|rest| is_test || takes_driver(rest)) {
                let name = rest.split('(').next().unwrap_or_default();
                let features = whole.iter().chain(&own).cloned().collect();
                found.push(Found { path: format!("{module}{name}"), features });
            }
            if !line.starts_with("#[") && !line.starts_with("//") {
                (own, is_test) = (Vec::new(), false);
            }
        }
    }

    /// Reads the tests of all sources below a folder, modules named after their files.
    fn read_all(folder: &Path, module: &str, found: &mut Vec<Found>) {
        for entry in std::fs::read_dir(folder).expect("a folder of sources").flatten() {
            let path = entry.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                read_all(&path, &format!("{module}{name}::"), found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                read(&path, &format!("{module}{name}::"), found);
            }
        }
    }

    fn tests_of(suite: &Suite) -> Vec<Found> {
        let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let mut found = Vec::new();
        match (suite.package, suite.target) {
            ("tests", _) => read_all(&root.join("tests"), "", &mut found),
            (package, "") => read_all(&root.join("crates").join(package).join("src"), "", &mut found),
            (package, target) => {
                let folder = root.join("crates").join(package).join("tests");
                read(&folder.join(format!("{target}.rs")), "", &mut found);
                if folder.join(target).is_dir() {
                    read_all(&folder.join(target), "", &mut found);
                }
            }
        }
        found
    }

    #[test]
    fn each_row_names_tests_that_exist_with_its_features() {
        let suites = ROWS.iter().flat_map(|row| row.tests.iter().map(|suite| (row.id, suite)));
        for (row, suite) in suites {
            let found = tests_of(suite);
            let all: &[&str] = if suite.names.is_empty() { &[""] } else { suite.names };
            for name in all {
                let named = || found.iter().filter(|test| test.path.contains(name));
                assert!(named().next().is_some(), "{row}: no test of {} is named `{name}`", suite.command());
                let built = |test: &Found| {
                    test.features.iter().all(|feature| suite.features.contains(&feature.as_str()))
                };
                assert!(named().any(built), "{row}: `{}` builds no test for `{name}`", suite.command());
            }
        }
    }
}
