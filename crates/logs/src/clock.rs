//! A lane's cached text of the current time.

use jiff::{Timestamp, tz::TimeZone};
use std::time::Duration;

pub(crate) const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// The text of the last second.
#[derive(Debug)]
pub(crate) struct Clock {
    zone: TimeZone,
    second: Option<u64>,
    /// `Nov 21 07:24:06`
    bsd: [u8; 15],
    /// `2026-11-21T07:24:06.000000+00:00`; microseconds are filled in for each line.
    iso: [u8; 32],
}

fn digits(into: &mut [u8], mut n: u64) {
    for digit in into.iter_mut().rev() {
        *digit = b'0' + (n % 10) as u8;
        n /= 10;
    }
}

impl Clock {
    pub(crate) fn new(zone: TimeZone) -> Self {
        Self { zone, second: None, bsd: [b' '; 15], iso: *b"0000-00-00T00:00:00.000000+00:00" }
    }

    fn update(&mut self, since_epoch: Duration) {
        let second = since_epoch.as_secs();
        if self.second == Some(second) {
            return;
        }
        self.second = Some(second);
        let moment = Timestamp::from_second(second.cast_signed()).unwrap_or(Timestamp::MAX);
        let offset = self.zone.to_offset(moment);
        let local = offset.to_datetime(moment);
        let number = |n: i8| u64::from(n.unsigned_abs());
        self.bsd[..3].copy_from_slice(MONTHS[usize::from(local.month().unsigned_abs()) - 1]);
        digits(&mut self.bsd[4..6], number(local.day()));
        if local.day() < 10 {
            self.bsd[4] = b' '; // RFC 3164, 4.1.2: a space instead of a zero
        }
        digits(&mut self.iso[..4], local.year().unsigned_abs().into());
        digits(&mut self.iso[5..7], number(local.month()));
        digits(&mut self.iso[8..10], number(local.day()));
        for (at, n) in [(0, local.hour()), (3, local.minute()), (6, local.second())] {
            digits(&mut self.bsd[7 + at..9 + at], number(n));
            digits(&mut self.iso[11 + at..13 + at], number(n));
        }
        self.bsd[9] = b':';
        self.bsd[12] = b':';
        let minutes = u64::from(offset.seconds().unsigned_abs() / 60);
        self.iso[26] = if offset.is_negative() { b'-' } else { b'+' };
        digits(&mut self.iso[27..29], minutes / 60);
        digits(&mut self.iso[30..32], minutes % 60);
    }

    /// The form of RFC 3164: local time.
    pub(crate) fn bsd(&mut self, since_epoch: Duration) -> &[u8] {
        self.update(since_epoch);
        &self.bsd
    }

    /// The form of RFC 3339: local time with microseconds and offset.
    pub(crate) fn iso(&mut self, since_epoch: Duration) -> &[u8] {
        self.update(since_epoch);
        digits(&mut self.iso[20..26], since_epoch.subsec_micros().into());
        &self.iso
    }

    /// Converts a time from RFC 3164's form to RFC 3339's. The former has no year, so a month after the
    /// current one is of the previous year. It has no zone either, which `-00:00` states.
    pub(crate) fn iso_of(&mut self, since_epoch: Duration, bsd: &[u8; 15]) -> [u8; 25] {
        self.update(since_epoch);
        let number = |digits: &[u8]| digits.iter().fold(0, |n, digit| n * 10 + u64::from(digit - b'0'));
        let month = MONTHS.iter().position(|name| name[..] == bsd[..3]).map_or(1, |index| index as u64 + 1);
        let year = number(&self.iso[..4]).saturating_sub(u64::from(month > number(&self.iso[5..7])));
        let mut iso = *b"0000-00-00T00:00:00-00:00";
        digits(&mut iso[..4], year);
        digits(&mut iso[5..7], month);
        iso[8..10].copy_from_slice(&bsd[4..6]);
        if iso[8] == b' ' {
            iso[8] = b'0';
        }
        iso[11..19].copy_from_slice(&bsd[7..15]);
        iso
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_forms_of_the_rfcs() {
        let mut clock = Clock::new(TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a zone"));
        // 2026-11-01 06:24:06.270201 UTC
        let winter = Duration::new(1_793_514_246, 270_201_999);
        assert_eq!(clock.bsd(winter), b"Nov  1 07:24:06");
        assert_eq!(clock.iso(winter), b"2026-11-01T07:24:06.270201+01:00");
        let summer = Duration::new(1_782_864_000, 5_000); // 2026-07-01 00:00:00 UTC
        assert_eq!(clock.bsd(summer), b"Jul  1 02:00:00");
        assert_eq!(clock.iso(summer), b"2026-07-01T02:00:00.000005+02:00");
        assert_eq!(&clock.iso_of(winter, b"Nov  1 23:59:59"), b"2026-11-01T23:59:59-00:00");
        assert_eq!(&clock.iso_of(winter, b"Dec 31 00:00:00"), b"2025-12-31T00:00:00-00:00");
        let mut west = Clock::new(TimeZone::posix("NST3:30").expect("a zone"));
        assert_eq!(west.iso(Duration::ZERO), b"1969-12-31T20:30:00.000000-03:30");
    }
}
