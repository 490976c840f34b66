//! `show errors`: the last invalid messages, and counters of those that were accepted.

use super::Call;
use crate::reply::ReplyError;
use manylane_expr::{Civil, Timestamp, Zone};
use manylane_plan::invalid::{Frame, Invalid, InvalidMessages};
use std::fmt::Write;

/// Most characters of a line, after its position.
const WIDTH: usize = 70;

pub(super) async fn show(call: &mut Call<'_, '_>) -> Result<(), ReplyError> {
    let generation = call.generation;
    let (word, kind) = (call.word(0), call.word(1));
    let names = || {
        let fronts = generation.frontends.iter().map(|own| (&own.name, own.id));
        fronts.chain(generation.backends.iter().map(|own| (&own.name, own.id)))
    };
    let wanted = match word {
        "" | "-1" => None,
        word => {
            let own = names().find(|(name, id)| ***name == *word || word.parse() == Ok(*id));
            let Some((_, id)) = own else {
                call.error("No such proxy.");
                return Ok(());
            };
            Some(id)
        }
    };
    let fronts = || generation.frontends.iter().map(|own| (Side::REQUESTS, &own.name, own.id, &*own.invalid));
    let backs = || generation.backends.iter().map(|own| (Side::RESPONSES, &own.name, own.id, &*own.invalid));
    let total: u64 = fronts().chain(backs()).map(|(.., invalid)| invalid.total()).sum();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let now = Timestamp { seconds: now.as_secs().cast_signed(), micros: now.subsec_micros() };
    let _ = writeln!(call.reply, "Total events captured on [{}] : {total}", date(now, &generation.zone));
    for (side, name, id, invalid) in fronts().chain(backs()).filter(|(side, ..)| kind != side.left_out_by) {
        side.report(
            call,
            &format!("{} {name} (#{id})", side.proxy),
            wanted.map(|wanted| (wanted, id)),
            invalid,
        );
        call.reply.breathe().await?;
    }
    Ok(())
}

/// Words for one side of an exchange.
struct Side {
    proxy: &'static str,
    message: &'static str,
    /// The noun for the other proxy of the exchange.
    other: &'static str,
    option: &'static str,
    /// The argument that asks for the other side only.
    left_out_by: &'static str,
}

impl Side {
    const REQUESTS: Self = Self {
        proxy: "frontend",
        message: "request",
        other: "backend",
        option: "accept-unsafe-violations-in-http-request",
        left_out_by: "response",
    };
    const RESPONSES: Self = Self {
        proxy: "backend",
        message: "response",
        other: "frontend",
        option: "accept-unsafe-violations-in-http-response",
        left_out_by: "request",
    };

    /// Writes the messages that a proxy has kept, and its counters. `wanted`: the number of the proxy that
    /// the client named, and that of this one. A message concerns the proxy that received it, and the
    /// frontend whose client did not get it.
    fn report(
        &self,
        call: &mut Call<'_, '_>,
        proxy: &str,
        wanted: Option<(u32, u32)>,
        invalid: &InvalidMessages,
    ) {
        let own = wanted.is_none_or(|(wanted, id)| wanted == id);
        let concerns = |invalid: &Invalid| {
            own || wanted
                .is_some_and(|(wanted, _)| invalid.other.as_ref().is_some_and(|(_, other)| *other == wanted))
        };
        let report = invalid.report();
        let head = format!("{proxy}: invalid {}", self.message);
        for (invalid, accepted) in [(&report.refused, false), (&report.accepted, true)] {
            if let Some(invalid) = invalid.as_ref().filter(|invalid| concerns(invalid)) {
                one(call, &head, invalid, self.other, accepted);
            }
        }
        if !own {
            return;
        }
        let counted: [(&str, &str, &str, Vec<_>); 2] = [
            ("accepted", "", self.option, invalid.accepted().collect()),
            ("passed", " refuses them", "http-strict-framing", invalid.tolerated().collect()),
        ];
        for (passed, effect, option, counted) in
            counted.into_iter().filter(|(.., counted)| !counted.is_empty())
        {
            let total: u64 = counted.iter().map(|(_, times)| times).sum();
            let message = self.message;
            let _ = writeln!(
                call.reply,
                " \n{proxy}: {total} invalid {message}s {passed} (option {option}{effect}):"
            );
            for (problem, times) in counted {
                let _ = writeln!(call.reply, "  {times}: {}", problem.sentence());
            }
        }
    }
}

/// `22/Nov/2026:04:04:16.767`
pub(super) fn date(time: Timestamp, zone: &Zone) -> String {
    let civil = Civil::new(time.seconds, zone.offset(time.seconds));
    format!(
        "{:02}/{}/{:04}:{:02}:{:02}:{:02}.{:03}",
        civil.day,
        civil.month_name(),
        civil.year,
        civil.hour,
        civil.minute,
        civil.second,
        time.micros / 1000
    )
}

fn one(call: &mut Call<'_, '_>, head: &str, invalid: &Invalid, other: &str, accepted: bool) {
    let named = |named: &Option<(Box<str>, u32)>| match named {
        Some((name, id)) => format!("{name} (#{id})"),
        None => "<NONE> (#-1)".to_owned(),
    };
    let source = match (invalid.source, &invalid.server) {
        (Some(source), _) => format!(", src {source}"),
        // Clients share connections of HTTP/2 to servers.
        (None, Some(_)) if invalid.frame.is_some() => String::new(),
        (None, _) => ", src unix".to_owned(),
    };
    let position = match invalid.frame {
        Some(Frame { name, flags, stream }) => {
            format!("frame {name} with flags {flags:#04x} of stream {stream}")
        }
        None => format!("error at position {}", invalid.position),
    };
    let zone = &call.generation.zone;
    let _ = write!(
        call.reply,
        " \n[{}] {head}\n  {other} {}, server {}, event #{}{source}\n  len {}, {position}: {}{}\n  \n",
        date(invalid.date, zone),
        named(&invalid.other),
        named(&invalid.server),
        invalid.number,
        invalid.received,
        invalid.why,
        if accepted { " (accepted)" } else { "" },
    );
    dump(call.reply, &invalid.bytes);
}

/// Writes all bytes, one output line for each line of the message; longer lines are broken.
fn dump(out: &mut impl Write, bytes: &[u8]) {
    let mut at = 0;
    while at < bytes.len() {
        let continues = at > 0 && bytes[at - 1] != b'\n';
        let _ = write!(out, "  {at:05}{} ", if continues { '+' } else { ' ' });
        let mut width = 0;
        while let Some(&byte) = bytes.get(at) {
            let shown = shown(byte);
            if width + shown.len() > WIDTH {
                break;
            }
            width += shown.len();
            let _ = out.write_str(&shown);
            at += 1;
            if byte == b'\n' {
                break;
            }
        }
        let _ = out.write_str("\n");
    }
}

fn shown(byte: u8) -> String {
    match byte {
        b'\t' => "\\t".into(),
        b'\n' => "\\n".into(),
        b'\r' => "\\r".into(),
        0x1b => "\\e".into(),
        b'\\' => "\\\\".into(),
        b' '..=b'~' => char::from(byte).into(),
        _ => format!("\\x{byte:02X}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_the_message_and_long_ones_are_broken() {
        let mut text = String::new();
        let message = [&b"GET /\r\n"[..], &b"abc\t\x01\\".repeat(7), b"\r\n"].concat();
        dump(&mut text, &message);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], r"  00000  GET /\r\n");
        assert!(lines[1].starts_with("  00007  abc") && lines[1].len() <= 79, "{text}");
        assert!(lines[2].contains("+ ") && lines[2].ends_with(r"\r\n"), "{text}");
        assert_eq!(shown(0x7f), r"\x7F");
    }
}
