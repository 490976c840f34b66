//! `manylane-bench evidence`: every requirement with the figure of its source, ours, the command that shows
//! it, and a verdict.
//!
//! A row is shown by measuring, by tests, or by both. Measured figures come from the variants of `scale` and
//! of [`cases`], from real threads and from the simulator, and from scenarios of `proxy`: each run measures
//! anew. Tests are built once by cargo, and run one row after another.
//!
//! `--json` prints what `cargo xtask page` makes `docs/evidence.md` of.

pub mod cases;
#[cfg(not(manylane_sim))]
mod measure;
#[cfg(not(manylane_sim))]
mod rows;
#[cfg(not(manylane_sim))]
mod suites;

use crate::cases::Case;
use clap::Args;
use std::path::PathBuf;

/// Arguments of `evidence`.
#[derive(Clone, Debug, Args)]
pub struct EvidenceArguments {
    /// Without what takes minutes: models, simulated tests, the program beside others. Those rows say so
    #[arg(long)]
    pub quick: bool,
    /// Only this row, such as R-A2; may be repeated
    #[arg(long = "row", value_name = "R-xx")]
    pub rows: Vec<String>,
    /// Only what is measured, without tests
    #[arg(long)]
    pub no_tests: bool,
    /// Print JSON for `cargo xtask page`
    #[arg(long)]
    pub json: bool,
    /// The simulated build of this program [env: MANYLANE_BENCH_SIM] [default: sim/release beside this one]
    #[arg(long, value_name = "PATH")]
    pub sim: Option<PathBuf>,
    /// The program [default: manylane beside this one]
    #[arg(long, value_name = "PATH")]
    pub manylane: Option<PathBuf>,
    /// For the simulated half: the case to run
    #[arg(long, value_name = "NAME", hide = true, value_parser = cases::named)]
    pub case: Option<&'static Case>,
    /// For the simulated half: numbers of cores
    #[arg(long, value_name = "LIST", hide = true, value_delimiter = ',')]
    pub cores: Vec<usize>,
    /// For the simulated half: other work of an operation in nanoseconds, where the case has some
    #[arg(long, value_name = "NS", hide = true)]
    pub work: Option<u64>,
}

#[cfg(manylane_sim)]
pub use simulated::run;
#[cfg(not(manylane_sim))]
pub use table::run;

/// The simulated half: runs one case and prints its results for the real half.
#[cfg(manylane_sim)]
mod simulated {
    use super::{EvidenceArguments, cases};
    use crate::run::{self, Extent};
    use std::time::Duration;

    /// Runs the command.
    ///
    /// # Errors
    /// A sentence if no case is named.
    pub fn run(arguments: &EvidenceArguments) -> Result<(), String> {
        let case = arguments.case.ok_or("the simulated half of `evidence` runs one `--case`")?;
        if let Some(work) = arguments.work {
            cases::set_work(work);
        }
        // An operation with other work takes up to 22 microseconds; a run is up to 20 times as long.
        let time = Duration::from_micros(200);
        let runs = if arguments.quick { 1 } else { 3 };
        let results = run::case(case, &Extent { threads: arguments.cores.clone(), runs, time }, |_| ());
        println!("{}", results.to_json().map_err(|error| format!("the results are not finite: {error}"))?);
        Ok(())
    }
}

#[cfg(not(manylane_sim))]
mod table {
    use super::rows::{ROWS, Row};
    use super::suites::{Outcome, Suites};
    use super::{EvidenceArguments, measure::Context};
    use serde::Serialize;
    use std::fmt;
    use std::process::Command;
    use std::time::Instant;

    /// What the row's command showed.
    #[derive(Clone, Debug, PartialEq, Serialize)]
    #[serde(rename_all = "snake_case", tag = "is", content = "why")]
    enum RowOutcome {
        Met,
        /// What was measured meets its target, but some of the row's commands were left out.
        Partly(String),
        Missed,
        /// It cannot be shown here, or not in this run.
        NotMeasured(String),
    }

    impl fmt::Display for RowOutcome {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self {
                Self::Met => f.write_str("met"),
                Self::Partly(why) => write!(f, "met in part: {why}"),
                Self::Missed => f.write_str("**missed**"),
                Self::NotMeasured(why) => write!(f, "not measurable here: {why}"),
            }
        }
    }

    /// A row of the table as it is printed.
    #[derive(Clone, Debug, Serialize)]
    struct Line {
        row: &'static str,
        what: &'static str,
        /// The figure of the requirement's source; empty if it has none.
        seed: &'static str,
        ours: String,
        commands: Vec<String>,
        #[serde(rename = "verdict")]
        outcome: RowOutcome,
        /// Why it is missed; empty if it is not.
        #[serde(skip_serializing_if = "str::is_empty")]
        why_missed: &'static str,
        seconds: f64,
    }

    #[derive(Debug, Serialize)]
    struct Page {
        /// Processor, number of processors, kernel.
        machine: String,
        /// The commit of the folder that it ran in; empty if it is no checkout.
        commit: String,
        /// Day of the run, UTC.
        date: String,
        quick: bool,
        rows: Vec<Line>,
    }

    /// Runs the command.
    ///
    /// # Errors
    /// A sentence if a row is unknown.
    pub fn run(arguments: &EvidenceArguments) -> Result<(), String> {
        let chosen = chosen(&arguments.rows)?;
        let context = Context::new(arguments);
        let wanted = chosen.iter().flat_map(|row| row.tests).filter(|_| !arguments.no_tests);
        let mut suites = Suites::build(wanted, arguments.quick);
        let mut page = Page {
            machine: machine(),
            commit: line_of("git", &["describe", "--always", "--dirty", "--abbrev=8", "--exclude=*"]),
            date: line_of("date", &["-u", "+%F"]),
            quick: arguments.quick,
            rows: Vec::new(),
        };
        if !arguments.json {
            println!("{}, commit {}, {}\n", page.machine, page.commit, page.date);
            println!("| row | what | seed: before -> after | ours | command | verdict | s |");
            println!("|---|---|---|---|---|---|---|");
        }
        for row in chosen {
            let line = show(row, &context, &mut suites);
            if arguments.json {
                eprintln!("{}: {}", line.row, line.outcome);
            } else {
                let commands: Vec<String> = line.commands.iter().map(|c| format!("`{c}`")).collect();
                let seed = if line.seed.is_empty() { "–" } else { line.seed };
                println!(
                    "| {} | {} | {seed} | {} | {} | {} | {:.1} |",
                    line.row,
                    line.what,
                    line.ours,
                    commands.join("; "),
                    line.outcome,
                    line.seconds
                );
            }
            page.rows.push(line);
        }
        if arguments.json {
            println!("{}", serde_json::to_string_pretty(&page).map_err(|error| error.to_string())?);
        } else {
            print!("\n{}", counts(&page.rows));
        }
        Ok(())
    }

    fn counts(lines: &[Line]) -> String {
        let count =
            |wanted: fn(&RowOutcome) -> bool| lines.iter().filter(|line| wanted(&line.outcome)).count();
        format!(
            "{} rows: {} met, {} met in part, {} missed, {} not measured\n",
            lines.len(),
            count(|v| *v == RowOutcome::Met),
            count(|v| matches!(v, RowOutcome::Partly(_))),
            count(|v| *v == RowOutcome::Missed),
            count(|v| matches!(v, RowOutcome::NotMeasured(_)))
        )
    }

    fn chosen(names: &[String]) -> Result<Vec<&'static Row>, String> {
        if names.is_empty() {
            return Ok(ROWS.iter().collect());
        }
        let find = |name: &String| {
            ROWS.iter().find(|row| row.id.eq_ignore_ascii_case(name)).ok_or_else(|| {
                let first = ROWS.first().map_or("", |row| row.id);
                let last = ROWS.last().map_or("", |row| row.id);
                format!("there is no row `{name}`; rows are those of docs/requirements.md, {first} to {last}")
            })
        };
        names.iter().map(find).collect()
    }

    fn show(row: &'static Row, context: &Context, suites: &mut Suites) -> Line {
        let started = Instant::now();
        let (mut ours, mut commands, mut missed, mut absent) = (Vec::new(), Vec::new(), false, Vec::new());
        if let Some(measurement) = &row.measured {
            commands.push(measurement.command.to_string());
            match (measurement.run)(context) {
                Ok(measured) => {
                    missed |= !measured.met;
                    ours.push(measured.ours);
                }
                Err(why) => absent.push(why),
            }
        }
        for suite in row.tests {
            commands.push(suite.command());
            match suites.run(suite) {
                Outcome::Passed(tests) => ours.push(format!("{tests} {} passed", suite.noun(tests))),
                Outcome::Failed(sentence) => {
                    missed = true;
                    ours.push(sentence);
                }
                Outcome::Left(why) => absent.push(why),
            }
        }
        absent.dedup();
        let outcome = match (missed, ours.is_empty()) {
            _ if !row.unbuilt.is_empty() => RowOutcome::NotMeasured(row.unbuilt.to_string()),
            (true, _) => RowOutcome::Missed,
            (false, true) => RowOutcome::NotMeasured(absent.join("; ")),
            (false, false) if absent.is_empty() => RowOutcome::Met,
            (false, false) => RowOutcome::Partly(absent.join("; ")),
        };
        commands.dedup();
        let why_missed = if outcome == RowOutcome::Missed { row.why_missed } else { "" };
        Line {
            row: row.id,
            what: row.what,
            seed: row.seed,
            ours: ours.join("; "),
            commands,
            outcome,
            why_missed,
            seconds: (started.elapsed().as_secs_f64() * 10.0).round() / 10.0,
        }
    }

    /// What a command prints, or nothing if it fails.
    fn line_of(program: &str, arguments: &[&str]) -> String {
        let output = Command::new(program).args(arguments).output();
        let printed = output.ok().filter(|output| output.status.success()).map(|output| output.stdout);
        String::from_utf8_lossy(&printed.unwrap_or_default()).trim().to_string()
    }

    /// The processor's name, the number of processors and the kernel.
    fn machine() -> String {
        let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let name =
            cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map(|n| n.1);
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        format!(
            "{}, {processors} processors, Linux {}",
            name.unwrap_or("an unknown processor"),
            kernel.split('-').next().unwrap_or_default().trim()
        )
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_rows_are_those_of_the_requirements() {
            let page = include_str!("../../../docs/requirements.md");
            let of_page: Vec<&str> =
                page.lines().filter_map(|line| line.strip_prefix("- **")?.split("**: ").next()).collect();
            let ours: Vec<&str> = ROWS.iter().map(|row| row.id).collect();
            assert_eq!(ours, of_page);
            assert_eq!(ours.len(), 52);
        }

        #[test]
        fn every_row_has_something_that_shows_it() {
            for row in ROWS {
                let shown = row.measured.is_some() || !row.tests.is_empty();
                assert!(shown || !row.unbuilt.is_empty(), "{}", row.id);
            }
        }

        #[test]
        fn unknown_rows_are_refused() {
            let error = chosen(&["A2".to_string()]).expect_err("there is none");
            assert!(error.contains("R-A1 to R-G13"), "{error}");
        }
    }
}
