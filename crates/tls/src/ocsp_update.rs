//! Renewal of OCSP responses: decides which certificates need one, writes the requests, and judges the
//! responses. The caller does the IO.
//!
//! # Protocol
//! 1. A certificate takes part if a listener presents it, its `ocsp-update` is on, it names a responder, and
//!    its issuer is known. Certificates with the same id (of several files) count as one.
//! 2. One without a response is due at once, another one before its response is overdue, within the bounds of
//!    [`OcspUpdateSettings`]. After failures the time until the next question doubles, up to the longest.
//! 3. After a request, its certificate is not due before the answer, or for [`LONGEST_ANSWER`] seconds.
//! 4. A response is taken only if it is good for the certificate, by the rules of the module `ocsp`.

use crate::certificate::Bundle;
use crate::der;
use crate::error::Problem;
use crate::files::encode_base64;
use crate::ocsp::{self, OcspId};
use crate::store::{Known, Store};
use crate::url::HttpUrl;
use rustls::pki_types::UnixTime;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Seconds between the request for the next response and the end of the current one.
const MARGIN: u64 = 60;

/// Longest time of a request with its answer, in seconds.
pub const LONGEST_ANSWER: u64 = 30;

/// Targets of a GET are shorter than this, in bytes; longer requests use POST (RFC 6960, A.1).
const LONGEST_GET: usize = 255;

/// `id-ad-ocsp`: the way to a responder.
const RESPONDER: &str = "1.3.6.1.5.5.7.48.1";

/// When responses are renewed: `ocsp-update.*` of `global`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OcspUpdateSettings {
    /// No response is renewed.
    pub disabled: bool,
    /// `ocsp-update` of certificates that have no such setting.
    pub mode: bool,
    /// Shortest time between two renewals, in seconds.
    pub mindelay: u64,
    /// Longest time between two renewals, in seconds.
    pub maxdelay: u64,
    /// The name or address and the port of a proxy for the requests to all responders.
    pub proxy: Option<(Box<str>, u16)>,
}

impl Default for OcspUpdateSettings {
    fn default() -> Self {
        Self { disabled: false, mode: false, mindelay: 300, maxdelay: 3600, proxy: None }
    }
}

/// Returns the first responder that a certificate names; `Err` with its URL if this program cannot use it.
pub(crate) fn responder_of(certificate: &[u8]) -> Option<Result<HttpUrl, Box<str>>> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let found = parsed.extensions().iter().find_map(|extension| {
        let ParsedExtension::AuthorityInfoAccess(access) = extension.parsed_extension() else {
            return None;
        };
        access.accessdescs.iter().find_map(|access| match &access.access_location {
            GeneralName::URI(url) if access.access_method.to_id_string() == RESPONDER => Some(*url),
            _ => None,
        })
    });
    found.map(|url| HttpUrl::parse(url, "http").ok_or_else(|| url.into()))
}

/// A question to a responder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OcspQuestion {
    /// The file of the certificate.
    pub certificate: Box<str>,
    /// Who answers.
    pub responder: HttpUrl,
    /// The request in DER.
    pub request: Vec<u8>,
    id: Box<str>,
    proxy: Option<(Box<str>, u16)>,
}

impl OcspQuestion {
    /// Returns the name or address to connect to, and the port.
    pub fn peer(&self) -> (&str, u16) {
        match &self.proxy {
            Some((host, port)) => (host, *port),
            None => (&self.responder.host, self.responder.port),
        }
    }

    /// Returns the target of a GET that contains the request (RFC 6960, A.1). `None` if it is too long.
    fn target(&self) -> Option<String> {
        let mut target = format!("{}/", self.responder.path.trim_end_matches('/'));
        for byte in encode_base64(&self.request).bytes() {
            let _ = match byte {
                b'+' | b'/' | b'=' => write!(target, "%{byte:02X}"),
                other => write!(target, "{}", char::from(other)),
            };
        }
        (target.len() < LONGEST_GET).then_some(target)
    }

    /// Whether the request is the body of a POST.
    pub fn is_posted(&self) -> bool {
        self.target().is_none()
    }

    /// Returns the HTTP request, with its body.
    pub fn http(&self) -> Vec<u8> {
        let HttpUrl { host, port, path, .. } = &self.responder;
        let port = if *port == 80 { String::new() } else { format!(":{port}") };
        let origin = if self.proxy.is_some() { format!("http://{host}{port}") } else { String::new() };
        let common =
            format!("host: {host}{port}\r\naccept: */*\r\nuser-agent: Manylane\r\nconnection: close\r\n");
        if let Some(target) = self.target() {
            return format!("GET {origin}{target} HTTP/1.1\r\n{common}\r\n").into_bytes();
        }
        let head = format!(
            "POST {origin}{path} HTTP/1.1\r\n{common}content-type: application/ocsp-request\r\n\
             content-length: {}\r\n\r\n",
            self.request.len()
        );
        [head.as_bytes(), &self.request].concat()
    }
}

/// The result of a renewal, with HAProxy's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OcspUpdate {
    /// Nothing yet.
    #[default]
    Unknown = 0,
    /// There is a new response.
    Successful = 1,
    /// The responder was not reached, or did not answer with a 200.
    Http = 2,
    /// The answer has another content type than that of OCSP responses.
    NoResponse = 3,
    /// The response is not valid for the certificate.
    BadResponse = 4,
    /// The certificate was removed before the answer arrived.
    NotInserted = 5,
}

impl OcspUpdate {
    /// HAProxy's words.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Unknown => "Unknown",
            Self::Successful => "Update successful",
            Self::Http => "HTTP error",
            Self::NoResponse => "Missing \"ocsp-response\" header",
            Self::BadResponse => "OCSP response check failure",
            Self::NotInserted => "Error during insertion",
        }
    }
}

/// The state of a certificate that takes part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OcspState {
    /// HAProxy's name for the response.
    pub id: Box<str>,
    /// Its file.
    pub certificate: Box<str>,
    /// When the certificate is due, in seconds since 1970.
    pub next: u64,
    /// When the last response arrived, in seconds since 1970.
    pub last: Option<u64>,
    /// Number of successful renewals.
    pub successes: u32,
    /// Number of failed renewals.
    pub failures: u32,
    /// Number of failed renewals since the last success.
    failed_in_row: u32,
    /// The result of the last renewal.
    pub status: OcspUpdate,
    /// Why the last renewal failed.
    pub reason: Option<Box<str>>,
}

impl OcspState {
    /// Creates the state of a certificate before its first request.
    fn of(question: &OcspQuestion) -> Self {
        Self {
            id: question.id.clone(),
            certificate: question.certificate.clone(),
            next: 0,
            last: None,
            successes: 0,
            failures: 0,
            failed_in_row: 0,
            status: OcspUpdate::Unknown,
            reason: None,
        }
    }
}

/// Why there is no request for a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoQuestion {
    /// There is no such certificate.
    Unknown,
    /// It names no usable responder, or its issuer is unknown.
    NoResponder,
}

/// The certificates that take part.
#[derive(Debug, Default)]
pub(crate) struct Updates {
    pub(crate) settings: OcspUpdateSettings,
    /// A section or a list has `ocsp-update`.
    pub(crate) is_said: bool,
    /// By their ids.
    all: BTreeMap<Box<str>, OcspState>,
}

fn now() -> u64 {
    UnixTime::now().as_secs()
}

impl Updates {
    fn next(&self, until: Option<u64>, failed_in_row: u32) -> u64 {
        let &OcspUpdateSettings { mindelay, maxdelay, .. } = &self.settings;
        let now = now();
        if failed_in_row > 0 {
            let doubled = mindelay.max(1).saturating_mul(1 << (failed_in_row - 1).min(20));
            return now + doubled.min(maxdelay.max(1));
        }
        let wanted = until.map_or(now, |until| until.saturating_sub(MARGIN));
        wanted.clamp(now + mindelay, now + maxdelay.max(mindelay))
    }
}

fn question(certificate: &str, bundle: &Bundle, settings: &OcspUpdateSettings) -> Option<OcspQuestion> {
    let id = bundle.ocsp_id()?;
    let responder = bundle.responder.clone()?.ok()?;
    // A request has a list of requests, each of which has an id.
    let request = (0..4).fold(id.der(), |inner, _| der::value(der::SEQUENCE, &inner));
    let (certificate, id) = (certificate.into(), id.text().into());
    Some(OcspQuestion { certificate, responder, request, id, proxy: settings.proxy.clone() })
}

impl Known {
    /// Refuses `ocsp-update` of a certificate that cannot have it.
    pub(crate) fn check_ocsp_modes(&mut self) -> Result<(), Problem> {
        if self.updates.is_said { self.ocsp_modes().map(drop) } else { Ok(()) }
    }

    /// Returns `ocsp-update` of each certificate that a listener presents.
    pub(crate) fn ocsp_modes(&mut self) -> Result<BTreeMap<Box<str>, bool>, Problem> {
        let mut modes = BTreeMap::new();
        for (certificate, said) in self.shown_certificates() {
            let of_store = self.definition(&certificate).and_then(|definition| definition.ocsp_update);
            let differs = said.zip(of_store).is_some_and(|(list, store)| list != store);
            let mode = said.or(of_store).unwrap_or(self.updates.settings.mode);
            if differs || modes.get(&certificate).is_some_and(|other| *other != mode) {
                let text = format!("'{certificate}' has 'ocsp-update' on in one place and off in another");
                return Err(Problem::new("ocsp-update", text));
            }
            if said.or(of_store) == Some(true)
                && !self.updates.settings.disabled
                && let Some(bundle) = self.bundle(&certificate)
            {
                let why = match &bundle.responder {
                    Some(Err(url)) => {
                        format!("has the responder '{url}', expected one of http://")
                    }
                    Some(Ok(_)) if bundle.ocsp_id().is_none() => {
                        "has an issuer that is not known: add it to the chain".to_owned()
                    }
                    _ => String::new(), // without a responder there is no request, as in HAProxy
                };
                if !why.is_empty() {
                    return Err(Problem::new("ocsp-update", format!("'{certificate}' {why}")));
                }
            }
            modes.insert(certificate, mode);
        }
        Ok(modes)
    }

    /// Adds new certificates and removes absent ones (rule 1). Returns the requests, by their ids.
    fn refresh_updates(&mut self) -> BTreeMap<Box<str>, OcspQuestion> {
        // The command or the file load that made two lines contradict each other has already returned the
        // error.
        let modes = self.ocsp_modes().unwrap_or_default();
        let wanted = modes.into_iter().filter(|(_, on)| *on).map(|(name, _)| name);
        let mut questions = BTreeMap::new();
        for name in wanted {
            let Some(bundle) = self.bundle(&name) else { continue };
            let Some(question) = question(&name, &bundle, &self.updates.settings) else { continue };
            if !self.updates.all.contains_key(&question.id) {
                let next = bundle.staple.until().map_or_else(now, |until| self.updates.next(Some(until), 0));
                self.updates.all.insert(question.id.clone(), OcspState { next, ..OcspState::of(&question) });
            }
            questions.entry(question.id.clone()).or_insert(question);
        }
        self.updates.all.retain(|id, _| questions.contains_key(id));
        questions
    }
}

impl Store {
    /// Sets when OCSP responses are renewed. Call it before the first listener exists.
    pub fn set_ocsp_updates(&self, settings: OcspUpdateSettings) {
        self.lock().updates.settings = settings;
    }

    /// True if renewals are enabled and a listener has certificates.
    pub fn renews_ocsp(&self) -> bool {
        let known = &mut *self.lock();
        !known.updates.settings.disabled && known.shows_certificates()
    }

    /// Returns the requests that are due, and when the next one is due (seconds since 1970).
    pub fn due_ocsp(&self) -> (Vec<OcspQuestion>, Option<u64>) {
        let known = &mut *self.lock();
        let (mut due, now) = (known.refresh_updates(), now());
        due.retain(|id, _| match known.updates.all.get_mut(id) {
            Some(state) if state.next <= now => {
                state.next = now + LONGEST_ANSWER; // rule 3
                true
            }
            _ => false,
        });
        (due.into_values().collect(), known.updates.all.values().map(|state| state.next).min())
    }

    /// Returns the request for the certificate of a file, even if it is not due.
    ///
    /// # Errors
    /// [`NoQuestion`]
    pub fn ask_ocsp(&self, certificate: &str) -> Result<OcspQuestion, NoQuestion> {
        let known = self.lock();
        let bundle = known.bundle(certificate).ok_or(NoQuestion::Unknown)?;
        question(certificate, &bundle, &known.updates.settings).ok_or(NoQuestion::NoResponder)
    }

    /// Applies the answer of a responder; `Err` if the request failed. Returns the new state.
    pub fn answer_ocsp(
        &self,
        question: &OcspQuestion,
        answer: Result<Vec<u8>, (OcspUpdate, String)>,
    ) -> OcspState {
        let known = &mut *self.lock();
        let own = known
            .bundles()
            .filter(|(_, bundle)| bundle.ocsp_id().is_some_and(|id| *id.text() == *question.id));
        let own: Vec<Arc<Bundle>> = own.map(|(_, bundle)| bundle.clone()).collect();
        let taken = answer.and_then(|response| {
            if own.is_empty() {
                return Err((OcspUpdate::NotInserted, "the certificate was replaced".to_owned()));
            }
            let bad = |why: &str| (OcspUpdate::BadResponse, why.to_owned());
            own.iter().try_for_each(|bundle| bundle.set_ocsp(&response)).map_err(bad)
        });
        let until = own.first().and_then(|bundle| bundle.staple.until());
        let known_state = known.updates.all.get(&question.id).cloned();
        let mut state = known_state.unwrap_or_else(|| OcspState::of(question));
        match taken {
            Ok(()) => {
                (state.status, state.reason) = (OcspUpdate::Successful, None);
                state.last = Some(now());
                state.successes += 1;
                state.failed_in_row = 0;
            }
            Err((status, reason)) => {
                (state.status, state.reason) = (status, Some(reason.into()));
                state.failures += 1;
                state.failed_in_row += 1;
            }
        }
        state.next = known.updates.next(until, state.failed_in_row);
        if let Some(own) = known.updates.all.get_mut(&question.id) {
            own.clone_from(&state);
        }
        state
    }

    /// The certificates that take part; the one that is due first comes first.
    pub fn ocsp_updates(&self) -> Vec<OcspState> {
        let known = &mut *self.lock();
        if known.updates.settings.disabled {
            return Vec::new();
        }
        known.refresh_updates();
        let mut all: Vec<_> = known.updates.all.values().cloned().collect();
        all.sort_by_key(|state| state.next);
        all
    }
}

impl OcspId {
    /// In DER, as requests have it.
    pub(crate) fn der(&self) -> Vec<u8> {
        ocsp::certificate_id(self)
    }
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    #![allow(clippy::unwrap_used)] // helpers of tests are tests too
    use super::*;

    #[test]
    fn short_requests_are_targets_and_long_ones_are_posted() {
        let question = |path: &str, length: usize, proxied: bool| OcspQuestion {
            certificate: "x".into(),
            responder: HttpUrl::parse(&format!("http://a.example:81{path}"), "http").unwrap(),
            request: vec![0xfb; length],
            id: "x".into(),
            proxy: proxied.then(|| ("proxy".into(), 3128)),
        };
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let short = text(question("/o/", 4, false).http());
        assert!(short.starts_with("GET /o/%2B%2Fv7%2Bw%3D%3D HTTP/1.1\r\nhost: a.example:81\r\n"), "{short}");
        let proxied = text(question("", 4, true).http());
        assert!(proxied.starts_with("GET http://a.example:81/%2B"), "{proxied}");
        let long = text(question("/o", 300, false).http());
        assert!(long.starts_with("POST /o HTTP/1.1\r\n"), "{long}");
        assert!(long.contains("\r\ncontent-length: 300\r\n"), "{long}");
    }

    #[test]
    fn failures_double_the_time_and_responses_bound_it() {
        let updates = Updates::default();
        let wait =
            |until: Option<u64>, failed| updates.next(until.map(|until| now() + until), failed) - now();
        assert_eq!([1, 2, 3, 40].map(|failed| wait(None, failed)), [300, 600, 1200, 3600]);
        assert_eq!(
            [Some(10), Some(1000), Some(1 << 30), None].map(|until| wait(until, 0)),
            [300, 940, 3600, 300]
        );
    }
}
