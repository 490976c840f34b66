//! Days and seconds as dates, and a lane's cached text of them.

use crate::zone::Zone;
use std::time::Duration;

const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// A date of the Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Date {
    pub(crate) year: i64,
    /// 1 to 12.
    pub(crate) month: u32,
    /// 1 to 31.
    pub(crate) day: u32,
}

impl Date {
    /// The date so many days after 1970-01-01. After H. Hinnant, *chrono-Compatible Low-Level Date Algorithms*: years begin in March, so that
    /// the leap day is the last.
    pub(crate) fn from_days(days: i64) -> Self {
        let days = days + 719_468; // from 0000-03-01
        let era = days.div_euclid(146_097);
        let of_era = days.rem_euclid(146_097);
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month = (5 * of_year + 2) / 153;
        let day = of_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        Self { year: year_of_era + era * 400 + i64::from(month <= 2), month: month as u32, day: day as u32 }
    }

    /// Days from 1970-01-01.
    pub(crate) fn to_days(self) -> i64 {
        let year = self.year - i64::from(self.month <= 2);
        let era = year.div_euclid(400);
        let year_of_era = year.rem_euclid(400);
        let month = i64::from(self.month);
        let of_year =
            (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + i64::from(self.day) - 1;
        era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year - 719_468
    }
}

/// The text of the second that was asked for last.
#[derive(Debug)]
pub(crate) struct Clock {
    zone: Zone,
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
    pub(crate) fn new(zone: Zone) -> Self {
        Self { zone, second: None, bsd: [b' '; 15], iso: *b"0000-00-00T00:00:00.000000+00:00" }
    }

    fn update(&mut self, since_epoch: Duration) {
        let second = since_epoch.as_secs();
        if self.second == Some(second) {
            return;
        }
        self.second = Some(second);
        let offset = self.zone.offset_at(second.cast_signed());
        let local = second.cast_signed().saturating_add(offset.into());
        let date = Date::from_days(local.div_euclid(86_400));
        let of_day = local.rem_euclid(86_400).cast_unsigned();
        let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
        self.bsd[..3].copy_from_slice(MONTHS[date.month as usize - 1]);
        digits(&mut self.bsd[4..6], date.day.into());
        if date.day < 10 {
            self.bsd[4] = b' '; // RFC 3164, 4.1.2: a space in place of a zero
        }
        digits(&mut self.iso[..4], date.year.clamp(0, 9999).cast_unsigned());
        digits(&mut self.iso[5..7], date.month.into());
        digits(&mut self.iso[8..10], date.day.into());
        for (at, n) in [(0, hour), (3, minute), (6, second)] {
            digits(&mut self.bsd[7 + at..9 + at], n);
            digits(&mut self.iso[11 + at..13 + at], n);
        }
        self.bsd[9] = b':';
        self.bsd[12] = b':';
        let minutes = u64::from(offset.unsigned_abs() / 60);
        self.iso[26] = if offset < 0 { b'-' } else { b'+' };
        digits(&mut self.iso[27..29], minutes / 60);
        digits(&mut self.iso[30..32], minutes % 60);
    }

    /// As in RFC 3164: local time.
    pub(crate) fn bsd(&mut self, since_epoch: Duration) -> &[u8] {
        self.update(since_epoch);
        &self.bsd
    }

    /// As in RFC 3339: local time with microseconds and the offset.
    pub(crate) fn iso(&mut self, since_epoch: Duration) -> &[u8] {
        self.update(since_epoch);
        digits(&mut self.iso[20..26], since_epoch.subsec_micros().into());
        &self.iso
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_dates_are_each_others_inverse_for_a_thousand_years() {
        let mut expected = Date { year: 1900, month: 1, day: 1 };
        let end = Date { year: 2900, month: 1, day: 1 };
        for days in expected.to_days()..end.to_days() {
            let date = Date::from_days(days);
            assert_eq!((date, date.to_days()), (expected, days));
            let leap = date.year % 4 == 0 && (date.year % 100 != 0 || date.year % 400 == 0);
            let last =
                [31, 28 + u32::from(leap), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][date.month as usize - 1];
            expected = match (date.day == last, date.month == 12) {
                (false, _) => Date { day: date.day + 1, ..date },
                (true, false) => Date { day: 1, month: date.month + 1, ..date },
                (true, true) => Date { day: 1, month: 1, year: date.year + 1 },
            };
        }
    }

    #[test]
    fn times_have_the_forms_of_the_rfcs() {
        let mut clock = Clock::new(Zone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a zone"));
        // 2026-11-01 06:24:06.270201 UTC
        let winter = Duration::new(1_793_514_246, 270_201_999);
        assert_eq!(clock.bsd(winter), b"Nov  1 07:24:06");
        assert_eq!(clock.iso(winter), b"2026-11-01T07:24:06.270201+01:00");
        let summer = Duration::new(1_782_864_000, 5_000); // 2026-07-01 00:00:00 UTC
        assert_eq!(clock.bsd(summer), b"Jul  1 02:00:00");
        assert_eq!(clock.iso(summer), b"2026-07-01T02:00:00.000005+02:00");
        let mut west = Clock::new(Zone::posix("NST3:30").expect("a zone"));
        assert_eq!(west.iso(Duration::ZERO), b"1969-12-31T20:30:00.000000-03:30");
    }
}
