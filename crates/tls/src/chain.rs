//! Finds the errors of a chain of certificates, each with its depth and OpenSSL's number, and decides which
//! of them a listener ignores.
//!
//! # Protocol
//! 1. rustls verifies a chain first; a chain that it accepts has no errors.
//! 2. A chain that it refuses is walked here in the order of OpenSSL: issuers, extensions, revocation, and
//!    then signatures and dates from the root down. Each error has a depth: 0 is the peer's own certificate.
//! 3. The chain is accepted if all errors are ignored: those at depth 0 by `crt-ignore-err`, others by
//!    `ca-ignore-err`. So the walk must not miss an error: what it does not understand is an error, and the
//!    reason of rustls is added if no error of the walk explains it.

use crate::der::{self, Der, Signed};
use crate::error::Problem;
use crate::ocsp::{Issuer, time};
use crate::openssl::of_certificate;
use rustls::CertificateError;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use std::cell::Cell;
use std::collections::HashMap;
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Largest number of certificates in a chain, from the peer's own to the root.
const MOST_DEPTH: usize = 10;

/// Largest number of the peer's certificates that the walk uses.
const MOST_SENT: usize = 16;

/// Largest number of candidates with the name of an issuer; each costs a verification of a signature.
const MOST_NAMESAKES: usize = 8;

/// The largest number of an error, as of OpenSSL 3.
const LARGEST: u32 = 94;

const NO_ISSUER: u32 = 2;
const NO_LIST: u32 = 3;
const BAD_SIGNATURE: u32 = 7;
const BAD_LIST_SIGNATURE: u32 = 8;
const NOT_YET_VALID: u32 = 9;
const EXPIRED: u32 = 10;
const LIST_NOT_YET_VALID: u32 = 11;
const LIST_EXPIRED: u32 = 12;
const SELF_SIGNED: u32 = 18;
const SELF_SIGNED_IN_CHAIN: u32 = 19;
const NO_LOCAL_ISSUER: u32 = 20;
const UNVERIFIED_LEAF: u32 = 21;
const TOO_LONG: u32 = 22;
const REVOKED: u32 = 23;
const PATH_LENGTH: u32 = 25;
const PURPOSE: u32 = 26;
const CRITICAL_EXTENSION: u32 = 34;
const NAME_CONSTRAINTS: u32 = 47;
const NO_AUTHORITY: u32 = 79;

/// OpenSSL's names of errors by number, without `X509_V_ERR_`. Numbers that were renamed have both names.
const NAMES: &[(u32, &str)] = &[
    (1, "UNSPECIFIED"),
    (2, "UNABLE_TO_GET_ISSUER_CERT"),
    (3, "UNABLE_TO_GET_CRL"),
    (4, "UNABLE_TO_DECRYPT_CERT_SIGNATURE"),
    (5, "UNABLE_TO_DECRYPT_CRL_SIGNATURE"),
    (6, "UNABLE_TO_DECODE_ISSUER_PUBLIC_KEY"),
    (7, "CERT_SIGNATURE_FAILURE"),
    (8, "CRL_SIGNATURE_FAILURE"),
    (9, "CERT_NOT_YET_VALID"),
    (10, "CERT_HAS_EXPIRED"),
    (11, "CRL_NOT_YET_VALID"),
    (12, "CRL_HAS_EXPIRED"),
    (13, "ERROR_IN_CERT_NOT_BEFORE_FIELD"),
    (14, "ERROR_IN_CERT_NOT_AFTER_FIELD"),
    (15, "ERROR_IN_CRL_LAST_UPDATE_FIELD"),
    (16, "ERROR_IN_CRL_NEXT_UPDATE_FIELD"),
    (17, "OUT_OF_MEM"),
    (18, "DEPTH_ZERO_SELF_SIGNED_CERT"),
    (19, "SELF_SIGNED_CERT_IN_CHAIN"),
    (20, "UNABLE_TO_GET_ISSUER_CERT_LOCALLY"),
    (21, "UNABLE_TO_VERIFY_LEAF_SIGNATURE"),
    (22, "CERT_CHAIN_TOO_LONG"),
    (23, "CERT_REVOKED"),
    (24, "NO_ISSUER_PUBLIC_KEY"),
    (25, "PATH_LENGTH_EXCEEDED"),
    (26, "INVALID_PURPOSE"),
    (27, "CERT_UNTRUSTED"),
    (28, "CERT_REJECTED"),
    (29, "SUBJECT_ISSUER_MISMATCH"),
    (30, "AKID_SKID_MISMATCH"),
    (31, "AKID_ISSUER_SERIAL_MISMATCH"),
    (32, "KEYUSAGE_NO_CERTSIGN"),
    (33, "UNABLE_TO_GET_CRL_ISSUER"),
    (34, "UNHANDLED_CRITICAL_EXTENSION"),
    (35, "KEYUSAGE_NO_CRL_SIGN"),
    (36, "UNHANDLED_CRITICAL_CRL_EXTENSION"),
    (37, "INVALID_NON_CA"),
    (38, "PROXY_PATH_LENGTH_EXCEEDED"),
    (39, "KEYUSAGE_NO_DIGITAL_SIGNATURE"),
    (40, "PROXY_CERTIFICATES_NOT_ALLOWED"),
    (41, "INVALID_EXTENSION"),
    (42, "INVALID_POLICY_EXTENSION"),
    (43, "NO_EXPLICIT_POLICY"),
    (44, "DIFFERENT_CRL_SCOPE"),
    (45, "UNSUPPORTED_EXTENSION_FEATURE"),
    (46, "UNNESTED_RESOURCE"),
    (47, "PERMITTED_VIOLATION"),
    (48, "EXCLUDED_VIOLATION"),
    (49, "SUBTREE_MINMAX"),
    (50, "APPLICATION_VERIFICATION"),
    (51, "UNSUPPORTED_CONSTRAINT_TYPE"),
    (52, "UNSUPPORTED_CONSTRAINT_SYNTAX"),
    (53, "UNSUPPORTED_NAME_SYNTAX"),
    (54, "CRL_PATH_VALIDATION_ERROR"),
    (55, "PATH_LOOP"),
    (62, "HOSTNAME_MISMATCH"),
    (63, "EMAIL_MISMATCH"),
    (64, "IP_ADDRESS_MISMATCH"),
    (66, "EE_KEY_TOO_SMALL"),
    (67, "CA_KEY_TOO_SMALL"),
    (68, "CA_MD_TOO_WEAK"),
    (69, "INVALID_CALL"),
    (70, "STORE_LOOKUP"),
    (76, "UNSUPPORTED_SIGNATURE_ALGORITHM"),
    (77, "SIGNATURE_ALGORITHM_MISMATCH"),
    (78, "SIGNATURE_ALGORITHM_INCONSISTENCY"),
    (79, "INVALID_CA"),
    (80, "PATHLEN_INVALID_FOR_NON_CA"),
    (81, "PATHLEN_WITHOUT_KU_KEY_CERT_SIGN"),
    (82, "KU_KEY_CERT_SIGN_INVALID_FOR_NON_CA"),
    (83, "ISSUER_NAME_EMPTY"),
    (84, "SUBJECT_NAME_EMPTY"),
    (85, "MISSING_AUTHORITY_KEY_IDENTIFIER"),
    (86, "MISSING_SUBJECT_KEY_IDENTIFIER"),
    (87, "EMPTY_SUBJECT_ALT_NAME"),
    (88, "EMPTY_SUBJECT_SAN_NOT_CRITICAL"),
    (89, "CA_BCONS_NOT_CRITICAL"),
    (90, "AUTHORITY_KEY_IDENTIFIER_CRITICAL"),
    (91, "SUBJECT_KEY_IDENTIFIER_CRITICAL"),
    (92, "CA_CERT_MISSING_KEY_USAGE"),
    (93, "EXTENSIONS_REQUIRE_VERSION_3"),
    (94, "EC_KEY_EXPLICIT_PARAMS"),
];

/// OpenSSL's name of an error of verification, without `X509_V_ERR_`.
pub fn verify_error(code: i64) -> Option<&'static str> {
    let code = u32::try_from(code).ok()?;
    NAMES.iter().find(|(number, _)| *number == code).map(|(_, name)| *name)
}

/// Errors that are ignored, a bit for each number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct IgnoredErrors(u128);

impl IgnoredErrors {
    /// Reads `all`, or numbers and OpenSSL's names, separated by commas.
    ///
    /// # Errors
    /// A sentence about the word that names no error.
    pub fn parse(keyword: &'static str, list: &str) -> Result<Self, Problem> {
        let mut all = 0;
        for word in list.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            if word == "all" {
                return Ok(Self(u128::MAX));
            }
            let named = word.strip_prefix("X509_V_ERR_");
            let number = match named {
                Some(name) => NAMES.iter().find(|(_, known)| *known == name).map(|(number, _)| *number),
                None => word.parse().ok().filter(|number| (1..=LARGEST).contains(number)),
            };
            let Some(number) = number else {
                let text = format!(
                    "'{word}' is no error of a certificate: expected 'all', or numbers from 1 to {LARGEST} \
                     and OpenSSL's names such as X509_V_ERR_CERT_HAS_EXPIRED, separated by commas"
                );
                return Err(Problem::new(keyword, text));
            };
            all |= 1 << number;
        }
        match all {
            0 => Err(Problem::new(keyword, "expected errors separated by commas, or 'all', found none")),
            all => Ok(Self(all)),
        }
    }

    /// Returns whether nothing is ignored.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn has(self, error: u32) -> bool {
        error < u128::BITS && self.0 & 1 << error != 0
    }
}

/// What the verification of a chain has found, in OpenSSL's numbers; 0 stands for nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// The last error, which is the result of the verification.
    pub result: u32,
    /// The first error of the peer's own certificate.
    pub certificate: u32,
    /// The first error of another one.
    pub authority: u32,
    /// The depth of that certificate: 1 is the issuer of the peer's own.
    pub authority_depth: u32,
    /// The error that ended the verification belongs to a certificate other than the peer's own.
    pub stopped_above: bool,
}

thread_local! {
    /// The result for the last chain. The connection takes it from here, since rustls does not return what
    /// its verifier has found.
    static VERIFIED: Cell<Option<Verified>> = const { Cell::new(None) };
}

/// Takes the result for the chain that rustls has verified since the last call; `None` if there was none.
pub(crate) fn take_verified() -> Option<Verified> {
    VERIFIED.take()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    depth: usize,
    error: u32,
}

/// Certificates that are trusted, lists of revoked ones, and errors that are ignored.
#[derive(Debug)]
pub(crate) struct Chains {
    trusted: HashMap<Box<[u8]>, Vec<CertificateDer<'static>>>,
    lists: Option<Vec<CertificateRevocationListDer<'static>>>,
    /// At depth 0.
    of_certificate: IgnoredErrors,
    /// Above.
    of_authorities: IgnoredErrors,
}

impl Chains {
    pub(crate) fn new(
        trusted: impl Iterator<Item = CertificateDer<'static>>,
        lists: Option<Vec<CertificateRevocationListDer<'static>>>,
        of_certificate: IgnoredErrors,
        of_authorities: IgnoredErrors,
    ) -> Self {
        let mut by_subject = HashMap::<Box<[u8]>, Vec<_>>::new();
        for certificate in trusted {
            if let Ok((_, parsed)) = X509Certificate::from_der(&certificate) {
                let subject = parsed.subject().as_raw().into();
                by_subject.entry(subject).or_default().push(certificate.clone());
            }
        }
        Self { trusted: by_subject, lists, of_certificate, of_authorities }
    }

    /// Decides about a chain that rustls has refused, and keeps the result for [`take_verified`].
    ///
    /// # Errors
    /// `refused` if the listener ignores no errors at all; otherwise the first error that it does not ignore.
    pub(crate) fn judge(
        &self,
        certificate: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
        now: UnixTime,
        refused: rustls::Error,
    ) -> Result<(), rustls::Error> {
        let rustls::Error::InvalidCertificate(reason) = &refused else { return Err(refused) };
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let mut verified = Verified::default();
        let mut stopped = None;
        for Found { depth, error } in self.errors(certificate, sent, now, reason) {
            verified.result = error;
            let ignored = if depth == 0 {
                verified.certificate = if verified.certificate == 0 { error } else { verified.certificate };
                self.of_certificate
            } else {
                if verified.authority == 0 {
                    (verified.authority, verified.authority_depth) = (error, depth as u32);
                }
                self.of_authorities
            };
            if !ignored.has(error) {
                verified.stopped_above = depth > 0;
                stopped = Some(error);
                break;
            }
        }
        VERIFIED.set(Some(verified));
        let nothing_ignored = self.of_certificate.is_empty() && self.of_authorities.is_empty();
        match stopped {
            None => Ok(()),
            Some(_) if nothing_ignored => Err(refused),
            // `refused` may be an error that the listener ignores, so the error of the walk replaces it.
            Some(error) => Err(of_number(error).map_or(refused, rustls::Error::InvalidCertificate)),
        }
    }

    /// Returns the errors of a chain by rules 2 and 3: at least one.
    fn errors(
        &self,
        certificate: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
        now: i64,
        reason: &CertificateError,
    ) -> Vec<Found> {
        let mut found = self.walk(certificate, sent, now).unwrap_or_default();
        let own = of_certificate(reason);
        let explains = |error: u32| match own {
            NO_LOCAL_ISSUER => {
                matches!(
                    error,
                    NO_ISSUER | SELF_SIGNED..=TOO_LONG | NO_AUTHORITY | PATH_LENGTH | BAD_SIGNATURE
                )
            }
            // The reason has no number of OpenSSL, so every error explains it.
            1 => true,
            other => error == other,
        };
        if !found.iter().any(|found| explains(found.error)) {
            found.push(Found { depth: 0, error: own });
        }
        found
    }

    /// Returns the errors of the walk. `None` if the certificate is malformed.
    fn walk(&self, certificate: &[u8], sent: &[CertificateDer<'_>], now: i64) -> Option<Vec<Found>> {
        let sent: Vec<_> =
            sent.iter().take(MOST_SENT).filter_map(|der| Some((&**der, parsed(der)?))).collect();
        let mut found = Vec::new();
        let mut chain = vec![Link::new(certificate, parsed(certificate)?)];
        let mut is_trusted = self.is_trusted(certificate, &chain[0].parsed);
        let top = loop {
            let top = chain.len() - 1;
            let last = &chain[top];
            if last.is_self_issued() {
                break top;
            }
            if chain.len() == MOST_DEPTH {
                found.push(Found { depth: top, error: TOO_LONG });
                is_trusted = false;
                break top;
            }
            let known = self.trusted.get(last.parsed.issuer().as_raw());
            let known = known.into_iter().flatten().filter_map(|der| Some((&**der, parsed(der)?)));
            let next = match best_issuer(last, known) {
                Some(next) => {
                    is_trusted = true;
                    next
                }
                None if is_trusted => break top,
                None => {
                    let unused = sent.iter().filter(|(der, _)| chain.iter().all(|link| link.der != *der));
                    match best_issuer(last, unused.cloned()) {
                        Some(next) => next,
                        None => break top,
                    }
                }
            };
            chain.push(next);
        };
        if !is_trusted {
            let error = match (chain[top].is_self_issued(), top) {
                (true, 0) => SELF_SIGNED,
                (true, _) => SELF_SIGNED_IN_CHAIN,
                (false, _) => NO_LOCAL_ISSUER,
            };
            found.push(Found { depth: top, error });
        }
        self.check_extensions(&chain, &mut found);
        if let Some(lists) = &self.lists {
            for depth in 0..chain.len() {
                let issuer = chain.get(depth + 1).unwrap_or(&chain[depth]);
                // Lists apply neither to self-issued certificates, which have no other issuer, nor to the
                // trusted certificate that ends a chain.
                if !chain[depth].is_self_issued() && (depth < top || !is_trusted) {
                    let error = check_revocation(lists, &chain[depth], issuer, now);
                    found.extend(error.map(|error| Found { depth, error }));
                }
            }
        }
        for depth in (0..chain.len()).rev() {
            let own = &chain[depth];
            match chain.get(depth + 1) {
                Some(issuer) if !issuer.has_signed(own) => found.push(Found { depth, error: BAD_SIGNATURE }),
                // The issuer is unknown. OpenSSL skips such a certificate, unless it is the peer's own, of
                // which it checks the dates.
                None if !is_trusted && !own.is_self_issued() => {
                    if depth > 0 {
                        continue;
                    }
                    found.push(Found { depth, error: UNVERIFIED_LEAF });
                }
                _ => {}
            }
            let validity = own.parsed.validity();
            if validity.not_before.timestamp() > now {
                found.push(Found { depth, error: NOT_YET_VALID });
            } else if validity.not_after.timestamp() < now {
                found.push(Found { depth, error: EXPIRED });
            }
        }
        // Only rustls checks name constraints, so a chain with constraints gets their error.
        let constrains = |link: &Link<'_>| {
            link.parsed
                .extensions()
                .iter()
                .any(|own| matches!(own.parsed_extension(), ParsedExtension::NameConstraints(_)))
        };
        if chain[1..].iter().any(constrains) {
            found.push(Found { depth: 0, error: NAME_CONSTRAINTS });
        }
        Some(found)
    }

    fn is_trusted(&self, der: &[u8], parsed: &X509Certificate<'_>) -> bool {
        let known = self.trusted.get(parsed.subject().as_raw());
        known.is_some_and(|known| known.iter().any(|own| **own == *der))
    }

    fn check_extensions(&self, chain: &[Link<'_>], found: &mut Vec<Found>) {
        let mut below = 0; // authorities between, which a path length counts
        for (depth, link) in chain.iter().enumerate() {
            let mut add = |error| found.push(Found { depth, error });
            let (mut authority, mut length, mut purpose) = (None, None, true);
            let mut unknown = false;
            for extension in link.parsed.extensions() {
                match extension.parsed_extension() {
                    ParsedExtension::BasicConstraints(own) => {
                        (authority, length) = (Some(own.ca), own.path_len_constraint);
                    }
                    ParsedExtension::ExtendedKeyUsage(usage) => purpose &= usage.client_auth,
                    ParsedExtension::KeyUsage(usage) if depth == 0 => {
                        purpose &= usage.digital_signature() || usage.key_agreement();
                    }
                    ParsedExtension::KeyUsage(_)
                    | ParsedExtension::SubjectAlternativeName(_)
                    | ParsedExtension::NameConstraints(_)
                    | ParsedExtension::CertificatePolicies(_)
                    | ParsedExtension::CRLDistributionPoints(_) => {}
                    _ => unknown |= extension.critical,
                }
            }
            if unknown {
                add(CRITICAL_EXTENSION);
            }
            if depth > 0 && authority != Some(true) {
                add(NO_AUTHORITY);
                purpose = false;
            }
            if !purpose {
                add(PURPOSE);
            }
            if depth > 0 {
                if length.is_some_and(|length| below > length) {
                    add(PATH_LENGTH);
                }
                if !link.is_self_issued() {
                    below += 1;
                }
            }
        }
    }
}

fn parsed(der: &[u8]) -> Option<X509Certificate<'_>> {
    X509Certificate::from_der(der).ok().map(|(_, parsed)| parsed)
}

/// A certificate of a chain.
struct Link<'a> {
    der: &'a [u8],
    parsed: X509Certificate<'a>,
}

impl<'a> Link<'a> {
    fn new(der: &'a [u8], parsed: X509Certificate<'a>) -> Self {
        Self { der, parsed }
    }

    fn is_self_issued(&self) -> bool {
        self.parsed.subject().as_raw() == self.parsed.issuer().as_raw()
    }

    fn has_signed(&self, other: &Self) -> bool {
        let issuer = Issuer::of(&self.parsed);
        Signed::of(other.der).zip(issuer).is_some_and(|(signed, issuer)| issuer.has_signed(signed))
    }
}

/// Finds the issuer of a certificate: the candidate with the right name whose key fits.
fn best_issuer<'a>(
    of: &Link<'_>,
    candidates: impl Iterator<Item = (&'a [u8], X509Certificate<'a>)>,
) -> Option<Link<'a>> {
    let may_sign = |parsed: &X509Certificate<'_>| match parsed.key_usage() {
        Ok(usage) => usage.is_none_or(|usage| usage.value.key_cert_sign()),
        Err(_) => false,
    };
    let fits = |(_, parsed): &(&[u8], X509Certificate<'_>)| {
        parsed.subject().as_raw() == of.parsed.issuer().as_raw() && may_sign(parsed)
    };
    let links = candidates.filter(fits).take(MOST_NAMESAKES).map(|(der, parsed)| Link::new(der, parsed));
    let mut links: Vec<_> = links.collect();
    // The walk checks the signature of a single candidate later.
    let best = if links.len() > 1 { links.iter().position(|link| link.has_signed(of)) } else { None };
    (!links.is_empty()).then(|| links.swap_remove(best.unwrap_or(0)))
}

/// Returns when a list of revoked certificates was issued.
pub(crate) fn issued(list: &[u8]) -> Option<i64> {
    List::of(list).map(|(_, list)| list.since)
}

/// Checks a certificate against the lists, newest first. Returns the error; `None` if a valid list does not
/// contain it, and no other does.
fn check_revocation(
    lists: &[CertificateRevocationListDer<'static>],
    own: &Link<'_>,
    issuer: &Link<'_>,
    now: i64,
) -> Option<u32> {
    let (mut has_valid, mut why) = (false, None);
    for list in lists {
        let Some((signed, revoked)) = List::of(list) else { continue };
        if revoked.issuer != own.parsed.issuer().as_raw() {
            continue;
        }
        let has_signed = Issuer::of(&issuer.parsed).is_some_and(|issuer| issuer.has_signed(signed));
        let error = match () {
            () if !has_signed => BAD_LIST_SIGNATURE,
            () if revoked.since > now => LIST_NOT_YET_VALID,
            () if revoked.until.is_some_and(|until| until < now) => LIST_EXPIRED,
            () if revoked.has(own.parsed.raw_serial()) => return Some(REVOKED),
            () => {
                has_valid = true;
                continue;
            }
        };
        why.get_or_insert(error);
    }
    (!has_valid).then_some(why.unwrap_or(NO_LIST))
}

/// A list of revoked certificates.
struct List<'a> {
    issuer: &'a [u8],
    since: i64,
    until: Option<i64>,
    revoked: Der<'a>,
}

impl<'a> List<'a> {
    /// Parses the fields before the entries: a list may have millions of entries.
    fn of(der: &'a [u8]) -> Option<(Signed<'a>, Self)> {
        const UTC_TIME: u8 = 0x17;
        let signed = Signed::of(der)?;
        let mut parts = Der(signed.message).enter(der::SEQUENCE)?;
        parts.maybe(der::INTEGER); // the version
        parts.take(der::SEQUENCE)?; // how it is signed
        let issuer = parts.take(der::SEQUENCE)?.whole;
        let since = time(parts.next()?)?.timestamp();
        let until = parts.maybe(der::TIME).or_else(|| parts.maybe(UTC_TIME));
        let until = match until {
            Some(until) => Some(time(until)?.timestamp()),
            None => None,
        };
        let revoked = parts.maybe(der::SEQUENCE).map_or(Der(&[]), |all| all.inside());
        Some((signed, Self { issuer, since, until, revoked }))
    }

    fn has(&self, serial: &[u8]) -> bool {
        let mut all = self.revoked;
        while let Some(entry) = all.next() {
            if entry.inside().take(der::INTEGER).is_some_and(|own| own.content == serial) {
                return true;
            }
        }
        false
    }
}

/// Returns rustls's error for a number of OpenSSL, so that rustls sends the peer the right alert.
fn of_number(error: u32) -> Option<CertificateError> {
    Some(match error {
        NO_ISSUER | SELF_SIGNED..=UNVERIFIED_LEAF => CertificateError::UnknownIssuer,
        NO_LIST => CertificateError::UnknownRevocationStatus,
        BAD_SIGNATURE => CertificateError::BadSignature,
        NOT_YET_VALID => CertificateError::NotValidYet,
        EXPIRED => CertificateError::Expired,
        LIST_EXPIRED => CertificateError::ExpiredRevocationList,
        REVOKED => CertificateError::Revoked,
        PURPOSE => CertificateError::InvalidPurpose,
        CRITICAL_EXTENSION => CertificateError::UnhandledCriticalExtension,
        _ => return None,
    })
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    #![allow(clippy::unwrap_used)] // helpers of tests are tests too
    use super::*;

    #[test]
    fn errors_have_numbers_and_names() {
        let parse = |list| IgnoredErrors::parse("crt-ignore-err", list);
        let some = parse("10,X509_V_ERR_CERT_REVOKED").unwrap();
        assert!(some.has(EXPIRED) && some.has(REVOKED) && !some.has(SELF_SIGNED));
        assert!((1..=LARGEST).all(|error| parse("all").unwrap().has(error)));
        for bad in ["", "0", "95", "x", "X509_V_ERR_NONE", "10,,y"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert!(NAMES.is_sorted());
    }
}
