//! Formats bytes of configurations for messages: bounded, and harmless to a terminal.

use std::fmt::{Display, Formatter, Result, Write};

/// Maximum number of bytes of a word in a message.
pub const MAX_SHOWN_BYTES: usize = 128;

/// Formats bytes for a message: control characters and invalid UTF-8 as `\xNN`, at most [`MAX_SHOWN_BYTES`]
/// of them.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a>(pub &'a [u8]);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let mut shown = 0;
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if shown + c.len_utf8() > MAX_SHOWN_BYTES {
                    return f.write_str("...");
                }
                shown += c.len_utf8();
                if is_harmful(c) {
                    let mut bytes = [0; 4];
                    for byte in c.encode_utf8(&mut bytes).bytes() {
                        write!(f, "\\x{byte:02x}")?;
                    }
                } else {
                    f.write_char(c)?;
                }
            }
            for byte in chunk.invalid() {
                if shown >= MAX_SHOWN_BYTES {
                    return f.write_str("...");
                }
                shown += 1;
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// True if a terminal or a log could interpret `c` instead of showing it. This includes direction marks,
/// which can disguise a line.
pub fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn harmless_text_is_shown_as_it_is_and_the_rest_escaped() {
        assert_eq!(Shown("Grüße".as_bytes()).to_string(), "Grüße");
        assert_eq!(Shown(b"a\x1b[1m\xff\n\x00").to_string(), "a\\x1b[1m\\xff\\x0a\\x00");
        assert_eq!(Shown("a\u{202e}b".as_bytes()).to_string(), "a\\xe2\\x80\\xaeb");
    }

    #[test]
    fn long_words_are_cut() {
        let text = Shown(&[b'x'; 5000]).to_string();
        assert_eq!(text.len(), MAX_SHOWN_BYTES + 3);
        assert_eq!(Shown(&[0xff; 5000]).to_string().len(), 4 * MAX_SHOWN_BYTES + 3);
    }
}
