//! Dates (RFC 9110, 5.6.7): written in the fixed form, read in that and the two old ones.
//!
//! Days are turned into dates by the well-known integer formulas over eras of 400 years (Hinnant,
//! *chrono-compatible low-level date algorithms*). No clock here: time is an argument, in seconds since 1970.

const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const LONG_DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Bytes of a date in the fixed form.
pub const DATE_LEN: usize = 29;

/// The first second of the year 10000, which has no form.
const END: u64 = 253_402_300_800;

/// Writes `seconds` since 1970, at most the last second of the year 9999, as in `Sun, 06 Nov 1994 08:49:37
/// GMT`.
pub fn format_date(seconds: u64) -> [u8; DATE_LEN] {
    let seconds = seconds.min(END - 1);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days since 1 March of year 0; eras of 400 years.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 2 } else { shifted_month - 10 };
    let year = year_of_era + era * 400 + u64::from(month < 2);

    let mut date = *b"Sun, 00 Jan 0000 00:00:00 GMT";
    date[..3].copy_from_slice(DAYS[((days + 4) % 7) as usize].as_bytes());
    date[8..11].copy_from_slice(MONTHS[month as usize].as_bytes());
    for (at, number) in [
        (5, day),
        (12, year / 100),
        (14, year % 100),
        (17, second / 3_600),
        (20, second / 60 % 60),
        (23, second % 60),
    ] {
        date[at] = b'0' + (number / 10) as u8;
        date[at + 1] = b'0' + (number % 10) as u8;
    }
    date
}

/// The date of the second it was asked for last: one for each lane, so that a date is written once a second.
#[derive(Clone, Debug, Default)]
pub struct DateCache {
    /// The second, plus one; 0 is none.
    of: u64,
    date: [u8; DATE_LEN],
}

impl DateCache {
    /// The date of `seconds` since 1970, as [`format_date`] writes it.
    #[inline]
    pub fn at(&mut self, seconds: u64) -> &[u8; DATE_LEN] {
        let seconds = seconds.min(END);
        if self.of != seconds + 1 {
            self.of = seconds + 1;
            self.date = format_date(seconds);
        }
        &self.date
    }
}

/// Seconds since 1970 of a date in any of the three forms: `Sun, 06 Nov 1994 08:49:37 GMT`, `Sunday,
/// 06-Nov-94 08:49:37 GMT`, `Sun Nov  6 08:49:37 1994`. None for anything else, for dates that do not exist,
/// and for those before 1970. Years of two digits are those from 1970 to 2069. Whether the day of the week
/// fits is not looked at.
pub fn parse_date(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let mut words = text.split(' ');
    let first = words.next()?;
    let is_day = |name: &str| DAYS.contains(&name);
    let (day, month, year, time, end) = match first.strip_suffix(',') {
        Some(name) if is_day(name) => {
            (words.next()?, words.next()?, words.next()?, words.next()?, words.next()?)
        }
        Some(name) if LONG_DAYS.contains(&name) => {
            let mut parts = words.next()?.split('-');
            let date = (parts.next()?, parts.next()?, parts.next()?);
            if parts.next().is_some() || date.2.len() != 2 {
                return None;
            }
            (date.0, date.1, date.2, words.next()?, words.next()?)
        }
        None if is_day(first) => {
            let month = words.next()?;
            let day = match words.next()? {
                "" => words.next()?, // one digit behind two spaces
                day => day,
            };
            let time = words.next()?;
            (day, month, words.next()?, time, "GMT")
        }
        _ => return None,
    };
    if end != "GMT" || words.next().is_some() {
        return None;
    }
    let number = |digits: &str| {
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse::<u64>().ok()).flatten()
    };
    let month = MONTHS.iter().position(|&name| name == month)? as u64 + 1;
    let year = match (year.len(), number(year)?) {
        (2, year) if year < 70 => year + 2000,
        (2, year) => year + 1900,
        (4, year) => year,
        _ => return None,
    };
    let mut clock = time.split(':');
    let mut part = |below: u64| number(clock.next().filter(|part| part.len() == 2)?).filter(|&n| n < below);
    let (hour, minute, second) = (part(24)?, part(60)?, part(61)?);
    let day = number(day).filter(|_| day.len() <= 2)?;
    if clock.next().is_some() || day == 0 || day > days_in(month, year) || year < 1970 {
        return None;
    }
    // The reverse of `format_date`.
    let shifted_year = year - u64::from(month <= 2);
    let (era, year_of_era) = (shifted_year / 400, shifted_year % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = era * 146_097 + day_of_era - 719_468;
    Some(days * 86_400 + hour * 3_600 + minute * 60 + second.min(59))
}

fn days_in(month: u64, year: u64) -> u64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_as_the_rfc_does() {
        for (seconds, date) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_399, "Mon, 28 Feb 2000 23:59:59 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
            (END - 1, "Fri, 31 Dec 9999 23:59:59 GMT"),
            (u64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ] {
            assert_eq!(std::str::from_utf8(&format_date(seconds)), Ok(date));
            assert_eq!(DateCache::default().at(seconds), &format_date(seconds));
        }
        let mut cache = DateCache::default();
        assert_eq!(*cache.at(5), format_date(5));
        assert_eq!(*cache.at(6), format_date(6));
    }

    #[test]
    fn each_day_of_four_centuries_is_read_as_it_was_written() {
        for day in 0..146_097 {
            let seconds = day * 86_400 + day * 7 % 86_400;
            assert_eq!(parse_date(&format_date(seconds)), Some(seconds));
        }
    }

    #[test]
    fn the_old_forms_are_read_and_nothing_else() {
        assert_eq!(parse_date(b"Sunday, 06-Nov-94 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(parse_date(b"Sun Nov  6 08:49:37 1994"), Some(784_111_777));
        assert_eq!(parse_date(b"Sun Nov 16 08:49:37 1994"), Some(784_975_777));
        for bad in [
            "",
            "Sun",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37 GMT ",
            "Sun, 31 Nov 1994 08:49:37 GMT",
            "Sun, 29 Feb 2100 08:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Sun, 06 Nov 1994 8:49:37 GMT",
            "Sun, 06 Nov 1969 08:49:37 GMT",
            "Sun, +6 Nov 1994 08:49:37 GMT",
            "Sun, 06 nov 1994 08:49:37 GMT",
            "Xun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-1994 08:49:37 GMT",
            "\u{e4}",
        ] {
            assert_eq!(parse_date(bad.as_bytes()), None, "{bad}");
        }
    }
}
