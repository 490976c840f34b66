//! Regular expressions that need backtracking, such as look-around and back references, which the linear
//! engine refuses.
//!
//! The number of backtracking steps is bounded by the length of the text, since one step may scan all of it.
//! A match therefore takes some milliseconds at most for any input. A match that exceeds the bound counts as
//! a mismatch, see [`given_up`].

use super::regex::{MAX_MACHINE_BYTES, MAX_REGEX_BYTES};
use fancy_regex::{BytesMode, Captures, RegexBuilder, RegexInput};

/// Maximum length of a short text in bytes.
pub const SHORT_TEXT: usize = 2048;

/// Maximum backtracking steps in a short text: enough to try each position.
pub const SHORT_STEPS: usize = 4096;

/// Maximum backtracking steps in a longer text: enough for expressions that are anchored by `^` or by a
/// literal.
pub const LONG_STEPS: usize = 128;

/// Maximum number of matches that `regsub` with `g` replaces in a text.
pub const MOST_REPLACED: usize = 64;

/// Each search of `regsub` after the first has a lower limit: [`LONG_STEPS`] in a short text, [`FEW_STEPS`]
/// in a longer one. This number of searches may exceed it, up to the limit of a single match. All searches
/// together then take less than ten times as long as one.
const LONG_SEARCHES: u32 = 4;

/// Maximum backtracking steps in a longer text, for later searches of `regsub`.
const FEW_STEPS: usize = 8;

/// Maximum number of look-arounds and back references in an expression. Each part between two of them is
/// compiled to its own machine.
pub const MAX_LOOKAROUNDS: usize = 16;

/// Expressions with up to this number of look-arounds have the full limit of steps; it is divided for others.
const USUAL_LOOKAROUNDS: usize = 4;

/// Maximum length of such an expression in bytes.
pub const MAX_BACKTRACK_BYTES: usize = 4096;

/// Maximum number of instructions of a compiled expression. It also bounds the length with repetitions
/// expanded, since the engine expands them before it counts.
const MOST_INSTRUCTIONS: usize = 10_000;

// Loom models have no statics; they do not run expressions.
#[cfg(not(loom))]
static GIVEN_UP: manylane_stats::Counter = manylane_stats::Counter::new("regex_given_up");

/// Number of matches since the start that exceeded their limit of steps.
pub fn given_up() -> u64 {
    #[cfg(not(loom))]
    let count = GIVEN_UP.read_cheap();
    #[cfg(loom)]
    let count = 0;
    count
}

/// Number of look-arounds and back references in a text: `(?=`, `(?!`, `(?<=`, `(?<!`, `(?>`, `\1`,
/// `\k<name>`. An upper bound, as escapes and classes are not parsed.
fn lookarounds(text: &[u8]) -> usize {
    let around =
        text.windows(3).filter(|three| three.starts_with(b"(?") && b"=!<>".contains(&three[2])).count();
    let back =
        text.windows(2).filter(|two| two[0] == b'\\' && (two[1].is_ascii_digit() || b"gk".contains(&two[1])));
    around + back.count()
}

/// True if the engine may discard steps without counting them: look-around or back references inside of
/// another look-around, of `(?>`, or of a possessive quantifier.
fn hides_steps(text: &[u8]) -> bool {
    let mut open: Vec<bool> = Vec::new(); // for each open parenthesis: discards steps
    let (mut lookarounds, mut possessive) = (false, false);
    let mut rest = text;
    while let [byte, tail @ ..] = rest {
        let starts = |with: &[&[u8]]| with.iter().any(|with| rest.starts_with(with));
        let around = starts(&[b"(?=", b"(?!", b"(?<=", b"(?<!"]);
        let back =
            *byte == b'\\' && tail.first().is_some_and(|byte| byte.is_ascii_digit() || b"gk".contains(byte));
        if (around || back) && open.contains(&true) {
            return true;
        }
        lookarounds |= around || back;
        match byte {
            b'(' => open.push(around || starts(&[b"(?>"])),
            b')' => drop(open.pop()),
            b'*' | b'+' | b'?' | b'}' => possessive |= tail.first() == Some(&b'+'),
            _ => {}
        }
        rest = match byte {
            b'\\' => tail.get(1..).unwrap_or_default(),
            b'[' => {
                let first = tail.iter().take(2).position(|byte| *byte != b'^').unwrap_or(0) + 1;
                let end = tail.iter().skip(first).position(|byte| *byte == b']').map_or(0, |end| first + end);
                &tail[end..]
            }
            _ => tail,
        };
    }
    lookarounds && possessive
}

/// Length of an expression with its repetitions expanded; a lower bound if it is invalid.
fn written_out(text: &[u8]) -> u64 {
    // Lengths of the text before the last item, and of that item, which a repetition applies to. `open` has
    // both for each open parenthesis.
    let (mut before, mut item) = (0_u64, 0_u64);
    let mut open: Vec<(u64, u64)> = Vec::new();
    let mut rest = text;
    while let [byte, tail @ ..] = rest {
        rest = tail;
        match byte {
            b'{' => {
                let end = tail
                    .iter()
                    .position(|byte| !byte.is_ascii_digit() && *byte != b',')
                    .unwrap_or(tail.len());
                let digit = |n: u64, digit: &u8| n.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
                let numbers =
                    tail[..end].split(|byte| *byte == b',').map(|digits| digits.iter().fold(0, digit));
                item = item.saturating_mul(numbers.max().unwrap_or(0).max(1));
                rest = &tail[end..];
            }
            b'(' => open.push((std::mem::take(&mut before), std::mem::take(&mut item))),
            b')' if !open.is_empty() => {
                let inside = before.saturating_add(item).max(1);
                let (outside, last) = open.pop().unwrap_or_default();
                (before, item) = (outside.saturating_add(last), inside);
            }
            b'+' | b'*' | b'?' | b'}' => {}
            _ => {
                rest = if *byte == b'\\' { tail.get(1..).unwrap_or_default() } else { tail };
                before = before.saturating_add(item);
                item = 1;
            }
        }
    }
    open.iter().fold(before.saturating_add(item), |sum, (before, item)| {
        sum.saturating_add(*before).saturating_add(*item)
    })
}

/// Counts a match that exceeded its limit.
pub(super) fn give_up() {
    #[cfg(not(loom))]
    GIVEN_UP.add(1);
}

/// An expression that each lane compiles for itself, so that lanes share no mutable state.
#[derive(Debug)]
pub(crate) struct BacktrackRegex {
    text: Box<str>,
    ignore_case: bool,
    /// Number of look-arounds and back references.
    lookarounds: usize,
    /// For threads that are not lanes.
    own: Machine,
}

/// Compiled expressions with the limits for short texts, for longer texts, and for later searches of
/// `regsub`.
#[derive(Debug)]
pub(crate) struct Machine {
    short: fancy_regex::Regex,
    long: fancy_regex::Regex,
    few: fancy_regex::Regex,
}

/// A search exceeded its limit of steps.
#[derive(Debug)]
pub(super) struct StepLimitExceeded;

/// Consecutive searches in a text, which are bounded together.
#[derive(Debug)]
pub(super) struct Searches {
    begun: bool,
    /// How many of [`LONG_SEARCHES`] are left.
    left: u32,
}

impl Searches {
    pub(super) fn new() -> Self {
        Self { begun: false, left: LONG_SEARCHES }
    }
}

/// Escapes that differ from Perl's, or whose meaning is not guaranteed: `\g` may call a group as a
/// subroutine.
const OTHERWISE: &[u8] = b"hHOyYgGK";

/// Other refused syntax: conditions, recursion, subroutines, absence operators. It is rare, and HAProxy's
/// manual does not mention it.
const UNUSUAL: &[&str] = &["(?(", "(?R", "(?&", "(?P>", "(?~", "{,"];

/// Offset of a syntax error in `text`; 0 for other errors.
pub(super) fn fault(text: &str) -> usize {
    match fancy_regex::Regex::new(text) {
        Err(fancy_regex::Error::ParseError(_, fancy_regex::ParseError::UnclosedOpenParen)) => {
            unclosed(text.as_bytes()).unwrap_or(0)
        }
        Err(fancy_regex::Error::ParseError(at, _)) => at,
        _ => 0,
    }
}

/// Offset of the innermost parenthesis that is not closed.
fn unclosed(text: &[u8]) -> Option<usize> {
    let (mut open, mut class) = (Vec::new(), None);
    let mut bytes = text.iter().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match (byte, class) {
            (b'\\', _) => {
                bytes.next();
            }
            (b'[', None) => class = Some(at + 1 + usize::from(text.get(at + 1) == Some(&b'^'))),
            // The first byte of a class is no end.
            (b']', Some(first)) if at > first => class = None,
            (b'(', None) => open.push(at),
            (b')', None) => drop(open.pop()),
            _ => {}
        }
    }
    open.pop()
}

impl BacktrackRegex {
    /// Compiles an expression.
    ///
    /// # Errors
    /// The reason for refusing it.
    pub(super) fn new(text: &str, ignore_case: bool) -> Result<Self, String> {
        let escaped = text.as_bytes().windows(2).enumerate().filter(|(at, pair)| {
            // An escaped backslash starts no escape.
            let before = text.as_bytes()[..*at].iter().rev().take_while(|byte| **byte == b'\\').count();
            pair[0] == b'\\' && before % 2 == 0
        });
        if let Some((_, pair)) = escaped.into_iter().find(|(_, pair)| OTHERWISE.contains(&pair[1])) {
            return Err(format!("'\\{}' is not built; write the bytes as a class", char::from(pair[1])));
        }
        if let Some(found) = UNUSUAL.iter().find(|unusual| text.contains(*unusual)) {
            return Err(format!("'{found}' is not built; write it in another way"));
        }
        let lookarounds = lookarounds(text.as_bytes());
        if lookarounds > MAX_LOOKAROUNDS || text.len() > MAX_BACKTRACK_BYTES {
            return Err(format!(
                "it looks around or back at {lookarounds} places in {} bytes; at most {MAX_LOOKAROUNDS} \
                    places and {MAX_BACKTRACK_BYTES} bytes are taken",
                text.len()
            ));
        }
        if hides_steps(text.as_bytes()) {
            return Err("it looks around inside of another look-around or of '(?>', or beside a possessive \
                quantifier, where its steps have no bound; write it in another way"
                .to_owned());
        }
        if written_out(text.as_bytes()) > MOST_INSTRUCTIONS as u64 {
            return Err(format!(
                "its repetitions have more than {MOST_INSTRUCTIONS} instructions when they are written out"
            ));
        }
        Ok(Self {
            text: text.into(),
            ignore_case,
            lookarounds,
            own: Machine::new(text, ignore_case, lookarounds)?,
        })
    }

    /// Compiles the expression for a lane. `None` cannot happen, as [`BacktrackRegex::new`] has compiled it.
    pub(crate) fn machine(&self) -> Option<Machine> {
        Machine::new(&self.text, self.ignore_case, self.lookarounds).ok() // [`Self::new`] has compiled it
    }

    /// The machine for threads that are not lanes. It takes its state from a shared pool.
    pub(super) fn own(&self) -> &Machine {
        &self.own
    }
}

impl Machine {
    fn new(text: &str, ignore_case: bool, lookarounds: usize) -> Result<Self, String> {
        let share = lookarounds.div_ceil(USUAL_LOOKAROUNDS).max(1);
        let build = |steps: usize| {
            let mut builder = RegexBuilder::new(text);
            builder
                .bytes_mode(BytesMode::Ascii)
                .unicode_mode(false)
                .case_insensitive(ignore_case)
                .backtrack_limit((steps / share).max(1))
                .delegate_size_limit(MAX_REGEX_BYTES / MAX_LOOKAROUNDS)
                .delegate_dfa_size_limit(MAX_MACHINE_BYTES)
                .max_prog_size(MOST_INSTRUCTIONS);
            builder.build().map_err(|error| match error {
                fancy_regex::Error::ParseError(_, why) => why.to_string(),
                error => error.to_string(),
            })
        };
        Ok(Self { short: build(SHORT_STEPS)?, long: build(LONG_STEPS)?, few: build(FEW_STEPS)? })
    }

    fn of(&self, text: &[u8]) -> &fancy_regex::Regex {
        if text.len() <= SHORT_TEXT { &self.short } else { &self.long }
    }

    pub(super) fn is_match(&self, text: &[u8]) -> bool {
        self.of(text).is_match(text).unwrap_or_else(|_| {
            give_up();
            false
        })
    }

    /// The groups of the first match that begins at or after `from`.
    pub(super) fn groups<'t>(
        &self,
        text: &'t [u8],
        from: usize,
        searches: &mut Searches,
    ) -> Result<Option<Captures<'t, [u8]>>, StepLimitExceeded> {
        let search =
            |machine: &fancy_regex::Regex| machine.captures_input(RegexInput::new(text).from_pos(from));
        if std::mem::replace(&mut searches.begun, true) {
            let little = if text.len() <= SHORT_TEXT { &self.long } else { &self.few };
            match search(little) {
                Ok(groups) => return Ok(groups),
                Err(_) if searches.left > 0 => searches.left -= 1,
                Err(_) => {
                    give_up();
                    return Err(StepLimitExceeded);
                }
            }
        }
        search(self.of(text)).map_err(|_| {
            give_up();
            StepLimitExceeded
        })
    }
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;
    use crate::Lane;
    use crate::pattern::Regex;

    #[test]
    fn what_would_take_too_long_does_not_match_and_is_counted() {
        let mut lane = Lane::new();
        let before = given_up();
        let slow = Regex::new(br"(.*)(.*)(.*)(.*)\1\2\3x(?!y)", false).unwrap();
        assert!(!slow.is_match("ab".repeat(SHORT_TEXT / 2).as_bytes(), &mut lane.scratch()));
        assert!(given_up() > before);
        // In a long text, only anchored expressions match at any position.
        let long = [&[b'.'; SHORT_TEXT][..], b"/user/77"].concat();
        let anchored = Regex::new(br"^\.+/user/(?!0)[0-9]+$", false).unwrap();
        assert!(anchored.is_match(&long, &mut lane.scratch()));
        assert!(anchored.matches(&long));
    }

    #[test]
    fn what_would_throw_its_steps_away_is_refused() {
        for text in [
            "(?>(?:(?=.*z)a)*)b",
            "(?=(?:(?=.*z)a)*b)c",
            "(?:(?=.*z)a)*+b",
            "(a)(?>\\1)b",
            "(?>[)](?!x)a)",
            "(?>[^])](?!x)a)",
        ] {
            let error = BacktrackRegex::new(text, false).unwrap_err();
            assert!(error.contains("its steps have no bound"), "{text}: {error}");
        }
        for text in
            ["^/(?!a)b", "^/(?>a+)b", "^/c++d", "(?:(?!x).)*y", "^(?=.*a)(?=.*b)", "[(?>](?!a)", "(?>a)(?!b)"]
        {
            assert!(BacktrackRegex::new(text, false).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_text_of_many_matches_is_not_replaced_in_part() {
        let mut lane = Lane::new();
        let before = given_up();
        let regex = Regex::new(br"a(?!b)", false).unwrap();
        let replaced = |text: &[u8], lane: &mut Lane| {
            regex.replace(text, b"x", true, &mut lane.scratch()).map(<[u8]>::to_vec)
        };
        let most = "a".repeat(MOST_REPLACED - 1);
        assert_eq!(replaced(most.as_bytes(), &mut lane), Some("x".repeat(MOST_REPLACED - 1).into_bytes()));
        assert_eq!(replaced("a".repeat(MOST_REPLACED + 1).as_bytes(), &mut lane), None);
        assert!(given_up() > before);
    }

    #[test]
    fn searches_in_one_text_are_bounded_together() {
        let mut lane = Lane::new();
        let mut replaced = |part: &str, matches: usize| {
            // The expression is not anchored: each position before a match is a step.
            let regex = Regex::new(b"(?:a|b(?=z))+", false).unwrap();
            let text = part.repeat(matches);
            let before = given_up();
            let replaced =
                regex.replace(text.as_bytes(), b"x", true, &mut lane.scratch()).map(<[u8]>::to_vec);
            assert!(replaced.is_some() || given_up() > before);
            replaced
                .map(|replaced| assert_eq!(replaced, part.replace('a', "x").repeat(matches).into_bytes()))
                .is_some()
        };
        let far = "b".repeat(LONG_STEPS + 20) + "a";
        let most = LONG_SEARCHES as usize + 1;
        assert!(replaced(&far, most), "the first, and those that may take as long");
        assert!(!replaced(&far, most + 1));
        let near = "b".repeat(30) + "a";
        assert!(replaced(&near, MOST_REPLACED - 1), "those that come soon");
        let longer = "b".repeat(40) + "a";
        const { assert!(SHORT_TEXT / 40 < MOST_REPLACED) };
        assert!(!replaced(&longer, SHORT_TEXT / 40), "not soon enough for a longer text");
    }

    /// Parts of expressions to combine at random.
    const WORDS: &[&str] = &[
        "(",
        ")",
        "(?=",
        "(?!",
        "(?<=",
        "(?<!",
        "(?>",
        "(?:",
        "(?<n>",
        "\\1",
        "\\2",
        "\\k<n>",
        "[",
        "]",
        "[^",
        "a",
        "b",
        "ab",
        ".",
        "*",
        "+",
        "?",
        "*?",
        "++",
        "{2}",
        "{1,3}",
        "{0}",
        "{4294967296}",
        "|",
        "^",
        "$",
        "\\b",
        "\\w",
        "\\d",
        "\\Z",
        "(?i)",
        "(?s)",
        "\\xff",
        "\u{e9}",
        "\\<",
        "-",
        "[:alpha:]",
        "&&",
    ];

    proptest::proptest! {
        #[test]
        fn whatever_compiles_can_be_tried(words in proptest::collection::vec(proptest::sample::select(WORDS),
            1..14)) {
            if let Ok(regex) = Regex::new(words.concat().as_bytes(), false) {
                let mut lane = Lane::new();
                for text in [&b""[..], b"ab", b"abcabcab\xff99 A", &[b'a'; 300]] {
                    let matches = regex.is_match(text, &mut lane.scratch());
                    proptest::prop_assert_eq!(matches, regex.matches(text));
                    let _ = regex.replace(text, b"<\\1>", true, &mut lane.scratch());
                }
            }
        }
    }

    #[test]
    fn escapes_with_another_meaning_are_refused_by_name() {
        let refused = |text: &[u8]| Regex::new(text, false).unwrap_err();
        assert!(refused(br"(?!a)\h").contains(r"'\h' is not built"), "{}", refused(br"(?!a)\h"));
        assert!(Regex::new(br"(?!a)\\h", false).is_ok(), "the backslash is escaped");
        assert!(refused("(?!a)".repeat(MAX_LOOKAROUNDS + 1).as_bytes()).contains("17 places"));
        assert!(
            refused(&[b"(?!a)".to_vec(), vec![b'b'; MAX_BACKTRACK_BYTES]].concat()).contains("4101 bytes")
        );
        assert!(refused(b"(?!b)a{,3}").contains("'{,' is not built"));
        assert!(refused(b"(a)(?!b)(?(1)c|d)").contains("'(?(' is not built"));
        for text in [
            r"(?!a)\Z{4294967296}",
            r"(?!a)(?:(?:\Z{100}){100}){100}",
            r"(?!a)\Z{200}{200}",
            r"(?!a)(?:b\1{99999})",
        ] {
            assert!(refused(text.as_bytes()).contains("written out"), "{text}: {}", refused(text.as_bytes()));
        }
        let sizes = [&b"a{3}b"[..], b"(ab{2,4}){3}c", br"\{9(?:)", b"{{3})"].map(written_out);
        assert_eq!(sizes, [4, 16, 3, 1]);
        assert!(refused(b"(?!a").starts_with("this regular expression is refused: "));
        // `[` in a class is literal with both engines, as in Perl.
        for (text, matching) in [
            ("^[[a]]$", "a]"),
            ("^[a&&b]$", "&"),
            ("^[^]a[]$", "b"),
            ("^[[:digit:][]+$", "1[2"),
            (r"^[\]a]$", "]"),
            ("^[a~~b]$", "~"),
        ] {
            for prefix in ["", "(?!x)"] {
                assert!(
                    Regex::new(format!("{prefix}{text}").as_bytes(), false)
                        .unwrap()
                        .matches(matching.as_bytes()),
                    "{text}"
                );
            }
        }
        let angles = Regex::new(br"^\<(?!b)a\>$", false).unwrap();
        assert!(angles.matches(b"<a>") && !angles.matches(b"a"));
    }
}
