//! The commands: a table has a row for each, and the other modules run them.

mod acme;
mod certificates;
mod client;
pub(crate) mod columns;
mod descriptors;
mod dev;
mod errors;
pub(crate) mod events;
mod help;
pub(crate) mod info;
mod inside;
mod lanes;
mod limits;
mod members;
mod patterns;
mod peers;
pub(crate) mod pools;
mod process;
mod profiling;
mod publish;
pub(crate) mod resolvers;
pub(crate) mod schema;
mod server;
mod sessions;
pub(crate) mod stat;
mod state;
mod stats_file;
mod table;
mod tables;
mod unbuilt;
pub(crate) mod values;
mod variables;
pub(crate) mod wait;

use crate::level::Severity;
use crate::reply::{Reply, ReplyError};
use crate::row::{Mode, Row};
use crate::serve::Control;
use crate::session::Settings;
use manylane_lanes::Local;
use manylane_plan::Generation;
use manylane_sched::Here;
use manylane_sync::Arc;
use std::rc::Rc;
use table::{Run, TABLE};
use zeroize::Zeroizing;

/// A running command.
pub(crate) struct Call<'c, 'r> {
    pub(crate) control: &'c Control,
    /// The generation that serves when the command begins.
    pub(crate) generation: &'c Arc<Generation>,
    pub(crate) settings: &'c mut Settings,
    pub(crate) words: &'c [String],
    /// The lines after `<<`.
    pub(crate) payload: Option<Zeroizing<String>>,
    pub(crate) reply: &'c mut Reply<'r>,
    pub(crate) here: Here,
}

impl<'c> Call<'c, '_> {
    /// The word at index `at`, or an empty string.
    fn word(&self, at: usize) -> &'c str {
        self.words.get(at).map_or("", String::as_str)
    }

    /// Returns the lane's state for the generation. If another generation has replaced it, replies with an
    /// error and returns `None`.
    fn local(&mut self) -> Option<Rc<Local>> {
        let local = Local::of(self.generation);
        if local.is_none() {
            self.error("The configuration was just replaced: try again.");
        }
        local
    }

    fn message(&mut self, severity: Severity, text: &str) {
        self.settings.message(self.reply, severity, text);
    }

    /// Writes an error.
    fn error(&mut self, text: &str) {
        self.message(Severity::Error, text);
    }

    /// Writes information that the client asked for.
    fn info(&mut self, text: &str) {
        self.message(Severity::Info, text);
    }
}

/// Runs a command. The caller ends the answer's last line and writes the empty line after it.
pub(crate) async fn run(call: &mut Call<'_, '_>) -> Result<(), ReplyError> {
    let Some((row, count)) = Row::find(TABLE, call.words) else {
        match unbuilt::reason(call.words) {
            Some(sentence) => call.error(&sentence),
            None => help::unknown(call),
        }
        return Ok(());
    };
    let settings = &call.settings;
    // Every client learns that a command is experimental, as with HAProxy.
    if row.mode == Some(Mode::Experimental) && !settings.experimental {
        call.error("This command is restricted to experimental mode only.");
    } else if settings.level < row.level {
        call.error("Permission denied");
    } else if row.mode == Some(Mode::Expert) && !settings.expert {
        call.error("This command expects 'expert-mode on' before it.");
    } else {
        call.words = &call.words[count..];
        match row.run {
            Run::Now(run) => run(call),
            Run::Waits(run) => run(call).await,
            Run::Long(run) => run(call).await?,
        }
    }
    Ok(())
}
