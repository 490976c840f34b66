//! The predicates of conditions, in one table.

use super::{Build, LibraryVersion, Version};
use crate::Shown;
use crate::lex::{Argument, Environment};

/// A predicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Predicate {
    /// `awslc_api_atleast(number)`
    AwslcApiAtLeast,
    /// `awslc_api_before(number)`
    AwslcApiBefore,
    /// `defined(name)`: the environment variable is set, even if it is empty.
    Defined,
    /// `enabled(name)`: the run-time option is on.
    Enabled,
    /// `fips_mode()`: the TLS library is in FIPS mode.
    FipsMode,
    /// `feature(name)`: the feature is built in.
    Feature,
    /// `openssl_version_atleast(version)`
    OpensslVersionAtLeast,
    /// `openssl_version_before(version)`
    OpensslVersionBefore,
    /// `ssllib_name_startswith(text)`
    SsllibNameStartsWith,
    /// `streq(a,b)`
    StrEq,
    /// `strneq(a,b)`
    StrNeq,
    /// `strstr(text,part)`
    StrStr,
    /// `version_atleast(version)`
    VersionAtLeast,
    /// `version_before(version)`
    VersionBefore,
}

use Predicate::*;

/// Name, predicate, number of arguments, help.
const TABLE: &[(&str, Predicate, usize, &str)] = &[
    (
        "awslc_api_atleast",
        AwslcApiAtLeast,
        1,
        "the TLS library is AWS-LC with at least this interface number",
    ),
    ("awslc_api_before", AwslcApiBefore, 1, "the TLS library is AWS-LC with a lower interface number"),
    ("defined", Defined, 1, "a variable of this name is set, be it empty"),
    ("enabled", Enabled, 1, "the run-time choice of this name is on"),
    ("fips_mode", FipsMode, 0, "the TLS library is in FIPS mode"),
    ("feature", Feature, 1, "the feature of this name is built in"),
    (
        "openssl_version_atleast",
        OpensslVersionAtLeast,
        1,
        "the TLS library is OpenSSL, this version or newer",
    ),
    (
        "openssl_version_before",
        OpensslVersionBefore,
        1,
        "the TLS library is OpenSSL, older than this version",
    ),
    ("ssllib_name_startswith", SsllibNameStartsWith, 1, "the name of the TLS library begins so"),
    ("streq", StrEq, 2, "both texts are the same"),
    ("strneq", StrNeq, 2, "the texts differ"),
    ("strstr", StrStr, 2, "the first text contains the second"),
    ("version_atleast", VersionAtLeast, 1, "the language is that of this version of HAProxy or newer"),
    ("version_before", VersionBefore, 1, "the language is that of an older version of HAProxy"),
];

impl Predicate {
    /// The predicate with this name.
    pub fn named(name: &[u8]) -> Option<Self> {
        TABLE.iter().find(|row| row.0.as_bytes() == name).map(|row| row.1)
    }

    /// All names.
    pub fn names() -> impl Iterator<Item = &'static str> {
        TABLE.iter().map(|row| row.0)
    }

    /// Name, number of arguments and help of each predicate, for the documentation.
    pub fn table() -> impl Iterator<Item = (&'static str, usize, &'static str)> {
        TABLE.iter().map(|&(name, _, arity, help)| (name, arity, help))
    }

    fn row(self) -> &'static (&'static str, Predicate, usize, &'static str) {
        TABLE.iter().find(|row| row.1 == self).expect("every predicate has a row")
    }

    /// Its name in conditions.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    pub(super) fn arity(self) -> usize {
        self.row().2
    }

    /// Checks the form of the arguments: the index of a wrong one and the error.
    pub(super) fn complaint(self, arguments: &[Argument]) -> Option<(usize, String)> {
        let text = &arguments.first()?.bytes;
        let expected = match self {
            OpensslVersionAtLeast | OpensslVersionBefore if LibraryVersion::parse(text).is_none() => {
                "a version such as 1.1.1 or 3.0.0"
            }
            AwslcApiAtLeast | AwslcApiBefore if number(text).is_none() => "a number",
            Defined | Enabled | Feature | SsllibNameStartsWith if text.is_empty() => "a name",
            _ => return None,
        };
        Some((0, format!("'{}' expects {expected}, found '{}'", self.name(), Shown(text))))
    }

    pub(super) fn holds(self, arguments: &[Argument], environment: &Environment, build: &Build) -> bool {
        let text = |index: usize| arguments.get(index).map_or(&b""[..], |argument| &argument.bytes);
        let openssl = build.tls.filter(|(name, _)| name.starts_with("OpenSSL")).map(|(_, version)| version);
        let listed = |list: &[&str]| list.iter().any(|name| name.as_bytes() == text(0));
        match self {
            AwslcApiAtLeast => {
                build.awslc_api.zip(number(text(0))).is_some_and(|(ours, wanted)| ours >= wanted)
            }
            AwslcApiBefore => {
                build.awslc_api.zip(number(text(0))).is_some_and(|(ours, wanted)| ours < wanted)
            }
            Defined => environment.get(text(0)).is_some(),
            Enabled => build.enabled().any(|name| name.as_bytes() == text(0)),
            Feature => listed(build.features),
            FipsMode => false, // no library with this mode is built
            OpensslVersionAtLeast => {
                openssl.zip(LibraryVersion::parse(text(0))).is_some_and(|(ours, wanted)| ours >= wanted)
            }
            OpensslVersionBefore => {
                openssl.zip(LibraryVersion::parse(text(0))).is_some_and(|(ours, wanted)| ours < wanted)
            }
            SsllibNameStartsWith => build.tls.is_some_and(|(name, _)| name.as_bytes().starts_with(text(0))),
            StrEq => text(0) == text(1),
            StrNeq => text(0) != text(1),
            StrStr => contains(text(0), text(1)),
            // As in HAProxy, a text that is not a version is older than every version.
            VersionAtLeast => Version::parse(text(0)).is_none_or(|wanted| build.version >= wanted),
            VersionBefore => Version::parse(text(0)).is_some_and(|wanted| build.version < wanted),
        }
    }
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// True if `text` contains `part`. Both are words of one line, which bounds the product of their lengths.
fn contains(text: &[u8], part: &[u8]) -> bool {
    part.is_empty() || text.windows(part.len()).any(|window| window == part)
}
