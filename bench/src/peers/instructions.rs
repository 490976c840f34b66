//! `manylane-bench instructions`: the rows of `peers` in instructions, which are exactly reproducible where
//! wall time is unreliable.
//!
//! The program runs itself under callgrind with one contestant and two numbers of operations. The difference
//! of the counts, divided by that of the numbers, does not include one-time work. Kernel time and waiting for
//! memory are not included, and a locked instruction counts as one.

use super::{Contestant, GROUPS, Group, group, groups};
use crate::cli::{InstructionsArguments, RepeatArguments};
use std::process::Command;

/// Operations of the two runs: multiples of 4 and of 64, so that rotations end where they began.
const FEW: u64 = 1 << 10;
const MANY: u64 = 1 << 14;

/// A limit on our instructions, as a multiple of a peer's.
struct Limit {
    group: &'static str,
    ours: &'static str,
    peer: &'static str,
    factor: f64,
}

/// Issue 2, section 2: the uncontended lock costs the same as `parking_lot`'s within 5 %.
const LIMITS: &[Limit] =
    &[Limit { group: "lock", ours: "manylane Mutex", peer: "parking_lot", factor: 1.05 }];

/// Runs a contestant of a contest `operations` times, to be counted from outside.
///
/// # Errors
/// A sentence if there is no such contestant.
pub fn repeat(arguments: &RepeatArguments) -> Result<(), String> {
    let group = group(&arguments.group)?;
    let contest = group
        .contests
        .get(arguments.contest)
        .ok_or_else(|| format!("row `{}` has {} contests, from 0 on", group.name, group.contests.len()))?;
    let mut contestants = (contest.contestants)();
    let names: Vec<String> = contestants.iter().map(|c| c.name.clone()).collect();
    let contestant: &mut Contestant =
        contestants.iter_mut().find(|c| c.name == arguments.contestant).ok_or_else(|| {
            format!("there is no `{}`; known contestants: {}", arguments.contestant, names.join(", "))
        })?;
    (contestant.work)(arguments.operations);
    Ok(())
}

/// Runs `operations` operations of a contestant, for the instruction benches.
///
/// # Panics
/// If there is no such contestant.
pub fn run_contestant(group: &str, contest: usize, contestant: &str, operations: u64) {
    let arguments =
        RepeatArguments { group: group.to_string(), contest, contestant: contestant.to_string(), operations };
    if let Err(sentence) = repeat(&arguments) {
        panic!("{sentence}");
    }
}

/// Runs the command.
///
/// # Errors
/// A sentence if valgrind is missing, or ours exceeds its limit.
pub fn run(arguments: &InstructionsArguments) -> Result<(), String> {
    let chosen = groups(&arguments.rows)?;
    let mut broken = Vec::new();
    println!("instructions per operation (callgrind)\n");
    for group in chosen {
        for (index, contest) in group.contests.iter().enumerate() {
            println!("{}", contest.operation);
            let names: Vec<(String, bool)> =
                (contest.contestants)().into_iter().map(|c| (c.name, c.ours)).collect();
            let mut counts: Vec<(&str, f64)> = Vec::new();
            for (name, ours) in &names {
                let mark = if *ours { '*' } else { ' ' };
                match count(group, index, name) {
                    Ok(count) => {
                        println!("  {mark} {name:<34} {count:>9.2}");
                        counts.push((name, count));
                    }
                    // An allocator that fails under valgrind is skipped; ours must not fail.
                    Err(sentence) if !ours => println!("  {mark} {name:<34}         - ({sentence})"),
                    Err(sentence) => return Err(sentence),
                }
            }
            println!();
            broken.extend(over_limit(group.name, &counts));
        }
    }
    if broken.is_empty() { Ok(()) } else { Err(broken.join("; ")) }
}

/// The limits of `group` that `counts` exceed, each as a sentence.
fn over_limit(group: &str, counts: &[(&str, f64)]) -> Vec<String> {
    let of = |name: &str| counts.iter().find(|(n, _)| *n == name).map(|(_, count)| *count);
    LIMITS
        .iter()
        .filter(|limit| limit.group == group)
        .filter_map(|limit| {
            let (ours, peer) = (of(limit.ours)?, of(limit.peer)?);
            (ours > peer * limit.factor).then(|| {
                format!(
                    "{} needs {ours:.2} instructions where {} needs {peer:.2}: {:.1} % more, and {:.0} % are \
                        allowed",
                    limit.ours,
                    limit.peer,
                    (ours / peer - 1.0) * 100.0,
                    (limit.factor - 1.0) * 100.0
                )
            })
        })
        .collect()
}

/// Instructions of an operation of a contestant, for other tables.
///
/// # Errors
/// A sentence if valgrind is missing or fails.
pub(crate) fn of(name: &str, contest: usize, contestant: &str) -> Result<f64, String> {
    count(group(name)?, contest, contestant)
}

fn count(group: &Group, contest: usize, name: &str) -> Result<f64, String> {
    let total = |operations: u64| -> Result<u64, String> {
        let program = std::env::current_exe()
            .map_err(|error| format!("this program does not know its own path: {error}"))?;
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(program)
            .args(["repeat", group.name, &contest.to_string(), name, &operations.to_string()])
            .output()
            .map_err(|error| {
                format!("valgrind cannot be started ({error}): `scripts/setup bench` installs it")
            })?;
        let text = String::from_utf8_lossy(&output.stderr);
        let count = collected(&text).filter(|_| output.status.success());
        count.ok_or_else(|| format!("`{name}` cannot be counted: callgrind ended with {}", output.status))
    };
    Ok((total(MANY)? as f64 - total(FEW)? as f64) / (MANY - FEW) as f64)
}

/// The number after `Collected :` in callgrind's output.
fn collected(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.contains("Collected :"))?;
    line.rsplit(':').next()?.trim().parse().ok()
}

/// Every contestant of every contest, by group, number and name.
pub fn all() -> Vec<(&'static str, usize, String)> {
    GROUPS
        .iter()
        .flat_map(|group| {
            group.contests.iter().enumerate().flat_map(move |(index, contest)| {
                (contest.contestants)().into_iter().map(move |c| (group.name, index, c.name))
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callgrinds_last_words_are_understood() {
        let text = "==12== Events    : Ir\n==12== Collected : 123456\n==12== \n";
        assert_eq!(collected(text), Some(123_456));
        assert_eq!(collected("valgrind: command not found"), None);
    }

    #[test]
    fn a_lock_that_is_six_percent_longer_fails_the_run() {
        assert!(over_limit("lock", &[("manylane Mutex", 21.0), ("parking_lot", 20.0)]).is_empty());
        let broken = over_limit("lock", &[("manylane Mutex", 21.2), ("parking_lot", 20.0)]);
        assert_eq!(broken.len(), 1);
        assert!(broken[0].contains("6.0 % more, and 5 % are allowed"), "{broken:?}");
    }

    #[test]
    fn every_contestant_can_be_repeated_by_name() {
        for (group, contest, name) in all() {
            run_contestant(group, contest, &name, 128);
        }
    }

    #[test]
    fn an_unknown_contestant_is_refused_with_the_known_ones() {
        let arguments = RepeatArguments {
            group: "lock".into(),
            contest: 0,
            contestant: "parkinglot".into(),
            operations: 1,
        };
        let error = repeat(&arguments).expect_err("a typing error");
        assert!(error.contains("known contestants: manylane Mutex, parking_lot, std, spin"), "{error}");
    }
}
