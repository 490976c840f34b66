//! OpenSSL's names of versions, ciphers and curves, for those that rustls has.

use crate::error::Problem;
use rustls::crypto::{SupportedKxGroup, aws_lc_rs};
use rustls::{CipherSuite, SupportedCipherSuite, SupportedProtocolVersion};
use std::fmt;

/// Versions that `ssl-min-ver` may name, and that are not spoken.
pub const OLD_VERSIONS: [&str; 3] = ["SSLv3", "TLSv1.0", "TLSv1.1"];

/// A sentence about one of them.
pub fn not_spoken(version: &str) -> String {
    format!("{version} is not supported, as TLS below 1.2 is broken (RFC 8996); the oldest is TLSv1.2")
}

/// A supported version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// TLS 1.2
    V12,
    /// TLS 1.3
    V13,
}

impl Version {
    /// The name in HAProxy's samples and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V12 => "TLSv1.2",
            Self::V13 => "TLSv1.3",
        }
    }

    pub(crate) fn supported(self) -> &'static SupportedProtocolVersion {
        match self {
            Self::V12 => &rustls::version::TLS12,
            Self::V13 => &rustls::version::TLS13,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A cipher suite with OpenSSL's name and the words of cipher lists that select it.
struct Suite {
    id: CipherSuite,
    name: &'static str,
    words: &'static [&'static str],
}

const fn suite(id: CipherSuite, name: &'static str, words: &'static [&'static str]) -> Suite {
    Suite { id, name, words }
}

const ECDSA_AES: &[&str] = &["ECDSA", "aECDSA", "AESGCM", "AES", "FIPS"];
const RSA_AES: &[&str] = &["aRSA", "AESGCM", "AES", "FIPS"];
const CHACHA: &[&str] = &["CHACHA20"];

/// In OpenSSL's order.
static SUITES: [Suite; 9] = [
    suite(CipherSuite::TLS13_AES_256_GCM_SHA384, "TLS_AES_256_GCM_SHA384", &[]),
    suite(CipherSuite::TLS13_CHACHA20_POLY1305_SHA256, "TLS_CHACHA20_POLY1305_SHA256", &[]),
    suite(CipherSuite::TLS13_AES_128_GCM_SHA256, "TLS_AES_128_GCM_SHA256", &[]),
    suite(CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, "ECDHE-ECDSA-AES256-GCM-SHA384", ECDSA_AES),
    suite(CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, "ECDHE-RSA-AES256-GCM-SHA384", RSA_AES),
    suite(
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        CHACHA,
    ),
    suite(CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, "ECDHE-RSA-CHACHA20-POLY1305", CHACHA),
    suite(CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, "ECDHE-ECDSA-AES128-GCM-SHA256", ECDSA_AES),
    suite(CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, "ECDHE-RSA-AES128-GCM-SHA256", RSA_AES),
];

/// Words that select all suites.
const ALL: &[&str] =
    &["ALL", "DEFAULT", "HIGH", "ECDHE", "EECDH", "kECDHE", "kEECDH", "ECDH", "TLSv1.2", "SECLEVEL"];

impl Suite {
    fn is_13(&self) -> bool {
        self.name.starts_with("TLS_")
    }

    fn supported(&self) -> Option<SupportedCipherSuite> {
        aws_lc_rs::ALL_CIPHER_SUITES.iter().copied().find(|suite| suite.suite() == self.id)
    }

    /// True if a word of a list selects this suite.
    fn is_chosen(&self, word: &str) -> bool {
        let one = |word: &str| {
            ALL.contains(&word)
                || self.words.contains(&word)
                || word == "aECDSA" && self.name.contains("-ECDSA-")
                || word == "ECDSA" && self.name.contains("-ECDSA-")
                || matches!(word, "aRSA" | "RSA") && self.name.contains("-RSA-")
                || matches!(word, "AES256" | "AES128" | "SHA256" | "SHA384") && self.name.contains(word)
        };
        // `RSA` alone also means key exchange by RSA, which is not supported.
        self.name == word || (word != "RSA" && word.split('+').all(one))
    }
}

/// OpenSSL's name of a suite.
pub(crate) fn suite_name(id: CipherSuite) -> Option<&'static str> {
    SUITES.iter().find(|suite| suite.id == id).map(|suite| suite.name)
}

/// The TLS 1.2 suites that an OpenSSL cipher list selects, in its order.
pub(crate) fn ciphers(
    keyword: &'static str,
    list: &str,
    warnings: &mut Vec<Problem>,
) -> Result<Vec<SupportedCipherSuite>, Problem> {
    let mut chosen: Vec<&Suite> = Vec::new();
    let mut killed: Vec<&Suite> = Vec::new();
    let mut unknown = Vec::new();
    for word in list.split([':', ',', ' ']).filter(|word| !word.is_empty()) {
        if word.starts_with('@') {
            continue; // sort orders and strengths: all supported suites are strong
        }
        let (sign, name) = match word.split_at_checked(1) {
            Some((sign @ ("!" | "-" | "+"), name)) => (sign, name),
            _ => ("", word),
        };
        let of_word = SUITES.iter().filter(|suite| !suite.is_13() && suite.is_chosen(name));
        let of_word: Vec<&Suite> = of_word.collect();
        let is = |suite: &&Suite| of_word.iter().any(|other| other.id == suite.id);
        match sign {
            "" if of_word.is_empty() => unknown.push(name),
            "" => {
                let new = |suite: &&&Suite| !chosen.iter().chain(&killed).any(|there| there.id == suite.id);
                let new: Vec<&Suite> = of_word.iter().filter(new).copied().collect();
                chosen.extend(new);
            }
            "+" => {
                let (last, first): (Vec<&Suite>, Vec<&Suite>) = chosen.iter().partition(|suite| is(suite));
                chosen = first.into_iter().chain(last).collect();
            }
            _ => {
                chosen.retain(|suite| !is(suite));
                if sign == "!" {
                    killed.extend(&of_word);
                }
            }
        }
    }
    tell_unknown(keyword, "cipher", &unknown, warnings);
    if chosen.is_empty() {
        let known: Vec<_> = SUITES.iter().filter(|suite| !suite.is_13()).map(|suite| suite.name).collect();
        let text = format!("no cipher of '{list}' is left; there are {}", known.join(", "));
        return Err(Problem::new(keyword, text));
    }
    Ok(chosen.into_iter().filter_map(Suite::supported).collect())
}

/// The TLS 1.3 suites of a list.
pub(crate) fn ciphersuites(
    keyword: &'static str,
    list: &str,
    warnings: &mut Vec<Problem>,
) -> Result<Vec<SupportedCipherSuite>, Problem> {
    let (mut chosen, mut unknown) = (Vec::new(), Vec::new());
    for word in list.split([':', ',', ' ']).filter(|word| !word.is_empty()) {
        match SUITES.iter().find(|suite| suite.is_13() && suite.name == word) {
            Some(suite) => chosen.extend(suite.supported()),
            None => unknown.push(word),
        }
    }
    tell_unknown(keyword, "cipher suite", &unknown, warnings);
    if chosen.is_empty() {
        let known: Vec<_> = SUITES.iter().filter(|suite| suite.is_13()).map(|suite| suite.name).collect();
        let text = format!("no cipher suite of '{list}' is left; there are {}", known.join(", "));
        return Err(Problem::new(keyword, text));
    }
    Ok(chosen)
}

/// The key exchange groups of a list, in its order.
pub(crate) fn curves(
    keyword: &'static str,
    list: &str,
    warnings: &mut Vec<Problem>,
) -> Result<Vec<&'static dyn SupportedKxGroup>, Problem> {
    let (mut chosen, mut unknown): (Vec<&'static dyn SupportedKxGroup>, _) = (Vec::new(), Vec::new());
    for word in list.split([':', ',', ' ']).filter(|word| !word.is_empty()) {
        let group = match &*word.to_ascii_lowercase() {
            "x25519" => aws_lc_rs::kx_group::X25519,
            "p-256" | "prime256v1" | "secp256r1" => aws_lc_rs::kx_group::SECP256R1,
            "p-384" | "secp384r1" => aws_lc_rs::kx_group::SECP384R1,
            "x25519mlkem768" => aws_lc_rs::kx_group::X25519MLKEM768,
            "auto" => {
                chosen.extend(aws_lc_rs::DEFAULT_KX_GROUPS);
                continue;
            }
            _ => {
                unknown.push(word);
                continue;
            }
        };
        if !chosen.iter().any(|there| there.name() == group.name()) {
            chosen.push(group);
        }
    }
    tell_unknown(keyword, "curve", &unknown, warnings);
    if chosen.is_empty() {
        let text = format!("no curve of '{list}' is left; there are X25519, P-256, P-384, X25519MLKEM768");
        return Err(Problem::new(keyword, text));
    }
    Ok(chosen)
}

pub(crate) fn tell_unknown(keyword: &'static str, what: &str, unknown: &[&str], warnings: &mut Vec<Problem>) {
    if !unknown.is_empty() {
        let s = if unknown.len() > 1 { "s" } else { "" };
        let text = format!("ignored the {what}{s} that rustls does not support: {}", unknown.join(", "));
        warnings.push(Problem::new(keyword, text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(list: &str) -> (Vec<&'static str>, Vec<String>) {
        let mut warnings = Vec::new();
        let chosen = ciphers("ciphers", list, &mut warnings).unwrap();
        let names = chosen.iter().filter_map(|suite| suite_name(suite.suite())).collect();
        (names, warnings.into_iter().map(|problem| problem.text).collect())
    }

    #[test]
    fn a_list_of_names_keeps_its_order_and_tells_what_is_not_there() {
        let (names, warnings) =
            named("ECDHE-RSA-AES128-GCM-SHA256:DHE-RSA-AES128-SHA:ECDHE-ECDSA-CHACHA20-POLY1305");
        assert_eq!(names, ["ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"]);
        assert_eq!(warnings, ["ignored the cipher that rustls does not support: DHE-RSA-AES128-SHA"]);
    }

    #[test]
    fn words_choose_and_signs_remove() {
        assert_eq!(named("HIGH:!aNULL:!MD5").0.len(), 6);
        assert_eq!(
            named("EECDH+AESGCM:!ECDSA").0,
            ["ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES128-GCM-SHA256"]
        );
        assert_eq!(named("ALL:-CHACHA20:+AES256:@STRENGTH").0.last(), Some(&"ECDHE-RSA-AES256-GCM-SHA384"));
        assert_eq!(named("!AES128:ECDHE+aRSA").0.len(), 2);
        assert!(ciphers("ciphers", "RSA:DES-CBC3-SHA", &mut Vec::new()).is_err());
    }

    #[test]
    fn suites_and_curves_likewise() {
        let mut warnings = Vec::new();
        let suites =
            ciphersuites("ciphersuites", "TLS_AES_128_GCM_SHA256:TLS_AES_128_CCM_SHA256", &mut warnings);
        assert_eq!(suites.unwrap().len(), 1);
        assert!(warnings[0].text.ends_with("support: TLS_AES_128_CCM_SHA256"));
        assert_eq!(curves("curves", "X25519:P-256:prime256v1:secp521r1", &mut warnings).unwrap().len(), 2);
        assert!(warnings[1].text.ends_with("support: secp521r1"));
        let none = curves("curves", "secp521r1", &mut warnings).err().unwrap();
        assert_eq!(none.keyword, "curves");
    }
}
