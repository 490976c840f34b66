//! OCSP responses (RFC 6960): a CA's statement whether a certificate was revoked. Clients get it along with
//! the certificate.
//!
//! # Protocol
//! 1. A response is accepted for a certificate whose issuer is known, if it covers this certificate only, is
//!    not overdue, and is signed by the issuer or by a certificate that the issuer has made for OCSP signing.
//! 2. A handshake presents the response until it is overdue, and none after that.
//! 3. A newer response replaces the one before, for all listeners.

use crate::der::{self, Der, Signed, Value, context};
use aws_lc_rs::digest::{self, Digest};
use manylane_sync::{LockClass, Mutex};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::UnixTime;
use rustls::sign::CertifiedKey;
use std::fmt::Write as _;
use std::sync::Arc;
use x509_parser::prelude::{ASN1Time, FromDer, X509Certificate};

static STAPLE: LockClass = LockClass::new("response of OCSP", LockClass::LEAF);

pub(crate) const KEYWORD: &str = "ocsp";

/// Seconds that a responder's clock may be ahead.
const SKEW: i64 = 300;

const BASIC: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 0x30, 1, 1];
const SHA1: &[u8] = &[0x2b, 0x0e, 3, 2, 0x1a];
const SHA256: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1];

/// An issuer, as certificates refer to it.
pub(crate) struct Issuer<'a> {
    name: &'a [u8],
    /// The key's algorithm; the next field has its bits.
    algorithm: &'a [u8],
    key: &'a [u8],
}

impl<'a> Issuer<'a> {
    pub(crate) fn of(parsed: &X509Certificate<'a>) -> Option<Self> {
        let name = parsed.tbs_certificate.subject.as_raw();
        let mut key = Der(parsed.tbs_certificate.subject_pki.raw).enter(der::SEQUENCE)?;
        let algorithm = key.take(der::SEQUENCE)?.content;
        let (_, bits) = key.take(der::BIT_STRING)?.content.split_first()?;
        Some(Self { name, algorithm, key: bits })
    }

    /// True if the issuer's key has made this signature.
    pub(crate) fn has_signed(&self, signed: Signed<'_>) -> bool {
        default_provider().signature_verification_algorithms.all.iter().any(|own| {
            *own.signature_alg_id() == *signed.algorithm
                && *own.public_key_alg_id() == *self.algorithm
                && own.verify_signature(self.key, signed.message, signed.signature).is_ok()
        })
    }
}

/// A certificate's identifier in a response.
struct CertificateId<'a> {
    algorithm: &'a [u8],
    name: &'a [u8],
    key: &'a [u8],
    serial: &'a [u8],
}

impl CertificateId<'_> {
    fn is_of(&self, issuer: &Issuer<'_>, certificate: &X509Certificate<'_>) -> bool {
        let algorithm = match self.algorithm {
            SHA1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            SHA256 => &digest::SHA256,
            _ => return false,
        };
        let is = |bytes: &[u8], of: &[u8]| digest::digest(algorithm, of).as_ref() == bytes;
        self.serial == certificate.raw_serial() && is(self.name, issuer.name) && is(self.key, issuer.key)
    }
}

/// Status of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OcspStatus {
    /// Not revoked.
    Good,
    /// Revoked.
    Revoked,
    /// Unknown to the responder.
    Unknown,
}

/// A response about one certificate.
struct Response<'a> {
    signed: Signed<'a>,
    id: CertificateId<'a>,
    status: OcspStatus,
    produced: ASN1Time,
    since: ASN1Time,
    until: Option<ASN1Time>,
    /// Certificates that are sent with the response.
    certificates: Der<'a>,
}

impl<'a> Response<'a> {
    /// Parses a response. The error is a clause of a sentence.
    fn parse(bytes: &'a [u8]) -> Result<Self, &'static str> {
        const MALFORMED: &str = "it is malformed";
        let mut all = Der(bytes);
        let mut response = all.enter(der::SEQUENCE).filter(|_| all.0.is_empty()).ok_or(MALFORMED)?;
        if response.take(der::ENUMERATED).ok_or(MALFORMED)?.content != [0] {
            return Err("its responseStatus is not 'successful'");
        }
        let mut basic = || {
            let mut inner = response.enter(context(0))?.enter(der::SEQUENCE)?;
            let kind = inner.take(der::OID)?.content;
            let inner = inner.take(der::OCTET_STRING)?.content;
            (kind == BASIC).then_some(inner)
        };
        let basic = basic().ok_or(MALFORMED)?;
        let signed = Signed::of(basic).ok_or(MALFORMED)?;
        let parts = || {
            let mut data = Der(signed.message).enter(der::SEQUENCE)?;
            data.maybe(context(0)); // the version
            data.next()?; // the responder's id is not needed, since the signature is checked
            let produced = time(data.take(der::TIME)?)?;
            Some((produced, data.enter(der::SEQUENCE)?))
        };
        let (produced, mut singles) = parts().ok_or(MALFORMED)?;
        let single = singles.enter(der::SEQUENCE).ok_or(MALFORMED)?;
        if !singles.0.is_empty() {
            return Err("it is about more than one certificate");
        }
        let about = |mut single: Der<'a>| {
            let mut id = single.enter(der::SEQUENCE)?;
            let algorithm = id.enter(der::SEQUENCE)?.take(der::OID)?.content;
            let (name, key) = (id.take(der::OCTET_STRING)?.content, id.take(der::OCTET_STRING)?.content);
            let id = CertificateId { algorithm, name, key, serial: id.take(der::INTEGER)?.content };
            let status = match single.next()?.tag {
                0x80 => OcspStatus::Good,
                0xa1 => OcspStatus::Revoked,
                0x82 => OcspStatus::Unknown,
                _ => return None,
            };
            let since = time(single.take(der::TIME)?)?;
            let until = match single.maybe(context(0)) {
                Some(until) => Some(time(until.inside().take(der::TIME)?)?),
                None => None,
            };
            Some((id, status, since, until))
        };
        let (id, status, since, until) = about(single).ok_or(MALFORMED)?;
        let mut rest = signed.rest;
        let certificates = match rest.maybe(context(0)) {
            Some(all) => all.inside().enter(der::SEQUENCE).ok_or(MALFORMED)?,
            None => Der(&[]),
        };
        Ok(Self { signed, id, status, produced, since, until, certificates })
    }

    /// Rule 1. Returns the time of expiry, in seconds since 1970.
    fn check(&self, certificate: &[u8], issuer: &[u8], now: i64) -> Result<u64, &'static str> {
        let unreadable = "its certificate or the issuer's cannot be read";
        let (_, certificate) = X509Certificate::from_der(certificate).map_err(|_| unreadable)?;
        let (_, parsed) = X509Certificate::from_der(issuer).map_err(|_| unreadable)?;
        let issuer = Issuer::of(&parsed).ok_or(unreadable)?;
        if !self.id.is_of(&issuer, &certificate) {
            return Err("it is about another certificate");
        }
        if self.status == OcspStatus::Unknown {
            return Err("it says that the responder does not know the certificate");
        }
        let until = self.until.ok_or("it has no nextUpdate")?.timestamp();
        if self.since.timestamp() > now.saturating_add(SKEW) {
            return Err("it is not valid yet");
        }
        if until <= now {
            return Err("it is overdue");
        }
        if !issuer.has_signed(self.signed) && !self.is_delegated(&issuer, now) {
            return Err("it is not signed by who issued the certificate");
        }
        Ok(until.unsigned_abs())
    }

    /// True if the signature is by a certificate that the issuer has made for OCSP signing.
    fn is_delegated(&self, issuer: &Issuer<'_>, now: i64) -> bool {
        let mut all = self.certificates;
        // Limits the work that the sender of a response can cause.
        const MOST: usize = 8;
        for _ in 0..MOST {
            let Some(certificate) = all.take(der::SEQUENCE) else { return false };
            let Ok((_, parsed)) = X509Certificate::from_der(certificate.whole) else { continue };
            let is_for_that = parsed
                .extended_key_usage()
                .is_ok_and(|usage| usage.is_some_and(|usage| usage.value.ocsp_signing));
            let validity = parsed.validity();
            let is_valid = validity.not_before.timestamp() <= now && now <= validity.not_after.timestamp();
            let is_issued = parsed.tbs_certificate.issuer.as_raw() == issuer.name;
            if is_for_that
                && is_valid
                && is_issued
                && Issuer::of(&parsed).is_some_and(|own| own.has_signed(self.signed))
                && Signed::of(certificate.whole).is_some_and(|signed| issuer.has_signed(signed))
            {
                return true;
            }
        }
        false
    }
}

pub(crate) fn time(value: Value<'_>) -> Option<ASN1Time> {
    ASN1Time::from_der(value.whole).ok().map(|(_, time)| time)
}

fn seconds() -> i64 {
    i64::try_from(UnixTime::now().as_secs()).unwrap_or(i64::MAX)
}

/// A response that is sent along with a certificate.
#[derive(Debug)]
struct Staple {
    key: Arc<CertifiedKey>,
    /// Seconds since 1970.
    until: u64,
    response: Box<[u8]>,
}

/// The response of a certificate, if any; shared by all copies of the certificate.
#[derive(Clone, Debug)]
pub(crate) struct StapleCell(Arc<Mutex<Option<Staple>>>);

impl Default for StapleCell {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(&STAPLE, None)))
    }
}

impl StapleCell {
    /// Sets the response for a certificate.
    pub(crate) fn set(
        &self,
        key: &CertifiedKey,
        issuer: Option<&[u8]>,
        response: &[u8],
    ) -> Result<(), &'static str> {
        let certificate = key.cert.first().ok_or("there is no certificate")?;
        let issuer = issuer.ok_or("the issuer of the certificate is not known: add it to the chain")?;
        let until = Response::parse(response)?.check(certificate, issuer, seconds())?;
        let mut key = CertifiedKey::new(key.cert.clone(), key.key.clone());
        key.ocsp = Some(response.to_vec());
        *self.0.lock() = Some(Staple { key: Arc::new(key), until, response: response.into() });
        Ok(())
    }

    /// Rule 2: the key with the response, unless it is overdue.
    pub(crate) fn key(&self) -> Option<Arc<CertifiedKey>> {
        let staple = self.0.lock();
        staple.as_ref().filter(|own| UnixTime::now().as_secs() < own.until).map(|own| own.key.clone())
    }

    /// Until when the response holds, in seconds since 1970.
    pub(crate) fn until(&self) -> Option<u64> {
        self.0.lock().as_ref().map(|own| own.until)
    }

    /// The response, even if it is overdue.
    pub(crate) fn response(&self) -> Option<Box<[u8]>> {
        self.0.lock().as_ref().map(|own| own.response.clone())
    }
}

/// The OCSP identifier of a certificate whose issuer is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OcspId {
    /// SHA-1 digest of the issuer's name.
    pub name: [u8; 20],
    /// SHA-1 digest of the issuer's key.
    pub key: [u8; 20],
    /// The serial number of the certificate.
    pub serial: Box<[u8]>,
}

impl OcspId {
    pub(crate) fn of(certificate: &[u8], issuer: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let (_, parsed) = X509Certificate::from_der(issuer).ok()?;
        let issuer =
            Issuer::of(&parsed).filter(|own| own.name == certificate.tbs_certificate.issuer.as_raw())?;
        let sha1 = |bytes: &[u8]| -> Option<[u8; 20]> {
            let digest: Digest = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, bytes);
            digest.as_ref().try_into().ok()
        };
        Some(Self {
            name: sha1(issuer.name)?,
            key: sha1(issuer.key)?,
            serial: certificate.raw_serial().into(),
        })
    }

    /// The identifier in DER, as hexadecimal digits; HAProxy's name for a response.
    pub fn text(&self) -> String {
        hex(&certificate_id(self), false)
    }
}

/// Whether a response is about a certificate: it has the same serial number and the same issuer.
pub(crate) fn is_about(response: &[u8], certificate: &[u8], issuer: &[u8]) -> bool {
    let (Ok(own), Ok((_, certificate)), Ok((_, parsed))) = (
        Response::parse(response),
        X509Certificate::from_der(certificate),
        X509Certificate::from_der(issuer),
    ) else {
        return false;
    };
    Issuer::of(&parsed).is_some_and(|issuer| own.id.is_of(&issuer, &certificate))
}

/// The id of a certificate in DER.
pub(crate) fn certificate_id(id: &OcspId) -> Vec<u8> {
    let algorithm = [der::value(der::OID, SHA1), vec![5, 0]].concat();
    let parts = [
        der::value(der::SEQUENCE, &algorithm),
        der::value(der::OCTET_STRING, &id.name),
        der::value(der::OCTET_STRING, &id.key),
        der::value(der::INTEGER, &id.serial),
    ];
    der::value(der::SEQUENCE, &parts.concat())
}

/// Hexadecimal digits.
pub(crate) fn hex(bytes: &[u8], upper: bool) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = if upper { write!(text, "{byte:02X}") } else { write!(text, "{byte:02x}") };
        text
    })
}

/// A response as readable text. `None` if it cannot be parsed.
pub fn ocsp_text(response: &[u8]) -> Option<String> {
    let Response { id, status, produced, since, until, .. } = Response::parse(response).ok()?;
    let algorithm = if id.algorithm == SHA1 { "sha1" } else { "sha256" };
    let status = match status {
        OcspStatus::Good => "good",
        OcspStatus::Revoked => "revoked",
        OcspStatus::Unknown => "unknown",
    };
    let shown = |time: ASN1Time| time.to_string().replace("+00:00", "GMT");
    let mut text = format!(
        "OCSP Response Data:\n    OCSP Response Status: successful (0x0)\n    Response Type: Basic OCSP \
         Response\n    Version: 1 (0x0)\n    Produced At: {}\n    Responses:\n    Certificate ID:\n      \
         Hash Algorithm: {algorithm}\n      Issuer Name Hash: {}\n      Issuer Key Hash: {}\n      \
         Serial Number: {}\n    Cert Status: {status}\n    This Update: {}\n",
        shown(produced),
        hex(id.name, true),
        hex(id.key, true),
        hex(id.serial, true),
        shown(since)
    );
    if let Some(until) = until {
        let _ = writeln!(text, "    Next Update: {}", shown(until));
    }
    Some(text)
}

/// For the fuzzer: true if a response would be accepted for a certificate.
#[doc(hidden)]
pub fn check_ocsp(response: &[u8], certificate: &[u8], issuer: &[u8]) -> bool {
    let _ = ocsp_text(response);
    Response::parse(response).is_ok_and(|own| own.check(certificate, issuer, seconds()).is_ok())
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    #![allow(clippy::unwrap_used)] // helpers of tests are tests too

    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SigningKey as _};

    fn value(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = match content.len() {
            short @ ..=0x7f => vec![short as u8],
            long => vec![0x82, (long >> 8) as u8, long as u8],
        };
        [&[tag], &length[..], content].concat()
    }

    /// A certificate, its issuer, and a response of 2026 about it.
    fn signed(until: Option<&str>) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::default().signed_by(&key, &authority).unwrap();
        let issuer = authority.der().to_vec();
        let id = OcspId::of(leaf.der(), &issuer).unwrap();
        let id =
            (0..id.text().len()).step_by(2).map(|at| u8::from_str_radix(&id.text()[at..at + 2], 16).unwrap());
        let time = |text: &str| value(der::TIME, text.as_bytes());
        let until = until.map_or(Vec::new(), |until| value(context(0), &time(until)));
        let single = [id.collect(), vec![0x80, 0], time("20260101000000Z"), until].concat();
        let data = [
            value(context(2), &value(der::OCTET_STRING, &[0; 20])),
            time("20260101000000Z"),
            value(der::SEQUENCE, &value(der::SEQUENCE, &single)),
        ];
        let data = value(der::SEQUENCE, &data.concat());
        let signature = [vec![0], authority.key().sign(&data).unwrap()].concat();
        let algorithm = value(der::OID, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]);
        let basic = [data, value(der::SEQUENCE, &algorithm), value(der::BIT_STRING, &signature)].concat();
        let basic = value(der::OCTET_STRING, &value(der::SEQUENCE, &basic));
        let bytes = value(der::SEQUENCE, &[value(der::OID, BASIC), basic].concat());
        let all = [value(der::ENUMERATED, &[0]), value(context(0), &bytes)].concat();
        (leaf.der().to_vec(), issuer, value(der::SEQUENCE, &all))
    }

    /// The first second of a day of January 2026.
    fn day(day: i64) -> i64 {
        1_767_225_600 + (day - 1) * 86_400
    }

    #[test]
    fn a_response_holds_from_its_beginning_to_its_end() {
        let (leaf, issuer, response) = signed(Some("20260108000000Z"));
        let parsed = Response::parse(&response).unwrap();
        let check = |now| parsed.check(&leaf, &issuer, now);
        let end = Ok(day(8).unsigned_abs());
        assert_eq!([check(day(1)), check(day(1) - SKEW), check(day(8) - 1)], [end; 3]);
        assert_eq!(check(day(1) - SKEW - 1), Err("it is not valid yet"));
        assert_eq!(check(day(8)), Err("it is overdue"));
        assert_eq!(parsed.check(&issuer, &issuer, day(2)), Err("it is about another certificate"));
        let (leaf, issuer, response) = signed(None);
        let endless = Response::parse(&response).unwrap().check(&leaf, &issuer, day(2));
        assert_eq!(endless, Err("it has no nextUpdate"));
    }

    #[test]
    fn changed_and_cut_responses_are_refused() {
        let (leaf, issuer, response) = signed(Some("20260108000000Z"));
        let accepted =
            |bytes: &[u8]| Response::parse(bytes).is_ok_and(|own| own.check(&leaf, &issuer, day(2)).is_ok());
        assert!(accepted(&response));
        for at in 0..response.len() {
            assert!(!accepted(&response[..at]), "{at}");
            let mut changed = response.clone();
            changed[at] ^= 1;
            // The algorithm's parameters may be absent under another tag; no other change is accepted.
            assert!(!accepted(&changed), "{at}");
        }
    }

    #[test]
    fn a_certificate_is_shown_without_a_response_that_is_overdue() {
        let cell = StapleCell::default();
        let (leaf, issuer, response) = signed(Some("29990101000000Z"));
        let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(
            &rustls::pki_types::PrivateKeyDer::try_from(KeyPair::generate().unwrap().serialize_der())
                .unwrap(),
        );
        let key = CertifiedKey::new(vec![leaf.into()], key.unwrap());
        assert_eq!(
            cell.set(&key, None, &response),
            Err("the issuer of the certificate is not known: add it to the chain")
        );
        cell.set(&key, Some(&issuer), &response).unwrap();
        assert_eq!(cell.key().unwrap().ocsp.as_deref(), Some(&response[..]));
        cell.0.lock().as_mut().unwrap().until = UnixTime::now().as_secs();
        assert!(cell.key().is_none());
        assert!(cell.response().is_some());
    }
}
