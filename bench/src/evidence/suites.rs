//! Tests as evidence: built by cargo once a machine, then run row by row.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The machine that tests are built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Machine {
    Real,
    /// The model checker: `make test-models`.
    Models,
    /// The simulator: `make test-budgets`.
    Simulator,
}

/// Tests of one program of tests.
#[derive(Debug)]
pub(super) struct Suite {
    /// Without `manylane-`.
    pub(super) package: &'static str,
    /// Its name below `tests`; empty for the unit tests of the library.
    pub(super) target: &'static str,
    /// Parts of tests' names; empty for all.
    pub(super) names: &'static [&'static str],
    pub(super) machine: Machine,
    /// Features of the package without which there are no such tests.
    pub(super) features: &'static [&'static str],
}

/// Longest run of a suite.
const LONGEST: Duration = Duration::from_secs(600);

impl Suite {
    /// The command that runs it alone.
    pub(super) fn command(&self) -> String {
        let package = self.package_name();
        let target =
            if self.target.is_empty() { "--lib".to_string() } else { format!("--test {}", self.target) };
        let features = match self.features.join(",") {
            none if none.is_empty() => none,
            features => format!(" --features {features}"),
        };
        let names =
            if self.names.is_empty() { String::new() } else { format!(" -- {}", self.names.join(" ")) };
        let machine = match self.machine {
            Machine::Real => "",
            Machine::Models => "RUSTFLAGS=\"--cfg loom\" CARGO_TARGET_DIR=target/loom ",
            Machine::Simulator => "RUSTFLAGS=\"--cfg manylane_sim\" CARGO_TARGET_DIR=target/sim ",
        };
        format!("{machine}cargo test -p {package} {target}{features}{names}")
    }

    /// What is counted.
    pub(super) fn noun(&self, count: u64) -> &'static str {
        match (self.machine, count) {
            (Machine::Models, 1) => "model",
            (Machine::Models, _) => "models",
            (Machine::Simulator, 1) => "simulated test",
            (Machine::Simulator, _) => "simulated tests",
            (Machine::Real, 1) => "test",
            (Machine::Real, _) => "tests",
        }
    }

    fn package_name(&self) -> String {
        match self.package {
            "manylane" | "xtask" => self.package.to_string(),
            name => format!("manylane-{name}"),
        }
    }

    /// The target's name as cargo calls it.
    fn target_name(&self) -> String {
        if self.target.is_empty() { self.package_name().replace('-', "_") } else { self.target.to_string() }
    }
}

/// What became of a suite.
#[derive(Debug)]
pub(super) enum Outcome {
    /// So many tests passed, and none failed.
    Passed(u64),
    Failed(String),
    /// It did not run, with the reason.
    Left(String),
}

/// Programs of tests that were built.
#[derive(Debug, Default)]
pub(super) struct Suites {
    /// By machine, package and target: the program, and the folder to run it in.
    programs: BTreeMap<(Machine, String, String), (PathBuf, PathBuf)>,
    /// Why there are none for a machine.
    absent: BTreeMap<Machine, String>,
}

impl Suites {
    /// Builds the programs of `suites`; with `quick`, those for the real machine only.
    pub(super) fn build<'a>(suites: impl Iterator<Item = &'a Suite>, quick: bool) -> Self {
        let mut wanted: BTreeMap<Machine, Vec<&Suite>> = BTreeMap::new();
        suites.for_each(|suite| wanted.entry(suite.machine).or_default().push(suite));
        let mut built = Self::default();
        for (machine, suites) in wanted {
            let why = if quick && machine != Machine::Real {
                Err("its models and simulated tests take minutes, run it without `--quick`".to_string())
            } else {
                built.build_for(machine, &suites)
            };
            if let Err(why) = why {
                built.absent.insert(machine, why);
            }
        }
        built
    }

    fn build_for(&mut self, machine: Machine, suites: &[&Suite]) -> Result<(), String> {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["test", "--no-run", "--message-format=json-render-diagnostics"]);
        let mut arguments: Vec<[String; 2]> = Vec::new();
        let mut lib = false;
        for suite in suites {
            arguments.push(["-p".to_string(), suite.package_name()]);
            if suite.target.is_empty() {
                lib = true;
            } else {
                arguments.push(["--test".to_string(), suite.target.to_string()]);
            }
        }
        arguments.sort_unstable();
        arguments.dedup();
        cargo.args(arguments.iter().flatten());
        if lib {
            cargo.arg("--lib");
        }
        let named = |suite: &&Suite| {
            let package = suite.package_name();
            suite.features.iter().map(move |feature| format!("{package}/{feature}")).collect::<Vec<_>>()
        };
        let features: BTreeSet<String> = suites.iter().flat_map(named).collect();
        cargo.args(features.iter().flat_map(|feature| ["--features", feature]));
        if machine != Machine::Real {
            let flag = if machine == Machine::Models { "loom" } else { "manylane_sim" };
            let folder = if machine == Machine::Models { "target/loom" } else { "target/sim" };
            cargo.env("RUSTFLAGS", format!("--cfg {flag}")).env("CARGO_TARGET_DIR", folder);
            cargo.env("CARGO_PROFILE_DEV_OPT_LEVEL", "2");
        }
        let output = cargo
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| format!("its tests need cargo, which cannot be started: {error}"))?;
        if !output.status.success() {
            return Err("cargo did not build its tests in this folder".to_string());
        }
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else { continue };
            let text = |pointer: &str| message.pointer(pointer).and_then(serde_json::Value::as_str);
            let (Some(program), Some(target), Some(manifest)) =
                (text("/executable"), text("/target/name"), text("/manifest_path"))
            else {
                continue;
            };
            let Some(folder) = Path::new(manifest).parent() else { continue };
            let id = text("/package_id").unwrap_or_default();
            let package = id.split_once('#').map_or("", |(_, name)| name.split('@').next().unwrap_or(name));
            // Packages are named in the id unless their folder has the same name.
            let package = if package.starts_with(|c: char| c.is_ascii_digit()) {
                folder.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
            } else {
                package.to_string()
            };
            self.programs.insert((machine, package, target.to_string()), (program.into(), folder.into()));
        }
        Ok(())
    }

    /// Runs a suite.
    pub(super) fn run(&mut self, suite: &Suite) -> Outcome {
        if let Some(why) = self.absent.get(&suite.machine) {
            return Outcome::Left(why.clone());
        }
        let key = (suite.machine, suite.package_name(), suite.target_name());
        let Some((program, folder)) = self.programs.get(&key) else {
            return Outcome::Left("its tests were not built".to_string());
        };
        match output(Command::new(program).args(suite.names).current_dir(folder)) {
            Ok((text, true)) => passed(&text),
            Ok((text, false)) => {
                let failed: Vec<&str> = text
                    .lines()
                    .filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"))
                    .collect();
                Outcome::Failed(format!("failed: {}", failed.join(", ")))
            }
            Err(why) => Outcome::Failed(why),
        }
    }
}

/// The output of a program of tests, and whether it succeeded.
fn output(command: &mut Command) -> Result<(String, bool), String> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("its tests cannot be started: {error}"))?;
    let mut pipe = child.stdout.take().ok_or("its tests have no output")?;
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = pipe.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    let started = Instant::now();
    let status = loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) => break status,
            None if started.elapsed() > LONGEST => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("its tests did not end in {} s", LONGEST.as_secs()));
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let text = reader.join().map_err(|_| "the output of its tests cannot be read")?;
    Ok((text, status.success()))
}

/// The number of tests in libtest's last line.
fn passed(text: &str) -> Outcome {
    let count = text
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("test result: ok. ")?.split(' ').next()?.parse::<u64>().ok());
    match count {
        Some(0) | None => Outcome::Failed("no test has such a name".to_string()),
        Some(count) => Outcome::Passed(count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_do_not_exist_show_nothing() {
        let text =
            "running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out\n";
        assert!(matches!(passed(text), Outcome::Failed(_)));
        let text =
            "running 2 tests\n\ntest result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out\n";
        assert!(matches!(passed(text), Outcome::Passed(2)));
    }

    #[test]
    fn a_suite_tells_the_command_that_runs_it_alone() {
        let suite = |machine, features| Suite {
            package: "buf",
            target: "sim_buf",
            names: &["moves"],
            machine,
            features,
        };
        assert_eq!(
            suite(Machine::Simulator, &[]).command(),
            "RUSTFLAGS=\"--cfg manylane_sim\" CARGO_TARGET_DIR=target/sim cargo test -p manylane-buf \
                --test sim_buf \
                -- moves"
        );
        assert_eq!(
            suite(Machine::Models, &["model", "other"]).command(),
            "RUSTFLAGS=\"--cfg loom\" CARGO_TARGET_DIR=target/loom cargo test -p manylane-buf \
                --test sim_buf --features model,other \
                -- moves"
        );
    }
}
