//! Parses bytes into commands (rules 2 and 5).

use zeroize::Zeroizing;

/// Longest line, in bytes; the same as HAProxy's with its default of `tune.bufsize`.
pub const LONGEST_LINE: usize = 16_384;

/// Longest payload, in bytes.
pub const LONGEST_PAYLOAD: usize = 65_536;

/// Most words of a command.
const MOST_WORDS: usize = 64;

/// A parsed command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Command {
    /// One may be a key, so they are overwritten before they are freed.
    pub(crate) words: Zeroizing<Vec<String>>,
    /// The line that ends its payload (empty for `<<` alone), if it has one.
    pub(crate) payload: Option<String>,
}

/// Why a line is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandError {
    NotText,
    TooManyWords,
    LongPattern,
}

/// Most bytes of the pattern behind `<<`.
const LONGEST_PATTERN: usize = 7;

impl CommandError {
    pub(crate) fn sentence(self) -> String {
        match self {
            Self::LongPattern => format!(
                "'<<' expects a pattern of at most {LONGEST_PATTERN} bytes, found more; nothing was done."
            ),
            Self::NotText => "A command expects text in UTF-8, found other bytes; nothing was done.".into(),
            Self::TooManyWords => {
                format!(
                    "The command has more than {MOST_WORDS} words; nothing was done. Spaces within a word \
                        are written '\\ '."
                )
            }
        }
    }
}

/// Parses a line, given without its line end.
pub(crate) fn commands(line: &[u8]) -> Result<Vec<Command>, CommandError> {
    let text = std::str::from_utf8(line).map_err(|_| CommandError::NotText)?;
    let mut all = Vec::new();
    let mut words = Zeroizing::new(Vec::<String>::new());
    let mut word: Option<String> = None;
    let mut plain = true; // the word has no escape
    let mut payload = None;
    let mut letters = text.chars();
    loop {
        let letter = letters.next();
        let ends = matches!(letter, None | Some(';' | ' ' | '\t' | '\r'));
        if ends && let Some(done) = word.take() {
            payload = done.strip_prefix("<<").filter(|_| plain).map(str::to_owned);
            words.push(done);
            plain = true;
            if words.len() > MOST_WORDS {
                return Err(CommandError::TooManyWords);
            }
        }
        match letter {
            None | Some(';') => {
                let payload = payload.take().filter(|_| letter.is_none());
                if let Some(pattern) = &payload {
                    if pattern.len() > LONGEST_PATTERN {
                        return Err(CommandError::LongPattern);
                    }
                    words.pop();
                }
                if !words.is_empty() {
                    all.push(Command { words: std::mem::take(&mut words), payload });
                }
                if letter.is_none() {
                    return Ok(all);
                }
            }
            Some(' ' | '\t' | '\r') => {}
            Some('\\') => {
                plain = false;
                begun(&mut word, letters.as_str()).push(letters.next().unwrap_or('\\'));
            }
            Some(other) => begun(&mut word, letters.as_str()).push(other),
        }
    }
}

/// The word that is being read, with room for the rest of it: one that grows leaves copies.
fn begun<'w>(word: &'w mut Option<String>, rest: &str) -> &'w mut String {
    const LONGEST_LETTER: usize = 4;
    let end = || rest.find([';', ' ', '\t', '\r']).unwrap_or(rest.len());
    word.get_or_insert_with(|| String::with_capacity(LONGEST_LETTER + end()))
}

/// Parses a line into commands: the words of each, and whether a payload follows. `None` if the line is
/// refused.
#[doc(hidden)] // for the fuzzer
pub fn parse(line: &[u8]) -> Option<Vec<(Vec<String>, bool)>> {
    let all = commands(line).ok()?;
    Some(all.into_iter().map(|command| (command.words.to_vec(), command.payload.is_some())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(line: &str) -> Vec<Vec<String>> {
        commands(line.as_bytes()).expect("a line").into_iter().map(|command| command.words.to_vec()).collect()
    }

    #[test]
    fn semicolons_part_commands_and_spaces_words() {
        assert_eq!(words("show  info ; ;show\tstat\r"), [["show", "info"], ["show", "stat"]]);
        assert_eq!(words(r"set a\ b c\;d \\"), [["set", "a b", "c;d", r"\"]]);
        assert_eq!(words(""), Vec::<Vec<String>>::new());
    }

    #[test]
    fn a_payload_is_announced_by_the_last_word() {
        let of = |line: &str| commands(line.as_bytes()).expect("a line").pop().expect("a command");
        assert_eq!(of("add map x <<").payload.as_deref(), Some(""));
        assert_eq!(of("add map x <<%EOF%67").payload.as_deref(), Some("%EOF%67"));
        assert!(matches!(commands(b"add map x <<%EOF%678"), Err(CommandError::LongPattern)));
        assert_eq!(*of("add map x <<").words, ["add", "map", "x"]);
        for not in ["add << x", r"add map \<<", "add <<; help"] {
            assert_eq!(of(not).payload, None, "{not}");
        }
    }

    #[test]
    fn too_many_words_and_bytes_that_are_no_text_are_reported() {
        assert_eq!(words(&"a ".repeat(64)), [["a"; 64]]);
        assert_eq!(commands("a ".repeat(65).as_bytes()), Err(CommandError::TooManyWords));
        assert_eq!(commands(b"show \xff"), Err(CommandError::NotText));
    }

    proptest! {
        #[test]
        fn any_bytes_give_bounded_commands(line in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(all) = commands(&line) {
                for command in all {
                    prop_assert!(!command.words.is_empty() || command.payload.is_some());
                    prop_assert!(command.words.len() <= MOST_WORDS);
                }
            }
        }

        #[test]
        fn words_that_are_escaped_come_back(words in prop::collection::vec("[^\u{0}-\u{1f}]{1,8}", 1..6)) {
            let escaped: Vec<String> = words
                .iter()
                .map(|word| word.chars().flat_map(|letter| ['\\', letter]).collect())
                .collect();
            let line = escaped.join(" ");
            let got = commands(line.as_bytes()).expect("few words");
            prop_assert_eq!(&*got[0].words, &words);
        }
    }
}
