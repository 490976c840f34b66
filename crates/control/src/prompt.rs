//! What `prompt` sets, for clients of the process and of the master.

use std::time::Instant;

/// The words of `prompt`, as `help` shows them.
pub const PROMPT_WORDS: &str = "[help|n|i|p|timed]*";

/// How a client is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PromptMode {
    /// The connection stays open behind a line of commands.
    pub interactive: bool,
    /// A prompt asks for the next line.
    pub prompts: bool,
    /// The prompt has the time since the start of the process.
    pub timed: bool,
}

/// The words of `prompt` do not set a mode: the client wants to read about them, or one is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptUsage {
    /// `help`
    Requested,
    /// A word is unknown.
    Wrong,
}

impl PromptMode {
    /// Returns the mode behind the words of `prompt`. Without words it changes between no prompt and a
    /// prompt; `n`, `i` and `p` set the mode, and the last one counts; `timed` changes whether the prompt has
    /// the time, and shows it unless a mode is among the words.
    ///
    /// # Errors
    /// The words have `help`, or an unknown one; the mode does not change then.
    pub fn with(self, words: &[impl AsRef<str>]) -> Result<Self, PromptUsage> {
        let (mut set, mut timed) = (None, self.timed);
        for word in words {
            match word.as_ref() {
                "n" => set = Some((false, false)),
                "i" => set = Some((true, false)),
                "p" => set = Some((true, true)),
                "timed" => timed = !timed,
                "help" => return Err(PromptUsage::Requested),
                _ => return Err(PromptUsage::Wrong),
            }
        }
        let or = if words.is_empty() { !self.prompts } else { true };
        let (interactive, prompts) = set.unwrap_or((or, or));
        Ok(Self { interactive, prompts, timed })
    }

    /// The beginning of the prompt: `[0:00:05:59]` if it has the time since `started`, or nothing.
    pub fn time(self, started: Instant) -> String {
        if self.timed { format!("[{}]", clock(started.elapsed().as_secs())) } else { String::new() }
    }
}

/// Formats seconds as days, hours, minutes and seconds: `0:00:05:59`.
fn clock(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    format!("{days}:{hours:02}:{minutes:02}:{:02}", seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_set_the_mode_and_unknown_ones_do_not() {
        let words = |line: &'static str| line.split_whitespace().collect::<Vec<_>>();
        let [none, inter, prompt] = [(false, false), (true, false), (true, true)]
            .map(|(interactive, prompts)| PromptMode { interactive, prompts, timed: false });
        let timed = |mode: PromptMode| PromptMode { timed: true, ..mode };
        for (before, line, after) in [
            (none, "", prompt),
            (inter, "", prompt),
            (prompt, "", none),
            (timed(prompt), "", timed(none)),
            (none, "i", inter),
            (prompt, "i", inter),
            (prompt, "n", none),
            (none, "p", prompt),
            (none, "p i", inter),
            (none, "timed", timed(prompt)),
            (timed(prompt), "timed", prompt),
            (none, "i timed", timed(inter)),
            (none, "timed n", timed(none)),
            (none, "n p timed timed", prompt),
        ] {
            assert_eq!(before.with(&words(line)), Ok(after), "{before:?}: '{line}'");
        }
        assert_eq!(none.with(&words("p bogus")), Err(PromptUsage::Wrong));
        assert_eq!(none.with(&words("p help")), Err(PromptUsage::Requested));
    }

    #[test]
    fn times_have_days_without_a_limit() {
        assert_eq!([0, 86_399, 9_000_000].map(clock), ["0:00:00:00", "0:23:59:59", "104:04:00:00"]);
    }
}
