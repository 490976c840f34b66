//! `option spop-check`: the HELLO of an SPOE engine, which says that it is a check, and an agent's HELLO.

use super::{Expect, Judgement, Pattern, Script, Service, Step};
use crate::status::{CheckResult, Status};

/// Largest frame that the check offers and accepts, in bytes: all of it is examined.
const LARGEST_FRAME: u32 = 16_380;
/// Smallest frame that an agent may ask for, as the protocol says.
const SMALLEST_FRAME: u64 = 256;
/// Length of the part of a frame that each has: type, flags, and numbers of stream and frame.
const LEAST: u32 = 7;
/// The only version of the protocol.
const VERSION: &[u8] = b"2.0";

/// Types of frames.
const ENGINE_HELLO: u8 = 1;
const AGENT_HELLO: u8 = 101;
const AGENT_DISCONNECT: u8 = 102;

/// Flag of a frame that is not continued.
const FIN: u32 = 1;

/// Types of values, in the lower bits of their first byte; a boolean's value is the bit above.
const BOOL: u8 = 1;
const INT32: u8 = 2;
const UINT64: u8 = 5;
const IPV4: u8 = 6;
const IPV6: u8 = 7;
const STRING: u8 = 8;
const BINARY: u8 = 9;
const TYPE: u8 = 0xf;
const TRUE: u8 = 0x10;

/// Returns the script.
pub fn script() -> Script {
    Script::of(vec![Step::send(hello()), Step::expect(Expect::new(Pattern::Service(Service::Spop), 3))])
}

fn hello() -> Vec<u8> {
    let mut frame = vec![ENGINE_HELLO];
    frame.extend(FIN.to_be_bytes());
    frame.extend([0, 0]); // numbers of stream and frame
    let mut value = |key: &[u8], value: &[u8]| {
        put_text(&mut frame, key);
        frame.extend(value);
    };
    let text = |text: &[u8]| {
        let mut bytes = vec![STRING];
        put_text(&mut bytes, text);
        bytes
    };
    let mut size = vec![INT32 + 1]; // unsigned
    put_number(&mut size, LARGEST_FRAME);
    value(b"supported-versions", &text(VERSION));
    value(b"max-frame-size", &size);
    value(b"capabilities", &text(b""));
    value(b"healthcheck", &[BOOL | TRUE]);
    let length = u32::try_from(frame.len()).expect("the frame is short");
    [&length.to_be_bytes()[..], &frame].concat()
}

fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    put_number(out, u32::try_from(text.len()).expect("the text is short"));
    out.extend(text);
}

/// Writes a number: below 240 as a byte, else four bits of it there, and seven in each byte that follows.
fn put_number(out: &mut Vec<u8>, mut number: u32) {
    if number < 240 {
        return out.push(number as u8);
    }
    out.push(number as u8 | 0xf0);
    number = (number - 240) >> 4;
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number = (number - 0x80) >> 7;
    }
    out.push(number as u8);
}

/// Reads from the front of a frame.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    /// Reads what [`put_number`] writes; `None` also for a number of more than 64 bits.
    fn number(&mut self) -> Option<u64> {
        let mut number = u64::from(self.byte()?);
        let mut shift = 4;
        if number < 240 {
            return Some(number);
        }
        loop {
            let byte = self.byte()?;
            number = number.checked_add(u64::from(byte).checked_shl(shift)?)?;
            if byte < 0x80 {
                return Some(number);
            }
            shift += 7;
        }
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let len = self.number()?;
        self.take(usize::try_from(len).ok()?)
    }

    /// Skips the rest of a value of this type. Types that the protocol does not have have nothing behind
    /// them, as in HAProxy.
    fn skip(&mut self, kind: u8) -> Option<()> {
        match kind & TYPE {
            INT32..=UINT64 => drop(self.number()?),
            IPV4 => drop(self.take(4)?),
            IPV6 => drop(self.take(16)?),
            STRING | BINARY => drop(self.text()?),
            _ => {}
        }
        Some(())
    }
}

const INVALID: &str = "invalid frame received";

pub(super) fn judge(input: &[u8], last: bool) -> Judgement {
    let over = |info: &str| Judgement::Over(CheckResult::new(Status::L7Rsp, info));
    let cut = || if last { over(INVALID) } else { Judgement::Wait };
    let Some((length, frame)) = input.split_first_chunk::<4>() else { return cut() };
    let length = u32::from_be_bytes(*length);
    if length > LARGEST_FRAME {
        return over(INVALID);
    }
    if frame.len() < length.max(LEAST) as usize {
        return cut();
    }
    let info = if frame.len() == length as usize { read(frame) } else { Some(INVALID) };
    let well = || Judgement::Well(CheckResult::said(Status::L7Ok, 0, b"SPOA server is ok"));
    info.map_or_else(well, over)
}

/// Reads a frame of an agent. Returns what is wrong with it.
fn read(frame: &[u8]) -> Option<&'static str> {
    greeting(Fields(frame)).unwrap_or(Some(INVALID))
}

/// The same; `None` if the frame is malformed.
fn greeting(mut frame: Fields<'_>) -> Option<Option<&'static str>> {
    let kind = frame.byte()?;
    let flags = u32::from_be_bytes(*frame.take(4)?.first_chunk()?);
    let is_alone = frame.number()? == 0 && frame.number()? == 0;
    if !matches!(kind, AGENT_HELLO | AGENT_DISCONNECT) || flags & FIN == 0 || !is_alone {
        return None;
    }
    let (mut version, mut size, mut capabilities) = (false, false, false);
    while !frame.0.is_empty() {
        let key = frame.text()?;
        let kind = frame.byte()?;
        match key {
            b"version" => {
                let text = if kind & TYPE == STRING { frame.text()? } else { return None };
                match text.trim_ascii() {
                    b"" => return None,
                    VERSION => version = true,
                    _ => return Some(Some("unsupported version")),
                }
            }
            b"max-frame-size" => {
                let number =
                    if (INT32..=UINT64).contains(&(kind & TYPE)) { frame.number()? } else { return None };
                if !(SMALLEST_FRAME..=LARGEST_FRAME.into()).contains(&number) {
                    return Some(Some("max-frame-size too big or too small"));
                }
                size = true;
            }
            b"capabilities" => {
                if kind & TYPE != STRING {
                    return None;
                }
                frame.text()?;
                capabilities = true;
            }
            _ => frame.skip(kind)?,
        }
    }
    Some(match (version, size, capabilities) {
        (false, ..) => Some("version value not found"),
        (_, false, _) => Some("max-frame-size value not found"),
        (.., false) => Some("capabilities value not found"),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What HAProxy 3.2 sends.
    const HELLO: &[u8] =
        b"\0\0\0N\x01\0\0\0\x01\0\0\x12supported-versions\x08\x032.0\x0emax-frame-size\x03\xfc\xf0\
        \x06\x0ccapabilities\x08\0\x0bhealthcheck\x11";

    #[test]
    fn the_hello_is_that_of_haproxy() {
        assert_eq!(hello(), HELLO);
    }

    #[test]
    fn numbers_are_read_as_they_are_written() {
        for number in [0, 1, 239, 240, 241, 255, 256, 2287, 2288, 16_380, 264_431, 264_432, u32::MAX] {
            let mut bytes = Vec::new();
            put_number(&mut bytes, number);
            let mut fields = Fields(&bytes);
            assert_eq!(fields.number(), Some(number.into()));
            assert!(fields.0.is_empty());
        }
        assert_eq!(Fields(&[0xff; 20]).number(), None);
    }

    #[test]
    fn frames_cut_anywhere_and_lengths_that_lie_are_no_greeting() {
        let answer = b"\0\0\0\x3a\x65\0\0\0\x01\0\0\x07version\x08\x032.0\x0emax-frame-size\x03\xfc\xf0\x06\
            \x0ccapabilities\x08\0";
        let length = u8::try_from(answer.len() - 4).unwrap();
        let answer = [&[0, 0, 0, length][..], &answer[4..]].concat();
        assert!(matches!(judge(&answer, false), Judgement::Well(_)));
        for cut in 0..answer.len() {
            assert!(matches!(judge(&answer[..cut], false), Judgement::Wait), "{cut}");
            assert!(matches!(judge(&answer[..cut], true), Judgement::Over(_)), "{cut}");
        }
        for at in 0..answer.len() {
            for value in [0, 0x7f, 0xff] {
                let mut bent = answer.clone();
                bent[at] = value;
                let _ = judge(&bent, true);
            }
        }
        assert!(matches!(judge(b"HTTP/1.1 400 Bad Request\r\n\r\n", false), Judgement::Over(_)));
    }
}
