//! Formats dates: the civil calendar, local time, and the formats of `strftime(3)`.

use crate::scratch::Writer;
use jiff::{Timestamp, tz::TimeZone};

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// A time zone: offsets of local time from UTC.
#[derive(Clone, Debug)]
pub struct Zone(TimeZone);

impl Zone {
    /// The zone of the machine, or of the environment variable `TZ`.
    pub fn system() -> Self {
        Self(TimeZone::system())
    }

    /// UTC as local time.
    pub fn utc() -> Self {
        Self(TimeZone::UTC)
    }

    /// Offset at a Unix time, in seconds east of UTC.
    pub fn offset(&self, unix: i64) -> i64 {
        let moment = Timestamp::from_second(unix).unwrap_or(Timestamp::UNIX_EPOCH);
        i64::from(self.0.to_offset(moment).seconds())
    }
}

/// A local date and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    /// The year.
    pub year: i64,
    /// 1..=12
    pub month: u8,
    /// 1..=31
    pub day: u8,
    /// 0..24
    pub hour: u8,
    /// 0..60
    pub minute: u8,
    /// 0..60
    pub second: u8,
    /// 0..7, 0 is Sunday
    pub weekday: u8,
    /// 0..=365, 0 is the first of January
    pub yearday: u16,
    /// Seconds east of UTC.
    pub offset: i64,
    /// Seconds since 1970-01-01 00:00 UTC.
    pub unix: i64,
}

/// Cache of the last formatted second, such as `22/Nov/2026:04:05:06`. Many log lines have the same one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Second {
    unix: i64,
    text: [u8; 20],
    /// Length of the text; 0 if it is empty.
    len: usize,
}

impl Second {
    /// Writes the Unix time `unix` as local time.
    pub(crate) fn put(&mut self, unix: i64, zone: &Zone, out: &mut Writer<'_>) -> Option<()> {
        const FORMAT: &[u8] = b"%d/%b/%Y:%H:%M:%S";
        if self.len == 0 || self.unix != unix {
            let date = Civil::new(unix, zone.offset(unix));
            let mut text = Writer::new(&mut self.text);
            let fits = date.format(FORMAT, &mut text).is_some();
            self.len = if fits { text.len() } else { 0 };
            self.unix = unix;
            if !fits {
                return date.format(FORMAT, out); // a year of five digits
            }
        }
        out.put(&self.text[..self.len])
    }
}

/// Maximum distance from 1970 in seconds, about 36 million years. Times outside are clamped.
const MAX_SECONDS: i64 = 1 << 50;

impl Civil {
    /// The date at the Unix time `unix`, `offset` seconds east of UTC. Uses Hinnant's algorithm
    /// `civil_from_days`.
    pub fn new(unix: i64, offset: i64) -> Self {
        let unix = unix.clamp(-MAX_SECONDS, MAX_SECONDS);
        let local = unix + offset.clamp(-172_800, 172_800);
        let (days, second) = (local.div_euclid(86_400), local.rem_euclid(86_400));
        let z = days + 719_468; // days since 0000-03-01
        let era = z.div_euclid(146_097);
        let doe = z.rem_euclid(146_097);
        let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
        let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
        let mp = (5 * doy + 2) / 153;
        let day = doy - (153 * mp + 2) / 5 + 1;
        let month = if mp < 10 { mp + 3 } else { mp - 9 };
        let year = yoe + era * 400 + i64::from(month <= 2);
        let leap = i64::from(year % 4 == 0 && (year % 100 != 0 || year % 400 == 0));
        let yearday = if month > 2 { doy + 59 + leap } else { doy - 306 };
        Self {
            year,
            month: month as u8,
            day: day as u8,
            hour: (second / 3600) as u8,
            minute: (second / 60 % 60) as u8,
            second: (second % 60) as u8,
            weekday: (days + 4).rem_euclid(7) as u8,
            yearday: yearday as u16,
            offset,
            unix,
        }
    }

    /// English abbreviation with three letters.
    pub fn month_name(&self) -> &'static str {
        &MONTHS[usize::from(self.month) - 1][..3]
    }

    /// Writes the offset as `+0200`.
    pub fn put_offset(&self, out: &mut Writer<'_>) -> Option<()> {
        let minutes = self.offset.abs() / 60;
        out.print(format_args!(
            "{}{:02}{:02}",
            if self.offset < 0 { '-' } else { '+' },
            minutes / 60,
            minutes % 60
        ))
    }

    /// ISO 8601 year and week.
    fn week(&self) -> (i64, i64) {
        let monday = i64::from((self.weekday + 6) % 7);
        let week = (i64::from(self.yearday) - monday + 10) / 7;
        let weeks_of = |year: i64| {
            // A year has 53 weeks if it begins or ends on a Thursday.
            let p = |y: i64| (y + y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400)).rem_euclid(7);
            if p(year) == 4 || p(year - 1) == 3 { 53 } else { 52 }
        };
        if week < 1 {
            (self.year - 1, weeks_of(self.year - 1))
        } else if week > weeks_of(self.year) {
            (self.year + 1, 1)
        } else {
            (self.year, week)
        }
    }

    /// Writes the date in the format of `strftime(3)`, in the C locale and with the flags and widths of GNU.
    /// Unknown conversions are copied. `None` if it does not fit.
    pub fn format(&self, format: &[u8], out: &mut Writer<'_>) -> Option<()> {
        let mut rest = format;
        while let [first, tail @ ..] = rest {
            let directive = rest;
            rest = tail;
            if *first != b'%' {
                out.push(*first)?;
                continue;
            }
            let shape = Shape::taken_from(&mut rest);
            // `%E` and `%O` select alternative forms, which the C locale does not have.
            if let [b'E' | b'O', tail @ ..] = rest {
                rest = tail;
            }
            let [letter, tail @ ..] = rest else {
                out.put(directive)?;
                break;
            };
            rest = tail;
            if shape == Shape::default() {
                self.field(*letter, out)?;
            } else if LETTERS.contains(letter) {
                let mut text = [0; MAX_FIELD];
                let mut field = Writer::new(&mut text);
                self.field(*letter, &mut field)?;
                let len = field.len();
                shape.put(*letter, &mut text[..len], out)?;
            } else {
                out.put(&directive[..directive.len() - rest.len()])?;
            }
        }
        Some(())
    }

    fn field(&self, letter: u8, out: &mut Writer<'_>) -> Option<()> {
        let hour12 = if self.hour.is_multiple_of(12) { 12 } else { self.hour % 12 };
        let full_day = DAYS[usize::from(self.weekday)];
        let full_month = MONTHS[usize::from(self.month) - 1];
        match letter {
            b'%' => out.push(b'%'),
            b'n' => out.push(b'\n'),
            b't' => out.push(b'\t'),
            b'a' => out.put(&full_day.as_bytes()[..3]),
            b'A' => out.put(full_day.as_bytes()),
            b'b' | b'h' => out.put(&full_month.as_bytes()[..3]),
            b'B' => out.put(full_month.as_bytes()),
            b'c' => self.format(b"%a %b %e %H:%M:%S %Y", out),
            b'C' => out.print(format_args!("{:02}", self.year.div_euclid(100))),
            b'd' => out.put_number(self.day.into(), 2),
            b'D' | b'x' => self.format(b"%m/%d/%y", out),
            b'e' => out.print(format_args!("{:2}", self.day)),
            b'F' => self.format(b"%Y-%m-%d", out),
            b'g' => out.print(format_args!("{:02}", self.week().0.rem_euclid(100))),
            b'G' => out.print(format_args!("{}", self.week().0)),
            b'H' => out.put_number(self.hour.into(), 2),
            b'I' => out.print(format_args!("{hour12:02}")),
            b'j' => out.print(format_args!("{:03}", self.yearday + 1)),
            b'k' => out.print(format_args!("{:2}", self.hour)),
            b'l' => out.print(format_args!("{hour12:2}")),
            b'm' => out.put_number(self.month.into(), 2),
            b'M' => out.put_number(self.minute.into(), 2),
            b'p' => out.put(if self.hour < 12 { b"AM" } else { b"PM" }),
            b'P' => out.put(if self.hour < 12 { b"am" } else { b"pm" }),
            b'r' => self.format(b"%I:%M:%S %p", out),
            b'R' => self.format(b"%H:%M", out),
            b's' => out.print(format_args!("{}", self.unix)),
            b'S' => out.put_number(self.second.into(), 2),
            b'T' | b'X' => self.format(b"%H:%M:%S", out),
            b'u' => out.print(format_args!("{}", if self.weekday == 0 { 7 } else { self.weekday })),
            b'U' => out.print(format_args!("{:02}", (self.yearday + 7 - u16::from(self.weekday)) / 7)),
            b'V' => out.print(format_args!("{:02}", self.week().1)),
            b'w' => out.print(format_args!("{}", self.weekday)),
            b'W' => {
                let monday = u16::from((self.weekday + 6) % 7);
                out.print(format_args!("{:02}", (self.yearday + 7 - monday) / 7))
            }
            b'y' => out.print(format_args!("{:02}", self.year.rem_euclid(100))),
            b'Y' => out.put_number(self.year, 1),
            b'z' => self.put_offset(out),
            b'Z' if self.offset == 0 => out.put(b"GMT"),
            b'Z' => self.put_offset(out),
            other => out.put(&[b'%', other]),
        }
    }
}

/// Letters of [`Civil::field`].
const LETTERS: &[u8] = b"%ABCDFGHIMPRSTUVWXYZabcdeghjklmnprstuwxyz";
/// Letters of numbers, which are padded by zeros, or by spaces.
const NUMBERS: &[u8] = b"CGHIMSUVWYdgjmsuwy";
const SPACED: &[u8] = b"ekl";

/// Room for a field. The longest is that of `%c` with a year of nine digits.
const MAX_FIELD: usize = 64;

/// Flags and width of a directive, as in `%-d` and `%^5b`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Shape {
    /// `_`, `0` or `-`
    padding: Option<u8>,
    /// `^`
    upper: bool,
    /// `#`
    other_case: bool,
    width: usize,
}

impl Shape {
    /// Takes the flags and the width from the front of `rest`.
    fn taken_from(rest: &mut &[u8]) -> Self {
        let mut shape = Self::default();
        while let [flag @ (b'_' | b'-' | b'0' | b'^' | b'#'), tail @ ..] = *rest {
            match flag {
                b'^' => shape.upper = true,
                b'#' => shape.other_case = true,
                padding => shape.padding = Some(*padding),
            }
            *rest = tail;
        }
        while let [digit @ b'0'..=b'9', tail @ ..] = *rest {
            shape.width = shape.width.saturating_mul(10).saturating_add(usize::from(digit - b'0'));
            *rest = tail;
        }
        shape
    }

    /// Writes the text of a field in this shape.
    fn put(self, letter: u8, text: &mut [u8], out: &mut Writer<'_>) -> Option<()> {
        if self.upper || self.other_case && b"AaBbh".contains(&letter) {
            text.make_ascii_uppercase();
        } else if self.other_case && b"pZ".contains(&letter) {
            text.make_ascii_lowercase();
        }
        let (is_number, is_spaced) = (NUMBERS.contains(&letter), SPACED.contains(&letter));
        let mut text = &text[..];
        if is_number || is_spaced {
            // The last digit stays, also if it is zero.
            let blanks = text.len() - 1;
            let padded = text[..blanks].iter().take_while(|byte| matches!(byte, b'0' | b' ')).count();
            if self.padding.is_some() {
                text = &text[padded..];
            }
            let least = if self.padding == Some(b'-') { 0 } else { text.len() + padded };
            return match self.padding {
                Some(b'0') => pad(b'0', least.max(self.width), text, out),
                Some(_) => pad(b' ', least.max(self.width), text, out),
                None => pad(if is_spaced { b' ' } else { b'0' }, self.width, text, out),
            };
        }
        pad(if self.padding == Some(b'0') { b'0' } else { b' ' }, self.width, text, out)
    }
}

/// Writes `text`, after as many bytes as it is shorter than `width`.
fn pad(byte: u8, width: usize, text: &[u8], out: &mut Writer<'_>) -> Option<()> {
    (text.len()..width).try_for_each(|_| out.push(byte))?;
    out.put(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(unix: i64, offset: i64, format: &str) -> String {
        let mut buffer = [0; 256];
        let mut out = Writer::new(&mut buffer);
        Civil::new(unix, offset).format(format.as_bytes(), &mut out);
        String::from_utf8_lossy(out.written()).into_owned()
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (unix, expected) in [
            (0, "1970-01-01 00:00:00 Thu 001 01"),
            (951_782_400, "2000-02-29 00:00:00 Tue 060 09"),
            (1_109_203_200, "2005-02-24 00:00:00 Thu 055 08"),
            (1_230_768_000, "2009-01-01 00:00:00 Thu 001 01"),
            (1_262_304_000, "2010-01-01 00:00:00 Fri 001 53"),
            (-1, "1969-12-31 23:59:59 Wed 365 01"),
            (4_102_444_799, "2099-12-31 23:59:59 Thu 365 53"),
        ] {
            assert_eq!(text(unix, 0, "%F %T %a %j %V"), expected);
        }
    }

    #[test]
    fn every_day_of_four_centuries_follows_the_day_before() {
        let mut before = Civil::new(-86_400, 0);
        for day in 0..146_097 * 2 {
            let now = Civil::new(day * 86_400, 0);
            assert_eq!(now.weekday, (before.weekday + 1) % 7);
            match (now.day, now.yearday) {
                (1, 0) => assert_eq!((before.month, before.day, now.year), (12, 31, before.year + 1)),
                (1, _) => assert_eq!((now.month, now.yearday), (before.month + 1, before.yearday + 1)),
                _ => assert_eq!((now.day, now.yearday), (before.day + 1, before.yearday + 1)),
            }
            before = now;
        }
    }

    #[test]
    fn flags_and_widths_are_those_of_gnu() {
        let at = |format| text(1_699_395_755, 0, format); // Tue Nov  7 22:22:35 2023
        assert_eq!(at("%-d|%_d|%0e|%5d|%_5d|%-5d|%05e|%3e"), "7| 7|07|00007|    7|    7|00007|  7");
        assert_eq!(
            at("%^a|%#B|%#p|%^5b|%#Z|%10Y|%-y|%-j|%05a"),
            "TUE|NOVEMBER|pm|  NOV|gmt|0000002023|23|311|00Tue"
        );
        assert_eq!(at("%-i|%5q|%-|%3"), "%-i|%5q|%-|%3");
        assert_eq!(text(0, 0, "%-H|%_M|%-u"), "0| 0|4");
        assert_eq!(text(0, 0, "%999999999999999999999d"), "0".repeat(256));
    }

    #[test]
    fn offsets_change_the_time_and_are_shown() {
        assert_eq!(text(1_500_000_000, 7200, "%d/%b/%Y:%H:%M:%S %z"), "14/Jul/2017:04:40:00 +0200");
        assert_eq!(text(1_500_000_000, -12_600, "%H:%M %z"), "23:10 -0330");
    }

    #[test]
    fn a_second_is_its_date_whichever_was_written_before() {
        let (zone, mut second) = (Zone::utc(), Second::default());
        let far = MAX_SECONDS; // a year of eight digits, which is not cached
        for unix in [0, 0, 1_500_000_000, 1_500_000_001, far, 0, far, 1_500_000_001, 1_500_000_001] {
            let mut buffer = [0; 64];
            let mut out = Writer::new(&mut buffer);
            assert_eq!(second.put(unix, &zone, &mut out), Some(()));
            assert_eq!(String::from_utf8_lossy(out.written()), text(unix, 0, "%d/%b/%Y:%H:%M:%S"));
        }
    }

    #[test]
    fn what_is_no_field_is_written_as_it_is() {
        assert_eq!(text(0, 0, "100%% %Q %"), "100% %Q %");
    }

    #[test]
    fn a_full_buffer_ends_the_text() {
        let mut buffer = [0; 3];
        let mut out = Writer::new(&mut buffer);
        assert_eq!(Civil::new(0, 0).format(b"%Y", &mut out), None);
        assert_eq!(Civil::new(i64::MAX, i64::MAX).format(b"%d", &mut Writer::new(&mut [0; 8])), Some(()));
    }
}
