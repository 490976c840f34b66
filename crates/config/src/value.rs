//! Values: times, sizes, integers. What a number is and in which unit is never guessed: a wrong unit, a sign,
//! a fraction or anything after the value is an error that shows where.

use crate::Shown;
use crate::lex::Word;
use crate::limits::MAX_TIMER_MS;
use std::time::Duration;

/// Why a word is no value, and at which of its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueError {
    /// Offset in the word.
    pub at: usize,
    /// What is wrong, as the end of a sentence about the keyword.
    pub message: String,
}

impl ValueError {
    fn new(at: usize, message: impl Into<String>) -> Self {
        Self { at, message: message.into() }
    }
}

/// The unit of a time without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Microseconds.
    Us,
    /// Milliseconds: nearly always.
    Ms,
    /// Seconds.
    S,
}

impl Unit {
    /// As it is written.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Us => "us",
            Self::Ms => "ms",
            Self::S => "s",
        }
    }
}

/// Digits at the beginning: the number and how many bytes it takes. `None` for a number beyond 64 bits.
fn digits(bytes: &[u8]) -> Result<(Option<u64>, usize), ValueError> {
    let length = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if length == 0 {
        return Err(match bytes.first() {
            None => ValueError::new(0, "expects a number and got nothing"),
            Some(b'-') => ValueError::new(0, "expects a number that is not negative"),
            Some(byte) => {
                ValueError::new(0, format!("expects a number, unexpected character '{}'", Shown(&[*byte])))
            }
        });
    }
    let number = bytes[..length]
        .iter()
        .try_fold(0u64, |number, digit| number.checked_mul(10)?.checked_add(u64::from(digit - b'0')));
    Ok((number, length))
}

/// A time: digits and one of `us`, `ms`, `s`, `m`, `h`, `d`, or `unit` when none is there. At most
/// [`MAX_TIMER_MS`].
///
/// # Errors
/// When the word is anything else.
pub fn time(word: &[u8], unit: Unit) -> Result<Duration, ValueError> {
    let (number, length) = digits(word)?;
    let microseconds = match (&word[length..], unit) {
        (b"us", _) | (b"", Unit::Us) => 1,
        (b"ms", _) | (b"", Unit::Ms) => 1_000,
        (b"s", _) | (b"", Unit::S) => 1_000_000,
        (b"m", _) => 60_000_000,
        (b"h", _) => 3_600_000_000,
        (b"d", _) => 86_400_000_000,
        (rest, _) => {
            let message = format!("'{}' is no unit of time, there are us, ms, s, m, h and d", Shown(rest));
            return Err(ValueError::new(length, message));
        }
    };
    number
        .and_then(|number| number.checked_mul(microseconds))
        .filter(|&us| us <= MAX_TIMER_MS * 1000)
        .map(Duration::from_micros)
        .ok_or_else(|| {
            let message = format!("timer overflow, the longest time is {MAX_TIMER_MS} ms or about 24.8 days");
            ValueError::new(0, message)
        })
}

/// A size in bytes: digits and perhaps `k`, `m` or `g` for 2^10, 2^20 and 2^30.
///
/// # Errors
/// When the word is anything else, or the size is outside of `min` to `max`.
pub fn size(word: &[u8], min: u64, max: u64) -> Result<u64, ValueError> {
    let (number, length) = digits(word)?;
    let shift = match &word[length..] {
        b"" => 0,
        b"k" | b"K" => 10,
        b"m" | b"M" => 20,
        b"g" | b"G" => 30,
        rest => {
            let message = format!("'{}' is no unit of size, there are k, m and g", Shown(rest));
            return Err(ValueError::new(length, message));
        }
    };
    number
        .and_then(|number| number.checked_mul(1 << shift))
        .filter(|bytes| (min..=max).contains(bytes))
        .ok_or_else(|| ValueError::new(0, range("a size", min, max, u64::MAX)))
}

/// An integer.
///
/// # Errors
/// When the word is anything else, or the number is outside of `min` to `max`.
pub fn integer(word: &[u8], min: i64, max: i64) -> Result<i64, ValueError> {
    let outside = || ValueError::new(0, range("a value", min, max, i64::MAX));
    let (negative, unsigned) = match word.strip_prefix(b"-") {
        Some(rest) if min < 0 => (true, rest),
        _ => (false, word),
    };
    let (number, length) = digits(unsigned)?;
    if length < unsigned.len() {
        let at = word.len() - unsigned.len() + length;
        return Err(ValueError::new(at, format!("unexpected '{}' after the number", Shown(&word[at..]))));
    }
    let number = number.and_then(|number| i64::try_from(number).ok()).ok_or_else(outside)?;
    let number = if negative { -number } else { number };
    if (min..=max).contains(&number) { Ok(number) } else { Err(outside()) }
}

fn range<T: std::fmt::Display + PartialEq>(what: &str, min: T, max: T, unbounded: T) -> String {
    if max == unbounded {
        format!("expects {what} of at least {min}")
    } else {
        format!("expects {what} between {min} and {max}")
    }
}

/// A value that the table's shapes gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// An integer.
    Int(i64),
    /// A time.
    Time(Duration),
    /// Bytes.
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
        assert_eq!(time(b"5", Unit::S), Ok(Duration::from_secs(5)));
        assert_eq!(time(b"5", Unit::Us), Ok(Duration::from_micros(5)));
        for (text, at, part) in [
            ("", 0, "got nothing"),
            ("x", 0, "unexpected character 'x'"),
            ("-1", 0, "not negative"),
            ("3x", 1, "'x' is no unit"),
            ("1.5s", 1, "'.5s' is no unit"),
            ("1m30s", 1, "'m30s' is no unit"),
            ("1 s", 1, "' s' is no unit"),
            ("25d", 0, "timer overflow"),
            ("2147483648", 0, "timer overflow"),
            ("99999999999999999999999", 0, "timer overflow"),
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
            ("1kb", "'kb' is no unit"),
            ("10", "between 1024 and 65536"),
            ("1m", "between 1024 and 65536"),
            ("99999999999g", "between 1024 and 65536"),
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
            ("-5", "not negative"),
            ("11", "between 0 and 10"),
            ("1k", "unexpected 'k'"),
            ("0x10", "unexpected 'x10'"),
            ("99999999999999999999", "between 0 and 10"),
            ("+1", "unexpected character '+'"),
        ] {
            let error = integer(text.as_bytes(), 0, 10).unwrap_err();
            assert!(error.message.contains(part), "{text}: {error:?}");
        }
        assert_eq!(integer(b"0", 1, i64::MAX).unwrap_err().message, "expects a value of at least 1");
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
