//! Which algorithms sign handshakes: OpenSSL's names, for what rustls has.

use crate::error::Problem;
use crate::names::tell_unknown;
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::{SignatureAlgorithm, SignatureScheme as Scheme};
use std::sync::Arc;

/// Name in TLS 1.3, OpenSSL's names of the key type, digest, and rustls's scheme.
const SCHEMES: &[(&str, &[&str], &str, Scheme)] = &[
    ("ecdsa_secp256r1_sha256", ECDSA, "SHA256", Scheme::ECDSA_NISTP256_SHA256),
    ("ecdsa_secp384r1_sha384", ECDSA, "SHA384", Scheme::ECDSA_NISTP384_SHA384),
    ("ecdsa_secp521r1_sha512", ECDSA, "SHA512", Scheme::ECDSA_NISTP521_SHA512),
    ("ed25519", &[], "", Scheme::ED25519),
    ("rsa_pss_rsae_sha256", PSS, "SHA256", Scheme::RSA_PSS_SHA256),
    ("rsa_pss_rsae_sha384", PSS, "SHA384", Scheme::RSA_PSS_SHA384),
    ("rsa_pss_rsae_sha512", PSS, "SHA512", Scheme::RSA_PSS_SHA512),
    ("rsa_pkcs1_sha256", RSA, "SHA256", Scheme::RSA_PKCS1_SHA256),
    ("rsa_pkcs1_sha384", RSA, "SHA384", Scheme::RSA_PKCS1_SHA384),
    ("rsa_pkcs1_sha512", RSA, "SHA512", Scheme::RSA_PKCS1_SHA512),
];

const ECDSA: &[&str] = &["ECDSA"];
const PSS: &[&str] = &["RSA-PSS", "PSS"];
const RSA: &[&str] = &["RSA"];

/// The algorithms of a list, in its order.
pub(crate) fn schemes(
    keyword: &'static str,
    list: &str,
    warnings: &mut Vec<Problem>,
) -> Result<Arc<[Scheme]>, Problem> {
    let (mut chosen, mut unknown) = (Vec::new(), Vec::new());
    for word in list.split(':').map(str::trim).filter(|word| !word.is_empty()) {
        let name = word.strip_prefix('?').unwrap_or(word); // OpenSSL's mark for a name that may be unknown
        let is = |(own, keys, digest, _): &&(&str, &[&str], &str, Scheme)| match name.split_once('+') {
            None => own.eq_ignore_ascii_case(name),
            Some((key, hash)) => {
                keys.iter().any(|own| own.eq_ignore_ascii_case(key)) && digest.eq_ignore_ascii_case(hash)
            }
        };
        match SCHEMES.iter().find(is) {
            Some((.., scheme)) if chosen.contains(scheme) => {}
            Some((.., scheme)) => chosen.push(*scheme),
            None => unknown.push(name),
        }
    }
    tell_unknown(keyword, "signature algorithm", &unknown, warnings);
    if chosen.is_empty() {
        let known: Vec<_> = SCHEMES.iter().map(|(name, ..)| *name).collect();
        let text = format!("no signature algorithm of '{list}' is left; there are {}", known.join(", "));
        return Err(Problem::new(keyword, text));
    }
    Ok(chosen.into())
}

/// A key that signs with `schemes` only, and with the first of them that the peer can verify.
#[derive(Debug)]
struct LimitedKey {
    key: Arc<dyn SigningKey>,
    schemes: Arc<[Scheme]>,
}

impl SigningKey for LimitedKey {
    fn choose_scheme(&self, offered: &[Scheme]) -> Option<Box<dyn Signer>> {
        let both = self.schemes.iter().filter(|scheme| offered.contains(scheme));
        both.filter_map(|scheme| self.key.choose_scheme(std::slice::from_ref(scheme))).next()
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.key.algorithm()
    }

    fn public_key(&self) -> Option<rustls::pki_types::SubjectPublicKeyInfoDer<'_>> {
        self.key.public_key()
    }
}

/// Returns the certificate with a key that signs with `schemes` only.
pub(crate) fn limited(certificate: &CertifiedKey, schemes: &Arc<[Scheme]>) -> CertifiedKey {
    let key = LimitedKey { key: certificate.key.clone(), schemes: schemes.clone() };
    let mut own = CertifiedKey::new(certificate.cert.clone(), Arc::new(key));
    own.ocsp.clone_from(&certificate.ocsp);
    own
}

/// The algorithms that the peer may sign with; `None` for all that are known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accepted(pub(crate) Option<Arc<[Scheme]>>);

impl Accepted {
    /// Returns the algorithms of `known` that are accepted, in the order of the list.
    pub(crate) fn of(&self, known: Vec<Scheme>) -> Vec<Scheme> {
        match &self.0 {
            None => known,
            Some(list) => list.iter().copied().filter(|scheme| known.contains(scheme)).collect(),
        }
    }

    /// Refuses an algorithm that is not accepted: rustls leaves this check to the verifier.
    pub(crate) fn check(&self, scheme: Scheme) -> Result<(), rustls::Error> {
        match &self.0 {
            Some(list) if !list.contains(&scheme) => {
                Err(rustls::PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // helpers of tests are tests too
    use super::*;

    #[test]
    fn both_forms_of_names_are_known_and_others_are_reported() {
        let mut warnings = Vec::new();
        let list = "ECDSA+SHA256:rsa_pss_rsae_sha256:RSA-PSS+SHA256:RSA+SHA1:ed448:PSS+SHA384:ED25519";
        assert_eq!(
            *schemes("sigalgs", list, &mut warnings).unwrap(),
            [Scheme::ECDSA_NISTP256_SHA256, Scheme::RSA_PSS_SHA256, Scheme::RSA_PSS_SHA384, Scheme::ED25519]
        );
        assert!(warnings[0].text.ends_with("support: RSA+SHA1, ed448"), "{}", warnings[0].text);
        assert!(schemes("sigalgs", "ed448", &mut warnings).is_err());
    }
}
