//! `-c` without a proxy: `check [-dW] [-dD] [-q] FILE|FOLDER...`, `check -cc CONDITION`, `check --help
//! KEYWORD`.

use manylane_config::cond::{Build, evaluate_option};
use manylane_config::diag::{Check, ExitCode, Severity};
use manylane_config::lex::Environment;
use manylane_config::source::Sources;
use manylane_config::{help, load};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode as Code;

const BUILD: Build = Build::bare();

fn main() -> Code {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let pid = std::process::id();
    match &arguments[..] {
        [option, condition] if option == "-cc" => {
            let code = match evaluate_option(condition.as_bytes(), &Environment::of_process(), &BUILD) {
                Ok(true) => ExitCode::Ok,
                Ok(false) => ExitCode::Error,
                Err(error) => {
                    eprintln!("[ALERT]    ({pid}) : config : Failed to evaluate condition: {error}");
                    ExitCode::Unusable
                }
            };
            return Code::from(code as u8);
        }
        [option, rest @ ..] if option == "--help" => {
            let name: Vec<_> = rest.iter().map(|word| word.to_string_lossy()).collect();
            return match help::help(&name.join(" ")) {
                Ok(text) => {
                    print!("{text}");
                    Code::SUCCESS
                }
                Err(text) => {
                    eprintln!("{text}");
                    Code::FAILURE
                }
            };
        }
        _ => {}
    }
    let given = |name: &str| arguments.iter().any(|argument| argument == name);
    let mut sources = Sources::new();
    for path in arguments.iter().filter(|argument| !argument.as_bytes().starts_with(b"-")) {
        if let Err(error) = sources.load(Path::new(path)) {
            eprintln!("[ALERT]    ({pid}) : config : {error}");
            return Code::FAILURE;
        }
    }
    let loaded = load(&sources, &BUILD, Environment::of_process(), given("-dD"));
    let (config, found) = (loaded.config, loaded.found);
    let listens = config.proxies.iter().any(|proxy| !proxy.binds.is_empty())
        || !config.global.stats_sockets.is_empty()
        || !config.peers.is_empty();
    let strict = given("-dW") || config.global.zero_warning.is_some();
    let outcome = found.outcome(
        &sources,
        pid,
        Check { warnings_are_errors: strict, has_listener: listens, verbose: true },
    );
    if !given("-q") || found.count(Severity::Alert) > 0 {
        eprint!("{}{}", found.render(&sources, pid), outcome.errors);
    }
    if !given("-q") {
        print!("{}", outcome.summary);
    }
    Code::from(outcome.code as u8)
}
