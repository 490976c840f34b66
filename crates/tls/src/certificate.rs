//! A certificate with its chain and key, as files have them.

use crate::error::Problem;
use crate::files::{Section, read, sections};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::SectionKind;
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer,
};
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::{Error, InconsistentKeys};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// What stands in a key with a passphrase, in its older form and in the newer one.
const ENCRYPTED: &[u8] = b"ENCRYPTED";

/// A certificate that a side shows.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    pub(crate) key: Arc<CertifiedKey>,
    /// What it is for, in lower case; wildcards as `*.example`.
    pub(crate) names: Arc<[Box<str>]>,
    /// What it is not for, although a wildcard of it says so.
    pub(crate) not_for: Arc<[Box<str>]>,
    /// It is for clients that no other one is for: `default-crt`, or the name `*` of a list.
    pub(crate) is_default: bool,
}

impl Certificate {
    pub(crate) fn is_ecdsa(&self) -> bool {
        self.key.key.algorithm() == rustls::SignatureAlgorithm::ECDSA
    }
}

/// What the files of a certificate hold, or what was sent in their place; some of it may be missing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bundle {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    key: Option<Arc<dyn SigningKey>>,
    /// Where the chain and the key were read.
    pub(crate) files: Option<(PathBuf, PathBuf)>,
    /// Made of these by [`finish`](Self::finish).
    pub(crate) ready: Option<Certificate>,
}

/// Where the parts of a certificate are, as `load` of a `crt-store` section says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The certificate with its chain.
    pub certificate: PathBuf,
    /// Its key; in the same file or beside it without.
    pub key: Option<PathBuf>,
}

const KEYWORD: &str = "crt";

impl Bundle {
    /// From a file with the certificate, its chain and its key; or with the key beside it, in a file with
    /// `.key` behind its name.
    pub(crate) fn load(definition: &Definition, told: &mut Vec<Problem>) -> Result<Self, Problem> {
        let shown = definition.certificate.display().to_string();
        let own = sections(KEYWORD, &definition.certificate)?;
        let mut bundle = Self::default();
        bundle.take(&shown, &own)?;
        if bundle.chain.is_empty() {
            return Err(Problem::new(KEYWORD, format!("'{shown}' has no certificate")));
        }
        let mut key = definition.certificate.clone();
        if let Some(path) = &definition.key {
            key.clone_from(path);
            bundle.key = None;
            bundle.take_key(&path.display().to_string(), &sections(KEYWORD, path)?)?;
        } else if bundle.key.is_none() {
            let mut path = definition.certificate.clone().into_os_string();
            path.push(".key");
            let path = PathBuf::from(path);
            if path.is_file() {
                bundle.take_key(&path.display().to_string(), &sections(KEYWORD, &path)?)?;
                key = path;
            }
        }
        bundle.files = Some((definition.certificate.clone(), key));
        if bundle.key.is_none() {
            let bytes = read(KEYWORD, definition.key.as_ref().unwrap_or(&definition.certificate))?;
            let encrypted = bytes.windows(ENCRYPTED.len()).any(|window| window == ENCRYPTED);
            let why = if encrypted { "its key has a passphrase" } else { "it has no private key" };
            return Err(Problem::new(KEYWORD, format!("'{shown}' cannot be used: {why}")));
        }
        bundle.finish(&shown, told)?;
        Ok(bundle)
    }

    /// Takes certificates and a key over, as far as `sections` have them; what they have not stays.
    pub(crate) fn take(&mut self, shown: &str, sections: &[Section]) -> Result<(), Problem> {
        let chain: Vec<CertificateDer<'static>> = sections
            .iter()
            .filter(|section| matches!(section.kind, SectionKind::Certificate))
            .map(|section| CertificateDer::from(section.der.to_vec()))
            .collect();
        if !chain.is_empty() {
            self.chain = chain;
        }
        self.take_key(shown, sections)
    }

    /// The same for the key alone.
    pub(crate) fn take_key(&mut self, shown: &str, sections: &[Section]) -> Result<(), Problem> {
        if let Some(key) = sections.iter().find_map(private_key) {
            let key = any_supported_type(&key).map_err(|error| unusable(shown, &error))?;
            self.key = Some(key);
        }
        Ok(())
    }

    /// Makes a certificate of the parts. `told` are warnings.
    pub(crate) fn finish(&mut self, shown: &str, told: &mut Vec<Problem>) -> Result<(), Problem> {
        let problem = |text: String| Problem::new(KEYWORD, text);
        let Some(first) = self.chain.first() else {
            return Err(problem(format!("'{shown}' has no certificate")));
        };
        let Some(key) = &self.key else {
            return Err(problem(format!("'{shown}' cannot be used: it has no private key")));
        };
        let Ok((_, parsed)) = X509Certificate::from_der(first) else {
            return Err(problem(format!("the certificate of '{shown}' is malformed")));
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let validity = parsed.validity();
        if validity.not_after.timestamp() < now {
            told.push(problem(format!("the certificate of '{shown}' expired at {}", validity.not_after)));
        } else if validity.not_before.timestamp() > now {
            told.push(problem(format!(
                "the certificate of '{shown}' is not valid before {}",
                validity.not_before
            )));
        }
        let names = names(&parsed);
        // `CertifiedKey::from_der` does the same, but it drops a copy of the key that nobody zeroizes.
        let key = CertifiedKey::new(self.chain.clone(), key.clone());
        match key.keys_match() {
            Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
            Err(error) => return Err(unusable(shown, &error)),
        }
        self.ready = Some(Certificate {
            key: Arc::new(key),
            names: names.into(),
            not_for: Arc::default(),
            is_default: false,
        });
        Ok(())
    }
}

fn unusable(shown: &str, error: &Error) -> Problem {
    let text = match error {
        Error::InconsistentKeys(_) => {
            format!("the private key of '{shown}' is not that of its certificate")
        }
        other => format!("the private key of '{shown}' cannot be used: {other}"),
    };
    Problem::new(KEYWORD, text)
}

/// The key of a section, if it has one that can be read; not a copy, since that would have to be zeroized.
fn private_key(section: &Section) -> Option<PrivateKeyDer<'_>> {
    let der = || section.der.as_slice();
    Some(match section.kind {
        SectionKind::PrivateKey => PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(der())),
        SectionKind::RsaPrivateKey => PrivateKeyDer::Pkcs1(PrivatePkcs1KeyDer::from(der())),
        SectionKind::EcPrivateKey => PrivateKeyDer::Sec1(PrivateSec1KeyDer::from(der())),
        _ => return None,
    })
}

/// The names of hosts that a certificate is for: its alternative names, and its common name, as in HAProxy.
fn names(certificate: &X509Certificate<'_>) -> Vec<Box<str>> {
    let mut names: Vec<Box<str>> = Vec::new();
    if let Ok(Some(alternative)) = certificate.subject_alternative_name() {
        for name in &alternative.value.general_names {
            if let GeneralName::DNSName(name) = name {
                names.push(name.to_ascii_lowercase().into());
            }
        }
    }
    let common = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok());
    for name in common.map(|name| Box::from(name.to_ascii_lowercase())) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}
