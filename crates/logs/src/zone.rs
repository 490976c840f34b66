//! The local time zone: how far it is from UTC at a moment.
//!
//! Read from the system's files (RFC 8536) once, when logs are set up; what comes after the last entry of a file follows the rule at its end, which
//! is one of POSIX (`TZ`).

use crate::civil::Date;
use std::path::Path;

/// A time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// From when on which offset holds, in seconds; ascending.
    entries: Vec<(i64, i32)>,
    /// What holds before the first.
    before: i32,
    /// What holds from the last on; `None`: the last offset stays.
    rule: Option<Rule>,
}

/// A zone as POSIX writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    standard: i32,
    daylight: Option<Daylight>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Daylight {
    offset: i32,
    begin: Moment,
    end: Moment,
}

/// A moment of each year, in the local time that holds before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Moment {
    day: Day,
    seconds: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Day {
    /// `Jn`: 1 to 365, leap days do not count.
    WithoutLeap(i64),
    /// `n`: 0 to 365.
    OfYear(i64),
    /// `Mm.w.d`: the w-th weekday d of month m; week 5 is the last.
    Weekday { month: u32, week: i64, weekday: i64 },
}

impl Zone {
    /// UTC.
    pub const UTC: Self = Self { entries: Vec::new(), before: 0, rule: None };

    /// The zone of `TZ`, or of `/etc/localtime`; UTC where neither can be read.
    pub fn local() -> Self {
        let named = std::env::var("TZ").ok();
        let zone = match named.as_deref() {
            Some("") => Some(Self::UTC),
            Some(name) => {
                let name = name.strip_prefix(':').unwrap_or(name);
                // A name leads to a file below one folder and not elsewhere.
                let inside = !name.split('/').any(|part| part == "..");
                let path = Path::new("/usr/share/zoneinfo").join(name); // an absolute name replaces the folder
                inside.then(|| Self::read(&path)).flatten().or_else(|| Self::posix(name))
            }
            None => Self::read(Path::new("/etc/localtime")),
        };
        zone.unwrap_or(Self::UTC)
    }

    fn read(path: &Path) -> Option<Self> {
        Self::parse(&std::fs::read(path).ok()?)
    }

    /// A zone as POSIX writes it: `CET-1CEST,M3.5.0,M10.5.0/3`. `None` for what is none.
    pub fn posix(text: &str) -> Option<Self> {
        let rule = Rule::parse(text)?;
        Some(Self { entries: Vec::new(), before: rule.standard, rule: Some(rule) })
    }

    /// The contents of a zone file (RFC 8536), versions 2 and up. `None` for what is none.
    pub fn parse(file: &[u8]) -> Option<Self> {
        const HEADER: usize = 44;
        let counts = |file: &[u8]| -> Option<[usize; 6]> {
            if file.get(..4)? != b"TZif" {
                return None;
            }
            let number = |n: usize| file.get(20 + 4 * n..24 + 4 * n)?.try_into().ok().map(u32::from_be_bytes);
            let mut counts = [0; 6];
            for (n, count) in counts.iter_mut().enumerate() {
                *count = number(n)? as usize;
            }
            Some(counts)
        };
        // A first block with times of 32 bits is skipped.
        let [utc, standard, leaps, times, types, letters] = counts(file)?;
        let first = HEADER
            + times.checked_mul(5)?
            + types.checked_mul(6)?
            + letters
            + leaps.checked_mul(8)?
            + standard
            + utc;
        let file = file.get(first..)?;
        let [utc, standard, leaps, times, types, letters] = counts(file)?;
        let body = file.get(HEADER..)?;
        let (moments, rest) = body.split_at_checked(times.checked_mul(8)?)?;
        let (indexes, rest) = rest.split_at_checked(times)?;
        let (kinds, rest) = rest.split_at_checked(types.checked_mul(6)?)?;
        let footer = rest
            .get(letters.checked_add(leaps.checked_mul(12)?)?.checked_add(standard)?.checked_add(utc)?..)?;
        let offset = |kind: usize| -> Option<i32> {
            let offset = i32::from_be_bytes(kinds.get(6 * kind..6 * kind + 4)?.try_into().ok()?);
            (offset.unsigned_abs() < 100 * 3600).then_some(offset)
        };
        let entries = moments
            .chunks_exact(8)
            .zip(indexes)
            .map(|(moment, &kind)| Some((i64::from_be_bytes(moment.try_into().ok()?), offset(kind.into())?)));
        let entries: Vec<(i64, i32)> = entries.collect::<Option<_>>()?;
        if !entries.is_sorted_by_key(|entry| entry.0) {
            return None;
        }
        let text = footer.strip_prefix(b"\n")?;
        let text = std::str::from_utf8(&text[..text.iter().position(|&b| b == b'\n')?]).ok()?;
        Some(Self { entries, before: offset(0)?, rule: Rule::parse(text) })
    }

    /// Seconds to add to UTC at a moment, which is in seconds from 1970.
    pub fn offset_at(&self, moment: i64) -> i32 {
        let passed = self.entries.partition_point(|entry| entry.0 <= moment);
        match (&self.rule, passed.checked_sub(1)) {
            (Some(rule), _) if passed == self.entries.len() => rule.offset_at(moment),
            (_, Some(last)) => self.entries[last].1,
            (_, None) => self.before,
        }
    }
}

/// Reads a POSIX zone from left to right.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take(&mut self, byte: u8) -> bool {
        let found = self.0.first() == Some(&byte);
        self.0 = &self.0[usize::from(found)..];
        found
    }

    fn number(&mut self) -> Option<i64> {
        let digits = self.0.iter().take_while(|b| b.is_ascii_digit()).count();
        let text = std::str::from_utf8(self.0.get(..digits)?).ok()?;
        let number = text.parse().ok().filter(|&n: &i64| n <= 1000)?;
        self.0 = &self.0[digits..];
        Some(number)
    }

    fn sign(&mut self) -> i32 {
        if self.take(b'-') {
            return -1;
        }
        self.take(b'+');
        1
    }

    /// `hh[:mm[:ss]]`
    fn time(&mut self) -> Option<i32> {
        let sign = self.sign();
        let mut seconds = self.number()? * 3600;
        for unit in [60, 1] {
            if !self.take(b':') {
                break;
            }
            seconds += self.number()? * unit;
        }
        Some(sign * seconds as i32)
    }

    fn name(&mut self) -> Option<()> {
        let (len, skip) = match self.take(b'<') {
            true => (self.0.iter().position(|&b| b == b'>')?, 1),
            false => (self.0.iter().take_while(|b| b.is_ascii_alphabetic()).count(), 0),
        };
        self.0 = &self.0[len + skip..];
        (len >= 3).then_some(())
    }

    fn moment(&mut self) -> Option<Moment> {
        let day = if self.take(b'M') {
            let month = self.number().filter(|m| (1..=12).contains(m))? as u32;
            let week = self.take(b'.').then(|| self.number())?.filter(|w| (1..=5).contains(w))?;
            let weekday = self.take(b'.').then(|| self.number())?.filter(|d| *d <= 6)?;
            Day::Weekday { month, week, weekday }
        } else if self.take(b'J') {
            Day::WithoutLeap(self.number().filter(|d| (1..=365).contains(d))?)
        } else {
            Day::OfYear(self.number().filter(|d| *d <= 365)?)
        };
        let seconds = if self.take(b'/') { self.time()? } else { 7200 };
        Some(Moment { day, seconds })
    }
}

impl Rule {
    fn parse(text: &str) -> Option<Self> {
        let mut reader = Reader(text.as_bytes());
        reader.name()?;
        let standard = -reader.time()?;
        if reader.0.is_empty() {
            return Some(Self { standard, daylight: None });
        }
        reader.name()?;
        let offset = if reader.0.first() == Some(&b',') { standard + 3600 } else { -reader.time()? };
        let begin = reader.take(b',').then(|| reader.moment())??;
        let end = reader.take(b',').then(|| reader.moment())??;
        reader.0.is_empty().then_some(Self { standard, daylight: Some(Daylight { offset, begin, end }) })
    }

    fn offset_at(&self, moment: i64) -> i32 {
        let Some(daylight) = &self.daylight else { return self.standard };
        let year = Date::from_days((moment.saturating_add(self.standard.into())).div_euclid(86_400)).year;
        let begin = daylight.begin.in_year(year) - i64::from(self.standard);
        let end = daylight.end.in_year(year) - i64::from(daylight.offset);
        let within =
            if begin < end { (begin..end).contains(&moment) } else { !(end..begin).contains(&moment) };
        if within { daylight.offset } else { self.standard }
    }
}

impl Moment {
    /// In seconds of local time from 1970.
    fn in_year(self, year: i64) -> i64 {
        let first = Date { year, month: 1, day: 1 }.to_days();
        let day = match self.day {
            Day::OfYear(day) => first + day,
            Day::WithoutLeap(day) => {
                let leap = Date { year, month: 3, day: 1 }.to_days() - first == 60;
                first + day - 1 + i64::from(leap && day >= 60)
            }
            Day::Weekday { month, week, weekday } => {
                let begin = Date { year, month, day: 1 }.to_days();
                let next = match month {
                    12 => Date { year: year + 1, month: 1, day: 1 }.to_days(),
                    _ => Date { year, month: month + 1, day: 1 }.to_days(),
                };
                // 1970-01-01 was a Thursday.
                let first = begin + (weekday - (begin + 4)).rem_euclid(7);
                let day = first + 7 * (week - 1);
                if day < next { day } else { day - 7 }
            }
        };
        day * 86_400 + i64::from(self.seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_switch_at_their_moments_on_both_halves_of_the_globe() {
        let berlin = Zone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a zone");
        let begins = 1_774_746_000; // 2026-03-29 01:00 UTC
        let ends = 1_792_890_000; // 2026-10-25 01:00 UTC
        for (moment, offset) in [(begins - 1, 3600), (begins, 7200), (ends - 1, 7200), (ends, 3600)] {
            assert_eq!(berlin.offset_at(moment), offset, "{moment}");
        }
        let sydney = Zone::posix("AEST-10AEDT,M10.1.0,M4.1.0/3").expect("a zone");
        assert_eq!(sydney.offset_at(1_767_225_600), 39_600, "January is summer");
        assert_eq!(sydney.offset_at(1_782_864_000), 36_000);
        let dateline = Zone::posix("<+1245>-12:45<+1345>,J60/0,J300").expect("a zone");
        assert_eq!(dateline.offset_at(1_767_225_600), 45_900);
        for none in [
            "",
            "A",
            "CET",
            "CET-1CEST",
            "CET-1CEST,M13.1.0,M1.1.0",
            "CET-1CEST,M3.5.0",
            "CET-99999999999999999999",
        ] {
            assert_eq!(Zone::posix(none), None, "{none}");
        }
    }

    /// The smallest file of version 2: one switch, and a rule.
    fn file() -> Vec<u8> {
        let mut file = Vec::new();
        let header = |file: &mut Vec<u8>, counts: [u32; 6]| {
            file.extend_from_slice(b"TZif2");
            file.extend_from_slice(&[0; 15]);
            counts.iter().for_each(|count| file.extend_from_slice(&count.to_be_bytes()));
        };
        header(&mut file, [0, 0, 0, 0, 1, 1]);
        file.extend_from_slice(&[0; 7]);
        header(&mut file, [0, 0, 0, 2, 2, 4]);
        file.extend_from_slice(&1000i64.to_be_bytes());
        file.extend_from_slice(&2000i64.to_be_bytes());
        file.extend_from_slice(&[1, 0]);
        file.extend_from_slice(&(-60i32).to_be_bytes());
        file.extend_from_slice(&[0, 0]);
        file.extend_from_slice(&120i32.to_be_bytes());
        file.extend_from_slice(&[1, 0]);
        file.extend_from_slice(b"ABC\0\nXYZ3\n");
        file
    }

    #[test]
    fn files_say_what_holds_when_and_their_end_what_holds_later() {
        let zone = Zone::parse(&file()).expect("a zone");
        for (moment, offset) in
            [(0, -60), (999, -60), (1000, 120), (1999, 120), (2000, -10_800), (5_000_000_000, -10_800)]
        {
            assert_eq!(zone.offset_at(moment), offset, "{moment}");
        }
    }

    #[test]
    fn no_beginning_of_a_file_and_no_wrong_byte_is_more_than_refused() {
        let file = file();
        for len in 0..file.len() {
            assert_eq!(Zone::parse(&file[..len]), None, "{len} bytes");
            for value in [0, 0x7f, 0xff] {
                let mut wrong = file.clone();
                wrong[len] = value;
                let _ = Zone::parse(&wrong).map(|zone| zone.offset_at(1500));
            }
        }
    }
}
