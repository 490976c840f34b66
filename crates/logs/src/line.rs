//! A log line and its formats.

use crate::clock::{Clock, MONTHS};
use std::time::Duration;

/// Severity, as in syslog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // the words themselves
#[repr(u8)]
pub enum Level {
    Emerg,
    Alert,
    Crit,
    Err,
    Warning,
    Notice,
    Info,
    Debug,
}

impl Level {
    const ALL: [Self; 8] = [
        Self::Emerg,
        Self::Alert,
        Self::Crit,
        Self::Err,
        Self::Warning,
        Self::Notice,
        Self::Info,
        Self::Debug,
    ];

    /// The level with this number, 0 to 7; larger ones are [`Debug`](Self::Debug).
    pub fn new(number: u8) -> Self {
        Self::ALL[usize::from(number.min(7))]
    }
}

/// Facility, as in syslog: 0 (kern) to 23 (local7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Facility(u8);

impl Facility {
    /// The facility with this number, or `None` above 23.
    pub const fn new(number: u8) -> Option<Self> {
        if number < 24 { Some(Self(number)) } else { None }
    }

    pub(crate) fn number(self) -> u16 {
        self.0.into()
    }
}

/// The format of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// `<134>Nov 21 07:24:06 tag[12]: text`
    Local,
    /// `<134>Nov 21 07:24:06 host tag[12]: text`
    Rfc3164,
    /// `<134>1 2026-11-21T07:24:06.270201+00:00 host tag 12 - - text`
    Rfc5424,
    /// `<134>text`
    Priority,
    /// `<6>text`
    Short,
    /// `<6>2026-11-21T07:24:06.270201+00:00 text`
    Timed,
    /// `2026-11-21T07:24:06.270201+00:00 text`
    Iso,
    /// `text`
    Raw,
}

impl Format {
    /// The format with this name in the configuration.
    pub fn by_name(name: &str) -> Option<Self> {
        Some(match name {
            "local" => Self::Local,
            "rfc3164" => Self::Rfc3164,
            "rfc5424" => Self::Rfc5424,
            "priority" => Self::Priority,
            "short" => Self::Short,
            "timed" => Self::Timed,
            "iso" => Self::Iso,
            "raw" => Self::Raw,
            _ => return None,
        })
    }
}

/// A line, independent of the target's format.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// Severity.
    pub level: Level,
    /// `log-tag`: the program's name.
    pub tag: &'a [u8],
    /// The process id.
    pub pid: u32,
    /// `log-send-hostname`, or the system's name; empty for none.
    pub host: &'a [u8],
    /// `log-format-sd`: structured data of `rfc5424`, with its brackets; empty for none.
    pub structured: &'a [u8],
    /// Time since 1970.
    pub time: Duration,
    /// The message.
    pub text: &'a [u8],
}

/// The digits of a number.
fn digits(room: &mut [u8; 10], n: u32) -> &[u8] {
    let mut at = room.len();
    let mut left = n;
    loop {
        at -= 1;
        room[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    &room[at..]
}

fn number(into: &mut Vec<u8>, n: u32) {
    into.extend_from_slice(digits(&mut [0; 10], n));
}

fn or_nil(text: &[u8]) -> &[u8] {
    if text.is_empty() { b"-" } else { text }
}

/// When a line was written, as it says itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stamp<'a> {
    /// Now, since it does not say.
    Now,
    /// `-`: it says that it does not know.
    Unknown,
    /// In RFC 3164's form; its digits are digits.
    Bsd(&'a [u8; 15]),
    /// In RFC 3339's form; its digits are digits.
    Iso(&'a [u8]),
}

/// The parts of a line, which this program or another one wrote.
pub(crate) struct Fields<'a> {
    pub(crate) facility: u16,
    pub(crate) level: Level,
    /// Now, since 1970.
    pub(crate) now: Duration,
    pub(crate) stamp: Stamp<'a>,
    /// The host, and who sent it for the host; each may be empty.
    pub(crate) hosts: [&'a [u8]; 2],
    pub(crate) tag: &'a [u8],
    pub(crate) pid: &'a [u8],
    pub(crate) id: &'a [u8],
    pub(crate) structured: &'a [u8],
    pub(crate) text: &'a [u8],
}

impl Fields<'_> {
    fn write_hosts(&self, into: &mut Vec<u8>, absent: &[u8]) {
        let [host, sender] = self.hosts;
        into.extend_from_slice(if host.is_empty() && sender.is_empty() { absent } else { host });
        if !host.is_empty() && !sender.is_empty() {
            into.push(b',');
        }
        into.extend_from_slice(sender);
    }

    fn write_bsd(&self, into: &mut Vec<u8>, clock: &mut Clock) {
        match self.stamp {
            Stamp::Bsd(time) => into.extend_from_slice(time),
            Stamp::Iso(time) => {
                let month = time[5..7].iter().fold(0, |n, digit| n * 10 + usize::from(digit - b'0'));
                let Some(name) = MONTHS.get(month.wrapping_sub(1)) else {
                    return into.extend_from_slice(clock.bsd(self.now));
                };
                into.extend_from_slice(&name[..]);
                into.extend_from_slice(&[b' ', if time[8] == b'0' { b' ' } else { time[8] }, time[9], b' ']);
                into.extend_from_slice(&time[11..19]);
            }
            Stamp::Now | Stamp::Unknown => into.extend_from_slice(clock.bsd(self.now)),
        }
    }

    fn write_iso(&self, into: &mut Vec<u8>, clock: &mut Clock) {
        match self.stamp {
            Stamp::Iso(time) => into.extend_from_slice(time),
            Stamp::Bsd(time) => into.extend_from_slice(&clock.iso_of(self.now, time)),
            Stamp::Now | Stamp::Unknown => into.extend_from_slice(clock.iso(self.now)),
        }
    }

    /// Appends the line in `format`, without a line end, cut to `length` bytes. Structured data that would be
    /// cut are left out. Line ends in the text become spaces, so that no text can forge a second line.
    pub(crate) fn write(&self, into: &mut Vec<u8>, clock: &mut Clock, format: Format, length: usize) {
        let begin = into.len();
        let priority = match format {
            Format::Local | Format::Rfc3164 | Format::Rfc5424 | Format::Priority => {
                Some(u32::from(self.facility) * 8 + self.level as u32)
            }
            Format::Short | Format::Timed => Some(self.level as u32),
            Format::Iso | Format::Raw => None,
        };
        if let Some(priority) = priority {
            into.push(b'<');
            number(into, priority);
            into.push(b'>');
        }
        match format {
            Format::Local | Format::Rfc3164 => {
                self.write_bsd(into, clock);
                into.push(b' ');
                if format == Format::Rfc3164 {
                    // RFC 3164, 4.1.2: a name or an address is required.
                    self.write_hosts(into, b"localhost");
                    into.push(b' ');
                }
                into.extend_from_slice(self.tag);
                if !self.pid.is_empty() {
                    into.push(b'[');
                    into.extend_from_slice(self.pid);
                    into.push(b']');
                }
                if !self.tag.is_empty() || !self.pid.is_empty() {
                    into.extend_from_slice(b": ");
                }
            }
            Format::Rfc5424 => {
                into.extend_from_slice(b"1 ");
                match self.stamp {
                    Stamp::Unknown => into.push(b'-'),
                    _ => self.write_iso(into, clock),
                }
                into.push(b' ');
                self.write_hosts(into, b"-");
                for part in [self.tag, self.pid, self.id] {
                    into.push(b' ');
                    into.extend_from_slice(or_nil(part));
                }
                into.push(b' ');
                // Whole or not at all: a reader could not tell where cut data ends.
                let fits = into.len() - begin + self.structured.len() < length;
                into.extend_from_slice(or_nil(if fits { self.structured } else { b"" }));
                into.push(b' ');
            }
            Format::Timed | Format::Iso => {
                self.write_iso(into, clock);
                into.push(b' ');
            }
            Format::Priority | Format::Short | Format::Raw => {}
        }
        let room = length.saturating_sub(into.len() - begin);
        into.extend_from_slice(&self.text[..self.text.len().min(room)]);
        into.truncate(begin + length);
        for byte in &mut into[begin..] {
            // without a branch, so that the compiler vectorizes it
            *byte = if matches!(*byte, b'\n' | b'\r' | 0) { b' ' } else { *byte };
        }
    }
}

impl Line<'_> {
    /// Appends the line as [`Fields::write`] does.
    pub(crate) fn write(
        &self,
        into: &mut Vec<u8>,
        clock: &mut Clock,
        format: Format,
        level: Level,
        facility: Facility,
        length: usize,
    ) {
        let mut pid = [0; 10];
        let fields = Fields {
            facility: facility.0.into(),
            level,
            now: self.time,
            stamp: Stamp::Now,
            hosts: [self.host, b""],
            tag: self.tag,
            pid: digits(&mut pid, self.pid),
            id: b"",
            structured: self.structured,
            text: self.text,
        };
        fields.write(into, clock, format, length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::tz::TimeZone;

    fn written(line: Line<'_>, format: Format, length: usize) -> String {
        let mut into = b"before".to_vec();
        let local0 = Facility::new(16).expect("local0");
        line.write(&mut into, &mut Clock::new(TimeZone::UTC), format, line.level, local0, length);
        String::from_utf8(into.split_off(6)).expect("text")
    }

    const LINE: Line<'static> = Line {
        level: Level::Info,
        tag: b"mytag",
        pid: 13_868,
        host: b"",
        structured: b"",
        time: Duration::new(1_795_245_846, 270_201_000),
        text: b"GET /abc",
    };

    /// Compared with the output of HAProxy 3.2.26.
    #[test]
    fn each_format_is_written_as_haproxy_writes_it() {
        for (format, expected) in [
            (Format::Local, "<134>Nov 21 07:24:06 mytag[13868]: GET /abc"),
            (Format::Rfc5424, "<134>1 2026-11-21T07:24:06.270201+00:00 - mytag 13868 - - GET /abc"),
            (Format::Raw, "GET /abc"),
            (Format::Short, "<6>GET /abc"),
            (Format::Timed, "<6>2026-11-21T07:24:06.270201+00:00 GET /abc"),
            (Format::Iso, "2026-11-21T07:24:06.270201+00:00 GET /abc"),
            (Format::Priority, "<134>GET /abc"),
        ] {
            assert_eq!(written(LINE, format, 1024), expected);
        }
        let named = Line { host: b"here", structured: b"[a@1 b=\"c\"]", ..LINE };
        assert_eq!(written(named, Format::Rfc3164, 1024), "<134>Nov 21 07:24:06 here mytag[13868]: GET /abc");
        assert_eq!(
            written(named, Format::Rfc5424, 1024),
            "<134>1 2026-11-21T07:24:06.270201+00:00 here mytag 13868 - [a@1 b=\"c\"] GET /abc"
        );
    }

    #[test]
    fn a_line_is_cut_to_its_length_and_stays_one_line() {
        assert_eq!(written(LINE, Format::Local, 38), "<134>Nov 21 07:24:06 mytag[13868]: GET");
        assert_eq!(written(LINE, Format::Local, 10), "<134>Nov 2");
        let structured = Line { structured: b"[a@1 b=\"c\"]", ..LINE };
        let header = "<134>1 2026-11-21T07:24:06.270201+00:00 - mytag 13868 - ";
        for (length, rest) in [(67, "- GET /abc"), (68, "[a@1 b=\"c\"] "), (69, "[a@1 b=\"c\"] G"), (55, "")]
        {
            assert_eq!(
                written(structured, Format::Rfc5424, length),
                format!("{header}{rest}")[..length.min(header.len() + rest.len())]
            );
        }
        let forged = Line { text: b"a\n<0>b\r\0c", ..LINE };
        assert_eq!(written(forged, Format::Raw, 1024), "a <0>b  c");
    }
}
