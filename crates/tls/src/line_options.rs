//! Options of one certificate: of a line of a certificate list, or of `ssl-f-use`. They take the place of the
//! listener's settings for clients that this certificate is for.

use crate::error::Problem;
use crate::names::{OLD_VERSIONS, Version, not_spoken};
use crate::server::{ClientVerify, ServerSettings};
use std::fmt;
use std::path::{Path, PathBuf};

/// What stands behind an option.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Argument {
    None,
    Text,
    /// A file; a relative one begins at `ca-base`.
    File,
}

/// The options in the order in which HAProxy shows them, with those that they replace.
const OPTIONS: [(&str, Argument, &[&str]); 17] = [
    ("alpn", Argument::Text, &["no-alpn"]),
    ("no-alpn", Argument::None, &["alpn"]),
    ("verify", Argument::Text, &[]),
    ("no-ca-names", Argument::None, &[]),
    ("allow-0rtt", Argument::None, &[]),
    ("ca-file", Argument::File, &[]),
    ("ca-verify-file", Argument::File, &[]),
    ("crl-file", Argument::File, &[]),
    ("ciphers", Argument::Text, &[]),
    ("ciphersuites", Argument::Text, &[]),
    ("curves", Argument::Text, &["ecdhe"]),
    ("ecdhe", Argument::Text, &["curves"]),
    ("client-sigalgs", Argument::Text, &[]),
    (SIGALGS, Argument::Text, &[]),
    ("ssl-min-ver", Argument::Text, &[]),
    ("ssl-max-ver", Argument::Text, &[]),
    (OCSP_UPDATE, Argument::Text, &[]),
];

const SIGALGS: &str = "sigalgs";
const OCSP_UPDATE: &str = "ocsp-update";

/// Why files with the ending `.sctl` are not used.
pub(crate) const SCTL: &str = "timestamps of certificates (SCT) are not sent apart from them";

/// Options of HAProxy that are refused, and why.
const REFUSED: [(&[&str], &str); 3] = [
    (&["npn"], "browsers have given it up for ALPN: use 'alpn'"),
    (
        &["acme", "domains", "alias"],
        "set it on a 'load' line of a 'crt-store' section, whose name may stand in place of the file",
    ),
    (&["sctl"], SCTL),
];

/// Longest name of a protocol of ALPN, in bytes.
const LONGEST_PROTOCOL: usize = 255;

/// See the module's documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineOptions {
    /// Keywords and arguments in the order of [`OPTIONS`]; one that stands alone has an empty argument.
    all: Vec<(&'static str, Box<str>)>,
    /// The files of the certificate, which commands do not show, as HAProxy's do not.
    files: CertificateFiles,
}

/// `crt`, `key`, `ocsp` and `issuer`. As in HAProxy, no base goes before relative ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CertificateFiles {
    pub(crate) certificate: Option<Box<str>>,
    pub(crate) key: Option<Box<str>>,
    pub(crate) ocsp: Option<Box<str>>,
    pub(crate) issuer: Option<Box<str>>,
}

impl CertificateFiles {
    /// Returns the file that an option names, if it names one.
    fn of_option(&mut self, option: &str) -> Option<&mut Option<Box<str>>> {
        match option {
            "crt" => Some(&mut self.certificate),
            "key" => Some(&mut self.key),
            "ocsp" => Some(&mut self.ocsp),
            "issuer" => Some(&mut self.issuer),
            _ => None,
        }
    }
}

/// The options of [`CertificateFiles`], for messages.
const FILES: [&str; 4] = ["crt", "key", "ocsp", "issuer"];

impl LineOptions {
    /// Parses options; a relative file begins at `ca_base`. The error is the end of a sentence.
    ///
    /// # Errors
    /// An unknown option, or an argument that is missing or wrong.
    pub fn parse<'a>(words: impl IntoIterator<Item = &'a str>, ca_base: &Path) -> Result<Self, String> {
        let mut words = words.into_iter();
        let mut values: [Option<Box<str>>; OPTIONS.len()] = Default::default();
        let mut files = CertificateFiles::default();
        while let Some(word) = words.next() {
            let missing = |name: &str| format!("expects an argument behind '{name}', found none");
            if let Some(file) = files.of_option(word) {
                *file = Some(words.next().ok_or_else(|| missing(word))?.into());
                continue;
            }
            let Some(index) = OPTIONS.iter().position(|(name, ..)| *name == word) else {
                return Err(unknown(word));
            };
            let (name, argument, replaced) = OPTIONS[index];
            let value = match argument {
                Argument::None => String::new(),
                _ => words.next().ok_or_else(|| missing(name))?.to_owned(),
            };
            let value = match argument {
                Argument::File if !value.starts_with('@') => {
                    let path = ca_base.join(value);
                    path.to_str().ok_or("names a file whose folder has a name that is not UTF-8")?.to_owned()
                }
                _ => value,
            };
            for (other, (name, ..)) in OPTIONS.iter().enumerate() {
                if replaced.contains(name) {
                    values[other] = None;
                }
            }
            values[index] = Some(value.into());
        }
        let all =
            OPTIONS.iter().zip(values).filter_map(|((name, ..), value)| Some((*name, value?))).collect();
        let parsed = Self { all, files };
        parsed.over(&ServerSettings::new(Vec::new()))?; // its arguments are checked here
        Ok(parsed)
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.all.iter().find(|(own, _)| *own == name).map(|(_, value)| &**value)
    }

    /// The files of the certificate.
    pub(crate) fn certificate_files(&self) -> &CertificateFiles {
        &self.files
    }

    /// The options that settings of listeners have, too: equal ones share a configuration.
    pub(crate) fn without_files(&self) -> Self {
        Self { all: self.all.clone(), files: CertificateFiles::default() }
    }

    /// `sigalgs`
    pub(crate) fn sigalgs(&self) -> Option<&str> {
        self.get(SIGALGS)
    }

    /// `ocsp-update`
    pub(crate) fn ocsp_update(&self) -> Option<bool> {
        self.get(OCSP_UPDATE).map(|value| value == "on")
    }

    /// A sentence about `ssl-min-ver` with a version that is not spoken. It stands behind the line's place.
    pub(crate) fn old_version(&self) -> Option<String> {
        let version = self.get("ssl-min-ver").filter(|version| OLD_VERSIONS.contains(version))?;
        Some(format!("has 'ssl-min-ver': {}", not_spoken(version)))
    }

    /// True if there are none to show.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The files that the options `names` name.
    pub(crate) fn files(&self, names: &[&str]) -> impl Iterator<Item = &str> {
        let own = self.all.iter().filter(|(own, _)| names.contains(own));
        own.map(|(_, value)| &**value).collect::<Vec<_>>().into_iter()
    }

    /// True if handshakes need another configuration than the listener's. Signatures of the server and OCSP
    /// responses belong to the certificate itself.
    pub(crate) fn change_handshakes(&self) -> bool {
        self.all.iter().any(|(name, _)| ![SIGALGS, OCSP_UPDATE].contains(name))
    }

    /// Returns the settings of a listener with the options in their place. The error is the end of a
    /// sentence.
    pub(crate) fn over(&self, settings: &ServerSettings) -> Result<ServerSettings, String> {
        let mut own = settings.clone();
        let common = &mut own.common;
        for (name, value) in &self.all {
            let text = || Some(String::from(&**value));
            let wrong = |expected: &str| format!("has '{name} {value}', expected {expected}");
            match *name {
                "alpn" => {
                    let names = value.split(',').map(str::trim).filter(|name| !name.is_empty());
                    common.alpn = names.map(|name| name.as_bytes().to_vec()).collect();
                    if common.alpn.iter().any(|name| name.len() > LONGEST_PROTOCOL) {
                        return Err(format!(
                            "expects names of at most {LONGEST_PROTOCOL} bytes behind 'alpn', found a \
                                longer one"
                        ));
                    }
                }
                "no-alpn" => common.alpn.clear(),
                "verify" => {
                    own.verify = match &**value {
                        "none" => ClientVerify::None,
                        "optional" => ClientVerify::Optional,
                        "required" => ClientVerify::Required,
                        _ => return Err(wrong("none, optional or required")),
                    };
                }
                "no-ca-names" => own.tell_authorities = false,
                "allow-0rtt" => own.early_data = true,
                "ca-file" => common.authorities = Some(PathBuf::from(&**value)),
                "ca-verify-file" => own.verify_authorities = Some(PathBuf::from(&**value)),
                "crl-file" => common.revoked = Some(PathBuf::from(&**value)),
                "ciphers" => common.ciphers = text(),
                "ciphersuites" => common.ciphersuites = text(),
                "curves" | "ecdhe" => common.curves = text(),
                "client-sigalgs" => common.client_sigalgs = text(),
                "ssl-min-ver" => {
                    common.oldest = match &**value {
                        old if OLD_VERSIONS.contains(&old) => None,
                        "TLSv1.2" => Some(Version::V12),
                        "TLSv1.3" => Some(Version::V13),
                        _ => return Err(wrong("TLSv1.2 or TLSv1.3")),
                    };
                }
                "ssl-max-ver" => {
                    common.newest = match &**value {
                        "TLSv1.2" => Some(Version::V12),
                        "TLSv1.3" => Some(Version::V13),
                        _ => return Err(wrong("TLSv1.2 or TLSv1.3")),
                    };
                }
                OCSP_UPDATE if !["on", "off"].contains(&&**value) => return Err(wrong("on or off")),
                _ => {}
            }
        }
        Ok(own)
    }
}

/// Options that change handshakes, and where they stand.
#[derive(Debug)]
pub(crate) struct OwnOptions {
    /// `crt-list` or `ssl-f-use`
    pub(crate) keyword: &'static str,
    /// The line or the certificate, for messages.
    pub(crate) location: String,
    pub(crate) options: LineOptions,
}

impl OwnOptions {
    /// A problem with one of them.
    pub(crate) fn problem(&self, why: impl fmt::Display) -> Problem {
        Problem::new(self.keyword, format!("{} {why}", self.location))
    }
}

/// The end of a sentence about an unknown or unsupported option.
fn unknown(word: &str) -> String {
    match REFUSED.iter().find(|(names, _)| names.contains(&word)) {
        Some((_, why)) => format!("has the option '{word}', which is not supported: {why}"),
        None => {
            let known: Vec<_> = OPTIONS.iter().map(|(name, ..)| *name).chain(FILES).collect();
            format!("has the option '{word}', expected one of {}", known.join(", "))
        }
    }
}

impl fmt::Display for LineOptions {
    /// As within the brackets of a list.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (name, value)) in self.all.iter().enumerate() {
            let blank = if number == 0 { "" } else { " " };
            write!(f, "{blank}{name}")?;
            if !value.is_empty() {
                write!(f, " {value}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // helpers of tests are tests too
    use super::*;

    fn parse(text: &str) -> Result<LineOptions, String> {
        LineOptions::parse(text.split_whitespace(), Path::new("/base"))
    }

    #[test]
    fn options_are_shown_in_one_order_and_files_with_their_folder() {
        let text =
            "ssl-max-ver TLSv1.3 crl-file r verify optional ca-file /a alpn h2 ocsp-update on no-ca-names";
        assert_eq!(
            parse(text).unwrap().to_string(),
            "alpn h2 verify optional no-ca-names ca-file /a crl-file /base/r ssl-max-ver TLSv1.3 \
             ocsp-update on"
        );
        assert_eq!(parse("ca-file @system-ca").unwrap().to_string(), "ca-file @system-ca");
        assert_eq!(parse("alpn h2 no-alpn").unwrap().to_string(), "no-alpn");
        assert_eq!(parse("ecdhe P-256 curves P-384").unwrap().to_string(), "curves P-384");
    }

    #[test]
    fn unusable_options_are_named() {
        for (text, why) in [
            ("ca-ignore-err all", "has the option 'ca-ignore-err', expected one of alpn, no-alpn, "),
            ("npn h2", "has the option 'npn', which is not supported: browsers"),
            ("acme x", "has the option 'acme', which is not supported: set it on a 'load' line"),
            ("key", "expects an argument behind 'key', found none"),
            ("verify", "expects an argument behind 'verify', found none"),
            ("verify maybe", "has 'verify maybe', expected none, optional or required"),
            ("ocsp-update 1", "has 'ocsp-update 1', expected on or off"),
            ("ssl-max-ver TLSv1.1", "has 'ssl-max-ver TLSv1.1', expected TLSv1.2 or TLSv1.3"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
        assert!(parse(&format!("alpn {}", "x".repeat(256))).unwrap_err().contains("255 bytes"));
    }
}
