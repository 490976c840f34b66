//! `manylane explain` and `manylane test`: what the rules of a configuration are, and what they do with a
//! request. Nothing is bound, sent or written.

mod arguments;
mod explain;
mod frontend;
mod report;
mod request;

use crate::version::BUILD;
use crate::{environment, say, start};
use arguments::{ExplainArguments, TestArguments};
use manylane_config::Shown;
use manylane_config::load;
use manylane_config::source::Sources;
use manylane_config::tree::Config;
use manylane_io::{Driver, DriverChoice, Kind};
use manylane_lanes::Local;
use manylane_plan::Generation;
use manylane_plan::generation::StartOptions;
use manylane_proxy::dry_run;
use manylane_proxy::explain::Line;
use manylane_sched::Lane;
use manylane_sync::Arc;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// The request reaches neither a server nor an answer.
const NOWHERE: u8 = 2;

/// A configuration, with the text that it was read from.
struct Read {
    sources: Sources,
    config: Config,
}

impl Read {
    /// Reads the files of a sub-command.
    ///
    /// # Errors
    /// The report on errors in them.
    fn files(command: &str, files: &[PathBuf]) -> Result<(Self, Generation), String> {
        let mut sources = Sources::new();
        for path in files {
            sources.load(path).map_err(|error| alert(format_args!("config : {error}")))?;
        }
        start::has_files(&sources, command).map_err(|error| alert(format_args!("config : {error}")))?;
        let environment = environment::before(&sources, None);
        let mut loaded = load(&sources, &BUILD, environment, false);
        environment::tell_sockets(&mut loaded.config);
        let wishes = StartOptions { no_lookups: true, ..StartOptions::default() };
        let generation = Generation::build(&loaded.config, wishes, &mut loaded.found);
        if loaded.found.errors() > 0 {
            return Err(loaded.found.render(&sources, std::process::id()));
        }
        Ok((Self { sources, config: loaded.config }, generation))
    }

    /// Returns the text of a line, without the blanks around it.
    fn text(&self, line: &Line) -> String {
        let named = |file: &_| String::from_utf8_lossy(self.sources.name(*file)) == *line.file;
        let file = self.sources.files().find(named);
        let text = file.and_then(|file| self.sources.line(file, line.number));
        text.map(|(text, _)| harmless(&String::from_utf8_lossy(text.trim_ascii()))).unwrap_or_default()
    }
}

/// Escapes characters that a terminal would act on.
fn harmless(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            let escapes = manylane_config::is_harmful(c) && c != '\t';
            let plain = (!escapes).then_some(c);
            escapes.then(|| c.escape_unicode()).into_iter().flatten().chain(plain)
        })
        .collect()
}

/// `manylane explain`
pub(crate) fn explain(words: &[OsString]) -> ExitCode {
    end(|| {
        let Some(arguments) = ExplainArguments::read(words)? else {
            print(arguments::EXPLAIN_USAGE);
            return Ok(ExitCode::SUCCESS);
        };
        let (read, generation) = Read::files("'explain'", &arguments.files)?;
        let explained = explain::Rendered { read: &read, generation: &generation };
        print(&if arguments.json { explained.json() } else { explained.text() });
        Ok(ExitCode::SUCCESS)
    })
}

/// `manylane test`
pub(crate) fn test(words: &[OsString]) -> ExitCode {
    end(|| {
        let Some(arguments) = TestArguments::read(words)? else {
            print(arguments::TEST_USAGE);
            return Ok(ExitCode::SUCCESS);
        };
        let request = request::Request::read(&arguments).map_err(alert)?;
        let (read, generation) = Read::files("'test'", &arguments.files)?;
        let generation = Arc::new(generation);
        let found = frontend::find(&generation, &arguments, &request).map_err(alert)?;
        let input = found.input(&generation, &arguments, request);
        let report = run(&generation, &input).map_err(alert)?;
        let rendered =
            report::Rendered { read: &read, generation: &generation, found: &found, report: &report };
        print(&if arguments.json { rendered.json() } else { rendered.text() });
        Ok(match report.end {
            dry_run::End::Server { .. } | dry_run::End::Answer { .. } => ExitCode::SUCCESS,
            dry_run::End::Closed { .. } | dry_run::End::Unknown { .. } => ExitCode::from(NOWHERE),
        })
    })
}

/// Writes to standard output. Ignores errors: the reader may have closed the pipe.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn alert(message: impl Display) -> String {
    say::line("ALERT", message)
}

/// Runs a sub-command, and writes its error without a prefix.
fn end(work: impl FnOnce() -> Result<ExitCode, String>) -> ExitCode {
    say::introduced();
    work().unwrap_or_else(|error| {
        say::text(&error);
        ExitCode::from(1)
    })
}

/// Evaluates the rules, on a lane of its own whose tasks never run.
fn run(generation: &Arc<Generation>, input: &dry_run::Input) -> Result<dry_run::Report, String> {
    let lane = Lane::new(manylane_sched::Config::new()).map_err(|error| error.to_string())?;
    let driver =
        Driver::new(lane.here(), DriverChoice::Only(Kind::Epoll)).map_err(|error| error.to_string())?;
    let local = Local::install(driver.io(), generation.clone(), || ());
    let report = dry_run::dry_run(&local, input);
    drop(local);
    Local::remove_all();
    drop(lane);
    report
}

/// Quotes the word that was found, for an error. Escapes what a terminal would act on.
fn found(word: &str) -> String {
    format!("'{}'", Shown(word.as_bytes()))
}
