//! Manylane, the program: a load balancer for TCP and HTTP that reads HAProxy configuration files.

#![forbid(unsafe_code)]

mod arguments;
mod background;
mod channel;
mod defect;
mod demo;
mod dry_run;
mod environment;
mod exists;
mod jobs;
mod last_words;
mod master;
mod memory;
mod reload;
mod say;
mod start;
mod supervise;
mod system;
mod version;
mod watchdog;

use manylane_pool::reserve::Reserving;
use std::process::ExitCode;

/// Heaps by thread suit a program whose lanes share nothing. A process with bounded memory (`-m`, a limit of
/// the system) uses the system's allocator.
#[global_allocator]
static ALLOCATOR: Reserving<mimalloc::MiMalloc> = Reserving(mimalloc::MiMalloc);

fn main() -> ExitCode {
    manylane_sched::end_by_faults();
    system::usual_pages();
    defect::tell();
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    if let [first, rest @ ..] = &words[..] {
        match first.to_str() {
            Some("demo") => return demo::run(rest),
            Some("explain") => return dry_run::explain(rest),
            Some("test") => return dry_run::test(rest),
            _ => {}
        }
    }
    match arguments::Arguments::read(words) {
        Ok(arguments) => match system::choose_allocator(arguments.megabytes.is_some()) {
            Err(error) => {
                say::alert(error);
                ExitCode::from(1)
            }
            Ok(()) => start::start(&arguments),
        },
        Err(error) => {
            say::introduced();
            say::alert(error);
            ExitCode::from(1)
        }
    }
}
