//! Versions of HAProxy and of TLS libraries.

use std::fmt;

/// A version of HAProxy: `3.4`, `2.4-dev19`, `2.6.12-1+deb12u4`. Missing numbers are zero. Text after the
/// number of commits is ignored. A development version is older than the release with the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    major: u32,
    minor: u32,
    patch: u32,
    /// `-dev4`, `-rc2` and `-pre1` precede the release.
    stage: Stage,
    /// Commits since the release, as in `2.6.12-5`.
    commits: u32,
}

/// Stages in order of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Stage {
    Development(u32),
    Candidate(u32),
    Release,
}

impl Version {
    /// The version whose language this crate implements.
    pub const SPOKEN: Self = Self { major: 3, minor: 5, patch: 0, stage: Stage::Release, commits: 0 };

    /// Parses a version. `None` if it does not begin with a digit or a number does not fit into 32 bits.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut rest = text;
        let mut numbers = [0; 3];
        for (index, number) in numbers.iter_mut().enumerate() {
            if index > 0 {
                match rest.split_first() {
                    Some((b'.', after)) if after.first().is_some_and(u8::is_ascii_digit) => rest = after,
                    _ => break,
                }
            }
            *number = take_number(&mut rest)?;
        }
        let mut version = Self {
            major: numbers[0],
            minor: numbers[1],
            patch: numbers[2],
            stage: Stage::Release,
            commits: 0,
        };
        for (word, stage) in [
            ("-dev", Stage::Development as fn(u32) -> Stage),
            ("-pre", Stage::Candidate),
            ("-rc", Stage::Candidate),
        ] {
            if let Some(after) = rest.strip_prefix(word.as_bytes()) {
                rest = after;
                let number =
                    if rest.first().is_some_and(u8::is_ascii_digit) { take_number(&mut rest)? } else { 0 };
                version.stage = stage(number);
                break;
            }
        }
        // In `-g1234abc-5` the hash of a commit precedes the number of commits.
        if rest.starts_with(b"-") && !rest.get(1).is_some_and(u8::is_ascii_digit) {
            rest = &rest[1..];
            rest = &rest[rest.iter().take_while(|&&b| b != b'-' && b != b'+').count()..];
        }
        if let Some((b'-', after)) = rest.split_first()
            && after.first().is_some_and(u8::is_ascii_digit)
        {
            rest = after;
            version.commits = take_number(&mut rest)?;
        }
        Some(version)
    }
}

/// Parses leading digits and removes them from `rest`.
fn take_number(rest: &mut &[u8]) -> Option<u32> {
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
    *rest = &rest[digits..];
    Some(number)
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        if self.patch > 0 {
            write!(f, ".{}", self.patch)?;
        }
        match self.stage {
            Stage::Development(number) => write!(f, "-dev{number}")?,
            Stage::Candidate(number) => write!(f, "-rc{number}")?,
            Stage::Release => {}
        }
        if self.commits > 0 { write!(f, "-{}", self.commits) } else { Ok(()) }
    }
}

/// A version of a TLS library: `1.1.1`, `1.1.1w`, `3.0.0-beta2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LibraryVersion {
    numbers: [u32; 3],
    stage: Stage,
    /// Letter of OpenSSL versions before 3.0; 0 means none.
    letter: u8,
}

impl LibraryVersion {
    /// A release without a letter.
    pub const fn new(major: u32, minor: u32, fix: u32) -> Self {
        Self { numbers: [major, minor, fix], stage: Stage::Release, letter: 0 }
    }

    /// Parses a version; `None` if the text is not one.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut rest = text;
        let mut version = Self::new(0, 0, 0);
        for (index, number) in version.numbers.iter_mut().enumerate() {
            if index > 0 {
                match rest.split_first() {
                    Some((b'.', after)) => rest = after,
                    _ => break,
                }
            }
            *number = take_number(&mut rest)?;
        }
        if let Some((&letter @ b'a'..=b'z', after)) = rest.split_first() {
            version.letter = letter;
            rest = after;
        }
        for (word, stage) in [
            ("-alpha", Stage::Development as fn(u32) -> Stage),
            ("-beta", Stage::Candidate),
            ("-dev", Stage::Development),
        ] {
            if let Some(after) = rest.strip_prefix(word.as_bytes()) {
                rest = after;
                version.stage = stage(if rest.is_empty() { 0 } else { take_number(&mut rest)? });
                break;
            }
        }
        rest.is_empty().then_some(version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_in_the_order_of_time() {
        let ordered = [
            "1.9",
            "2",
            "2.0.1",
            "2.4-dev1",
            "2.4-dev19",
            "2.4-dev19-3",
            "2.4-rc1",
            "2.4",
            "2.4.0-5",
            "2.4.1-dev3",
            "2.6.12",
            "2.6.12-1+deb12u4",
            "3.4-dev0",
            "3.4",
            "3.4.1",
            "3.5-dev3",
            "3.5",
            "10.0",
        ];
        for pair in ordered.windows(2) {
            let [a, b] = [0, 1].map(|i| Version::parse(pair[i].as_bytes()).unwrap());
            assert!(a < b, "{} < {}", pair[0], pair[1]);
        }
        assert_eq!(Version::parse(b"3.5"), Some(Version::SPOKEN));
        assert_eq!(Version::parse(b"3.5.0"), Some(Version::SPOKEN));
        assert_eq!(Version::parse(b"2.9-dev3-abcdef-12"), Version::parse(b"2.9-dev3-12"));
    }

    #[test]
    fn what_is_no_version_is_refused() {
        for text in ["", "x", "-1", ".5", "99999999999"] {
            assert_eq!(Version::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(Version::parse(b"2.6.12-rc2").unwrap().to_string(), "2.6.12-rc2");
    }

    #[test]
    fn libraries_have_letters_and_stages() {
        let ordered =
            ["1.0.2", "1.1.1", "1.1.1a", "1.1.1w", "3.0.0-alpha1", "3.0.0-beta2", "3.0.0", "3.0.19"];
        for pair in ordered.windows(2) {
            let [a, b] = [0, 1].map(|i| LibraryVersion::parse(pair[i].as_bytes()).unwrap());
            assert!(a < b, "{} < {}", pair[0], pair[1]);
        }
        for text in ["", "x", "1.1.1 ", "1.1.", "1.1.1A"] {
            assert_eq!(LibraryVersion::parse(text.as_bytes()), None, "{text}");
        }
    }
}
