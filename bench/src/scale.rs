//! `manylane-bench scale`: runs both halves and shows the results.

use crate::cases::{self, Case};
use crate::cli::ScaleArguments;
use crate::plot::{self, Panel, si};
use crate::results::{Machine, Results, Role, Series};
use crate::run::{self, Extent, child};
use crate::stats::{self, Difference, Summary};
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

/// Threads of the real half.
const THREADS: [usize; 4] = [1, 2, 8, 32];
const THREADS_SHORT: [usize; 3] = [1, 2, 8];

/// Cores of the simulated half: the default topology has 48 cores, followed by their SMT siblings.
const CORES: [usize; 10] = [1, 2, 4, 8, 16, 24, 32, 48, 64, 96];
const CORES_SHORT: [usize; 6] = [1, 2, 8, 24, 48, 96];

/// Length of a simulated run, in virtual time. Simulated figures repeat, so this covers a steady state within
/// a reasonable real time.
const SIMULATED_TIME: Duration = Duration::from_micros(100);
const SIMULATED_TIME_SHORT: Duration = Duration::from_micros(20);

/// Runs the command.
///
/// # Errors
/// A sentence if the arguments are impossible here, or an output file cannot be written.
pub fn run(arguments: &ScaleArguments) -> Result<(), String> {
    if run::MACHINE == Machine::Simulated && arguments.real {
        return Err("this build has no real half: use the ordinary build of this program".to_string());
    }
    let chosen = if arguments.cases.is_empty() { cases::ALL } else { &arguments.cases };
    let mut results = Results::default();
    if !(run::MACHINE == Machine::Real && arguments.simulated) {
        let extent = extent(arguments);
        for case in chosen {
            results.series.extend(run::case(case, &extent, progress).series);
        }
        finish_progress();
    }
    if run::MACHINE == Machine::Real && !arguments.real {
        let simulated = child::find(arguments.sim.as_deref())
            .and_then(|program| child::run(&program, &child_arguments(arguments, chosen)));
        match simulated {
            Ok(simulated) => results.series.extend(simulated.series),
            Err(sentence) if arguments.simulated => return Err(sentence),
            Err(sentence) => eprintln!("manylane-bench: {sentence}"),
        }
    }
    if arguments.json {
        println!("{}", results.to_json().map_err(|error| format!("the results are not finite: {error}"))?);
        return Ok(());
    }
    show(chosen, &results, arguments)
}

fn extent(arguments: &ScaleArguments) -> Extent {
    let short = arguments.short;
    let simulated = run::MACHINE == Machine::Simulated;
    let (requested, usual, brief): (&[usize], &[usize], &[usize]) = if simulated {
        (&arguments.cores, &CORES, &CORES_SHORT)
    } else {
        (&arguments.threads, &THREADS, &THREADS_SHORT)
    };
    let threads = match (requested, short) {
        ([], false) => usual,
        ([], true) => brief,
        _ => requested,
    };
    let runs = match (simulated, short) {
        (false, false) => 10,
        (false, true) | (true, false) => 5,
        (true, true) => 3,
    };
    let time = match (simulated, short) {
        (true, false) => SIMULATED_TIME,
        (true, true) => SIMULATED_TIME_SHORT,
        (false, _) => Duration::from_millis(arguments.time.map_or(if short { 40 } else { 200 }, u64::from)),
    };
    Extent { threads: threads.to_vec(), runs: arguments.runs.map_or(runs, usize::from), time }
}

fn child_arguments(arguments: &ScaleArguments, chosen: &[&Case]) -> Vec<String> {
    let mut list = vec!["scale".to_string(), "--simulated".to_string(), "--json".to_string()];
    for case in chosen {
        list.extend(["--case".to_string(), case.name.to_string()]);
    }
    if let Some(runs) = arguments.runs {
        list.extend(["--runs".to_string(), runs.to_string()]);
    }
    if !arguments.cores.is_empty() {
        let cores: Vec<String> = arguments.cores.iter().map(usize::to_string).collect();
        list.extend(["--cores".to_string(), cores.join(",")]);
    }
    if arguments.short {
        list.push("--short".to_string());
    }
    list
}

/// Shows progress on one line that is overwritten.
fn progress(what: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[2K{what}");
    }
}

fn finish_progress() {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[2K");
    }
}

/// Prints tables, plots and the summary; writes the plots and the full tables to `--out`.
fn show(chosen: &[&Case], results: &Results, arguments: &ScaleArguments) -> Result<(), String> {
    let out = arguments.out.as_path();
    std::fs::create_dir_all(out).map_err(|error| format!("{} cannot be made: {error}", out.display()))?;
    for case in chosen {
        println!("==== {}: {} ({}) ====\n", case.name, case.operation, case.requirement);
        let full = tables(case, results);
        if !arguments.short {
            print!("{full}");
        }
        let panels: Vec<Panel> =
            [Machine::Real, Machine::Simulated].iter().filter_map(|&m| Panel::of(results, case, m)).collect();
        for panel in &panels {
            println!("{}", plot::terminal(panel));
        }
        if arguments.short {
            print!("{}", short_tables(case, results));
        }
        write(&out.join(format!("{}.txt", case.name)), &full)?;
        let svg = out.join(format!("{}.svg", case.name));
        plot::svg(&svg, &panels).map_err(|error| format!("{} cannot be written: {error}", svg.display()))?;
    }
    print!("{}", summary(chosen, results));
    println!("\nPlots (SVG) and all tables: {}", out.display());
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{} cannot be written: {error}", path.display()))
}

/// For each machine and number of threads, the table that `ministat` would print.
pub fn tables(case: &Case, results: &Results) -> String {
    let mut text = String::new();
    for machine in [Machine::Real, Machine::Simulated] {
        for threads in results.thread_counts(case.name, machine) {
            text.push_str(&table(case, results, machine, threads));
        }
    }
    text
}

fn table(case: &Case, results: &Results, machine: Machine, threads: usize) -> String {
    let series: Vec<&Series> = case
        .contenders
        .iter()
        .filter_map(|contender| results.at(case.name, contender.name, machine, threads))
        .collect();
    let unit = match (machine, threads) {
        (Machine::Real, 1) => "thread",
        (Machine::Real, _) => "threads",
        (Machine::Simulated, 1) => "core",
        (Machine::Simulated, _) => "cores",
    };
    let mut text = format!("---- {}, {machine}, {threads} {unit}: operations/s ----\n", case.name);
    let samples: Vec<(&str, &[f64])> =
        series.iter().map(|s| (s.variant.as_str(), s.runs.as_slice())).collect();
    text.push_str(&stats::report(&samples));
    for series in series {
        if let Some(costs) = &series.costs {
            let _ = write!(
                text,
                "simulated costs of `{}`, per operation: {:.3} line transfers, {:.0} ns waiting for locks",
                series.variant, costs.transfers_per_operation, costs.lock_wait_per_operation
            );
            let hottest: Vec<String> =
                costs.hottest.iter().map(|(name, n)| format!("{name} {n:.3}")).collect();
            let _ = match hottest.as_slice() {
                [] => writeln!(text),
                lines => writeln!(text, "; hottest lines: {}", lines.join(", ")),
            };
        }
    }
    text.push('\n');
    text
}

/// The `ministat` tables of the short form: the most threads of each machine.
fn short_tables(case: &Case, results: &Results) -> String {
    [Machine::Real, Machine::Simulated]
        .iter()
        .filter_map(|&machine| {
            let most = *results.thread_counts(case.name, machine).last()?;
            Some(table(case, results, machine, most))
        })
        .collect()
}

/// Figures of a case for comparison.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CaseSummary {
    /// After / before with 2 real threads, and half the width of its 95 % interval.
    pub real_gain_at_2: Option<(f64, f64)>,
    /// After / before with 96 simulated cores.
    pub simulated_gain_at_96: Option<f64>,
    /// Simulated operations/s of "after" with 48 and 96 cores, relative to those with 1 core times the cores.
    pub linearity: [Option<f64>; 2],
    /// Simulated cores with which "before" was fastest, and the part of that rate with 96.
    pub before_peak: Option<(usize, f64)>,
}

impl CaseSummary {
    /// Evaluates `case` by the medians of `results`.
    pub fn of(case: &Case, results: &Results) -> Self {
        let (before, after) = (case.before().name, case.after().name);
        let rate = |variant, machine, threads| {
            results.at(case.name, variant, machine, threads).map(Series::median).filter(|rate| *rate > 0.0)
        };
        let simulated = |variant, cores| rate(variant, Machine::Simulated, cores);
        let linearity = |cores: usize| Some(simulated(after, cores)? / (simulated(after, 1)? * cores as f64));
        let real_gain_at_2 = || {
            let summary = |variant| Summary::of(&results.at(case.name, variant, Machine::Real, 2)?.runs);
            let (reference, sample) = (summary(before)?, summary(after)?);
            let gain = rate(after, Machine::Real, 2)? / rate(before, Machine::Real, 2)?;
            let margin =
                Difference::between(&reference, &sample).map_or(f64::NAN, |d| d.percent_margin / 100.0);
            Some((gain, margin))
        };
        let before_peak = || {
            let points: Vec<(usize, f64)> = results
                .of(case.name, before, Machine::Simulated)
                .map(|series| (series.threads, series.median()))
                .collect();
            let peak = points.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))?;
            let most = points.iter().copied().max_by_key(|p| p.0)?;
            Some((peak.0, most.1 / peak.1))
        };
        Self {
            real_gain_at_2: real_gain_at_2(),
            simulated_gain_at_96: simulated(after, 96).zip(simulated(before, 96)).map(|(a, b)| a / b),
            linearity: [linearity(48), linearity(96)],
            before_peak: before_peak(),
        }
    }
}

fn summary(chosen: &[&Case], results: &Results) -> String {
    let mut text = String::from(
        "==== Summary: after / before ====\n\
         case      real, 2 threads      simulated,   \"after\" v. linear     \"before\" peaks (simulated)\n\
         \x20                              96 cores     at 48   at 96 (sim.)\n",
    );
    for case in chosen {
        let counts = CaseSummary::of(case, results);
        let real = counts.real_gain_at_2.map_or("-".to_string(), |(gain, margin)| {
            if margin.is_nan() { format!("{gain:.2}x") } else { format!("{gain:.2}x +/- {margin:.2}") }
        });
        let simulated = counts.simulated_gain_at_96.map_or("-".to_string(), |gain| format!("{gain:.1}x"));
        let [at_48, at_96] = counts.linearity.map(|l| l.map_or("-".to_string(), |l| format!("{l:.3}")));
        let peak = counts.before_peak.map_or("-".to_string(), |(cores, left)| {
            format!("with {cores}, {:.0} % of it left with the most", left * 100.0)
        });
        let _ = writeln!(text, "{:<10}{real:<21}{simulated:<13}{at_48:<8}{at_96:<15}{peak}", case.name);
    }
    for case in chosen {
        for machine in [Machine::Real, Machine::Simulated] {
            let counts = results.thread_counts(case.name, machine);
            let (Some(&fewest), Some(&most)) = (counts.first(), counts.last()) else { continue };
            let rates: Vec<String> = case
                .contenders
                .iter()
                .filter_map(|c| {
                    let rate = |n| results.at(case.name, c.name, machine, n).map(|s| si(s.median()));
                    let mark = if c.role == Role::After { " (ships)" } else { "" };
                    Some(format!("{}{mark} {} -> {}", c.name, rate(fewest)?, rate(most)?))
                })
                .collect();
            let _ = writeln!(text, "{:<10}{machine}, {fewest} -> {most}: {}", case.name, rates.join("; "));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figures of the expected shape: before 100, 60, 40; after 300 per core.
    fn results(case: &Case) -> Results {
        let series = |contender: &cases::Contender, machine, threads: usize, rate: f64| Series {
            case: case.name.into(),
            variant: contender.name.into(),
            role: contender.role,
            machine,
            threads,
            runs: vec![rate, rate * 1.01, rate * 0.99],
            costs: None,
        };
        let mut all = Results::default();
        for (cores, before) in [(1, 100.0), (48, 60.0), (96, 40.0)] {
            all.series.push(series(case.before(), Machine::Simulated, cores, before));
            all.series.push(series(case.after(), Machine::Simulated, cores, 300.0 * cores as f64));
        }
        all.series.push(series(case.before(), Machine::Real, 2, 50.0));
        all.series.push(series(case.after(), Machine::Real, 2, 600.0));
        all
    }

    #[test]
    fn the_verdict_is_that_of_the_figures() {
        let case = cases::named("counter").expect("exists");
        let summary = CaseSummary::of(case, &results(case));
        let (gain, margin) = summary.real_gain_at_2.expect("measured");
        assert!((gain - 12.0).abs() < 1e-9 && margin > 0.0 && margin < 0.5, "{gain} +/- {margin}");
        assert!((summary.simulated_gain_at_96.expect("measured") - 720.0).abs() < 1e-6);
        assert!(summary.linearity.iter().all(|l| (l.expect("measured") - 1.0).abs() < 1e-9));
        let (cores, left) = summary.before_peak.expect("measured");
        assert_eq!(cores, 1);
        assert!((left - 0.4).abs() < 1e-9, "{left}");
    }

    #[test]
    fn nothing_simulated_gives_no_simulated_figure() {
        let case = cases::named("counter").expect("exists");
        let mut results = results(case);
        results.series.retain(|s| s.machine == Machine::Real);
        let summary = CaseSummary::of(case, &results);
        assert!(summary.real_gain_at_2.is_some());
        assert_eq!((summary.simulated_gain_at_96, summary.linearity), (None, [None, None]));
        assert!(!tables(case, &results).contains("simulated"));
    }

    #[test]
    fn every_table_of_simulated_figures_says_so() {
        let case = cases::named("counter").expect("exists");
        let text = tables(case, &results(case));
        assert_eq!(text.matches("counter, simulated, ").count(), 3, "{text}");
        assert_eq!(text.matches("counter, real, 2 threads").count(), 1, "{text}");
        assert!(summary(&[case], &results(case)).contains("simulated, 1 -> 96"));
    }
}
