//! A command's row: all that the program knows of it. The worker's CLI and the master's have a table each.

use crate::level::Level;

/// What a client turns on before a command that few should give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `expert-mode`
    Expert,
    /// `experimental-mode`
    Experimental,
    /// The master's `mcli-debug-mode`.
    Debug,
}

/// A command. `R` runs it.
#[derive(Debug)]
pub struct Row<R> {
    /// The words that it begins with.
    pub words: &'static str,
    /// What follows them, as `help` shows it.
    pub arguments: &'static str,
    /// The lowest level that may give it.
    pub level: Level,
    /// The mode that it needs.
    pub mode: Option<Mode>,
    /// What it does.
    pub help: &'static str,
    /// Runs it.
    pub run: R,
}

/// A row for a command of any mode.
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
    /// The same for a command that needs a mode.
    #[must_use]
    pub const fn only_in(self, mode: Mode) -> Self {
        Self { mode: Some(mode), ..self }
    }
}

impl<R> Row<R> {
    /// The row in `table` whose words `words` begin with, and how many these are.
    pub fn find<'t>(table: &'t [Self], words: &[impl AsRef<str>]) -> Option<(&'t Self, usize)> {
        table.iter().find_map(|row| {
            let count = row.words.split(' ').count();
            let fits = words.len() >= count
                && row.words.split(' ').zip(words).all(|(own, word)| own == word.as_ref());
            fits.then_some((row, count))
        })
    }

    /// The lines of `help <beginning>` for these rows: of those whose beginning that is, or the other way
    /// around, or that have a word which begins so; and always how to get on.
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
