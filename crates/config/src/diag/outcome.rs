//! Closing lines and exit code of a run, as with HAProxy's `-c`.

use super::render::line;
use super::{Diagnostics, Severity};
use crate::Shown;
use crate::source::Sources;

/// Input of the outcome besides the findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    /// `-dW` or `zero-warning`: warnings refuse the configuration.
    pub warnings_are_errors: bool,
    /// True if there is a listener: a `bind` line, a run-time socket or a `peers` section.
    pub has_listener: bool,
    /// `-V`: the summary says that the configuration is valid.
    pub verbose: bool,
}

/// Exit code of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ExitCode {
    /// The configuration is usable, or the condition is true.
    Ok = 0,
    /// The configuration has errors or forbidden warnings, or the condition is false.
    Error = 1,
    /// The configuration has no errors and no listener, or the condition cannot be evaluated.
    Unusable = 2,
}

/// Result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Exit code of `-c`. The program starts only with [`ExitCode::Ok`].
    pub code: ExitCode,
    /// Closing lines of the findings. The last one counts errors and warnings.
    pub errors: String,
    /// Message of success, omitted with `-q`.
    pub summary: String,
}

impl Diagnostics {
    /// The result of the run. `pid` is the process number for the heads of lines.
    pub fn outcome(&self, sources: &Sources, pid: u32, check: Check) -> Outcome {
        let mut errors = String::new();
        let alert = |out: &mut String, message: &str| line(out, Severity::Alert, pid, message);
        if self.errors() > 0 {
            for &file in &self.files {
                let name = Shown(sources.name(file));
                alert(&mut errors, &format!("Error(s) found in configuration file : {name}"));
            }
            alert(&mut errors, "Fatal errors found in configuration.");
            alert(&mut errors, &self.tally().unwrap_or_default());
            return Outcome { code: ExitCode::Error, errors, summary: String::new() };
        }
        let warned = self.count(Severity::Warning) > 0;
        if warned && check.warnings_are_errors {
            alert(&mut errors, "Some warnings were found and 'zero-warning' is set. Aborting.");
            alert(&mut errors, &self.tally().unwrap_or_default());
            return Outcome { code: ExitCode::Error, errors, summary: String::new() };
        }
        let mut summary = String::new();
        if warned {
            summary.push_str("Warnings were found.\n");
            line(&mut errors, Severity::Warning, pid, &self.tally().unwrap_or_default());
        }
        if !check.has_listener {
            summary
                .push_str("Configuration file has no error but will not start (no listener) => exit(2).\n");
            return Outcome { code: ExitCode::Unusable, errors, summary };
        }
        if check.verbose {
            summary.push_str("Configuration file is valid\n");
        }
        Outcome { code: ExitCode::Ok, errors, summary }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Pos;

    const LISTENS: Check = Check { warnings_are_errors: false, has_listener: true, verbose: true };

    #[test]
    fn exit_codes_are_haproxys() {
        let sources = Sources::new();
        let mut all = Diagnostics::new(false);
        assert_eq!(all.outcome(&sources, 1, LISTENS).code, ExitCode::Ok);
        let silent = Check { has_listener: false, ..LISTENS };
        assert_eq!(all.outcome(&sources, 1, silent).code, ExitCode::Unusable);
        all.push(Severity::Notice, None, "n");
        let strict = Check { warnings_are_errors: true, ..LISTENS };
        assert_eq!(all.outcome(&sources, 1, strict).code, ExitCode::Ok);
        all.push(Severity::Warning, None, "w");
        let outcome = all.outcome(&sources, 1, LISTENS);
        assert_eq!(
            (outcome.code, &*outcome.summary),
            (ExitCode::Ok, "Warnings were found.\nConfiguration file is valid\n")
        );
        let brief = Check { verbose: false, ..LISTENS };
        assert_eq!(all.outcome(&sources, 1, brief).summary, "Warnings were found.\n");
        assert_eq!(outcome.errors, "[WARNING]  (1) : config : 1 warning\n");
        assert_eq!(all.outcome(&sources, 1, silent).code, ExitCode::Unusable);
        let outcome = all.outcome(&sources, 1, strict);
        assert_eq!(outcome.code, ExitCode::Error);
        assert!(outcome.errors.contains("'zero-warning' is set"));
        all.push(Severity::Alert, None, "a");
        assert_eq!(all.outcome(&sources, 1, LISTENS).code, ExitCode::Error);
    }

    #[test]
    fn each_file_with_errors_is_named_once_and_in_order() {
        let mut sources = Sources::new();
        let a = sources.add("a.cfg", "x\n").unwrap();
        let b = sources.add("b.cfg", "x\n").unwrap();
        let mut all = Diagnostics::new(false);
        for (file, column) in [b, a, b].into_iter().zip(1..) {
            all.alert(Pos { file, line: 1, column }, "bad");
        }
        assert_eq!(
            all.outcome(&sources, 9, LISTENS).errors,
            "[ALERT]    (9) : config : Error(s) found in configuration file : a.cfg\n\
             [ALERT]    (9) : config : Error(s) found in configuration file : b.cfg\n\
             [ALERT]    (9) : config : Fatal errors found in configuration.\n\
             [ALERT]    (9) : config : 3 errors\n"
        );
    }
}
