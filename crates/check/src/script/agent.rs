//! `agent-check`: a program beside the server reports its state in one line.

use super::{Expect, Judgement, Pattern, Script, Service, Step};
use crate::status::{CheckResult, Status};

/// Orders that an operator could also give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// `ready`
    Ready,
    /// `drain`
    Drain,
    /// `maint`
    Maintenance,
}

/// Contents of an agent's line. Of several words of one kind, the last counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentReply<'l> {
    /// `up`, or `down`, `fail` or `stopped`: whether the server works, and the word.
    pub health: Option<(bool, &'l str)>,
    /// `ready`, `drain`, `maint`
    pub order: Option<Order>,
    /// `75%`
    pub weight: Option<&'l str>,
    /// Text behind `maxconn:`.
    pub maxconn: Option<&'l str>,
    /// First unknown word.
    pub unknown: Option<&'l str>,
    /// Text behind `#`.
    pub description: &'l str,
}

/// Returns the script: it sends some bytes and waits for a line.
pub fn script(send: &[u8]) -> Script {
    let send = (!send.is_empty()).then(|| Step::send(send));
    let expect = Step::expect(Expect::new(Pattern::Service(Service::Agent), 2));
    Script::of(send.into_iter().chain([expect]).collect())
}

/// Ends the exchange with any line; its meaning is parsed afterwards.
pub(super) fn judge(input: &[u8], last: bool) -> Judgement {
    match line(input) {
        Some(_) => Judgement::Over(CheckResult::new(Status::Checked, "")),
        None if last => {
            Judgement::Over(CheckResult::new(Status::L7Tout, "Ignoring incomplete line from agent"))
        }
        None => Judgement::Wait,
    }
}

/// Returns the first line, if it is complete. A zero byte ends the text: no line is complete after it.
pub(super) fn line(input: &[u8]) -> Option<&[u8]> {
    let end = input.iter().position(|byte| matches!(byte, b'\r' | b'\n' | 0))?;
    (input[end] != 0).then(|| &input[..end])
}

impl<'l> AgentReply<'l> {
    /// Parses a line.
    pub fn read(line: &'l str) -> Self {
        let mut said = Self::default();
        let mut rest = line;
        loop {
            rest = rest.trim_start_matches([' ', '\t', ',']);
            if let Some(description) = rest.strip_prefix('#') {
                said.description = description.trim_start_matches([' ', '\t']);
                return said;
            }
            let end = rest.find([' ', '\t', ',']).unwrap_or(rest.len());
            let (word, behind) = rest.split_at(end);
            if word.is_empty() {
                return said;
            }
            said.word(word);
            rest = behind;
        }
    }

    fn word(&mut self, word: &'l str) {
        const MAXCONN: &str = "maxconn:";
        match word.to_ascii_lowercase().as_str() {
            "up" => self.health = Some((true, word)),
            "down" | "fail" | "stopped" => self.health = Some((false, word)),
            "ready" => self.order = Some(Order::Ready),
            "drain" => self.order = Some(Order::Drain),
            "maint" => self.order = Some(Order::Maintenance),
            lower if lower.starts_with(MAXCONN) => self.maxconn = word.get(MAXCONN.len()..),
            _ if word.starts_with(|first: char| first.is_ascii_digit()) && word.contains('%') => {
                self.weight = Some(word)
            }
            _ => self.unknown = self.unknown.or(Some(word)),
        }
    }

    /// Returns the result of the check; `warning` is the fault in the weight or in `maxconn`.
    pub fn result(&self, warning: Option<&str>) -> CheckResult {
        let odd = self.unknown.or(warning);
        match self.health {
            Some((up, word)) => {
                // If the server does not work, the description matters most.
                let more = if self.description.is_empty() || up {
                    odd.unwrap_or(self.description)
                } else {
                    self.description
                };
                let more = if more.is_empty() { String::new() } else { format!(" ({more})") };
                let status = if up { Status::L7Ok } else { Status::L7Sts };
                CheckResult::said(status, 0, format!("via agent : {word}{more}").as_bytes())
            }
            None => {
                let info = match (self.unknown, warning) {
                    (Some(unknown), _) => format!("agent reports an error : {unknown}"),
                    (None, Some(warning)) => format!("agent warns : {warning}"),
                    (None, None) => String::new(),
                };
                CheckResult { code: None, ..CheckResult::said(Status::Checked, 0, info.as_bytes()) }
            }
        }
    }
}

/// Returns the weight that `word`, such as `75%`, gives to a server with the configured weight `configured`.
///
/// # Errors
/// The fault, in HAProxy's words.
pub fn weight(word: &str, configured: u16) -> Result<u16, &'static str> {
    let digits = word.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(word.len());
    match (word[..digits].parse::<u64>(), &word[digits..]) {
        (Ok(percents), "%") => {
            Ok(u64::from(configured).saturating_mul(percents).div_euclid(100).min(256) as u16)
        }
        _ => Err("Trailing garbage in weight string"),
    }
}

/// Returns the limit that `word` names.
///
/// # Errors
/// The fault, in HAProxy's words.
pub fn maxconn(word: &str) -> Result<u32, &'static str> {
    let digits = word.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(word.len());
    match (&word[..digits], &word[digits..]) {
        ("", _) => Err("maxconn string empty or preceded by garbage"),
        (number, "") => Ok(number.parse().unwrap_or(u32::MAX)),
        _ => Err("Trailing garbage in maxconn string"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn of_each_kind_of_words_the_last_counts_and_of_unknown_ones_the_first() {
        let said = AgentReply::read("Up,drain\t50%  what maxconn:7 ever down 75% READY # it is, as it is #");
        let expected = AgentReply {
            health: Some((false, "down")),
            order: Some(Order::Ready),
            weight: Some("75%"),
            maxconn: Some("7"),
            unknown: Some("what"),
            description: "it is, as it is #",
        };
        assert_eq!(said, expected);
        assert_eq!(&*said.result(None).info, "via agent : down (it is, as it is #)");
        assert_eq!(
            AgentReply::read("stopped#x").unknown,
            Some("stopped#x"),
            "a sign inside of a word is a part of it"
        );
        assert_eq!(&*AgentReply::read("up # fine").result(Some("odd")).info, "via agent : up (odd)");
    }

    #[test]
    fn weights_are_parts_of_the_configured_one_and_bounds_are_numbers() {
        for (word, configured, expected) in [
            ("75%", 10, Ok(7)),
            ("300%", 100, Ok(256)),
            ("18446744073709551615%", 256, Ok(256)),
            ("18446744073709551616%", 1, Err("Trailing garbage in weight string")),
            ("5x%", 1, Err("Trailing garbage in weight string")),
        ] {
            assert_eq!(weight(word, configured), expected, "{word}");
        }
        assert_eq!(maxconn("99999999999"), Ok(u32::MAX));
        assert_eq!(maxconn("7 "), Err("Trailing garbage in maxconn string"));
    }

    /// HAProxy accepts a line without an end if the end of the connection comes with it, which depends on
    /// timing.
    #[test]
    fn a_line_without_an_end_is_waited_for_and_then_passed_over() {
        assert!(matches!(judge(b"up", false), Judgement::Wait));
        let Judgement::Over(result) = judge(b"up", true) else { panic!("it is waited for more") };
        assert_eq!((result.status, &*result.info), (Status::L7Tout, "Ignoring incomplete line from agent"));
        let Judgement::Over(result) = judge(b"up\n", true) else { panic!("it is waited for more") };
        assert_eq!((result.status, &*result.info), (Status::Checked, ""));
    }

    proptest! {
        #[test]
        fn whatever_an_agent_says_only_whole_words_count(line in "[ ,#a-z0-9%:\t\u{e4}]{0,40}") {
            let said = AgentReply::read(&line);
            let words: Vec<&str> = line.split([' ', '\t', ',']).collect();
            let all = [said.health.map(|(_, word)| word), said.weight, said.unknown];
            for word in all.into_iter().flatten() {
                prop_assert!(words.contains(&word), "{word} in {line}");
            }
            if let Some(most) = said.maxconn {
                let length = most.len() + "maxconn:".len();
                let begins = |word: &&str| word.ends_with(most) && word.len() == length;
                prop_assert!(words.iter().any(begins), "{most} in {line}");
            }
            prop_assert!(line.ends_with(said.description));
        }
    }
}
