//! Regular expressions over bytes, in Perl's syntax. Matching takes linear time, except for expressions that
//! need backtracking ([`backtrack`](super::backtrack)).

use super::backtrack::{self, BacktrackRegex, MOST_REPLACED, Searches, StepLimitExceeded};
use crate::scratch::{Scratch, Writer};
use crate::show::Shown;
use manylane_sync::Arc;
use regex_automata::util::primitives::NonMaxUsize;
use regex_automata::{Input, meta, util::syntax};
use std::ops::Range;

/// Maximum size of a compiled expression in bytes.
pub const MAX_REGEX_BYTES: usize = 4 << 20;

/// Maximum size of the cache of one expression on one lane, in bytes. A full cache is cleared. Each lane has
/// a cache for each expression that it has used.
pub const MAX_MACHINE_BYTES: usize = 256 << 10;

/// Number of groups that a template can use: `\0` to `\9`.
const GROUPS: usize = 10;

/// Start and end of each group.
type Slots = [Option<NonMaxUsize>; 2 * GROUPS];

/// A compiled expression. Its mutable state is in the [`Lane`](crate::Lane), so matching takes no lock.
///
/// As in Perl, `$` also matches before a line feed at the end of the text.
#[derive(Clone, Debug)]
pub struct Regex {
    engine: Engine,
    end: End,
}

/// The anchor at the end of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Nothing,
    /// `$`
    Dollar,
    /// `\z`, the very end. In such an expression `$` means the same.
    Very,
}

#[derive(Clone, Debug)]
enum Engine {
    Linear(Arc<meta::Regex>),
    BacktrackRegex(Arc<BacktrackRegex>),
}

impl Regex {
    /// Compiles an expression.
    ///
    /// # Errors
    /// A sentence with the reason for refusing it.
    pub fn new(text: &[u8], ignore_case: bool) -> Result<Self, String> {
        // The backtracking engine would take this as literal text.
        if let Some(range) = backwards(text) {
            let shown = Shown(&text[range]);
            return Err(format!(
                "this regular expression is refused: the repetition {shown} has a minimum above its maximum"
            ));
        }
        let linear = match Self::any_of(&[text], ignore_case) {
            Ok(regex) => return Ok(regex),
            Err(why) => why,
        };
        let Ok(text) = std::str::from_utf8(text) else { return Err(linear) };
        let (text, end) = plain(text);
        match BacktrackRegex::new(&text, ignore_case) {
            Ok(looking) => Ok(Self { engine: Engine::BacktrackRegex(Arc::new(looking)), end }),
            // The linear engine only reports that it has no look-around, so prefer the other reason.
            // Otherwise its own reason is better, as it has a position.
            Err(why) if linear.contains("look-around") || linear.contains("backreference") => {
                Err(format!("this regular expression is refused: {why}"))
            }
            Err(_) => Err(linear),
        }
    }

    /// Compiles one machine for several expressions.
    pub(crate) fn any_of(texts: &[&[u8]], ignore_case: bool) -> Result<Self, String> {
        let texts: Vec<(String, End)> =
            texts.iter().map(|text| std::str::from_utf8(text).map(plain)).collect::<Result<_, _>>().map_err(
                |_| "a regular expression expects UTF-8, found other bytes; write them as \\xNN".to_owned(),
            )?;
        let (texts, ends): (Vec<String>, Vec<End>) = texts.into_iter().unzip();
        let end = [End::Very, End::Dollar].into_iter().find(|end| ends.contains(end)).unwrap_or(End::Nothing);
        let config = meta::Config::new()
            .nfa_size_limit(Some(MAX_REGEX_BYTES))
            .onepass_size_limit(Some(MAX_REGEX_BYTES / 4))
            .hybrid_cache_capacity(MAX_MACHINE_BYTES)
            .utf8_empty(false);
        let syntax = syntax::Config::new().utf8(false).unicode(false).case_insensitive(ignore_case);
        match meta::Builder::new().configure(config).syntax(syntax).build_many(&texts) {
            Ok(regex) => Ok(Self { engine: Engine::Linear(Arc::new(regex)), end }),
            Err(error) => {
                let why = match error.syntax_error() {
                    Some(error) => last_line(&error.to_string()),
                    None => last_line(&error.to_string()),
                };
                Err(format!("this regular expression is refused: {why}"))
            }
        }
    }

    /// True if the expression cannot be part of a machine for several.
    pub(super) fn stands_alone(&self) -> bool {
        matches!(self.engine, Engine::BacktrackRegex(_)) || self.end == End::Very
    }

    /// The text without a final line feed, if `$` may match before it.
    fn shorter<'t>(&self, text: &'t [u8]) -> Option<&'t [u8]> {
        text.strip_suffix(b"\n").filter(|_| self.end == End::Dollar)
    }

    /// True if it matches somewhere in `text`.
    pub fn is_match(&self, text: &[u8], scratch: &mut Scratch<'_>) -> bool {
        let mut is_match = |text: &[u8]| match &self.engine {
            Engine::Linear(regex) => {
                let input = Input::new(text).earliest(true);
                regex.search_half_with(scratch.machine(regex), &input).is_some()
            }
            Engine::BacktrackRegex(looking) => {
                scratch.looking(looking).is_some_and(|machine| machine.is_match(text))
            }
        };
        is_match(text) || self.shorter(text).is_some_and(is_match)
    }

    /// The same for threads that are not lanes: takes the state from a shared pool.
    pub fn matches(&self, text: &[u8]) -> bool {
        let is_match = |text: &[u8]| match &self.engine {
            Engine::Linear(regex) => regex.is_match(text),
            Engine::BacktrackRegex(looking) => looking.own().is_match(text),
        };
        is_match(text) || self.shorter(text).is_some_and(is_match)
    }

    /// Start and end of the first match, and its groups.
    fn groups(
        &self,
        text: &[u8],
        from: usize,
        scratch: &mut Scratch<'_>,
        slots: &mut Slots,
        searches: &mut Searches,
    ) -> Result<Option<(usize, usize)>, StepLimitExceeded> {
        let first = self.search(text, from, scratch, slots, searches)?;
        if let Some(shorter) = self.shorter(text).filter(|shorter| from <= shorter.len()) {
            let mut others = [None; 2 * GROUPS];
            let other = self.search(shorter, from, scratch, &mut others, searches)?;
            // If both matches begin together, as with `\s*$`, take the one at the end of the whole text.
            if other.is_some_and(|(start, _)| first.is_none_or(|(first, _)| start < first)) {
                *slots = others;
                return Ok(other);
            }
        }
        Ok(first)
    }

    fn search(
        &self,
        text: &[u8],
        from: usize,
        scratch: &mut Scratch<'_>,
        slots: &mut Slots,
        searches: &mut Searches,
    ) -> Result<Option<(usize, usize)>, StepLimitExceeded> {
        slots.fill(None);
        match &self.engine {
            Engine::Linear(regex) => {
                let input = Input::new(text).range(from..);
                regex.search_slots_with(scratch.machine(regex), &input, slots);
            }
            Engine::BacktrackRegex(looking) => {
                let Some(machine) = scratch.looking(looking) else { return Ok(None) };
                let Some(groups) = machine.groups(text, from, searches)? else { return Ok(None) };
                for (number, slots) in slots.chunks_exact_mut(2).enumerate() {
                    let group = groups.get(number);
                    slots[0] = group.as_ref().and_then(|group| NonMaxUsize::new(group.start()));
                    slots[1] = group.as_ref().and_then(|group| NonMaxUsize::new(group.end()));
                }
            }
        }
        Ok(slots[0].zip(slots[1]).map(|(start, end)| (start.get(), end.get())))
    }

    /// Replaces the first match, or all, by `template`, in which `\1` is the first group. `None` if the
    /// result does not fit into the scratch, or a search gives up.
    pub(crate) fn replace<'x>(
        &self,
        text: &'x [u8],
        template: &[u8],
        all: bool,
        scratch: &mut Scratch<'x>,
    ) -> Option<&'x [u8]> {
        let mut slots = [None; 2 * GROUPS];
        let mut searches = Searches::new();
        let mut at = match self.groups(text, 0, scratch, &mut slots, &mut searches) {
            Ok(Some(at)) => at,
            Ok(None) => return Some(text),
            Err(StepLimitExceeded) => return None, // the text may have what is to be replaced
        };
        // The result grows at the start of the scratch, between searches, which borrow the scratch too.
        let mut copied = 0;
        let mut len = 0;
        let mut most =
            if matches!(self.engine, Engine::BacktrackRegex(_)) { MOST_REPLACED } else { usize::MAX };
        loop {
            if most == 0 {
                backtrack::give_up();
                return None;
            }
            most -= 1;
            let (start, end) = at;
            len = append(scratch, len, |out| {
                out.put(&text[copied..start])?;
                expand(text, template, &slots, out)
            })?;
            copied = end;
            if !all {
                break;
            }
            // Advance after an empty match, so that it is not found again. As in Perl and HAProxy, an empty
            // match may follow one that is not empty, also at the end.
            let mut from = end;
            if start == end {
                let Some(next) = text.get(end) else { break };
                len = append(scratch, len, |out| out.push(*next))?;
                copied = end + 1;
                from = end + 1;
            }
            match self.groups(text, from, scratch, &mut slots, &mut searches) {
                Ok(Some(next)) => at = next,
                Ok(None) => break,
                Err(StepLimitExceeded) => return None, // no partial results
            }
        }
        len = append(scratch, len, |out| out.put(&text[copied..]))?;
        scratch.fill(|_| Some(len))
    }

    /// Expands `template` with the groups of the first match; `\1` is the first group. `None` if there is no
    /// match, or no room in the scratch.
    pub fn expand<'x>(&self, text: &[u8], template: &[u8], scratch: &mut Scratch<'x>) -> Option<&'x [u8]> {
        let mut slots = [None; 2 * GROUPS];
        self.groups(text, 0, scratch, &mut slots, &mut Searches::new()).ok()??;
        scratch.build(|out| expand(text, template, &slots, out))
    }
}

/// Writes after the first `len` free bytes without taking them. Returns the new length.
fn append(
    scratch: &mut Scratch<'_>,
    len: usize,
    write: impl FnOnce(&mut Writer<'_>) -> Option<()>,
) -> Option<usize> {
    let mut added = 0;
    scratch.fill(|free| {
        let mut out = Writer::new(free.get_mut(len..)?);
        write(&mut out)?;
        added = out.len();
        Some(0)
    })?;
    Some(len + added)
}

/// Offset of the error in an expression that [`Regex::new`] refuses; 0 if it is unknown.
pub fn fault(text: &[u8]) -> usize {
    if let Some(range) = backwards(text) {
        return range.start;
    }
    let Ok(text) = std::str::from_utf8(text) else { return 0 };
    let (engines, _) = plain(text);
    use regex_syntax::ast::ErrorKind::{UnsupportedBackreference, UnsupportedLookAround};
    let at = match regex_syntax::parse(&engines) {
        // The backtracking engine reported the error.
        Err(regex_syntax::Error::Parse(error))
            if matches!(error.kind(), UnsupportedBackreference | UnsupportedLookAround) =>
        {
            backtrack::fault(&engines)
        }
        Err(regex_syntax::Error::Parse(error)) => error.span().start.offset,
        Err(regex_syntax::Error::Translate(error)) => error.span().start.offset,
        _ => return 0,
    };
    // The translated text may differ before the error; then the offset does not apply.
    if text.as_bytes().get(..at) == engines.as_bytes().get(..at) { at } else { 0 }
}

/// The first repetition whose minimum exceeds its maximum, such as `{3,1}`.
fn backwards(text: &[u8]) -> Option<Range<usize>> {
    let (mut at, mut in_class) = (0, false);
    while let Some(byte) = text.get(at) {
        match byte {
            b'\\' => at += 1,
            b'[' if !in_class => {
                in_class = true;
                at += usize::from(text.get(at + 1) == Some(&b'^'));
                at += usize::from(text.get(at + 1) == Some(&b']'));
            }
            b']' => in_class = false,
            b'{' if !in_class => {
                let length = text[at..].iter().position(|byte| *byte == b'}').unwrap_or(0);
                let counts = std::str::from_utf8(&text[at + 1..at + length.max(1)]).unwrap_or_default();
                let number = |text: &str| text.parse::<u32>().ok();
                if let Some((least, most)) = counts.split_once(',')
                    && let (Some(least), Some(most)) = (number(least), number(most))
                    && least > most
                {
                    return Some(at..at + length + 1);
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Translates an expression from Perl's syntax to that of the engines, and returns its end anchor. `\<` and
/// `\>` are literal characters, not word boundaries. In a class `[`, `&&` and `~~` are literal.
fn plain(text: &str) -> (String, End) {
    let mut end = End::Nothing;
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut in_class = false;
    while let Some(char) = rest.chars().next() {
        let mut taken = char.len_utf8();
        match char {
            '\\' => {
                let escaped = rest[1..].chars().next();
                taken += escaped.map_or(0, char::len_utf8);
                let plain = matches!(escaped, Some('<' | '>'));
                if escaped == Some('z') {
                    end = End::Very;
                }
                out.push_str(&rest[usize::from(plain)..taken]);
            }
            '[' if !in_class => {
                in_class = true;
                // A bracket at the start of a class is literal.
                taken += rest[1..].strip_prefix('^').map_or(0, |_| 1);
                taken += usize::from(rest[taken..].starts_with(']'));
                out.push_str(&rest[..taken]);
            }
            '[' => match rest.starts_with("[:").then(|| rest.find(":]")).flatten() {
                Some(end) => {
                    taken = end + 2;
                    out.push_str(&rest[..taken]);
                }
                None => out.push_str("\\["),
            },
            '$' if !in_class => {
                out.push(char);
                if end == End::Nothing {
                    end = End::Dollar;
                }
            }
            '&' | '~' if in_class => out.extend(['\\', char]),
            _ => {
                in_class &= char != ']';
                out.push(char);
            }
        }
        rest = &rest[taken..];
    }
    (out, end)
}

fn expand(text: &[u8], template: &[u8], slots: &Slots, out: &mut Writer<'_>) -> Option<()> {
    let mut rest = template;
    while let [first, tail @ ..] = rest {
        rest = tail;
        match (*first, tail) {
            (b'\\', [digit @ b'0'..=b'9', tail @ ..]) => {
                rest = tail;
                let group = usize::from(digit - b'0');
                if let (Some(start), Some(end)) = (slots[2 * group], slots[2 * group + 1]) {
                    out.put(&text[start.get()..end.get()])?;
                }
            }
            (b'\\', [b'x', high, low, tail @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                rest = tail;
                let digit = |byte: u8| crate::fetch::digit(byte).unwrap_or(0);
                out.push(digit(*high) << 4 | digit(*low))?;
            }
            (b'\\', [next, tail @ ..]) => {
                rest = tail;
                out.push(*next)?;
            }
            (byte, _) => out.push(byte)?,
        }
    }
    Some(())
}

/// The last line of an engine's message. The lines before it draw the expression with a caret.
fn last_line(message: &str) -> String {
    let line = message.lines().last().unwrap_or_default();
    line.trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fault_is_pointed_at_and_backward_repetitions_are_refused() {
        let faults = [
            ("^/(foo|bar[", 10),
            ("a{3,1}", 1),
            ("(?!x)ab{12,2}c", 7),
            ("a)", 1),
            ("^/(?!a", 2),
            (r"(a)[](](?=b|\)", 7),
        ];
        for (text, at) in faults {
            assert!(Regex::new(text.as_bytes(), false).is_err(), "{text}");
            assert_eq!(fault(text.as_bytes()), at, "{text}");
        }
        for text in ["a{1,3}", "a{3}", "a{3,}", "[{3,1}]", r"\{3,1}", "[^]{3,1}]"] {
            assert!(Regex::new(text.as_bytes(), false).is_ok(), "{text}");
        }
    }
}
