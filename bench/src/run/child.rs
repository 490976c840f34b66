//! The simulated half: this program built with `--cfg manylane_sim`, run as a child that prints its results
//! as JSON.

use crate::results::{Machine, Results};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Environment variable with the path of the simulated build.
pub const VARIABLE: &str = "MANYLANE_BENCH_SIM";

/// Finds the simulated build: the given path, else the variable's, else `sim/release` beside this binary's
/// profile folder.
///
/// # Errors
/// A sentence about how to build it.
pub fn find(given: Option<&Path>) -> Result<PathBuf, String> {
    let named = given.map(Path::to_path_buf).or_else(|| std::env::var_os(VARIABLE).map(PathBuf::from));
    if let Some(path) = named {
        return if path.is_file() { Ok(path) } else { Err(absent(&path)) };
    }
    let own = std::env::current_exe()
        .map_err(|error| format!("this program does not know its own path: {error}"))?;
    let beside = beside(&own);
    if beside.is_file() { Ok(beside) } else { Err(absent(&beside)) }
}

/// `TARGET/release/manylane-bench` -> `TARGET/sim/release/manylane-bench`.
fn beside(own: &Path) -> PathBuf {
    let target = own.parent().and_then(Path::parent).unwrap_or(Path::new("target"));
    let name = own.file_name().unwrap_or(std::ffi::OsStr::new("manylane-bench"));
    target.join("sim").join("release").join(name)
}

fn absent(path: &Path) -> String {
    format!(
        "the simulated half is missing ({} is no file): `make bench` builds it; \
         only real figures are shown",
        path.display()
    )
}

/// Runs the simulated build with `arguments` and parses its output. Its progress goes to this program's
/// standard error.
///
/// # Errors
/// A sentence if it cannot be started, has failed, has printed something else, or is not a simulated build.
pub fn run(program: &Path, arguments: &[String]) -> Result<Results, String> {
    let output = Command::new(program)
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("{} cannot be started: {error}", program.display()))?;
    if !output.status.success() {
        return Err(format!("the simulated half ({}) failed: {}", program.display(), output.status));
    }
    let results = std::str::from_utf8(&output.stdout)
        .map_err(|error| error.to_string())
        .and_then(|text| Results::from_json(text).map_err(|error| error.to_string()))
        .map_err(|error| format!("{} printed no results: {error}", program.display()))?;
    if results.series.iter().any(|series| series.machine != Machine::Simulated) {
        return Err(format!(
            "{} is not built for the simulator: build it with RUSTFLAGS=\"--cfg manylane_sim\", or run `make \
                bench`",
            program.display()
        ));
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_simulated_build_lies_beside_the_real_one() {
        let own = Path::new("/x/target/release/manylane-bench");
        assert_eq!(beside(own), Path::new("/x/target/sim/release/manylane-bench"));
    }

    #[test]
    fn a_missing_build_says_how_to_make_it() {
        let error = find(Some(Path::new("/nowhere/manylane-bench"))).expect_err("there is none");
        assert!(error.contains("`make bench` builds it"), "{error}");
        assert!(error.contains("only real figures"), "{error}");
    }

    #[test]
    fn a_program_that_prints_something_else_is_refused() {
        let error = run(Path::new("/bin/echo"), &["hello".to_string()]).expect_err("no JSON");
        assert!(error.contains("printed no results"), "{error}");
        let error = run(Path::new("/bin/false"), &[]).expect_err("it fails");
        assert!(error.contains("failed"), "{error}");
    }

    #[test]
    fn real_figures_are_not_taken_for_simulated_ones() {
        let real = r#"{"series":[{"case":"c","variant":"v","role":"after","machine":"real","threads":1,"runs":[1.0]}]}"#;
        let error = run(Path::new("/bin/echo"), &[real.to_string()]).expect_err("not simulated");
        assert!(error.contains("not built for the simulator"), "{error}");
    }
}
