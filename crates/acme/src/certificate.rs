//! The key of a new certificate, the signing request, and the verification of the issued chain.

use crate::account::KeyKind;
use crate::answer::Failure;
use crate::encode::{base64url, pem};
use aws_lc_rs::digest::{SHA256, digest};
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, PublicKeyData};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};
use zeroize::Zeroizing;

/// Seconds by which an authority's clock may be ahead.
const CLOCK_SKEW: u64 = 5 * 60;

/// Largest number of certificates in a chain.
const LONGEST_CHAIN: usize = 10;

/// Returns the time in seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The properties of a certificate that decide when it is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateInfo {
    /// The beginning of its validity, in seconds since 1970.
    pub not_before: u64,
    /// The end of its validity, in seconds since 1970.
    pub not_after: u64,
    /// Its host names in lower case.
    pub names: Vec<String>,
    /// The issuer is the subject: no authority signed it.
    pub self_issued: bool,
}

impl CertificateInfo {
    /// Reads a certificate in DER. `None` if it is malformed.
    pub fn of(der: &[u8]) -> Option<Self> {
        let (_, parsed) = X509Certificate::from_der(der).ok()?;
        Some(Self::of_parsed(&parsed))
    }

    fn of_parsed(parsed: &X509Certificate<'_>) -> Self {
        let mut names = Vec::new();
        if let Ok(Some(alternative)) = parsed.subject_alternative_name() {
            names.extend(alternative.value.general_names.iter().filter_map(|name| match name {
                GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
                _ => None,
            }));
        }
        let seconds = |time: i64| u64::try_from(time).unwrap_or(0);
        Self {
            not_before: seconds(parsed.validity().not_before.timestamp()),
            not_after: seconds(parsed.validity().not_after.timestamp()),
            names,
            self_issued: parsed.subject().as_raw() == parsed.issuer().as_raw(),
        }
    }

    /// True if the certificate lists all `names`.
    pub fn has(&self, names: &[Box<str>]) -> bool {
        names.iter().all(|name| self.names.iter().any(|own| **own == **name))
    }
}

/// The key of the certificate that an order requests. Each order generates one.
pub struct NewKey(Zeroizing<rcgen::KeyPair>);

impl fmt::Debug for NewKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewKey").finish_non_exhaustive()
    }
}

impl NewKey {
    /// Generates a key. An RSA key may take seconds, so do not call this on a lane.
    ///
    /// # Errors
    /// A sentence, if the system has no random numbers.
    pub fn generate(kind: KeyKind) -> Result<Self, String> {
        kind.generate().map(Self)
    }

    /// Returns the signing request for `names`: DER in base64url (RFC 8555, 7.4).
    pub(crate) fn request(&self, names: &[Box<str>]) -> Result<String, Failure> {
        let failed = |error: rcgen::Error| Failure::from(format!("no request could be made: {error}"));
        let names: Vec<String> = names.iter().map(|name| String::from(&**name)).collect();
        let mut wanted = CertificateParams::new(names).map_err(failed)?;
        wanted.distinguished_name = DistinguishedName::new();
        Ok(base64url(wanted.serialize_request(&*self.0).map_err(failed)?.der()))
    }

    /// Verifies that `chain` begins with a valid certificate of this key for all `names`. Returns the PEM of
    /// the key and of the chain. It contains the certificates of the answer and nothing else of it: a private
    /// key there could replace this one.
    pub(crate) fn accept(&self, chain: &[u8], names: &[Box<str>]) -> Result<Zeroizing<String>, Failure> {
        let bad = |why: &str| Failure::from(format!("the certificate is not taken: {why}"));
        let chain = CertificateDer::pem_slice_iter(chain).take(LONGEST_CHAIN + 1);
        let chain = chain.collect::<Result<Vec<_>, _>>().map_err(|_| bad("it is not PEM"))?;
        if chain.len() > LONGEST_CHAIN {
            return Err(bad(&format!("its chain expects at most {LONGEST_CHAIN} certificates, found more")));
        }
        let first = chain.first().ok_or_else(|| bad("expected PEM with a certificate, found none"))?;
        let (_, parsed) = X509Certificate::from_der(first).map_err(|_| bad("it is malformed"))?;
        if parsed.tbs_certificate.subject_pki.raw != self.0.subject_public_key_info() {
            return Err(bad("its key is not the one that was asked for"));
        }
        let info = CertificateInfo::of_parsed(&parsed);
        if !info.has(names) {
            return Err(bad("it lacks a name that was asked for"));
        }
        if info.not_after <= now() {
            return Err(bad("it has expired"));
        }
        if info.not_before > now() + CLOCK_SKEW {
            return Err(bad("it is not valid yet"));
        }
        if chain.iter().skip(1).any(|der| X509Certificate::from_der(der).is_err()) {
            return Err(bad("its chain is malformed"));
        }
        let mut parts = vec![pem("PRIVATE KEY", self.0.serialized_der())];
        parts.extend(chain.iter().map(|der| pem("CERTIFICATE", der)));
        let parts: Vec<&str> = parts.iter().map(|part| part.as_str()).collect();
        Ok(Zeroizing::new(parts.concat()))
    }
}

/// Returns the self-signed certificate, in DER, that proves `name` by `tls-alpn-01` (RFC 8737, 3), and its
/// key.
pub(crate) fn proving_certificate(
    name: &str,
    authorization: &str,
) -> Result<(CertificateDer<'static>, Zeroizing<rcgen::KeyPair>), String> {
    let failed = |error: rcgen::Error| format!("no certificate proves '{name}': {error}");
    let mut params = CertificateParams::new([name.to_owned()]).map_err(failed)?;
    let digest = digest(&SHA256, authorization.as_bytes());
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest.as_ref())];
    let key = KeyKind::P256.generate()?;
    let certificate = params.self_signed(&*key).map_err(failed)?;
    Ok((certificate.into(), key))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // helpers of tests are tests too
    use super::*;

    fn names(all: &[&str]) -> Vec<Box<str>> {
        all.iter().map(|name| Box::from(*name)).collect()
    }

    #[test]
    fn only_what_was_requested_is_taken() {
        let key = NewKey::generate(KeyKind::P256).unwrap();
        let issued = |domains: &[&str], key: &rcgen::KeyPair, year| {
            let domains: Vec<String> = domains.iter().map(|name| (*name).to_owned()).collect();
            let mut params = CertificateParams::new(domains).unwrap();
            params.not_after = rcgen::date_time_ymd(year, 1, 1);
            params.self_signed(key).unwrap().pem()
        };
        let other = rcgen::KeyPair::generate().unwrap();
        let refused =
            |pem: &str| key.accept(pem.as_bytes(), &names(&["a.test", "*.b.test"])).unwrap_err().why;
        let good = issued(&["A.test", "*.b.test", "more"], &key.0, 4000);
        let taken = key.accept(good.as_bytes(), &names(&["a.test", "*.b.test"])).unwrap();
        assert!(taken.starts_with("-----BEGIN PRIVATE KEY-----\n"));
        assert_eq!(taken.matches("BEGIN CERTIFICATE").count(), 1);
        // `accept` drops private keys of the answer.
        let with_key = format!("{}{good}", other.serialize_pem());
        assert_eq!(key.accept(with_key.as_bytes(), &names(&["a.test"])).unwrap(), taken);
        assert!(
            refused(&issued(&["a.test", "*.b.test"], &other, 4000))
                .ends_with("not the one that was asked for")
        );
        assert!(refused(&issued(&["a.test"], &key.0, 4000)).ends_with("it lacks a name that was asked for"));
        assert!(refused(&issued(&["a.test", "*.b.test"], &key.0, 2001)).ends_with("it has expired"));
        let mut future = CertificateParams::new(vec!["a.test".to_owned(), "*.b.test".to_owned()]).unwrap();
        future.not_before = rcgen::date_time_ymd(3999, 1, 1);
        let future = future.self_signed(&*key.0).unwrap().pem();
        assert!(refused(&future).ends_with("it is not valid yet"));
        assert!(refused(&good.repeat(11)).ends_with("expects at most 10 certificates, found more"));
        assert!(refused("").ends_with("found none"));
    }
}
