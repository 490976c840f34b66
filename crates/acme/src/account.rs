//! Kinds of keys, and the account key, which signs requests (RFC 7515).

use crate::encode::{base64url, from_base64url, pem};
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeyPair as RsaKey;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    KeyPair, RSA_PKCS1_SHA256,
};
use rcgen::RsaKeySize;
use rustls::pki_types::pem::{PemObject, SectionKind};
use serde_json::{Value, json};
use std::fmt;
use zeroize::Zeroizing;

/// The kind of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// ECDSA with the curve P-256.
    P256,
    /// ECDSA with the curve P-384.
    P384,
    /// RSA with 2048 bits.
    Rsa2048,
    /// RSA with 3072 bits.
    Rsa3072,
    /// RSA with 4096 bits.
    Rsa4096,
}

impl KeyKind {
    pub(crate) fn generate(self) -> Result<Zeroizing<rcgen::KeyPair>, String> {
        let rsa = |size| rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, size);
        let made = match self {
            Self::P256 => rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256),
            Self::P384 => rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384),
            Self::Rsa2048 => rsa(RsaKeySize::_2048),
            Self::Rsa3072 => rsa(RsaKeySize::_3072),
            Self::Rsa4096 => rsa(RsaKeySize::_4096),
        };
        made.map(Zeroizing::new).map_err(|error| format!("no key could be made: {error}"))
    }
}

/// A curve of account keys: its name, its JWS algorithm, and the implementation.
type Curve = (&'static str, &'static str, &'static EcdsaSigningAlgorithm);

const CURVES: [Curve; 2] = [
    ("P-256", "ES256", &ECDSA_P256_SHA256_FIXED_SIGNING),
    ("P-384", "ES384", &ECDSA_P384_SHA384_FIXED_SIGNING),
];

enum Signer {
    Ecdsa(EcdsaKeyPair, Curve),
    Rsa(RsaKey),
}

/// The key of an account. Dropping it clears its memory.
pub struct AccountKey(Signer);

impl fmt::Debug for AccountKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccountKey").finish_non_exhaustive()
    }
}

/// The algorithm of a binding to an external account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindingAlgorithm {
    /// HMAC with SHA-256.
    Hs256,
    /// HMAC with SHA-384.
    Hs384,
    /// HMAC with SHA-512.
    Hs512,
}

/// The account at the authority, outside ACME, to which an ACME account is bound (RFC 8555, 7.3.4).
pub struct ExternalAccount {
    id: Box<str>,
    algorithm: BindingAlgorithm,
    key: hmac::Key,
}

impl fmt::Debug for ExternalAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExternalAccount").field("id", &self.id).finish_non_exhaustive()
    }
}

impl ExternalAccount {
    /// `key` is the authority's key in base64url.
    ///
    /// # Errors
    /// A clause about the key.
    pub fn new(id: &str, algorithm: BindingAlgorithm, key: &[u8]) -> Result<Self, &'static str> {
        let key = from_base64url(key.trim_ascii()).ok_or("it is not base64url")?;
        if key.is_empty() {
            return Err("it is empty");
        }
        let hash = match algorithm {
            BindingAlgorithm::Hs256 => hmac::HMAC_SHA256,
            BindingAlgorithm::Hs384 => hmac::HMAC_SHA384,
            BindingAlgorithm::Hs512 => hmac::HMAC_SHA512,
        };
        Ok(Self { id: id.into(), algorithm, key: hmac::Key::new(hash, &key) })
    }

    /// Returns the binding of `account` for a request to `url`.
    pub(crate) fn binding(&self, account: &AccountKey, url: &str) -> Value {
        let algorithm = match self.algorithm {
            BindingAlgorithm::Hs256 => "HS256",
            BindingAlgorithm::Hs384 => "HS384",
            BindingAlgorithm::Hs512 => "HS512",
        };
        let head = json!({"alg": algorithm, "kid": self.id, "url": url}).to_string();
        let (head, payload) = (base64url(head.as_bytes()), base64url(account.jwk().to_string().as_bytes()));
        let signature = hmac::sign(&self.key, format!("{head}.{payload}").as_bytes());
        json!({"protected": head, "payload": payload, "signature": base64url(signature.as_ref())})
    }
}

/// A section of a PEM file.
struct Section(SectionKind, Zeroizing<Vec<u8>>);

impl PemObject for Section {
    fn from_pem(kind: SectionKind, der: Vec<u8>) -> Option<Self> {
        Some(Self(kind, Zeroizing::new(der)))
    }
}

impl AccountKey {
    /// Generates a key and returns its PEM.
    ///
    /// # Errors
    /// A sentence, if the system has no random numbers.
    pub fn generate(kind: KeyKind) -> Result<Zeroizing<String>, String> {
        Ok(pem("PRIVATE KEY", kind.generate()?.serialized_der()))
    }

    /// Reads a key from PEM.
    ///
    /// # Errors
    /// A clause that says what the PEM lacks.
    pub fn from_pem(pem: &[u8]) -> Result<Self, &'static str> {
        let sections = Section::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
        let sections = sections.map_err(|_| "it is not PEM")?;
        let key = sections.into_iter().find_map(|Section(kind, der)| match kind {
            SectionKind::PrivateKey => (CURVES.into_iter())
                .find_map(|curve| {
                    let key = EcdsaKeyPair::from_pkcs8(curve.2, &der).ok()?;
                    Some(Signer::Ecdsa(key, curve))
                })
                .or_else(|| Some(Signer::Rsa(RsaKey::from_pkcs8(&der).ok()?))),
            SectionKind::EcPrivateKey => CURVES.into_iter().find_map(|curve| {
                let key = EcdsaKeyPair::from_private_key_der(curve.2, &der).ok()?;
                Some(Signer::Ecdsa(key, curve))
            }),
            SectionKind::RsaPrivateKey => Some(Signer::Rsa(RsaKey::from_der(&der).ok()?)),
            _ => None,
        });
        key.map(Self)
            .ok_or("it has neither an RSA key of at least 2048 bits nor an ECDSA key on P-256 or P-384")
    }

    /// Returns the public key as a JWK (RFC 7517). Its members are in the order of their names, since the
    /// thumbprint is a digest over them in this order.
    fn jwk(&self) -> Value {
        match &self.0 {
            Signer::Ecdsa(key, (name, ..)) => {
                let point = key.public_key().as_ref().get(1..).unwrap_or_default();
                let (x, y) = point.split_at(point.len() / 2);
                json!({"crv": name, "kty": "EC", "x": base64url(x), "y": base64url(y)})
            }
            Signer::Rsa(key) => {
                let public = key.public_key();
                let [e, n] = [public.exponent(), public.modulus()]
                    .map(|number| base64url(number.big_endian_without_leading_zero()));
                json!({"e": e, "kty": "RSA", "n": n})
            }
        }
    }

    /// Returns the thumbprint of the public key (RFC 7638).
    pub fn thumbprint(&self) -> String {
        base64url(digest(&SHA256, self.jwk().to_string().as_bytes()).as_ref())
    }

    /// Returns the signed body of a request (RFC 8555, 6.2). It names the key by the URL `account`, or
    /// contains the public key before the authority has assigned a URL.
    pub(crate) fn signed(
        &self,
        url: &str,
        nonce: &str,
        account: Option<&str>,
        payload: &str,
    ) -> Result<Vec<u8>, String> {
        let algorithm = match &self.0 {
            Signer::Ecdsa(_, (_, name, _)) => name,
            Signer::Rsa(_) => "RS256",
        };
        let mut head = json!({"alg": algorithm, "nonce": nonce, "url": url});
        match account {
            Some(account) => head["kid"] = account.into(),
            None => head["jwk"] = self.jwk(),
        }
        let (head, payload) = (base64url(head.to_string().as_bytes()), base64url(payload.as_bytes()));
        let text = format!("{head}.{payload}");
        let (random, failed) = (SystemRandom::new(), |_| "the account's key does not sign".to_owned());
        let signature = match &self.0 {
            Signer::Ecdsa(key, _) => base64url(key.sign(&random, text.as_bytes()).map_err(failed)?.as_ref()),
            Signer::Rsa(key) => {
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, text.as_bytes(), &mut signature).map_err(failed)?;
                base64url(&signature)
            }
        };
        Ok(json!({"protected": head, "payload": payload, "signature": signature}).to_string().into_bytes())
    }

    /// Returns the text of the TXT record that proves a name by `dns-01` (RFC 8555, 8.4).
    pub(crate) fn record(&self, token: &str) -> String {
        base64url(digest(&SHA256, format!("{token}.{}", self.thumbprint()).as_bytes()).as_ref())
    }
}

/// True if `text` is a token of a challenge: characters of base64url only (RFC 8555, 8.3).
pub(crate) fn is_token(text: &str) -> bool {
    const LONGEST: usize = 256;
    let letters = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !text.is_empty() && text.len() <= LONGEST && text.bytes().all(letters)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // helpers of tests are tests too
    use super::*;
    use aws_lc_rs::signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey,
        VerificationAlgorithm,
    };

    #[test]
    fn the_thumbprint_is_that_of_the_rfc() {
        // The public key of the example in RFC 7638, 3.1. The digest is over the text of its members.
        let jwk = r#"{"e":"AQAB","kty":"RSA","n":"0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw"}"#;
        let value: Value = serde_json::from_str(jwk).unwrap();
        let shown = base64url(digest(&SHA256, value.to_string().as_bytes()).as_ref());
        assert_eq!(shown, "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs");
    }

    #[test]
    fn requests_are_signed_by_each_kind_of_key() {
        let kinds: [(KeyKind, &str, &dyn VerificationAlgorithm); 3] = [
            (KeyKind::P256, "ES256", &ECDSA_P256_SHA256_FIXED),
            (KeyKind::P384, "ES384", &ECDSA_P384_SHA384_FIXED),
            (KeyKind::Rsa2048, "RS256", &RSA_PKCS1_2048_8192_SHA256),
        ];
        for (kind, name, algorithm) in kinds {
            let key = AccountKey::from_pem(AccountKey::generate(kind).unwrap().as_bytes()).unwrap();
            let body = key.signed("https://a/b", "n", None, "{}").unwrap();
            let body: Value = serde_json::from_slice(&body).unwrap();
            let text = |name: &str| body[name].as_str().unwrap().to_owned();
            let signed = format!("{}.{}", text("protected"), text("payload"));
            let head = format!("{:?}", unbase64url(&text("protected")));
            assert!(head.contains(name) && head.contains("jwk") && head.contains("https://a/b"), "{head}");
            let public = match &key.0 {
                Signer::Ecdsa(key, _) => key.public_key().as_ref().to_vec(),
                Signer::Rsa(key) => key.public_key().as_ref().to_vec(),
            };
            let signature = unbase64url_bytes(&text("signature"));
            UnparsedPublicKey::new(algorithm, public).verify(signed.as_bytes(), &signature).unwrap();
        }
    }

    #[test]
    fn an_account_is_bound_to_another_one_by_its_key() {
        let account = AccountKey::from_pem(AccountKey::generate(KeyKind::P256).unwrap().as_bytes()).unwrap();
        let algorithms = [
            (BindingAlgorithm::Hs256, "HS256", hmac::HMAC_SHA256),
            (BindingAlgorithm::Hs384, "HS384", hmac::HMAC_SHA384),
            (BindingAlgorithm::Hs512, "HS512", hmac::HMAC_SHA512),
        ];
        for (algorithm, name, hash) in algorithms {
            let other = ExternalAccount::new("id", algorithm, b"_-8C\n").unwrap();
            let bound = other.binding(&account, "https://a/b");
            let text = |name: &str| bound[name].as_str().unwrap().to_owned();
            let head: Value = serde_json::from_str(&unbase64url(&text("protected"))).unwrap();
            assert_eq!(head, json!({"alg": name, "kid": "id", "url": "https://a/b"}));
            assert_eq!(unbase64url(&text("payload")), account.jwk().to_string());
            let signed = format!("{}.{}", text("protected"), text("payload"));
            let (key, signature) = (hmac::Key::new(hash, &[255, 239, 2]), text("signature"));
            hmac::verify(&key, signed.as_bytes(), &unbase64url_bytes(&signature)).unwrap();
            assert!(!format!("{other:?}").contains("_-8C"));
        }
        let refused = |key: &[u8]| ExternalAccount::new("id", BindingAlgorithm::Hs256, key).unwrap_err();
        assert_eq!(refused(b" \n"), "it is empty");
        for bad in ["+/8C", "a", "_-8C=", "_-8C _-8C"] {
            assert_eq!(refused(bad.as_bytes()), "it is not base64url", "{bad}");
        }
    }

    fn unbase64url_bytes(text: &str) -> Vec<u8> {
        let value = |byte| match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'-' => 62,
            _ => 63,
        };
        let bits: Vec<bool> =
            text.bytes().flat_map(|byte| (0..6).rev().map(move |bit| value(byte) >> bit & 1 == 1)).collect();
        let byte = |bits: &[bool]| bits.iter().fold(0, |byte, bit| byte << 1 | u8::from(*bit));
        bits.chunks_exact(8).map(byte).collect()
    }

    fn unbase64url(text: &str) -> String {
        String::from_utf8(unbase64url_bytes(text)).unwrap()
    }

    #[test]
    fn keys_that_do_not_fit_are_refused() {
        let refused = |pem: &[u8]| AccountKey::from_pem(pem).unwrap_err();
        assert_eq!(refused(b"-----BEGIN PRIVATE KEY-----\nAAAA"), "it is not PEM");
        let other = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap().serialize_pem();
        for pem in [other.as_bytes(), b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
        {
            assert!(refused(pem).starts_with("it has neither an RSA key"));
        }
    }
}
