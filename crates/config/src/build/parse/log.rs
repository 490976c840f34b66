//! `log` lines.

use super::{Builder, Line, address, at, got};
use crate::build::{Prefix, proposal};
use crate::choice;
use crate::lex::Word;
use crate::table::KeywordContext;
use crate::tree::{LEVELS, LogLine, LogSample, LogSink, LogTarget};
use crate::value;
use manylane_net::Rules;

/// Formats of log lines.
pub(crate) const LOG_FORMATS: &[&str] =
    &["local", "rfc3164", "rfc5424", "priority", "short", "timed", "iso", "raw"];

const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "auth2", "ftp", "ntp",
    "audit", "alert", "cron2", "local0", "local1", "local2", "local3", "local4", "local5", "local6",
    "local7",
];

pub(crate) fn log(b: &mut Builder<'_>, line: &Line<'_>) {
    let target = match (line.prefix, line.words.first()) {
        (Prefix::No | Prefix::Default, _) => {
            line.no_more(b, 0);
            targets(b).clear();
            return;
        }
        (_, Some(word)) if *word == "global" && b.context() != KeywordContext::Global => {
            line.no_more(b, 1);
            LogTarget::Global(line.pos())
        }
        _ => match own(b, line) {
            Some(target) => LogTarget::Own(Box::new(target)),
            None => return,
        },
    };
    targets(b).push(target);
}

fn targets<'b>(b: &'b mut Builder<'_>) -> &'b mut Vec<LogTarget> {
    if b.context() == KeywordContext::Global { &mut b.config.global.log } else { &mut b.settings().log }
}

fn own(b: &mut Builder<'_>, line: &Line<'_>) -> Option<LogLine> {
    let word = &line.words[0];
    let sink = match word.bytes() {
        b"stdout" => LogSink::Stdout,
        b"stderr" => LogSink::Stderr,
        name if name.starts_with(b"ring@") => LogSink::Ring(word.slice(5..name.len())),
        name if name.starts_with(b"backend@") => LogSink::Backend(word.slice(8..name.len())),
        _ => LogSink::Address(address(b, "log", word, &Rules::LOG)?.value),
    };
    let mut target = LogLine {
        sink,
        length: None,
        format: None,
        profile: None,
        sample: None,
        facility: 0,
        level: 7,
        min_level: 0,
        pos: line.pos(),
    };
    let mut index = 1;
    while let Some(option) = line.words.get(index) {
        match option.bytes() {
            b"len" => target.length = Some(line.own_int(b, index + 1, 80, 65_535)? as u32),
            b"format" => match line.words.get(index + 1) {
                Some(_) => target.format = Some(line.own_choice(b, index + 1, LOG_FORMATS)?),
                None => {
                    b.found.alert(line.end(), "'log' : 'format' expects the name of a format, found none");
                    return None;
                }
            },
            b"sample" => target.sample = Some(sample(b, line, index + 1)?),
            b"profile" => match line.words.get(index + 1) {
                Some(name) => target.profile = Some(name.clone()),
                None => {
                    b.found.alert(line.end(), "'log' : 'profile' expects the name of a section, found none");
                    return None;
                }
            },
            _ => break,
        }
        index += 2;
    }
    let number = |b: &mut Builder<'_>, index: usize, what: &str, names: &[&str]| -> Option<u8> {
        let word = line.words.get(index);
        match word.and_then(|word| names.iter().position(|name| *word == **name)) {
            Some(number) => Some(number as u8),
            None => {
                let guess = word.map_or(String::new(), |word| proposal(word, names.iter().copied()));
                let message = format!("'log' expects a {what} ({}){}{guess}", choice(names), got(word));
                b.found.alert(at(word, line), message);
                None
            }
        }
    };
    target.facility = number(b, index, "facility", &FACILITIES)?;
    if line.words.len() > index + 1 {
        target.level = number(b, index + 1, "level", LEVELS)?;
    }
    if line.words.len() > index + 2 {
        target.min_level = number(b, index + 2, "level", LEVELS)?;
    }
    line.no_more(b, index + 3);
    Some(target)
}

/// Parses `1,3-5:10`: which lines of every ten.
fn sample(b: &mut Builder<'_>, line: &Line<'_>, index: usize) -> Option<LogSample> {
    let word = line.words.get(index);
    let sample = word.and_then(read_sample);
    if sample.is_none() {
        let message = format!("'log' : 'sample' expects ranges and a size such as 1,3-5:10{}", got(word));
        b.found.alert(at(word, line), message);
    }
    sample
}

fn read_sample(word: &Word) -> Option<LogSample> {
    let (list, size) = word.text()?.rsplit_once(':')?;
    let number =
        |text: &str| value::integer(text.as_bytes(), 1, i64::from(i32::MAX)).ok().map(|number| number as u32);
    let size = number(size)?;
    let mut ranges = Vec::new();
    for part in list.split(',') {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let (low, high) = (number(low)?, number(high)?);
        if low > high || high > size {
            return None;
        }
        ranges.push((low, high));
    }
    ranges.sort_unstable();
    ranges.windows(2).all(|pair| pair[0].1 < pair[1].0).then_some(LogSample { ranges, size })
}
