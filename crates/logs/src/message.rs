//! Parses log lines of other programs: syslog messages of RFC 3164 and RFC 5424.
//!
//! The parser refuses no message: whatever is not a header of either format is text, so no line is lost. The
//! parts are ranges of the message; nothing is copied.

use crate::clock::{Clock, MONTHS};
use crate::line::{Fields, Format, Level, Stamp};
use crate::target::Target;
use std::time::Duration;

/// Largest number of digits in a priority (RFC 5424, 6.2.1).
const PRIORITY_DIGITS: usize = 3;

/// A message of another program, with the fields that its header has.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Its level, if it has a priority.
    level: Option<Level>,
    /// Its facility, if it has a priority. Some programs send numbers above syslog's largest.
    facility: Option<u16>,
    /// Its own format, which targets without a format keep.
    format: Format,
    stamp: Stamp<'a>,
    hosts: [&'a [u8]; 2],
    tag: &'a [u8],
    pid: &'a [u8],
    id: &'a [u8],
    structured: &'a [u8],
    text: &'a [u8],
    /// Time of arrival, since 1970.
    time: Duration,
}

/// `option host`: whose name a message has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostPolicy {
    /// The sender's address.
    Replace,
    /// The host in the message, or else the sender's address.
    #[default]
    Fill,
    /// The host in the message.
    Keep,
    /// The host in the message, followed by the sender's address.
    Append,
}

impl<'a> Message<'a> {
    /// Returns the message as text only: `option dont-parse-log`.
    pub fn raw(bytes: &'a [u8], time: Duration) -> Self {
        Self {
            level: None,
            facility: None,
            format: Format::Raw,
            stamp: Stamp::Now,
            hosts: [b""; 2],
            tag: b"",
            pid: b"",
            id: b"",
            structured: b"",
            text: without_end(bytes),
            time,
        }
    }

    /// Parses a message that arrived at `time` since 1970.
    pub fn parse(bytes: &'a [u8], time: Duration) -> Self {
        let mut message = Self { format: Format::Rfc3164, ..Self::raw(bytes, time) };
        let Some((priority, rest)) = priority(bytes) else { return message };
        message.facility = Some(priority >> 3);
        message.level = Some(Level::new((priority & 7) as u8));
        message.text = without_end(rest);
        match rest.strip_prefix(b"1 ").and_then(|rest| message.rfc5424(rest)) {
            Some(parsed) => parsed,
            None => message.rfc3164(rest).unwrap_or(message),
        }
    }

    /// Parses what follows `1 `: time, host, program, process, kind, structured data, and perhaps a text.
    fn rfc5424(self, rest: &'a [u8]) -> Option<Self> {
        let (time, rest) = word(rest)?;
        let stamp = if time == b"-" { Stamp::Unknown } else { Stamp::Iso(is_iso(time).then_some(time)?) };
        let (host, rest) = word(rest)?;
        let (tag, rest) = word(rest)?;
        let (pid, rest) = word(rest)?;
        let (id, rest) = word(rest)?;
        let (structured, rest) = rest.split_at(structured(rest)?);
        let text = match rest {
            [] => rest,
            [b' ', text @ ..] => text,
            _ => return None,
        };
        let [host, tag, pid, id, structured] =
            [host, tag, pid, id, structured].map(|part| if part == b"-" { &b""[..] } else { part });
        let text = without_end(text);
        Some(Self {
            format: Format::Rfc5424,
            stamp,
            hosts: [host, b""],
            tag,
            pid,
            id,
            structured,
            text,
            ..self
        })
    }

    /// Parses what follows the priority: time, host, perhaps a tag and a process, and a text.
    fn rfc3164(self, rest: &'a [u8]) -> Option<Self> {
        let time: &[u8; 15] = rest.first_chunk().filter(|time| is_bsd(time))?;
        let (host, rest) = word(rest[time.len()..].strip_prefix(b" ")?)?;
        let named = word(rest).and_then(|(tag, text)| Some((tag.strip_suffix(b":")?, text)));
        let (tag, text) =
            named.filter(|(tag, _)| !matches!(tag, [] | [b'[', ..])).unwrap_or((&b""[..], rest));
        let (tag, pid) = match tag.iter().position(|byte| *byte == b'[') {
            Some(open) => (&tag[..open], tag[open + 1..].strip_suffix(b"]").unwrap_or_default()),
            None => (tag, &b""[..]),
        };
        Some(Self { stamp: Stamp::Bsd(time), hosts: [host, b""], tag, pid, text: without_end(text), ..self })
    }

    /// True if the message has neither text nor structured data.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty() && self.structured.is_empty()
    }

    /// Returns the text.
    pub fn text(&self) -> &'a [u8] {
        self.text
    }

    /// Returns the level; the highest one for a message without a priority.
    pub fn level(&self) -> Level {
        self.level.unwrap_or(Level::Emerg)
    }

    /// Sets the host as `policy` requests; `sender` is empty if the sender has no address.
    #[must_use]
    pub fn from_host(self, policy: HostPolicy, sender: &'a [u8]) -> Self {
        let [own, _] = self.hosts;
        let hosts = match policy {
            HostPolicy::Replace if !sender.is_empty() => [sender, b""],
            HostPolicy::Fill if own.is_empty() => [sender, b""],
            HostPolicy::Append => [own, sender],
            HostPolicy::Replace | HostPolicy::Fill | HostPolicy::Keep => [own, b""],
        };
        Self { hosts, ..self }
    }

    /// Appends the message in the target's format, with this level.
    pub(crate) fn write(&self, into: &mut Vec<u8>, clock: &mut Clock, target: &Target, level: Level) {
        let format = if target.keeps_format { self.format } else { target.format };
        let fields = Fields {
            facility: self.facility.unwrap_or(target.facility.number()),
            level,
            now: self.time,
            stamp: self.stamp,
            hosts: self.hosts,
            tag: self.tag,
            pid: self.pid,
            id: self.id,
            structured: self.structured,
            text: self.text,
        };
        fields.write(into, clock, format, target.length);
    }
}

/// Removes trailing line ends and NUL bytes, which belong to the transport.
fn without_end(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r' | 0)).map_or(0, |last| last + 1);
    &bytes[..end]
}

/// Parses `<13>`: returns its number and what follows. `None` without it.
fn priority(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let rest = bytes.strip_prefix(b"<")?;
    let close = rest.iter().take(PRIORITY_DIGITS + 1).position(|byte| *byte == b'>')?;
    let digits = &rest[..close];
    digits.iter().all(u8::is_ascii_digit).then(|| {
        let number = digits.iter().fold(0, |n, digit| n * 10 + u16::from(digit - b'0'));
        (number, &rest[close + 1..])
    })
}

/// Returns the first word, which is not empty, and what follows its space.
fn word(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b' ').filter(|end| *end > 0)?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

/// True if `bytes` match `form`, in which `0` stands for any digit.
fn is_like(bytes: &[u8], form: &[u8]) -> bool {
    bytes.len() == form.len()
        && bytes
            .iter()
            .zip(form)
            .all(|(byte, of)| if *of == b'0' { byte.is_ascii_digit() } else { byte == of })
}

/// `Nov  1 07:24:06`
fn is_bsd(time: &[u8; 15]) -> bool {
    MONTHS.iter().any(|month| time.starts_with(&month[..]))
        && (is_like(&time[3..], b" 00 00:00:00") || is_like(&time[3..], b"  0 00:00:00"))
}

/// `2026-11-21T07:24:06.270201+00:00`: the fraction may be missing or have another length, and the zone be
/// `Z`.
fn is_iso(time: &[u8]) -> bool {
    let Some((second, rest)) = time.split_at_checked(19) else { return false };
    let fraction = match rest {
        [b'.', digits @ ..] => 1 + digits.iter().take_while(|digit| digit.is_ascii_digit()).count(),
        _ => 0,
    };
    let zone = &rest[fraction..];
    is_like(second, b"0000-00-00T00:00:00")
        && fraction != 1
        && (zone == b"Z" || is_like(zone, b"+00:00") || is_like(zone, b"-00:00"))
}

/// Bytes of structured data: `-`, or elements in brackets, in which quotes keep brackets and `\` keeps
/// quotes.
fn structured(bytes: &[u8]) -> Option<usize> {
    if bytes.first() == Some(&b'-') {
        return Some(1);
    }
    let mut at = 0;
    while bytes.get(at) == Some(&b'[') {
        let mut quoted = false;
        loop {
            at += 1;
            match bytes.get(at)? {
                b'\\' if quoted => at += 1,
                b'"' => quoted = !quoted,
                b']' if !quoted => break,
                _ => {}
            }
        }
        at += 1;
    }
    (at > 0).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Facility, Sink, TargetSpec, Timeouts};
    use jiff::tz::TimeZone;
    use proptest::prelude::*;

    const NOW: Duration = Duration::new(1_795_873_047, 374_909_000); // 2026-11-28 13:37:27

    /// Returns the message as a target with this format sends it; `kept` stands for a target without a
    /// format.
    fn written(message: Message<'_>, format: &str) -> String {
        let target = Target::new(TargetSpec {
            sink: Sink::Udp(([127, 0, 0, 1], 9).into()),
            format: Format::by_name(format).unwrap_or(Format::Local),
            keeps_format: format == "kept",
            length: 1024,
            room: None,
            facility: Facility::new(18).expect("local2"),
            level: Level::Debug,
            min_level: Level::Emerg,
            sample: None,
            timeouts: Timeouts::default(),
        });
        let target = target.expect("it is good");
        let mut into = Vec::new();
        message.write(&mut into, &mut Clock::new(TimeZone::UTC), &target, message.level());
        String::from_utf8_lossy(&into).into_owned()
    }

    fn from(bytes: &[u8]) -> Message<'_> {
        Message::parse(bytes, NOW).from_host(HostPolicy::Fill, b"127.0.0.1")
    }

    /// What HAProxy 3.2 sends for each, as run.
    #[test]
    fn messages_are_written_in_each_format_as_haproxy_writes_them() {
        let formats = ["local", "rfc3164", "rfc5424", "priority", "short", "timed", "iso", "raw", "kept"];
        for (message, expected) in [
            (
                &b"<13>Nov 21 07:24:06 myhost tag[12]: hello world"[..],
                [
                    "<13>Nov 21 07:24:06 tag[12]: hello world",
                    "<13>Nov 21 07:24:06 myhost tag[12]: hello world",
                    "<13>1 2026-11-21T07:24:06-00:00 myhost tag 12 - - hello world",
                    "<13>hello world",
                    "<5>hello world",
                    "<5>2026-11-21T07:24:06-00:00 hello world",
                    "2026-11-21T07:24:06-00:00 hello world",
                    "hello world",
                    "<13>Nov 21 07:24:06 myhost tag[12]: hello world",
                ],
            ),
            (
                b"<165>1 2026-11-21T07:24:06.270201+00:00 host app 12 ID47 [a@1 b=\"\\\"]\"][c] text here\n",
                [
                    "<165>Nov 21 07:24:06 app[12]: text here",
                    "<165>Nov 21 07:24:06 host app[12]: text here",
                    "<165>1 2026-11-21T07:24:06.270201+00:00 host app 12 ID47 [a@1 b=\"\\\"]\"][c] text here",
                    "<165>text here",
                    "<5>text here",
                    "<5>2026-11-21T07:24:06.270201+00:00 text here",
                    "2026-11-21T07:24:06.270201+00:00 text here",
                    "text here",
                    "<165>1 2026-11-21T07:24:06.270201+00:00 host app 12 ID47 [a@1 b=\"\\\"]\"][c] text here",
                ],
            ),
            (
                b"<165>1 - - - - - - text",
                [
                    "<165>Nov 28 13:37:27 text",
                    "<165>Nov 28 13:37:27 127.0.0.1 text",
                    "<165>1 - 127.0.0.1 - - - - text",
                    "<165>text",
                    "<5>text",
                    "<5>2026-11-28T13:37:27.374909+00:00 text",
                    "2026-11-28T13:37:27.374909+00:00 text",
                    "text",
                    "<165>1 - 127.0.0.1 - - - - text",
                ],
            ),
            (
                b"hello no pri",
                [
                    "<144>Nov 28 13:37:27 hello no pri",
                    "<144>Nov 28 13:37:27 127.0.0.1 hello no pri",
                    "<144>1 2026-11-28T13:37:27.374909+00:00 127.0.0.1 - - - - hello no pri",
                    "<144>hello no pri",
                    "<0>hello no pri",
                    "<0>2026-11-28T13:37:27.374909+00:00 hello no pri",
                    "2026-11-28T13:37:27.374909+00:00 hello no pri",
                    "hello no pri",
                    "<144>Nov 28 13:37:27 127.0.0.1 hello no pri",
                ],
            ),
        ] {
            for (format, expected) in formats.into_iter().zip(expected) {
                assert_eq!(written(from(message), format), expected, "{format}");
            }
        }
    }

    #[test]
    fn what_is_no_header_is_text() {
        for (message, expected) in [
            ("<13>hello world: more", "<13>Nov 28 13:37:27 127.0.0.1 hello world: more"),
            ("<999>bad", "<999>Nov 28 13:37:27 127.0.0.1 bad"),
            ("<9999>bad", "<144>Nov 28 13:37:27 127.0.0.1 <9999>bad"),
            ("<13", "<144>Nov 28 13:37:27 127.0.0.1 <13"),
            ("<0>Nov 1 07:24:06 a b: c", "<0>Nov 28 13:37:27 127.0.0.1 Nov 1 07:24:06 a b: c"),
            ("<0>Nov  1 07:24:06 a b: c", "<0>Nov  1 07:24:06 a b: c"),
            ("<13>Nov 21 07:24:06 host tag:noblank", "<13>Nov 21 07:24:06 host tag:noblank"),
            ("<13>Nov 21 07:24:06 host tag [x] hello", "<13>Nov 21 07:24:06 host tag [x] hello"),
            ("<13>Nov 21 07:24:06 host", "<13>Nov 28 13:37:27 127.0.0.1 Nov 21 07:24:06 host"),
            ("<13>Nov 21 07:24:06  h tag: a", "<13>Nov 28 13:37:27 127.0.0.1 Nov 21 07:24:06  h tag: a"),
            ("<13>Nov 21 07:24:06 h tag[12: a", "<13>Nov 21 07:24:06 h tag: a"),
            (
                "<165>2 2026-11-21T07:24:06Z host app 12 ID47 - text here",
                "<165>Nov 28 13:37:27 127.0.0.1 2 2026-11-21T07:24:06Z host app 12 ID47 - text here",
            ),
            (
                "<165>1 2026-11-21T07:24:06Z host app 12 ID47 [broken text",
                "<165>Nov 28 13:37:27 127.0.0.1 1 2026-11-21T07:24:06Z host app 12 ID47 [broken text",
            ),
            (
                "<165>1 2026-11-21T07:24:06. host app 12 ID47 - text",
                "<165>Nov 28 13:37:27 127.0.0.1 1 2026-11-21T07:24:06. host app 12 ID47 - text",
            ),
        ] {
            assert_eq!(written(from(message.as_bytes()), "kept"), expected);
        }
        for nothing in ["", "\n", "<13>", "<13>\n", "<13>Nov 21 07:24:06 h tag: \0", "<1>1 - - - - - -"] {
            assert!(from(nothing.as_bytes()).is_empty(), "{nothing:?}");
        }
        let data = b"<1>1 - - - - - [a]";
        assert_eq!(written(from(data), "kept"), "<1>1 - 127.0.0.1 - - - [a] ");
    }

    #[test]
    fn the_host_is_whom_the_policy_says() {
        use HostPolicy::{Append, Fill, Keep, Replace};
        let named = b"<13>Nov 21 07:24:06 myhost tag: a";
        let nameless = b"<165>1 - - - - - - a";
        for (policy, of_named, of_nameless) in [
            (Replace, "127.0.0.9", "127.0.0.9"),
            (Fill, "myhost", "127.0.0.9"),
            (Keep, "myhost", "-"),
            (Append, "myhost,127.0.0.9", "127.0.0.9"),
        ] {
            let of = |bytes| Message::parse(bytes, NOW).from_host(policy, b"127.0.0.9");
            assert_eq!(written(of(named), "kept"), format!("<13>Nov 21 07:24:06 {of_named} tag: a"));
            assert_eq!(written(of(nameless), "kept"), format!("<165>1 - {of_nameless} - - - - a"));
            // A sender without an address changes nothing.
            let of = Message::parse(named, NOW).from_host(policy, b"");
            assert_eq!(written(of, "kept"), "<13>Nov 21 07:24:06 myhost tag: a");
        }
        let keep = Message::parse(b"a", NOW).from_host(Keep, b"127.0.0.9");
        assert_eq!(written(keep, "rfc3164"), "<144>Nov 28 13:37:27 localhost a");
    }

    #[test]
    fn what_is_not_parsed_goes_as_it_came() {
        let raw = Message::raw(b"<13>Nov 21 07:24:06 myhost tag[12]: hello\n", NOW);
        assert_eq!(written(raw, "kept"), "<13>Nov 21 07:24:06 myhost tag[12]: hello");
        assert_eq!(
            written(raw, "rfc3164"),
            "<144>Nov 28 13:37:27 localhost <13>Nov 21 07:24:06 myhost tag[12]: hello"
        );
    }

    proptest! {
        /// What was written in a message's own format is read as the same message: nothing is lost, and
        /// nothing moves from one field to another.
        #[test]
        fn a_message_survives_being_forwarded(
            priority in 0..192_u16,
            fields in prop::collection::vec("[!-Z^-~]{1,12}", 4),
            data in prop::option::of("(\\[[a-z]{1,5}( [a-z]=\"[a-z ]{0,5}\")?\\]){1,2}"),
            text in "[ -~]{0,40}[!-~]",
            bsd in any::<bool>(),
        ) {
            let [host, tag, pid, id] = &fields[..] else { unreachable!() };
            let data = data.unwrap_or("-".into());
            let sent = if bsd {
                let tag = tag.replace(['[', ':'], "x");
                format!("<{priority}>Nov 21 07:24:06 {host} {tag}[{pid}]: {text}")
            } else {
                format!("<{priority}>1 2026-11-21T07:24:06.5+01:00 {host} {tag} {pid} {id} {data} {text}")
            };
            let message = Message::parse(sent.as_bytes(), NOW);
            prop_assert_eq!(String::from_utf8_lossy(message.text()), text.as_str());
            prop_assert_eq!(written(message, "kept"), sent);
        }

        #[test]
        fn any_bytes_are_a_message_of_one_line(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let message = from(&bytes);
            for format in ["rfc3164", "rfc5424", "kept", "raw"] {
                prop_assert!(!written(message, format).contains('\n'));
            }
            // A byte that is not UTF-8 becomes U+FFFD, which has three bytes.
            prop_assert!(written(message, "raw").len() <= 3 * bytes.len());
        }
    }
}
