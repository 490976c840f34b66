//! Parsers for times, sizes and integers. They never guess: a wrong unit, a sign, a fraction or trailing text
//! is an error with its position.

use crate::Shown;
use crate::lex::Word;
use crate::limits::MAX_TIMER_MS;
use std::time::Duration;

/// Why a word is not a valid value, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueError {
    /// Byte offset in the word.
    pub at: usize,
    /// The reason, a clause to put after the word and a colon.
    pub message: String,
}

impl ValueError {
    fn new(at: usize, message: impl Into<String>) -> Self {
        Self { at, message: message.into() }
    }
}

/// The unit of a time that is written without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Microseconds.
    Us,
    /// Milliseconds, the unit of nearly all times.
    Ms,
    /// Seconds.
    S,
}

impl Unit {
    /// The unit as written.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Us => "us",
            Self::Ms => "ms",
            Self::S => "s",
        }
    }
}

/// Parses leading digits: returns the number and its length in bytes. The number is `None` if it does not fit
/// into 64 bits.
fn digits(bytes: &[u8]) -> Result<(Option<u64>, usize), ValueError> {
    let length = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if length == 0 {
        return Err(match bytes.first() {
            None => ValueError::new(0, "it is empty"),
            Some(b'-') => ValueError::new(0, "it is negative"),
            Some(byte) => ValueError::new(0, format!("'{}' is not a digit", Shown(&[*byte]))),
        });
    }
    let number = bytes[..length]
        .iter()
        .try_fold(0u64, |number, digit| number.checked_mul(10)?.checked_add(u64::from(digit - b'0')));
    Ok((number, length))
}

/// Parses a time: digits, then `us`, `ms`, `s`, `m`, `h`, `d`, or nothing for `unit`. At most
/// [`MAX_TIMER_MS`]. Lower-case letters may follow the unit, as in `15min`: HAProxy accepts them with a
/// warning, see [`long_unit`].
///
/// # Errors
/// If the word is not a time, or is too large.
pub fn time(word: &[u8], unit: Unit) -> Result<Duration, ValueError> {
    let (number, length) = digits(word)?;
    let rest = &word[length..];
    let rest = &rest[..rest.len() - long_unit(word).unwrap_or_default()];
    let microseconds = match (rest, unit) {
        (b"us", _) | (b"", Unit::Us) => 1,
        (b"ms", _) | (b"", Unit::Ms) => 1_000,
        (b"s", _) | (b"", Unit::S) => 1_000_000,
        (b"m", _) => 60_000_000,
        (b"h", _) => 3_600_000_000,
        (b"d", _) => 86_400_000_000,
        (rest, _) => {
            let message = format!("'{}' is not a unit of time, which are us, ms, s, m, h and d", Shown(rest));
            return Err(ValueError::new(length, message));
        }
    };
    number
        .and_then(|number| number.checked_mul(microseconds))
        .filter(|&us| us <= MAX_TIMER_MS * 1000)
        .map(Duration::from_micros)
        .ok_or_else(|| {
            let message = format!("the longest time is {MAX_TIMER_MS} ms, about 24.8 days");
            ValueError::new(0, message)
        })
}

/// Number of letters after the unit of a time; `None` if there are none.
pub fn long_unit(time: &[u8]) -> Option<usize> {
    let unit = &time[time.iter().take_while(|byte| byte.is_ascii_digit()).count()..];
    let behind =
        ["us", "ms", "s", "m", "h", "d"].iter().find_map(|known| unit.strip_prefix(known.as_bytes()))?;
    (!behind.is_empty() && behind.iter().all(u8::is_ascii_lowercase)).then_some(behind.len())
}

/// Parses a size in bytes: digits, and optionally `k`, `m` or `g` for 2^10, 2^20 and 2^30.
///
/// # Errors
/// If the word is not a size, or is outside of `min` to `max`.
pub fn size(word: &[u8], min: u64, max: u64) -> Result<u64, ValueError> {
    let (number, length) = digits(word)?;
    let shift = match &word[length..] {
        b"" => 0,
        b"k" | b"K" => 10,
        b"m" | b"M" => 20,
        b"g" | b"G" => 30,
        rest => {
            let message = format!("'{}' is not a unit of size, which are k, m and g", Shown(rest));
            return Err(ValueError::new(length, message));
        }
    };
    number
        .and_then(|number| number.checked_mul(1 << shift))
        .filter(|bytes| (min..=max).contains(bytes))
        .ok_or_else(|| ValueError::new(0, range(min, max, u64::MAX)))
}

/// Parses a decimal integer.
///
/// # Errors
/// If the word is not an integer, or is outside of `min` to `max`.
pub fn integer(word: &[u8], min: i64, max: i64) -> Result<i64, ValueError> {
    let outside = || ValueError::new(0, range(min, max, i64::MAX));
    let (negative, unsigned) = match word.strip_prefix(b"-") {
        Some(rest) if min < 0 => (true, rest),
        _ => (false, word),
    };
    let (number, length) = digits(unsigned)?;
    if length < unsigned.len() {
        let at = word.len() - unsigned.len() + length;
        return Err(ValueError::new(at, format!("'{}' stands behind the number", Shown(&word[at..]))));
    }
    let number = number.and_then(|number| i64::try_from(number).ok()).ok_or_else(outside)?;
    let number = if negative { -number } else { number };
    if (min..=max).contains(&number) { Ok(number) } else { Err(outside()) }
}

fn range<T: std::fmt::Display + PartialEq>(min: T, max: T, unbounded: T) -> String {
    if max == unbounded { format!("the least is {min}") } else { format!("the range is {min} to {max}") }
}

/// An argument, parsed as its [`Kind`](crate::table::Kind) in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// An integer.
    Int(i64),
    /// A time.
    Time(Duration),
    /// A size in bytes.
    Size(u64),
    /// One of a list of words.
    Choice(&'static str),
    /// `on` or `off`.
    Switch(bool),
    /// Any word.
    Text(Word),
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_have_units_and_a_maximum() {
        for (text, us) in [
            ("0", 0),
            ("5", 5_000),
            ("7us", 7),
            ("7ms", 7_000),
            ("7s", 7_000_000),
            ("2m", 120_000_000),
            ("1h", 3_600_000_000),
            ("24d", 24 * 86_400_000_000),
            ("2147483647", 2_147_483_647_000),
        ] {
            assert_eq!(time(text.as_bytes(), Unit::Ms), Ok(Duration::from_micros(us)), "{text}");
        }
        for (text, seconds) in [("15min", 900), ("2hours", 7200), ("3sec", 3), ("1days", 86_400)] {
            assert_eq!(time(text.as_bytes(), Unit::Ms), Ok(Duration::from_secs(seconds)), "{text}");
            assert!(long_unit(text.as_bytes()).is_some());
        }
        assert_eq!((long_unit(b"5ms"), long_unit(b"5"), long_unit(b"5msec")), (None, None, Some(2)));
        assert_eq!(time(b"5", Unit::S), Ok(Duration::from_secs(5)));
        assert_eq!(time(b"5", Unit::Us), Ok(Duration::from_micros(5)));
        for (text, at, part) in [
            ("", 0, "it is empty"),
            ("x", 0, "'x' is not a digit"),
            ("-1", 0, "negative"),
            ("3x", 1, "'x' is not a unit"),
            ("1.5s", 1, "'.5s' is not a unit"),
            ("1m30s", 1, "'m30s' is not a unit"),
            ("1 s", 1, "' s' is not a unit"),
            ("25d", 0, "the longest time is"),
            ("2147483648", 0, "the longest time is"),
            ("99999999999999999999999", 0, "the longest time is"),
        ] {
            let error = time(text.as_bytes(), Unit::Ms).unwrap_err();
            assert!(error.at == at && error.message.contains(part), "{text}: {error:?}");
        }
    }

    #[test]
    fn sizes_are_powers_of_two() {
        for (text, bytes) in [("0", 0), ("16384", 16384), ("16k", 16384), ("1M", 1 << 20), ("2g", 2 << 30)] {
            assert_eq!(size(text.as_bytes(), 0, u64::MAX), Ok(bytes), "{text}");
        }
        for (text, part) in [
            ("1kb", "'kb' is not a unit"),
            ("10", "the range is 1024 to 65536"),
            ("1m", "the range is 1024 to 65536"),
            ("99999999999g", "the range is 1024 to 65536"),
        ] {
            let error = size(text.as_bytes(), 1024, 65536).unwrap_err();
            assert!(error.message.contains(part), "{text}: {error:?}");
        }
    }

    #[test]
    fn integers_have_ranges() {
        assert_eq!(integer(b"-5", -10, 10), Ok(-5));
        assert_eq!(integer(b"007", 0, 10), Ok(7));
        for (text, part) in [
            ("-5", "negative"),
            ("11", "the range is 0 to 10"),
            ("1k", "'k' stands behind"),
            ("0x10", "'x10' stands behind"),
            ("99999999999999999999", "the range is 0 to 10"),
            ("+1", "'+' is not a digit"),
        ] {
            let error = integer(text.as_bytes(), 0, 10).unwrap_err();
            assert!(error.message.contains(part), "{text}: {error:?}");
        }
        assert_eq!(integer(b"0", 1, i64::MAX).unwrap_err().message, "the least is 1");
        assert_eq!(integer(b"-x", -1, 1).unwrap_err().at, 0);
    }

    proptest! {
        #[test]
        fn no_word_is_too_strange(word in proptest::collection::vec(any::<u8>(), 0..24)) {
            for error in [time(&word, Unit::Ms).err(), size(&word, 0, 9).err(), integer(&word, -9, 9).err()] {
                prop_assert!(error.is_none_or(|error| error.at <= word.len()));
            }
        }

        #[test]
        fn numbers_in_range_are_read_as_they_are(number in -1_000_000i64..1_000_000) {
            prop_assert_eq!(integer(number.to_string().as_bytes(), i64::MIN, i64::MAX), Ok(number));
        }
    }
}
