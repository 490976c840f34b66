//! Log targets and log formats.

use super::context::{DFL, DFLB, GLOBAL, KeywordContext, KeywordContexts};
use super::{Keyword, own, text};
use crate::build::{Builder, Line, parse};
use crate::tree::{LogStep, LogSteps, ProfileStep};

pub(super) fn rows() -> Vec<Keyword> {
    let ring = KeywordContexts::of(&[KeywordContext::Ring]);
    let profile = KeywordContexts::of(&[KeywordContext::LogProfile]);
    vec![
        own(
            "log",
            GLOBAL,
            "<target> [len <length>] [format <format>] [profile <name>] [sample <ranges>:<size>] \
                <facility> [<level> [<minimum>]]",
            1,
            "where log lines go",
        )
        .adds()
        .negatable()
        .built(parse::log),
        own(
            "log",
            DFLB,
            "global | <target> [len <length>] [format <format>] [profile <name>] [sample \
                <ranges>:<size>] <facility> [<level> [<minimum>]]",
            1,
            "where log lines go",
        )
        .adds()
        .negatable()
        .built(parse::log),
        own("log-send-hostname", GLOBAL, "[<name>]", 0, "the host's name stands in log lines")
            .default("the system's name")
            .built(|b, line| {
                b.config.global.log_send_hostname = Some(line.set(line.words.first().cloned()));
                line.no_more(b, 1);
            }),
        super::args("log-tag", GLOBAL, [text("name")], "the program's name in log lines")
            .default("the program's name")
            .built(|b, line| {
                b.config.global.log_tag = Some(line.set(line.word(0)));
            }),
        super::args("log-tag", DFLB, [text("name")], "the program's name in log lines")
            .default("the process's")
            .built(|b, line| {
                let tag = line.set(line.word(0));
                b.settings().log_tag = Some(tag);
            }),
        own("log-format", DFLB, "<format>", 1, "what a log line holds").words(format),
        own(
            "log-format-sd",
            DFLB,
            "<format>",
            1,
            "structured data of log lines after RFC \
            5424",
        )
        .words(format),
        own("error-log-format", DFLB, "<format>", 1, "what a log line about a failed connection holds")
            .words(format),
        own("log-steps", DFL, "all | <step>[,...]", 1, "moments at which a line is logged")
            .default("close")
            .built(log_steps),
        own("backing-file", ring, "<file>", 1, "the file behind the ring, which survives the process")
            .built(ring_word),
        own("format", ring, "<format>", 1, "how lines are stored").default("raw").built(ring_word),
        own("maxlen", ring, "<bytes>", 1, "bytes of a line, 80 to 65535").default("1024").built(ring_word),
        own("size", ring, "<bytes>", 1, "bytes of the ring, 16384 to 1g").default("16384").built(ring_word),
        own("description", ring, "<text>...", 1, "a sentence about the ring").built(ring_word),
        own("server", ring, "<name> <address>:<port> [<option>...]", 2, "where the ring's lines are sent")
            .adds()
            .built(parse::ring_server),
        super::args("log-tag", profile, [text("name")], "the program's name in lines of the profile")
            .default("the proxy's")
            .built(|b, line| b.log_profile().tag = Some(line.set(line.word(0)))),
        own("on", profile, "<step> [drop] [format <format>] [sd <format>]", 1, "what is logged at a step")
            .adds()
            .built(profile_step),
    ]
    .into_iter()
    .filter(|row| !row.help.is_empty())
    .collect()
}

fn format(b: &mut Builder<'_>, line: &Line<'_>) {
    let format = line.set(line.word(0));
    line.no_more(b, 1);
    if is_of_backend(b, line) {
        return;
    }
    let settings = b.settings();
    match line.keyword.name {
        "log-format" => settings.log_format = Some(format),
        "log-format-sd" => settings.log_format_sd = Some(format),
        _ => settings.error_log_format = Some(format),
    }
}

/// Warns of a format that a backend names; log lines are of frontends. Returns true if it is one.
pub(super) fn is_of_backend(b: &mut Builder<'_>, line: &Line<'_>) -> bool {
    let ignored = b.context() == KeywordContext::Backend;
    if ignored {
        let message = format!(
            "backend '{}' : '{}' directive is ignored in backends",
            b.proxy().name.shown(),
            line.keyword.name
        );
        b.found.warning(line.pos(), message);
    }
    ignored
}

/// `log-steps`
fn log_steps(b: &mut Builder<'_>, line: &Line<'_>) {
    let word = &line.words[0];
    let mut steps = LogSteps::default();
    for name in word.bytes().split(|byte| *byte == b',') {
        match LogStep::by_name(name).filter(|step| LogStep::COURSE.contains(step)) {
            Some(step) => steps = steps.with(step),
            None if name == b"all" => steps = LogSteps::ALL,
            None => {
                let known = LogStep::COURSE.map(LogStep::name).into_iter().chain(["all"]);
                let message = manylane_expr::none_of("log-steps", known, name);
                return b.found.alert(word.pos(), message);
            }
        }
    }
    line.no_more(b, 1);
    b.settings().log_steps = Some(line.set(steps));
}

/// `on` of a `log-profile` section.
fn profile_step(b: &mut Builder<'_>, line: &Line<'_>) {
    let word = &line.words[0];
    let Some(step) = LogStep::by_name(word.bytes()) else {
        let message = manylane_expr::none_of("on", LogStep::names(), word.bytes());
        return b.found.alert(word.pos(), message);
    };
    let mut made = ProfileStep { step, drop: false, format: None, structured: None };
    let mut words = line.words[1..].iter();
    while let Some(word) = words.next() {
        let value = match word.bytes() {
            // A later 'drop' or format wins over an earlier one.
            b"drop" => {
                made = ProfileStep { step, drop: true, format: None, structured: None };
                continue;
            }
            b"format" => &mut made.format,
            b"sd" => &mut made.structured,
            other => {
                let message = manylane_expr::none_of("on", ["drop", "format", "sd"], other);
                return b.found.alert(word.pos(), message);
            }
        };
        *value = words.next().cloned();
        made.drop = false;
        if value.is_none() {
            let message = format!("'on' : '{}' expects a format, found none", word.shown());
            return b.found.alert(word.pos(), message);
        }
    }
    // The last line of a step wins.
    let steps = &mut b.log_profile().steps;
    steps.retain(|known| known.step != step);
    steps.push(made);
}

/// Sizes of a ring in bytes. The minimum is that of HAProxy.
const MIN_RING: u64 = 16_384;
const MAX_RING: u64 = 1 << 30;

fn ring_word(b: &mut Builder<'_>, line: &Line<'_>) {
    let size = |b: &mut Builder<'_>, least, most| line.own_size(b, 0, least, most);
    match line.keyword.name {
        "size" => {
            if let Some(bytes) = size(b, MIN_RING, MAX_RING) {
                b.ring().size = Some(line.set(bytes));
            }
        }
        "maxlen" => {
            if let Some(bytes) = size(b, 80, 65_535) {
                b.ring().maxlen = Some(line.set(bytes));
            }
        }
        "format" => {
            if let Some(format) = line.own_choice(b, 0, parse::LOG_FORMATS) {
                b.ring().format = Some(line.set(format));
            }
        }
        "backing-file" => b.ring().backing_file = Some(line.set(line.word(0))),
        _ => {
            b.ring().description = Some(line.set(line.sentence(0)));
            return;
        }
    }
    line.no_more(b, 1);
}
