//! Certificates for names that no certificate of a listener has: `generate-certificates`.
//!
//! # Protocol
//! 1. A client that asks for such a name gets a certificate for it that the listener's authority signs. It
//!    has the public key of the certificate that the client would get otherwise, as in HAProxy: no key is
//!    made, and the cost is one signature of the authority, within the heavy task of the handshake.
//! 2. A listener keeps its certificates in two halves. A certificate that is used moves to the newer half.
//!    When that is full, it becomes the older one, whose certificates are forgotten.
//! 3. Handshakes with such names alone take the lock. Nothing is signed under it: two lanes may make a
//!    certificate for the same name at once, and the later one is kept. What is forgotten is freed behind it.
//! 4. While memory is short, new certificates are not kept.

use crate::certificate::{Bundle, Certificate, Definition};
use crate::der::{BIT_STRING, INTEGER, OCTET_STRING, OID, SEQUENCE, context, value};
use crate::error::Problem;
use crate::issuers::{FileRules, key_identifier};
use manylane_sync::{LockClass, Mutex};
use rustls::SignatureScheme as Scheme;
use rustls::pki_types::{AlgorithmIdentifier, CertificateDer, alg_id};
use rustls::sign::{CertifiedKey, SigningKey};
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use x509_parser::prelude::{ASN1Time, FromDer, X509Certificate};

const KEYWORD: &str = "ca-sign-file";

static CLASS: LockClass = LockClass::new("generated certificates", LockClass::LEAF);

const DAY: u64 = 24 * 60 * 60;

/// How long a certificate is valid, and before it is made, since clocks of clients may be behind.
const LIFE: u64 = 365 * DAY;
const BEFORE: u64 = DAY;

/// A kept certificate is replaced when less than this is left of its life.
const LEAST_LEFT: u64 = LIFE / 2;

/// Longest common name (RFC 5280, appendix A). With a longer name the subject is empty: that of the authority
/// alone would make the certificate one that is its own issuer.
const LONGEST_COMMON_NAME: usize = 64;

const BOOLEAN: u8 = 0x01;
const UTF8_STRING: u8 = 0x0c;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SET: u8 = 0x31;
/// Context-specific tags of a key identifier and of a DNS name.
const KEY_IDENTIFIER: u8 = 0x80;
const DNS_NAME: u8 = 0x82;

const COMMON_NAME: &[u8] = &[0x55, 4, 3];
const KEY_USAGE: &[u8] = &[0x55, 29, 15];
const ALTERNATIVE_NAME: &[u8] = &[0x55, 29, 17];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 29, 19];
const AUTHORITY_KEY_IDENTIFIER: &[u8] = &[0x55, 29, 35];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 29, 37];
const SERVER_AUTHENTICATION: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];
/// A bit string with `digitalSignature`: no cipher here encrypts with the key of a certificate.
const DIGITAL_SIGNATURE: &[u8] = &[BIT_STRING, 2, 7, 0x80];

/// Algorithms of signatures in certificates.
const SCHEMES: [(Scheme, AlgorithmIdentifier); 5] = [
    (Scheme::ECDSA_NISTP256_SHA256, alg_id::ECDSA_SHA256),
    (Scheme::ECDSA_NISTP384_SHA384, alg_id::ECDSA_SHA384),
    (Scheme::ECDSA_NISTP521_SHA512, alg_id::ECDSA_SHA512),
    (Scheme::RSA_PKCS1_SHA256, alg_id::RSA_PKCS1_SHA256),
    (Scheme::ED25519, alg_id::ED25519),
];

/// Settings of certificates that a listener makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedCertificates {
    /// `ca-sign-file`: the certificate of the authority, and its key.
    pub authority: PathBuf,
    /// `tune.ssl.ssl-ctx-cache-size`: the number of certificates to keep; 0 keeps none.
    pub kept: usize,
}

/// The authority that signs.
pub(crate) struct SigningAuthority {
    /// Its certificate, and those behind it in its file. Clients get them, too.
    chain: Vec<CertificateDer<'static>>,
    key: Arc<dyn SigningKey>,
    scheme: Scheme,
    algorithm: AlgorithmIdentifier,
    /// Its name, without tag and length.
    subject: Vec<u8>,
    key_identifier: Option<Vec<u8>>,
}

impl SigningAuthority {
    /// Reads a file. Adds to `warnings`.
    pub(crate) fn load(path: &Path, warnings: &mut Vec<Problem>) -> Result<Self, Problem> {
        let of_file = |problem: Problem| Problem { keyword: KEYWORD, ..problem };
        let definition = Definition::of_file(path.to_owned());
        let mut warned = Vec::new();
        let loaded = Bundle::load(&definition, &FileRules::default(), &mut warned).map_err(of_file)?;
        warnings.extend(warned.into_iter().map(of_file));
        let shown = path.display();
        let unusable = |why: &str| Problem::new(KEYWORD, format!("'{shown}' cannot be used: {why}"));
        let ready = loaded.ready.ok_or_else(|| unusable("it has no certificate"))?;
        let chain = loaded.chain;
        let parsed = chain.first().and_then(|der| X509Certificate::from_der(der).ok());
        let (_, parsed) = parsed.ok_or_else(|| unusable("its certificate is malformed"))?;
        if !parsed.is_ca() {
            let text = format!("'{shown}' is no authority: clients will refuse what it signs");
            warnings.push(Problem::new(KEYWORD, text));
        }
        let key = ready.key.key.clone();
        let known = SCHEMES.into_iter().find(|(scheme, _)| key.choose_scheme(&[*scheme]).is_some());
        let (scheme, algorithm) = known.ok_or_else(|| unusable("its key signs no certificates"))?;
        let subject = crate::der::Der(parsed.subject().as_raw()).take(SEQUENCE);
        let subject = subject.ok_or_else(|| unusable("its name is malformed"))?.content.to_vec();
        let key_identifier = key_identifier(&parsed).map(<[u8]>::to_vec);
        Ok(Self { chain, key, scheme, algorithm, subject, key_identifier })
    }

    /// Returns a certificate for `name` with the key of `own`. `None` if the system has no random numbers.
    fn sign(&self, name: &str, own: &CertifiedKey, now: u64) -> Option<CertifiedKey> {
        let (_, parsed) = X509Certificate::from_der(own.cert.first()?).ok()?;
        let mut serial = [0; 16];
        aws_lc_rs::rand::fill(&mut serial).ok()?;
        serial[0] = serial[0] & 0x3f | 0x40; // positive, and as long as it is
        let algorithm = value(SEQUENCE, self.algorithm.as_ref());
        let fits = name.len() <= LONGEST_COMMON_NAME;
        let common_name = [value(OID, COMMON_NAME), value(UTF8_STRING, name.as_bytes())].concat();
        let common_name = value(SET, &value(SEQUENCE, &common_name));
        let subject = if fits { [&self.subject[..], &common_name].concat() } else { Vec::new() };
        let dates = [time(now.saturating_sub(BEFORE))?, time(now + LIFE)?].concat();
        let identifier = self.key_identifier.iter().map(|identifier| {
            extension(AUTHORITY_KEY_IDENTIFIER, false, &value(SEQUENCE, &value(KEY_IDENTIFIER, identifier)))
        });
        let server = value(OID, SERVER_AUTHENTICATION);
        let extensions = [
            extension(BASIC_CONSTRAINTS, false, &value(SEQUENCE, &[])),
            extension(KEY_USAGE, true, DIGITAL_SIGNATURE),
            extension(EXTENDED_KEY_USAGE, false, &value(SEQUENCE, &server)),
            extension(ALTERNATIVE_NAME, !fits, &value(SEQUENCE, &value(DNS_NAME, name.as_bytes()))),
        ];
        let extensions: Vec<u8> = extensions.into_iter().chain(identifier).flatten().collect();
        let message = [
            value(context(0), &value(INTEGER, &[2])), // version 3
            value(INTEGER, &serial),
            algorithm.clone(),
            value(SEQUENCE, &self.subject),
            value(SEQUENCE, &dates),
            value(SEQUENCE, &subject),
            parsed.tbs_certificate.subject_pki.raw.to_vec(),
            value(context(3), &value(SEQUENCE, &extensions)),
        ];
        let message = value(SEQUENCE, &message.concat());
        let signature = self.key.choose_scheme(&[self.scheme])?.sign(&message).ok()?;
        let signature = value(BIT_STRING, &[&[0], &signature[..]].concat());
        let certificate = value(SEQUENCE, &[message, algorithm, signature].concat());
        let chain = [&[CertificateDer::from(certificate)], &self.chain[..]].concat();
        Some(CertifiedKey::new(chain, own.key.clone()))
    }
}

impl fmt::Debug for SigningAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningAuthority").finish_non_exhaustive()
    }
}

fn extension(oid: &[u8], is_critical: bool, content: &[u8]) -> Vec<u8> {
    let critical: &[u8] = if is_critical { &[BOOLEAN, 1, 0xff] } else { &[] };
    value(SEQUENCE, &[&value(OID, oid), critical, &value(OCTET_STRING, content)].concat())
}

/// Encodes a time in seconds since 1970 (RFC 5280, 4.1.2.5).
fn time(seconds: u64) -> Option<Vec<u8>> {
    let time = ASN1Time::from_timestamp(i64::try_from(seconds).ok()?).ok()?.to_datetime();
    let month = u8::from(time.month());
    let rest =
        format!("{month:02}{:02}{:02}{:02}{:02}Z", time.day(), time.hour(), time.minute(), time.second());
    Some(match time.year() {
        year @ ..2050 => value(UTC_TIME, format!("{:02}{rest}", year % 100).as_bytes()),
        year => value(GENERALIZED_TIME, format!("{year:04}{rest}").as_bytes()),
    })
}

/// The certificates that a listener makes.
#[derive(Debug)]
pub(crate) struct Generator {
    authority: Arc<SigningAuthority>,
    /// Largest number of certificates in a half; 0 keeps none.
    half: usize,
    kept: Mutex<Kept>,
}

/// A certificate, and the time of its making in seconds since 1970.
type Made = (Arc<CertifiedKey>, u64);

/// The number of the certificate whose key a made one has, and the name.
type Key = (usize, Box<str>);

type Half = HashMap<Key, Made>;

#[derive(Debug, Default)]
struct Kept {
    newer: Half,
    older: Half,
}

impl Generator {
    pub(crate) fn new(authority: Arc<SigningAuthority>, kept: usize) -> Self {
        Self { authority, half: half(kept), kept: Mutex::new(&CLASS, Kept::default()) }
    }

    /// Returns the certificate for `name`, in lower case, with the key of `own`, whose number is `number`.
    pub(crate) fn shown(&self, name: &str, number: usize, own: &Certificate) -> Option<Arc<CertifiedKey>> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let key = (number, Box::from(name));
        let (found, forgotten) = self.kept.lock().find(&key, self.half);
        drop(forgotten);
        if let Some((shown, made)) = found
            && now.saturating_sub(made) < LEAST_LEFT
        {
            return Some(shown);
        }
        let shown = Arc::new(self.authority.sign(name, &own.key, now)?);
        if self.half > 0 && manylane_pool::check_growth(name.len() + size(&shown)).is_ok() {
            let forgotten = self.kept.lock().put(key, (shown.clone(), now), self.half);
            drop(forgotten);
        }
        Some(shown)
    }
}

/// Size of each half where `kept` certificates are kept. At least 1, since a half of 0 would keep nothing.
fn half(kept: usize) -> usize {
    if kept == 0 { 0 } else { (kept / 2).max(1) }
}

/// The memory of a certificate and of those behind it. rustls needs a copy of the latter for each.
fn size(shown: &CertifiedKey) -> usize {
    size_of::<CertifiedKey>() + shown.cert.iter().map(|der| size_of_val(der) + der.len()).sum::<usize>()
}

impl Kept {
    /// Finds a certificate, and moves it to the newer half. Returns a half as [`put`](Self::put) does.
    fn find(&mut self, key: &Key, half: usize) -> (Option<Made>, Half) {
        if let Some(made) = self.newer.get(key) {
            return (Some(made.clone()), Half::new());
        }
        let Some((key, made)) = self.older.remove_entry(key) else { return (None, Half::new()) };
        let forgotten = self.put(key, made.clone(), half);
        (Some(made), forgotten)
    }

    /// Returns the half that is forgotten, which the caller drops without the lock.
    #[must_use]
    fn put(&mut self, key: Key, made: Made, half: usize) -> Half {
        let mut forgotten = Half::new();
        if self.newer.len() >= half && !self.newer.contains_key(&key) {
            forgotten = std::mem::replace(&mut self.older, std::mem::take(&mut self.newer));
        }
        self.newer.insert(key, made);
        forgotten
    }
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    #![allow(clippy::unwrap_used)] // helpers of tests are tests too
    use super::*;

    #[test]
    fn what_is_kept_is_bounded_and_what_is_used_stays() {
        let mut kept = Kept::default();
        let key = rcgen::KeyPair::generate().unwrap();
        let der = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialized_der());
        let key = rustls::crypto::aws_lc_rs::sign::any_ecdsa_type(&der.into()).unwrap();
        let made = (Arc::new(CertifiedKey::new(Vec::new(), key)), 0);
        for number in 0..100 {
            let forgotten = kept.put((number, "a".into()), made.clone(), 4);
            let expected = if number >= 8 && number % 4 == 0 { 4 } else { 0 };
            assert_eq!(forgotten.len(), expected, "{number}");
            assert!(kept.newer.len() <= 4 && kept.older.len() <= 4);
        }
        assert!(kept.newer.contains_key(&(99, "a".into())) && kept.older.contains_key(&(95, "a".into())));
        let (found, forgotten) = kept.find(&(95, "a".into()), 4);
        assert!(found.is_some() && kept.newer.contains_key(&(95, "a".into())));
        assert!(forgotten.contains_key(&(94, "a".into())) && !forgotten.contains_key(&(95, "a".into())));
        assert!(kept.find(&(94, "a".into()), 4).0.is_none());
        // As many as the setting says, of which the default is 1,000.
        for (setting, most) in [(1, 2), (2, 2), (3, 2), (4, 4), (1000, 1000)] {
            let (mut kept, mut largest) = (Kept::default(), 0);
            for number in 0..3 * most {
                drop(kept.put((number, "a".into()), made.clone(), half(setting)));
                largest = largest.max(kept.newer.len() + kept.older.len());
            }
            assert_eq!(largest, most, "{setting}");
        }
        assert_eq!(half(0), 0, "nothing is kept");
    }

    #[test]
    fn times_change_their_form_in_2050() {
        assert_eq!(time(951_782_400).unwrap(), b"\x17\x0d000229000000Z");
        assert_eq!(time(2_524_607_999).unwrap(), b"\x17\x0d491231235959Z");
        assert_eq!(time(2_524_608_000).unwrap(), b"\x18\x0f20500101000000Z");
    }
}
