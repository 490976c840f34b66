//! Names of hosts and services.

use std::fmt;

/// Longest name, in bytes, with its dots (RFC 1035, 3.1, without the length byte of the root).
pub const LONGEST_NAME: usize = 253;
/// Longest part between two dots, in bytes.
pub const LONGEST_LABEL: usize = 63;

/// A name: letters in lower case, digits, `-` and `_`, in labels separated by dots; no dot at the end.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Box<str>);

impl Name {
    /// Parses a name. A dot at its end is ignored: all names are absolute.
    ///
    /// # Errors
    /// A sentence about the fault.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let text = text.strip_suffix('.').unwrap_or(text);
        if text.is_empty() {
            return Err("it is empty");
        }
        if text.len() > LONGEST_NAME {
            return Err("it has more than 253 characters");
        }
        for label in text.split('.') {
            if label.is_empty() {
                return Err("it has an empty label");
            }
            if label.len() > LONGEST_LABEL {
                return Err("it has a label of more than 63 characters");
            }
            if !label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_') {
                return Err("it has other characters than letters, digits, '-', '_' and dots");
            }
        }
        Ok(Self(text.to_ascii_lowercase().into()))
    }

    /// Returns the name without a dot at the end.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether this is the name of a service: `_http._tcp.example.org`. SRV records hold its servers.
    pub fn is_service(&self) -> bool {
        self.0.starts_with('_')
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_labels_of_letters_digits_and_two_signs() {
        for (text, expected) in [
            ("Example.ORG.", "example.org"),
            ("a", "a"),
            ("_http._tcp.x-1.test", "_http._tcp.x-1.test"),
            ("10.0.0.1", "10.0.0.1"),
        ] {
            assert_eq!(Name::parse(text).as_ref().map(Name::as_str), Ok(expected), "{text}");
        }
        let label = "a".repeat(LONGEST_LABEL);
        let longest = [&label[..], &label, &label, &label[2..]].join(".");
        assert_eq!(longest.len(), LONGEST_NAME);
        assert!(Name::parse(&longest).is_ok());
        for text in
            ["", ".", "a..b", ".a", "a b", "a/b", "\u{e4}.test", &format!("{label}a"), &format!("{longest}a")]
        {
            assert!(Name::parse(text).is_err(), "{text}");
        }
        assert!(Name::parse("_a.b").unwrap().is_service() && !Name::parse("a._b").unwrap().is_service());
    }
}
