//! A row of the command table. The worker's interface and the master's have a table each.

use crate::level::Level;

/// A mode that a client turns on before a command which is not for daily use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `expert-mode`
    Expert,
    /// `experimental-mode`
    Experimental,
    /// The master's `mcli-debug-mode`.
    Debug,
}

/// A command; `R` runs it.
#[derive(Debug)]
pub struct Row<R> {
    /// The words that the command begins with.
    pub words: &'static str,
    /// The arguments, as `help` shows them.
    pub arguments: &'static str,
    /// The lowest level that may run it.
    pub level: Level,
    /// The mode that it needs.
    pub mode: Option<Mode>,
    /// The description in `help`.
    pub help: &'static str,
    /// Runs the command.
    pub run: R,
}

/// A row for a command that needs no mode.
pub const fn row<R>(
    words: &'static str,
    arguments: &'static str,
    level: Level,
    help: &'static str,
    run: R,
) -> Row<R> {
    Row { words, arguments, level, mode: None, help, run }
}

impl<R: Copy> Row<R> {
    /// Requires a mode.
    #[must_use]
    pub const fn only_in(self, mode: Mode) -> Self {
        Self { mode: Some(mode), ..self }
    }
}

impl<R> Row<R> {
    /// Finds the row whose words are the first ones of `words`; returns it and the number of its words.
    pub fn find<'t>(table: &'t [Self], words: &[impl AsRef<str>]) -> Option<(&'t Self, usize)> {
        table.iter().find_map(|row| {
            let count = row.words.split(' ').count();
            let fits = words.len() >= count
                && row.words.split(' ').zip(words).all(|(own, word)| own == word.as_ref());
            fits.then_some((row, count))
        })
    }

    /// The lines of `help <beginning>`: the rows that begin with `beginning`, those that `beginning` begins
    /// with, and those with a word that begins with it. `help`, `prompt` and `quit` are always listed.
    pub fn help<'t>(rows: impl IntoIterator<Item = &'t Self>, beginning: &str) -> String
    where
        R: 't,
    {
        let fits = |row: &&Self| {
            row.words.starts_with(beginning)
                || beginning.starts_with(row.words)
                || row.words.split(' ').any(|word| word.starts_with(beginning))
                || matches!(row.words, "help" | "prompt" | "quit")
        };
        let line = |row: &Self| {
            let usage = format!("{} {}", row.words, row.arguments);
            format!("  {:<40}: {}\n", usage.trim_end(), row.help)
        };
        rows.into_iter().filter(fits).map(line).collect()
    }
}
