#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg(not(any(loom, manylane_sim)))] // needs sockets of manylane-io, which are not built there

mod activity;
mod aside;
mod cells;
mod commands;
mod level;
mod line;
mod line_buffer;
mod metrics;
mod page;
mod process;
mod prompt;
mod reply;
mod row;
mod serve;
mod session;
mod walk;

pub use activity::stuck;
pub use level::Level;
#[doc(hidden)]
pub use line::parse;
pub use line::{LONGEST_LINE, LONGEST_PAYLOAD};
pub use metrics::Metrics;
pub use process::{ChangeServers, Process, ProcessInfo, Reload};
pub use prompt::{PROMPT_WORDS, PromptMode, PromptUsage};
pub use reply::SLICE;
pub use row::{Mode, Row, row};
pub use serve::{BoundSockets, Control, MOST_CLIENTS, bind};

/// Returns the text of `show pools`.
pub fn pools() -> String {
    commands::pools::all()
}
