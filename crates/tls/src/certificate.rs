//! Loads a certificate with its chain and key.

use crate::error::Problem;
use crate::files::{Section, read, sections};
use crate::issuers::{FileRules, is_self_issued};
use crate::line_options::OwnOptions;
use crate::ocsp::{self, OcspId, StapleCell};
use crate::ocsp_update::responder_of;
use crate::sigalgs::limited;
use crate::url::HttpUrl;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::SectionKind;
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer,
};
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::{Error, InconsistentKeys, SignatureScheme};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// Text in encrypted keys, both of the older and the newer form.
const ENCRYPTED: &[u8] = b"ENCRYPTED";

/// A certificate that can be presented.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    pub(crate) key: Arc<CertifiedKey>,
    /// Its name in the store.
    pub(crate) file: Box<str>,
    /// Names of the certificate, in lower case; wildcards as `*.example`.
    pub(crate) names: Arc<[Box<str>]>,
    /// Names for which it is not used although a wildcard in `names` matches.
    pub(crate) not_for: Arc<[Box<str>]>,
    /// Used for clients whose name no other certificate has: `default-crt`, or the name `*` of a list.
    pub(crate) is_default: bool,
    /// Its OCSP response.
    pub(crate) staple: StapleCell,
    /// The algorithms that its key signs with; `None` for all.
    pub(crate) signs: Option<Arc<[SignatureScheme]>>,
    /// Options that change handshakes.
    pub(crate) options: Option<Arc<OwnOptions>>,
}

impl Certificate {
    /// The key to present now, with an OCSP response if there is one that is not overdue.
    pub(crate) fn shown(&self) -> Arc<CertifiedKey> {
        match (self.staple.key(), &self.signs) {
            (None, _) => self.key.clone(),
            (Some(stapled), None) => stapled,
            (Some(stapled), Some(schemes)) => Arc::new(limited(&stapled, schemes)),
        }
    }

    /// The certificate with a key that signs with `schemes` only; one that has a list keeps it.
    pub(crate) fn signing_by(mut self, schemes: Option<&Arc<[SignatureScheme]>>) -> Self {
        if let (Some(schemes), None) = (schemes, &self.signs) {
            self.key = Arc::new(limited(&self.key, schemes));
            self.signs = Some(schemes.clone());
        }
        self
    }

    /// Begin and end of its validity, in seconds since 1970.
    pub(crate) fn validity(&self) -> (i64, i64) {
        let parsed = self.key.cert.first().and_then(|der| X509Certificate::from_der(der).ok());
        parsed.map_or((0, 0), |(_, parsed)| {
            let validity = parsed.validity();
            (validity.not_before.timestamp(), validity.not_after.timestamp())
        })
    }

    pub(crate) fn is_ecdsa(&self) -> bool {
        self.key.key.algorithm() == rustls::SignatureAlgorithm::ECDSA
    }
}

/// The parts of a certificate, from files or from a command; some may be missing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bundle {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    /// What completes the chain: `issuers-chain-path`.
    added: Option<Arc<[CertificateDer<'static>]>>,
    key: Option<Arc<dyn SigningKey>>,
    /// The issuer's certificate, if the chain does not have it.
    issuer: Option<CertificateDer<'static>>,
    /// The OCSP response from a file or a command.
    ocsp: Option<Arc<[u8]>>,
    /// A command has sent `ocsp` for the next version: it precedes the response that is presented.
    ocsp_sent: bool,
    /// The OCSP responder; `Err` with a URL that this program cannot use.
    pub(crate) responder: Option<Result<HttpUrl, Box<str>>>,
    /// The OCSP response that is presented.
    pub(crate) staple: StapleCell,
    /// The files of the chain and the key.
    pub(crate) files: Option<(PathBuf, PathBuf)>,
    /// The digest of the files' stamps, as long as the contents are those of the files.
    pub(crate) stamp: Option<u64>,
    /// Begin and end of the validity, in seconds since 1970.
    valid: (i64, i64),
    /// Made of the parts by [`finish`](Self::finish).
    pub(crate) ready: Option<Certificate>,
}

/// The files of a certificate, from `load` of a `crt-store` section.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Definition {
    /// File of the certificate and its chain.
    pub certificate: PathBuf,
    /// File of the key. Default: the same file, or the one beside it.
    pub key: Option<PathBuf>,
    /// File of the OCSP response. Default: the one beside the certificate.
    pub ocsp: Option<PathBuf>,
    /// File of the issuer's certificate. Default: the same file, or the one beside it.
    pub issuer: Option<PathBuf>,
    /// `ocsp-update`: whether the OCSP response is renewed.
    pub ocsp_update: Option<bool>,
    /// `watch`: whether the files replace the certificate when they change.
    pub is_watched: bool,
}

impl Definition {
    /// The definition of a certificate that is named by its file.
    pub(crate) fn of_file(certificate: PathBuf) -> Self {
        Self { certificate, key: None, ocsp: None, issuer: None, ocsp_update: None, is_watched: false }
    }
}

const KEYWORD: &str = "crt";

impl Bundle {
    /// Loads a file with the certificate, its chain and its key. The key may also be in a file of the same
    /// name with `.key` appended.
    pub(crate) fn load(
        definition: &Definition,
        rules: &FileRules,
        warnings: &mut Vec<Problem>,
    ) -> Result<Self, Problem> {
        let beside =
            |ending: &str| Some(rules.beside(&definition.certificate, ending)).filter(|path| path.is_file());
        let shown = definition.certificate.display().to_string();
        let own = sections(KEYWORD, &definition.certificate)?;
        let mut bundle = Self::default();
        bundle.take(&shown, &own)?;
        if bundle.chain.is_empty() {
            return Err(Problem::new(KEYWORD, format!("'{shown}' has no certificate")));
        }
        bundle.complete(rules);
        let mut key = definition.certificate.clone();
        if let Some(path) = &definition.key {
            key.clone_from(path);
            bundle.key = None;
            bundle.take_key(&path.display().to_string(), &sections(KEYWORD, path)?)?;
        } else if bundle.key.is_none()
            && let Some(path) = beside(".key")
        {
            bundle.take_key(&path.display().to_string(), &sections(KEYWORD, &path)?)?;
            key = path;
        }
        if let Some(path) = definition.issuer.clone().or_else(|| beside(".issuer")) {
            bundle.take_issuer(&path.display().to_string(), &sections("issuer", &path)?)?;
        }
        if let Some(path) = definition.ocsp.clone().or_else(|| beside(".ocsp")) {
            if bundle.issuer().is_none() {
                return Err(unverifiable(&path.display().to_string(), &shown));
            }
            bundle.ocsp = Some(read(ocsp::KEYWORD, &path)?.as_slice().into());
        }
        bundle.files = Some((definition.certificate.clone(), key));
        if bundle.key.is_none() {
            let bytes = read(KEYWORD, definition.key.as_ref().unwrap_or(&definition.certificate))?;
            let encrypted = bytes.windows(ENCRYPTED.len()).any(|window| window == ENCRYPTED);
            let why = if encrypted { "its key has a passphrase" } else { "it has no private key" };
            return Err(Problem::new(KEYWORD, format!("'{shown}' cannot be used: {why}")));
        }
        bundle.finish(&shown, rules, warnings)?;
        Ok(bundle)
    }

    /// Takes the certificates and the key that `sections` have. Parts that they lack stay as they are.
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

    /// Takes the key that `sections` have, if any.
    pub(crate) fn take_key(&mut self, shown: &str, sections: &[Section]) -> Result<(), Problem> {
        if let Some(key) = sections.iter().find_map(private_key) {
            let key = any_supported_type(&key).map_err(|error| unusable(shown, &error))?;
            self.key = Some(key);
        }
        Ok(())
    }

    /// Takes the issuer's certificate, the first one of `sections`.
    pub(crate) fn take_issuer(&mut self, shown: &str, sections: &[Section]) -> Result<(), Problem> {
        let none = || Problem::new("issuer", format!("'{shown}' has no certificate"));
        let found = sections.iter().find(|section| section.is_certificate()).ok_or_else(none)?;
        self.issuer = Some(CertificateDer::from(found.der.to_vec()));
        Ok(())
    }

    /// Takes an OCSP response that a command has sent.
    pub(crate) fn take_ocsp(&mut self, response: Arc<[u8]>) {
        (self.ocsp, self.ocsp_sent) = (Some(response), true);
    }

    pub(crate) fn has_sent_ocsp(&self) -> bool {
        self.ocsp_sent
    }

    /// Takes the chain of the issuer, if the files have none.
    pub(crate) fn complete(&mut self, rules: &FileRules) {
        self.added = match &self.chain[..] {
            [alone] => rules.chain_of(alone),
            _ => None,
        };
    }

    /// The chain, and what completes it.
    pub(crate) fn whole_chain(&self) -> impl Iterator<Item = &CertificateDer<'static>> {
        self.chain.iter().chain(self.added.iter().flat_map(|added| added.iter()))
    }

    /// Makes the certificate from its parts, which are [complete](Self::complete). Adds to `warnings`.
    pub(crate) fn finish(
        &mut self,
        shown: &str,
        rules: &FileRules,
        warnings: &mut Vec<Problem>,
    ) -> Result<(), Problem> {
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
        let now = now();
        let validity = parsed.validity();
        self.valid = (validity.not_before.timestamp(), validity.not_after.timestamp());
        if validity.not_after.timestamp() < now {
            warnings.push(problem(format!("the certificate of '{shown}' expired at {}", validity.not_after)));
        } else if validity.not_before.timestamp() > now {
            warnings.push(problem(format!(
                "the certificate of '{shown}' is not valid before {}",
                validity.not_before
            )));
        }
        let names = names(&parsed);
        self.responder = responder_of(first);
        // `CertifiedKey::from_der` does the same, but drops a copy of the key without zeroizing it.
        let mut sent: Vec<_> = self.whole_chain().cloned().collect();
        if rules.skips_self_issued {
            let mut is_first = true;
            sent.retain(|certificate| std::mem::take(&mut is_first) || !is_self_issued(certificate));
        }
        let key = CertifiedKey::new(sent, key.clone());
        match key.keys_match() {
            Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
            Err(error) => return Err(unusable(shown, &error)),
        }
        if self.ocsp_sent && self.issuer().is_none() {
            return Err(unverifiable(&format!("{shown}.ocsp"), shown));
        }
        // The response that is presented is newer than the one from the file. Neither fits another
        // certificate.
        let mut responses = [self.staple.response().map(Arc::from), self.ocsp.clone()];
        if std::mem::take(&mut self.ocsp_sent) {
            responses.reverse();
        }
        self.staple = StapleCell::default();
        for response in responses.into_iter().flatten() {
            match self.staple.set(&key, self.issuer(), &response) {
                Ok(()) => break,
                Err(why) => {
                    let text = format!("the OCSP response of '{shown}' is ignored: {why}");
                    warnings.push(Problem::new(ocsp::KEYWORD, text));
                }
            }
        }
        self.ready = Some(Certificate {
            key: Arc::new(key),
            file: shown.into(),
            names: names.into(),
            not_for: Arc::default(),
            is_default: false,
            staple: self.staple.clone(),
            signs: None,
            options: None,
        });
        Ok(())
    }

    /// True if reading the files anew, which have this stamp, would give the same, without a warning. What is
    /// said of OCSP may have changed with time, or by a command.
    pub(crate) fn is_as_in_files(&self, stamp: u64) -> bool {
        let now = now();
        self.stamp == Some(stamp)
            && self.ready.is_some()
            && (self.valid.0..=self.valid.1).contains(&now)
            && self.ocsp.is_none()
            && self.staple.response().is_none()
    }

    /// The issuer's certificate.
    fn issuer(&self) -> Option<&[u8]> {
        self.whole_chain().nth(1).or(self.issuer.as_ref()).map(|issuer| &**issuer)
    }

    /// The OCSP identifier, or `None` if the issuer is unknown.
    pub(crate) fn ocsp_id(&self) -> Option<OcspId> {
        OcspId::of(self.chain.first()?, self.issuer()?)
    }

    /// Keeps the response that commands or responders have set, unless the file of it has changed, too.
    pub(crate) fn keep_ocsp(&mut self, before: &Self) {
        if self.ocsp == before.ocsp {
            self.staple = before.staple.clone();
        }
    }

    /// Whether a response of OCSP is about it.
    pub(crate) fn is_meant(&self, response: &[u8]) -> bool {
        let both = self.chain.first().zip(self.issuer());
        both.is_some_and(|(certificate, issuer)| ocsp::is_about(response, certificate, issuer))
    }

    /// Sets an OCSP response at run time.
    pub(crate) fn set_ocsp(&self, response: &[u8]) -> Result<(), &'static str> {
        let ready = self.ready.as_ref().ok_or("there is no certificate")?;
        self.staple.set(&ready.key, self.issuer(), response)
    }
}

/// The time, in seconds since 1970.
fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    i64::try_from(now).unwrap_or(i64::MAX)
}

/// A problem with the OCSP response in the file `ocsp`.
fn unverifiable(ocsp: &str, shown: &str) -> Problem {
    let text =
        format!("'{ocsp}' cannot be verified, as the issuer of '{shown}' is not known; add it to the chain");
    Problem::new(ocsp::KEYWORD, text)
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

/// The private key of a section, if it has one. Borrowed, since a copy would have to be zeroized.
fn private_key(section: &Section) -> Option<PrivateKeyDer<'_>> {
    let der = || section.der.as_slice();
    Some(match section.kind {
        SectionKind::PrivateKey => PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(der())),
        SectionKind::RsaPrivateKey => PrivateKeyDer::Pkcs1(PrivatePkcs1KeyDer::from(der())),
        SectionKind::EcPrivateKey => PrivateKeyDer::Sec1(PrivateSec1KeyDer::from(der())),
        _ => return None,
    })
}

/// A certificate's host names: the alternative names and the common name, as in HAProxy.
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
