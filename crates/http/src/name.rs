//! Field names. Case does not matter. The usual names have a number, so that a look-up compares one byte.
//!
//! The number is found once, when a name is read or compiled. Length and three bytes of the name select the
//! only candidate (a perfect hash, which the compiler checks); it is then compared in words of eight bytes.

use std::fmt;
use std::sync::Arc;

/// Number of a well-known field name; [`OTHER`](Self::OTHER) for all other names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Known(u8);

/// Length of the longest well-known name, in bytes.
const LONGEST: usize = 32;

macro_rules! known {
    ($($constant:ident $name:literal)*) => {
        /// Names by number, in lower case; the first one stands for all other names.
        const NAMES: &[&str] = &["", $($name),*];

        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[repr(u8)]
        enum Number { OTHER, $($constant),* }

        impl Known {
            /// A name without a number.
            pub const OTHER: Self = Self(Number::OTHER as u8);
            $(
                #[doc = concat!("`", $name, "`")]
                pub const $constant: Self = Self(Number::$constant as u8);
            )*
        }
    };
}

known! {
    HOST "host"
    CONNECTION "connection"
    CONTENT_LENGTH "content-length"
    TRANSFER_ENCODING "transfer-encoding"
    UPGRADE "upgrade"
    EXPECT "expect"
    TE "te"
    TRAILER "trailer"
    KEEP_ALIVE "keep-alive"
    PROXY_CONNECTION "proxy-connection"
    COOKIE "cookie"
    SET_COOKIE "set-cookie"
    ACCEPT "accept"
    ACCEPT_ENCODING "accept-encoding"
    ACCEPT_LANGUAGE "accept-language"
    ACCEPT_RANGES "accept-ranges"
    ACCESS_CONTROL_ALLOW_ORIGIN "access-control-allow-origin"
    AGE "age"
    ALLOW "allow"
    ALT_SVC "alt-svc"
    AUTHORIZATION "authorization"
    CACHE_CONTROL "cache-control"
    CONTENT_DISPOSITION "content-disposition"
    CONTENT_ENCODING "content-encoding"
    CONTENT_LANGUAGE "content-language"
    CONTENT_RANGE "content-range"
    CONTENT_SECURITY_POLICY "content-security-policy"
    CONTENT_TYPE "content-type"
    DATE "date"
    ETAG "etag"
    EXPIRES "expires"
    FORWARDED "forwarded"
    HTTP2_SETTINGS "http2-settings"
    IF_MODIFIED_SINCE "if-modified-since"
    IF_NONE_MATCH "if-none-match"
    LAST_MODIFIED "last-modified"
    LINK "link"
    LOCATION "location"
    ORIGIN "origin"
    PRAGMA "pragma"
    PRIORITY "priority"
    PROXY_AUTHENTICATE "proxy-authenticate"
    PROXY_AUTHORIZATION "proxy-authorization"
    RANGE "range"
    REFERER "referer"
    RETRY_AFTER "retry-after"
    SEC_FETCH_DEST "sec-fetch-dest"
    SEC_FETCH_SITE "sec-fetch-site"
    SEC_WEBSOCKET_ACCEPT "sec-websocket-accept"
    SEC_WEBSOCKET_KEY "sec-websocket-key"
    SERVER "server"
    STRICT_TRANSPORT_SECURITY "strict-transport-security"
    UPGRADE_INSECURE_REQUESTS "upgrade-insecure-requests"
    USER_AGENT "user-agent"
    VARY "vary"
    VIA "via"
    WWW_AUTHENTICATE "www-authenticate"
    X_CONTENT_TYPE_OPTIONS "x-content-type-options"
    X_FORWARDED_FOR "x-forwarded-for"
    X_FORWARDED_HOST "x-forwarded-host"
    X_FORWARDED_PROTO "x-forwarded-proto"
    X_REAL_IP "x-real-ip"
    X_REQUEST_ID "x-request-id"
}

/// A head keeps one bit for each number in a 64-bit word.
const _: () = assert!(NAMES.len() <= 64);

/// A well-known name, in a form for comparisons.
struct Pattern {
    len: u8,
    lower: [u8; LONGEST],
    /// 0x20 for each letter: `byte | mask == lower` holds for its two spellings and no other byte.
    mask: [u8; LONGEST],
}

const PATTERNS: [Pattern; NAMES.len()] = {
    let mut all = [const { Pattern { len: 0, lower: [0; LONGEST], mask: [0; LONGEST] } }; NAMES.len()];
    let mut n = 0;
    while n < NAMES.len() {
        let name = NAMES[n].as_bytes();
        assert!(name.len() <= LONGEST);
        all[n].len = name.len() as u8;
        let mut i = 0;
        while i < name.len() {
            all[n].lower[i] = name[i];
            all[n].mask[i] = if name[i].is_ascii_lowercase() { 0x20 } else { 0 };
            i += 1;
        }
        n += 1;
    }
    all
};
static PATTERN: [Pattern; NAMES.len()] = PATTERNS;

const SLOTS: usize = 256;

/// Returns the slot of the candidate; `name` is not empty.
#[inline]
const fn slot(name: &[u8]) -> usize {
    let len = name.len();
    let word = u32::from_le_bytes([len as u8, name[0] | 0x20, name[len / 2] | 0x20, name[len - 1] | 0x20]);
    (word.wrapping_mul(MULTIPLIER) >> 24) as usize
}

/// Multiplier that gives each name a slot of its own. It was found by random trials; a change of the names
/// needs another one.
const MULTIPLIER: u32 = 0x0183_1947;

/// Number of the only candidate in each slot.
static SLOT: [u8; SLOTS] = {
    let mut slots = [0; SLOTS];
    let mut n = 1;
    while n < NAMES.len() {
        let at = slot(NAMES[n].as_bytes());
        assert!(slots[at] == 0, "two names in one slot: find another multiplier");
        slots[at] = n as u8;
        n += 1;
    }
    slots
};

impl Pattern {
    /// Returns whether `name`, of the same length, is this one.
    #[inline]
    fn matches(&self, name: &[u8]) -> bool {
        let eight = |at: usize| {
            let load = |from: &[u8]| {
                from.get(at..at + 8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or([0; 8])))
            };
            load(name).map(|word| word | load(&self.mask).unwrap_or(0)) == load(&self.lower)
        };
        let four = |at: usize| {
            let load = |from: &[u8]| {
                from.get(at..at + 4).map(|word| u32::from_le_bytes(word.try_into().unwrap_or([0; 4])))
            };
            load(name).map(|word| word | load(&self.mask).unwrap_or(0)) == load(&self.lower)
        };
        match name.len() {
            0..4 => name
                .iter()
                .zip(self.lower.iter().zip(&self.mask))
                .all(|(&byte, (&lower, &mask))| byte | mask == lower),
            len @ 4..8 => four(0) && four(len - 4),
            len @ 8..=16 => eight(0) && eight(len - 8),
            len => eight(0) && eight(8) && (len <= 24 || eight(16)) && eight(len - 8),
        }
    }
}

impl Known {
    /// Returns the number of `name`, in any case.
    ///
    /// Costs about 25 instructions. A name that has a number is a token and needs no other check.
    #[inline]
    pub fn of(name: &[u8]) -> Self {
        if name.is_empty() || name.len() > LONGEST {
            return Self::OTHER;
        }
        let number = SLOT[slot(name)];
        let pattern = &PATTERN[usize::from(number)];
        if usize::from(pattern.len) == name.len() && pattern.matches(name) {
            Self(number)
        } else {
            Self::OTHER
        }
    }

    /// Returns the name in lower case; empty for [`OTHER`](Self::OTHER).
    pub fn name(self) -> &'static str {
        NAMES[usize::from(self.0)]
    }

    /// Returns its bit in a set of numbers.
    #[inline]
    pub(crate) fn bit(self) -> u64 {
        1 << self.0
    }

    /// Returns whether the end of a body depends on a field of this name.
    #[inline]
    pub(crate) fn frames(self) -> bool {
        self == Self::CONTENT_LENGTH || self == Self::TRANSFER_ENCODING
    }

    #[inline]
    pub(crate) fn number(self) -> u8 {
        self.0
    }

    /// Returns the name with a number from [`number`](Self::number).
    #[inline]
    pub(crate) fn numbered(number: u8) -> Self {
        Self(number)
    }
}

impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::OTHER { "(other)" } else { self.name() })
    }
}

/// A name to look up, with its number: the argument of methods of [`Head`](crate::Head). From a [`Known`] it
/// costs nothing, from bytes it costs the search for the number; keep a [`Name`] that is used more than once.
#[derive(Clone, Copy, Debug)]
pub struct NameRef<'a> {
    known: Known,
    bytes: &'a [u8],
}

impl<'a> NameRef<'a> {
    /// Returns the number.
    #[inline]
    pub fn known(self) -> Known {
        self.known
    }

    /// Returns the name, spelled as it was given.
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Returns whether a field whose name is `name`, with the number `known`, has the name to look up.
    #[inline]
    pub fn is(self, known: Known, name: &[u8]) -> bool {
        self.known == known && (known != Known::OTHER || self.bytes.eq_ignore_ascii_case(name))
    }
}

impl From<Known> for NameRef<'static> {
    #[inline]
    fn from(known: Known) -> Self {
        Self { known, bytes: known.name().as_bytes() }
    }
}

impl<'a> From<&'a [u8]> for NameRef<'a> {
    #[inline]
    fn from(bytes: &'a [u8]) -> Self {
        Self { known: Known::of(bytes), bytes }
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for NameRef<'a> {
    #[inline]
    fn from(bytes: &'a [u8; N]) -> Self {
        Self::from(&bytes[..])
    }
}

impl<'a> From<&'a str> for NameRef<'a> {
    #[inline]
    fn from(name: &'a str) -> Self {
        Self::from(name.as_bytes())
    }
}

impl<'a> From<&'a Name> for NameRef<'a> {
    #[inline]
    fn from(name: &'a Name) -> Self {
        Self { known: name.known, bytes: &name.bytes }
    }
}

/// A field name to keep, for example in a rule: it has its number.
#[derive(Clone)]
pub struct Name {
    known: Known,
    bytes: Arc<[u8]>,
}

impl Name {
    /// Creates a name. Returns `None` if `bytes` is not a token (RFC 9110, 5.6.2): no message may have such a
    /// field.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        crate::syntax::is_token(bytes).then(|| Self { known: Known::of(bytes), bytes: bytes.into() })
    }

    /// Returns the number.
    pub fn known(&self) -> Known {
        self.known
    }

    /// Returns the name, spelled as it was given.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        NameRef::from(self).is(other.known, &other.bytes)
    }
}

impl Eq for Name {}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name({})", self.bytes.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_well_known_name_is_found_in_any_case() {
        for (n, name) in NAMES.iter().enumerate().skip(1) {
            let mixed: String = name
                .char_indices()
                .map(|(i, c)| if i % 2 == 0 { c.to_ascii_uppercase() } else { c })
                .collect();
            for spelling in [name.to_string(), name.to_uppercase(), mixed] {
                assert_eq!(Known::of(spelling.as_bytes()), Known(n as u8), "{spelling}");
            }
            assert!(crate::syntax::is_token(name.as_bytes()));
        }
    }

    #[test]
    fn a_name_that_differs_in_one_byte_has_no_number() {
        for name in &NAMES[1..] {
            for at in 0..name.len() {
                for byte in 0..=255u8 {
                    let mut other = name.as_bytes().to_vec();
                    other[at] = byte;
                    let expected =
                        NAMES.iter().position(|known| known.as_bytes().eq_ignore_ascii_case(&other));
                    assert_eq!(
                        usize::from(Known::of(&other).0),
                        expected.unwrap_or(0),
                        "{}",
                        other.escape_ascii()
                    );
                }
            }
        }
        assert_eq!(Known::of(b""), Known::OTHER);
        assert_eq!(Known::of(&[b'a'; 300]), Known::OTHER);
    }

    #[test]
    fn names_are_equal_whatever_their_case_and_must_be_tokens() {
        assert_eq!(Name::new(b"X-Foo"), Name::new(b"x-foo"));
        assert_ne!(Name::new(b"X-Foo"), Name::new(b"x-fop"));
        assert_eq!(Name::new(b"HOST"), Name::new(b"host"));
        for bad in [&b""[..], b"a b", b"a:", b"a\r\n", b"\xe4"] {
            assert_eq!(Name::new(bad), None);
        }
    }
}
