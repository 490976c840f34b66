//! Splits arguments in parentheses, as in `regsub("a,b",x)`. The input is a word, so its bytes have been
//! unquoted once.
//!
//! Commas separate arguments; the first closing parenthesis ends them. Quotes protect as on lines. Outside of
//! single quotes a backslash protects a space, a quote and itself, and `\n`, `\r`, `\t` have their usual
//! meaning. A backslash before any other byte is kept, so only quotes protect a comma or a parenthesis. White
//! space is part of the argument. Variables, `\x` and comments have no meaning here.

/// An argument, unquoted and unescaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Offset of its first byte in the text, opening quote included.
    pub at: usize,
}

/// Arguments between a pair of parentheses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    /// The arguments in order. `()` has none, `(,)` has two empty ones.
    pub list: Vec<Argument>,
    /// Offset after the closing parenthesis.
    pub end: usize,
}

/// Why arguments cannot be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentError {
    /// There is no closing parenthesis; offset of the opening one.
    Unclosed(usize),
    /// An unterminated quote; its offset.
    Quote(usize),
}

impl ArgumentError {
    /// The offset in the text.
    pub fn at(self) -> usize {
        match self {
            Self::Unclosed(at) | Self::Quote(at) => at,
        }
    }
}

impl std::fmt::Display for ArgumentError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Unclosed(_) => "expected ')' behind the arguments that begin here, found none",
            Self::Quote(_) => "expected another quote to end this one, found none",
        })
    }
}

impl std::error::Error for ArgumentError {}

/// Splits the arguments after the opening parenthesis at `open` in `text`.
///
/// # Errors
/// If a quote or the list is not terminated.
///
/// # Panics
/// If there is no `(` at `open`.
pub fn arguments(text: &[u8], open: usize) -> Result<Arguments, ArgumentError> {
    assert_eq!(text.get(open), Some(&b'('), "arguments begin with a parenthesis");
    let mut list = Vec::new();
    let mut now = Argument { bytes: Vec::new(), at: open + 1 };
    let mut quote: Option<(u8, usize)> = None;
    let mut at = open + 1;
    loop {
        let Some(&byte) = text.get(at) else {
            return Err(quote.map_or(ArgumentError::Unclosed(open), |(_, at)| ArgumentError::Quote(at)));
        };
        let strong = matches!(quote, Some((b'\'', _)));
        match (byte, quote) {
            (b'\\', _) if !strong => {
                let (byte, length) = match text.get(at + 1) {
                    Some(b'n') => (b'\n', 2),
                    Some(b'r') => (b'\r', 2),
                    Some(b't') => (b'\t', 2),
                    Some(&byte @ (b' ' | b'\\' | b'\'' | b'"')) => (byte, 2),
                    _ => (b'\\', 1),
                };
                now.bytes.push(byte);
                at += length;
                continue;
            }
            (_, Some((open, _))) if byte == open => quote = None,
            (b'"' | b'\'', None) => quote = Some((byte, at)),
            (b',', None) => {
                list.push(std::mem::replace(&mut now, Argument { bytes: Vec::new(), at: at + 1 }));
            }
            (b')', None) => {
                // `()` has no argument, `("")` an empty one.
                if !list.is_empty() || at != open + 1 {
                    list.push(now);
                }
                return Ok(Arguments { list, end: at + 1 });
            }
            _ => now.bytes.push(byte),
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Result<(Vec<String>, usize), ArgumentError> {
        let found = arguments(text.as_bytes(), 0)?;
        Ok((found.list.into_iter().map(|a| String::from_utf8(a.bytes).unwrap()).collect(), found.end))
    }

    #[test]
    fn arguments_end_at_commas_and_the_first_parenthesis() {
        assert_eq!(split("(a,b)c"), Ok((vec!["a".into(), "b".into()], 5)));
        assert_eq!(split("()"), Ok((vec![], 2)));
        assert_eq!(split("(,)"), Ok((vec!["".into(), "".into()], 3)));
        assert_eq!(split("(\"\")"), Ok((vec!["".into()], 4)));
        assert_eq!(split("( a ,b )").unwrap().0, [" a ", "b "]);
        assert_eq!(split("((foo|bar),blah,g)"), Ok((vec!["(foo|bar".into()], 10)));
    }

    #[test]
    fn quotes_protect_and_backslashes_only_what_needs_it() {
        assert_eq!(split(r#"("(foo|bar)",'a,"b',g)"#).unwrap().0, ["(foo|bar)", "a,\"b", "g"]);
        assert_eq!(split(r#"(a"b,c"d)"#).unwrap().0, ["ab,cd"]);
        assert_eq!(split(r"(\n\t\\\'\ \q\#\x41\$)").unwrap().0, ["\n\t\\' \\q\\#\\x41\\$"]);
        assert_eq!(split(r"('\n\')").unwrap().0, [r"\n\"]);
        assert_eq!(split(r#"("my/\1")"#).unwrap().0, [r"my/\1"]);
        assert_eq!(split(r"(a\,b)").unwrap().0, ["a\\", "b"]);
    }

    #[test]
    fn what_does_not_end_is_refused_with_its_position() {
        assert_eq!(split("(a,b"), Err(ArgumentError::Unclosed(0)));
        assert_eq!(split("(a,\"b)"), Err(ArgumentError::Quote(3)));
        assert_eq!(split("(\\"), Err(ArgumentError::Unclosed(0)));
    }
}
