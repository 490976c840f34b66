//! Settings of the process about the files of certificates, and the chains of issuers.

use crate::error::Problem;
use crate::files::{Section, files, sections};
use rustls::pki_types::CertificateDer;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use x509_parser::prelude::{FromDer, ParsedExtension, X509Certificate};

const KEYWORD: &str = "issuers-chain-path";

/// Settings about the files of all certificates.
#[derive(Clone, Debug, Default)]
pub struct FileSettings {
    /// `ssl-load-extra-del-ext`: the files beside `<name>.crt` are `<name>.key` and so on.
    pub drops_extension: bool,
    /// `ssl-skip-self-issued-ca`: self-issued certificates behind the first one are not sent.
    pub skips_self_issued: bool,
    /// `issuers-chain-path`: folder of chains for certificates whose files have none.
    pub issuers: Option<PathBuf>,
}

/// The settings, with the chains that they name.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileRules {
    pub(crate) drops_extension: bool,
    pub(crate) skips_self_issued: bool,
    chains: Arc<[IssuerChain]>,
}

#[derive(Debug)]
struct IssuerChain {
    /// The subject of the first certificate.
    subject: Box<[u8]>,
    certificates: Arc<[CertificateDer<'static>]>,
}

impl FileRules {
    /// Reads the chains that the settings name. Adds to `warnings`.
    pub(crate) fn read(settings: &FileSettings, warnings: &mut Vec<Problem>) -> Result<Self, Problem> {
        let chains = match &settings.issuers {
            Some(folder) => read_chains(folder, warnings)?,
            None => Vec::new(),
        };
        let FileSettings { drops_extension, skips_self_issued, .. } = *settings;
        Ok(Self { drops_extension, skips_self_issued, chains: chains.into() })
    }

    /// True if files are certainly read alike by both: chains of issuers may differ.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let flags = |rules: &Self| (rules.drops_extension, rules.skips_self_issued);
        flags(self) == flags(other) && self.chains.is_empty() && other.chains.is_empty()
    }

    /// The name of the file with this ending beside a certificate.
    pub(crate) fn beside(&self, certificate: &Path, ending: &str) -> PathBuf {
        let drops = self.drops_extension && certificate.extension().is_some_and(|own| own == "crt");
        let base = if drops { certificate.with_extension("") } else { certificate.to_owned() };
        let mut name = base.into_os_string();
        name.push(ending);
        PathBuf::from(name)
    }

    /// The chain of who has issued `certificate`.
    pub(crate) fn chain_of(&self, certificate: &[u8]) -> Option<Arc<[CertificateDer<'static>]>> {
        if self.chains.is_empty() {
            return None;
        }
        let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
        let is_issuer = |chain: &&IssuerChain| {
            *chain.subject == *parsed.issuer().as_raw() && has_issued(&chain.certificates[0], &parsed)
        };
        self.chains.iter().find(is_issuer).map(|chain| chain.certificates.clone())
    }
}

/// True if the names, and the identifiers of keys that both have, fit.
fn has_issued(issuer: &[u8], certificate: &X509Certificate<'_>) -> bool {
    let Ok((_, issuer)) = X509Certificate::from_der(issuer) else { return false };
    let named = certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::AuthorityKeyIdentifier(of) => of.key_identifier.as_ref().map(|key| key.0),
        _ => None,
    });
    let own = key_identifier(&issuer);
    issuer.subject().as_raw() == certificate.issuer().as_raw()
        && (own.is_none() || named.is_none() || own == named)
}

/// True if the certificate names itself as its issuer.
pub(crate) fn is_self_issued(certificate: &[u8]) -> bool {
    X509Certificate::from_der(certificate).is_ok_and(|(_, parsed)| has_issued(certificate, &parsed))
}

/// The identifier of a certificate's key.
pub(crate) fn key_identifier<'a>(certificate: &X509Certificate<'a>) -> Option<&'a [u8]> {
    certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(identifier) => Some(identifier.0),
        _ => None,
    })
}

/// Reads the chains of a folder. A file that cannot be used is a warning, as in HAProxy.
fn read_chains(folder: &Path, warnings: &mut Vec<Problem>) -> Result<Vec<IssuerChain>, Problem> {
    if !folder.is_dir() {
        return Err(Problem::new(
            KEYWORD,
            format!("expected a folder, found '{}', which is not one", folder.display()),
        ));
    }
    let mut chains: Vec<IssuerChain> = Vec::new();
    for file in files(KEYWORD, folder)? {
        let mut warn = |why: &str| {
            warnings.push(Problem::new(KEYWORD, format!("'{}' is not used: {why}", file.display())));
        };
        let sections = match sections(KEYWORD, &file) {
            Ok(sections) => sections,
            Err(problem) => {
                warnings.push(problem);
                continue;
            }
        };
        let certificates = sections.iter().filter(|section| Section::is_certificate(section));
        let certificates: Arc<[_]> =
            certificates.map(|section| CertificateDer::from(section.der.to_vec())).collect();
        let Some(first) = certificates.first() else {
            warn("it has no certificate");
            continue;
        };
        if chains.iter().any(|own| own.certificates[0] == *first) {
            warn("another file has the chain of this issuer");
            continue;
        }
        match X509Certificate::from_der(first) {
            Ok((_, parsed)) => {
                let subject = parsed.subject().as_raw().into();
                chains.push(IssuerChain { subject, certificates });
            }
            Err(_) => warn("its certificate is malformed"),
        }
    }
    Ok(chains)
}
