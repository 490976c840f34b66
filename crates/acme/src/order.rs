//! An order, from the directory to the certificate (RFC 8555).
//!
//! # Protocol
//! 1. [`obtain`] requests the directory, a nonce, the account and the order. The authority creates the
//!    account unless it knows the key.
//! 2. Each authorization of the order belongs to one of the wanted names, and each name has at most one. For
//!    an authorization that is not valid yet, `obtain` selects the challenge of the configured kind.
//! 3. [`Transport::prove`] publishes the proofs before `obtain` tells the authority that they are ready: an
//!    authority that looks too early fails the order.
//! 4. `obtain` polls the authorizations until they are valid, and then the order until it is ready.
//! 5. It then generates the key of the certificate, sends the signing request once, and polls the order until
//!    it is valid.
//! 6. [`NewKey::accept`] verifies the certificate against the key and the names.
//!
//! An order always ends: a request has at most [`MOST_NONCES`] tries, an order at most [`MOST_POLLS`] polls,
//! or [`POLLS_A_NAME`] for each name, and the caller limits the order to [`Challenge::deadline`].

use crate::account::{AccountKey, ExternalAccount, KeyKind, is_token};
use crate::answer::{Answer, Failure, address, checked, https, problem, status, visible};
use crate::certificate::{NewKey, proving_certificate};
use manylane_tls::{AlpnChallenge, HttpUrl};
use serde_json::{Value, json};
use std::time::Duration;
use zeroize::Zeroizing;

/// Time limit of an order with `http-01` or `tls-alpn-01`.
const DEADLINE: Duration = Duration::from_secs(10 * 60);

/// Time limit of an order with `dns-01`: an operator or a script adds the TXT records within it.
const DEADLINE_DNS: Duration = Duration::from_secs(60 * 60);

/// Largest number of tries of a request whose nonce the authority refuses.
const MOST_NONCES: usize = 10;

/// Largest number of polls in an order of at most ten names.
const MOST_POLLS: usize = 100;

/// Number of polls for each name of a larger order.
const POLLS_A_NAME: usize = 10;

/// Seconds between two polls, unless the authority sends `retry-after`.
const USUAL_WAIT: u64 = 2;

/// Longest time between two polls that an authority can request, in seconds.
const LONGEST_WAIT: u64 = 60;

/// How this side proves that it controls a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Challenge {
    /// An HTTP response under `/.well-known/acme-challenge/` (RFC 8555, 8.3).
    Http01,
    /// A TXT record (RFC 8555, 8.4).
    Dns01,
    /// A TLS handshake (RFC 8737).
    TlsAlpn01,
}

impl Challenge {
    /// Returns the name that the configuration and the protocol use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http01 => "http-01",
            Self::Dns01 => "dns-01",
            Self::TlsAlpn01 => "tls-alpn-01",
        }
    }

    /// Returns the time limit of an order with this challenge.
    pub const fn deadline(self) -> Duration {
        match self {
            Self::Http01 | Self::TlsAlpn01 => DEADLINE,
            Self::Dns01 => DEADLINE_DNS,
        }
    }
}

/// The certificate to order, and the account that orders it.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// The authority's directory.
    pub directory: &'a HttpUrl,
    /// Mail address for notices of the authority.
    pub contact: Option<&'a str>,
    /// The key of the account.
    pub account: &'a AccountKey,
    /// The account outside ACME that the authority knows, if it requires one.
    pub external: Option<&'a ExternalAccount>,
    /// The names of the certificate, in lower case.
    pub names: &'a [Box<str>],
    /// How this side proves the names.
    pub challenge: Challenge,
}

/// The method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// GET
    Get,
    /// HEAD
    Head,
    /// POST, with a body of `application/jose+json`.
    Post,
}

/// A request to an authority.
#[derive(Debug)]
pub struct Request<'a> {
    /// Its method.
    pub method: Method,
    /// Its URL.
    pub url: &'a HttpUrl,
    /// Its body.
    pub body: Vec<u8>,
}

/// The proof for a name, which [`Transport::prove`] publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The name, without `*.`.
    pub name: Box<str>,
    /// The last segment of the path that the authority requests with `http-01`.
    pub token: Box<str>,
    /// With `http-01`, the text that follows the token and a dot in the response; with `dns-01`, the text of
    /// the record; with `tls-alpn-01`, the thumbprint of the account's key.
    pub value: Box<str>,
}

impl Proof {
    /// Publishes the certificate that answers `tls-alpn-01`, until the result is dropped. Computes a key and
    /// a signature.
    ///
    /// # Errors
    /// A sentence without secrets.
    pub fn publish_certificate(&self) -> Result<AlpnChallenge, String> {
        let authorization = format!("{}.{}", self.token, self.value);
        let (certificate, key) = proving_certificate(&self.name, &authorization)?;
        AlpnChallenge::publish(&self.name, &certificate, key.serialized_der())
    }
}

/// The IO of an order, which the caller implements.
pub trait Transport {
    /// Sends a request and returns the answer. The implementation limits the body to
    /// [`LONGEST_ANSWER`](crate::LONGEST_ANSWER) bytes and does not follow redirections.
    ///
    /// # Errors
    /// A sentence without secrets.
    fn exchange(&self, request: Request<'_>) -> impl Future<Output = Result<Answer, String>>;
    /// Returns when the lane has time for a computation of a few milliseconds.
    fn before_signing(&self) -> impl Future<Output = ()> {
        std::future::ready(())
    }
    /// Waits for `time`.
    fn wait(&self, time: Duration) -> impl Future<Output = ()>;
    /// Generates the key of the certificate on a thread that may block: an RSA key takes seconds.
    ///
    /// # Errors
    /// A sentence without secrets.
    fn new_key(&self, kind: KeyKind) -> impl Future<Output = Result<NewKey, String>>;
    /// Publishes the proofs, and returns once the authority can see them.
    ///
    /// # Errors
    /// A sentence without secrets.
    fn prove(&self, proofs: Vec<Proof>) -> impl Future<Output = Result<(), String>>;
}

/// A running order.
struct Order<'a, T> {
    wanted: &'a Wanted<'a>,
    transport: &'a T,
    new_nonce: HttpUrl,
    nonce: Option<String>,
    /// The URL of the account.
    account: Option<String>,
    polls: usize,
}

/// Orders a certificate, and returns the PEM of its key and its chain.
///
/// # Errors
/// [`Failure`]: the transport failed, or the authority refused a request or broke the protocol.
pub async fn obtain(
    wanted: &Wanted<'_>,
    kind: KeyKind,
    transport: &impl Transport,
) -> Result<Zeroizing<String>, Failure> {
    let what = "the directory";
    let request = Request { method: Method::Get, url: wanted.directory, body: Vec::new() };
    let directory = exchange(transport, request).await?.value(what)?;
    let [new_nonce, new_account, new_order] =
        ["newNonce", "newAccount", "newOrder"].map(|name| address(&directory, what, name));
    let mut order = Order { wanted, transport, new_nonce: new_nonce?, nonce: None, account: None, polls: 0 };

    let mut account = json!({"termsOfServiceAgreed": true});
    if let Some(contact) = wanted.contact {
        account["contact"] = json!([format!("mailto:{contact}")]);
    }
    let (what, new_account) = ("the account", new_account?);
    if let Some(external) = wanted.external {
        account["externalAccountBinding"] = external.binding(wanted.account, &new_account.url);
    }
    let answer = order.post(&new_account, &account.to_string()).await?;
    answer.value(what)?;
    order.account = Some(checked(answer.location.as_deref().unwrap_or_default(), "the account's URL")?);

    let what = "the order";
    let names: Vec<Value> = wanted.names.iter().map(|name| json!({"type": "dns", "value": name})).collect();
    let answer = order.post(&new_order?, &json!({"identifiers": names}).to_string()).await?;
    let made = answer.value(what)?;
    let own = https(answer.location.as_deref().unwrap_or_default(), "the order's URL")?;
    let finalize = address(&made, what, "finalize")?;
    order.prove(&made).await?;
    order.until(&own, what, "ready", &["pending"]).await?;

    let key = transport.new_key(kind).await?;
    let csr = json!({"csr": key.request(wanted.names)?}).to_string();
    order.post(&finalize, &csr).await?.value("the request for the certificate")?;
    let made = order.until(&own, what, "valid", &["processing", "ready"]).await?;
    let certificate = address(&made, what, "certificate")?;
    let answer = order.post(&certificate, "").await?;
    if answer.status != 200 {
        answer.value("the certificate")?;
    }
    key.accept(&answer.body, wanted.names)
}

/// Sends a request. Cuts its error to a visible text: an error of TLS quotes the names of the peer's
/// certificate.
async fn exchange(transport: &impl Transport, request: Request<'_>) -> Result<Answer, Failure> {
    transport.exchange(request).await.map_err(|why| visible(&why).into())
}

impl<T: Transport> Order<'_, T> {
    /// Sends a signed request. An empty payload reads the resource (POST-as-GET; RFC 8555, 6.3).
    async fn post(&mut self, url: &HttpUrl, payload: &str) -> Result<Answer, Failure> {
        let mut tries = 0;
        loop {
            let nonce = match self.nonce.take() {
                Some(nonce) => nonce,
                None => {
                    let request = Request { method: Method::Head, url: &self.new_nonce, body: Vec::new() };
                    let answer = exchange(self.transport, request).await?;
                    checked(answer.nonce.as_deref().unwrap_or_default(), "the nonce")?
                }
            };
            self.transport.before_signing().await;
            let body = self.wanted.account.signed(&url.url, &nonce, self.account.as_deref(), payload)?;
            let request = Request { method: Method::Post, url, body };
            let mut answer = exchange(self.transport, request).await?;
            self.nonce = answer.nonce.take().and_then(|nonce| checked(&nonce, "the nonce").ok());
            tries += 1;
            if tries >= MOST_NONCES || !answer.is_bad_nonce() {
                return Ok(answer);
            }
        }
    }

    /// Polls `url` until its state is `wanted`. Returns an error for a state that is not in `before`.
    async fn until(
        &mut self,
        url: &HttpUrl,
        what: &str,
        wanted: &str,
        before: &[&str],
    ) -> Result<Value, Failure> {
        loop {
            let answer = self.post(url, "").await?;
            let value = answer.value(what)?;
            let now = status(&value);
            if now == wanted {
                return Ok(value);
            }
            if !before.contains(&now) {
                let errors = value["challenges"].as_array().into_iter().flatten().chain([&value]);
                let said = errors.filter_map(|own| own.get("error")).map(problem).next();
                let said = said.map(|said| format!(" ({said})")).unwrap_or_default();
                return Err(format!("{what} is '{}' instead of '{wanted}'{said}", visible(now)).into());
            }
            self.polls += 1;
            let most = MOST_POLLS.max(self.wanted.names.len() * POLLS_A_NAME);
            if self.polls >= most {
                return Err(format!("{what} is '{now}' after {most} polls").into());
            }
            let wait = answer.retry_after.unwrap_or(USUAL_WAIT).clamp(1, LONGEST_WAIT);
            self.transport.wait(Duration::from_secs(wait)).await;
        }
    }

    /// Proves the names of an order (rules 2 to 4).
    async fn prove(&mut self, made: &Value) -> Result<(), Failure> {
        let bad = |why: &str| Failure::from(format!("the order {why}"));
        let addresses = made["authorizations"].as_array().map_or(&[][..], Vec::as_slice);
        if addresses.is_empty() || addresses.len() > self.wanted.names.len() {
            let (most, found) = (self.wanted.names.len(), addresses.len());
            return Err(bad(&format!("needs 1 to {most} authorizations, one for each name, found {found}")));
        }
        let mut left: Vec<&str> = self.wanted.names.iter().map(|name| &**name).collect();
        let (mut proofs, mut challenges) = (Vec::new(), Vec::new());
        for own in addresses {
            let url = https(own.as_str().unwrap_or_default(), "the URL of an authorization")?;
            let value = self.post(&url, "").await?.value("an authorization")?;
            let plain = value["identifier"]["value"].as_str().unwrap_or_default().to_ascii_lowercase();
            let name = if value["wildcard"] == true { format!("*.{plain}") } else { plain.clone() };
            let index = left.iter().position(|own| *own == name && value["identifier"]["type"] == "dns");
            let Some(index) = index else {
                return Err(bad(&format!("expects no authorization for '{}'", visible(&name))));
            };
            left.swap_remove(index);
            if status(&value) == "valid" {
                continue;
            }
            let kind = self.wanted.challenge.name();
            let all = value["challenges"].as_array().into_iter().flatten();
            let Some(challenge) = all.into_iter().find(|own| own["type"] == kind) else {
                return Err(format!("the authority has no challenge '{kind}' for '{name}'").into());
            };
            let token = challenge["token"].as_str().unwrap_or_default();
            if !is_token(token) {
                return Err(format!("the token of the challenge for '{name}' is malformed").into());
            }
            let account = self.wanted.account;
            let value = match self.wanted.challenge {
                Challenge::Http01 | Challenge::TlsAlpn01 => account.thumbprint(),
                Challenge::Dns01 => account.record(token),
            };
            proofs.push(Proof { name: plain.into(), token: token.into(), value: value.into() });
            challenges.push((name, url, address(challenge, "a challenge", "url")?));
        }
        if proofs.is_empty() {
            return Ok(());
        }
        self.transport.prove(proofs).await?;
        for (_, _, challenge) in &challenges {
            self.post(challenge, "{}").await?.value("a challenge")?;
        }
        for (name, url, _) in &challenges {
            let what = format!("the authorization for '{name}'");
            self.until(url, &what, "valid", &["pending", "processing"]).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // helpers of tests are tests too
    use super::*;
    use proptest::prelude::*;
    use std::cell::RefCell;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    /// An authority that answers by a function, and records the paths of requests in `requested`.
    struct Authority<'a> {
        answer: &'a dyn Fn(usize, &str, &str) -> Answer,
        requested: RefCell<Vec<String>>,
        proofs: RefCell<Vec<Proof>>,
        waited: RefCell<Duration>,
    }

    impl Transport for Authority<'_> {
        async fn exchange(&self, request: Request<'_>) -> Result<Answer, String> {
            let number = self.requested.borrow().len();
            self.requested.borrow_mut().push(request.url.path.to_string());
            Ok((self.answer)(number, &request.url.path, &String::from_utf8_lossy(&request.body)))
        }

        async fn wait(&self, time: Duration) {
            *self.waited.borrow_mut() += time;
        }

        async fn new_key(&self, kind: KeyKind) -> Result<NewKey, String> {
            NewKey::generate(kind)
        }

        async fn prove(&self, proofs: Vec<Proof>) -> Result<(), String> {
            self.proofs.borrow_mut().extend(proofs);
            Ok(())
        }
    }

    fn authority(answer: &dyn Fn(usize, &str, &str) -> Answer) -> Authority<'_> {
        let (requested, proofs, waited) = Default::default();
        Authority { answer, requested, proofs, waited }
    }

    fn order(transport: &impl Transport) -> Result<Zeroizing<String>, Failure> {
        order_of(transport, &["a.test".into()])
    }

    fn order_of(transport: &impl Transport, names: &[Box<str>]) -> Result<Zeroizing<String>, Failure> {
        let account = AccountKey::generate(KeyKind::P256).unwrap();
        let wanted = Wanted {
            directory: &HttpUrl::parse("https://ca.test/dir", "https").unwrap(),
            contact: Some("a@b.test"),
            account: &AccountKey::from_pem(account.as_bytes()).unwrap(),
            external: None,
            names,
            challenge: Challenge::Http01,
        };
        let order = pin!(obtain(&wanted, KeyKind::P256, transport));
        match order.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result,
            Poll::Pending => panic!("nothing here waits"),
        }
    }

    fn answer(status: u16, body: Value) -> Answer {
        let location = Some("https://ca.test/own".to_owned());
        Answer { status, nonce: Some("n".into()), location, retry_after: None, body: body.to_string().into() }
    }

    /// Returns the answer of a correct authority, unless `change` returns another one for the path.
    fn well(path: &str, change: &dyn Fn(&str) -> Option<Value>) -> Answer {
        let usual = match path {
            "/dir" => json!({"newNonce": "https://ca.test/nonce", "newAccount": "https://ca.test/account",
                "newOrder": "https://ca.test/order"}),
            "/order" => json!({"status": "pending", "finalize": "https://ca.test/finalize",
                "authorizations": ["https://ca.test/authorization"]}),
            "/own" => json!({"status": "ready"}),
            "/authorization" => json!({"status": "pending", "identifier": {"type": "dns", "value": "a.test"},
                "challenges": [{"type": "http-01", "url": "https://ca.test/challenge", "token": "t0k-_"}]}),
            _ => json!({}),
        };
        answer(200, change(path).unwrap_or(usual))
    }

    fn why(change: &dyn Fn(&str) -> Option<Value>) -> (String, Vec<Proof>, Duration) {
        let all = |_: usize, path: &str, _: &str| well(path, change);
        let authority = authority(&all);
        let why = order(&authority).unwrap_err().why;
        (why, authority.proofs.take(), authority.waited.take())
    }

    fn with(path: &'static str, value: Value) -> impl Fn(&str) -> Option<Value> {
        move |own| (own == path).then(|| value.clone())
    }

    #[test]
    fn an_order_that_stays_as_it_is_ends() {
        let (said, proofs, waited) = why(&|_| None);
        assert_eq!(said, "the authorization for 'a.test' is 'pending' after 100 polls");
        assert_eq!((&*proofs[0].token, &*proofs[0].name), ("t0k-_", "a.test"));
        assert!(waited <= DEADLINE, "{waited:?}");
    }

    #[test]
    fn operators_have_an_hour_and_machines_ten_minutes() {
        let minutes = [Challenge::Http01, Challenge::TlsAlpn01, Challenge::Dns01].map(|own| own.deadline());
        assert_eq!(minutes, [10, 10, 60].map(|minutes| Duration::from_secs(minutes * 60)));
    }

    #[test]
    fn many_names_have_more_polls() {
        let all = |_: usize, path: &str, _: &str| well(path, &|_| None);
        let names: Vec<Box<str>> = (0..30)
            .map(|number| if number == 0 { "a.test".into() } else { format!("{number}.test").into() })
            .collect();
        let why = order_of(&authority(&all), &names).unwrap_err().why;
        assert_eq!(why, "the authorization for 'a.test' is 'pending' after 300 polls");
    }

    /// An error of TLS lists the names of a certificate.
    #[test]
    fn errors_of_connections_are_reported_in_few_visible_words() {
        struct Broken;
        impl Transport for Broken {
            async fn exchange(&self, _: Request<'_>) -> Result<Answer, String> {
                Err(format!("valid for a\n\u{1b}b{}", "c".repeat(9000)))
            }
            async fn wait(&self, _: Duration) {}
            async fn new_key(&self, kind: KeyKind) -> Result<NewKey, String> {
                NewKey::generate(kind)
            }
            async fn prove(&self, _: Vec<Proof>) -> Result<(), String> {
                Ok(())
            }
        }
        let why = order(&Broken).unwrap_err().why;
        assert!(why.starts_with("valid for a??bccc") && why.len() == 200, "{why}");
    }

    #[test]
    fn what_was_not_requested_is_not_proved() {
        let of = |name: &str, token: &str| {
            json!({"status": "pending", "identifier": {"type": "dns", "value": name},
                "challenges": [{"type": "http-01", "url": "https://ca.test/challenge", "token": token}]})
        };
        let (said, proofs, _) = why(&with("/authorization", of("b.test", "t")));
        assert_eq!(said, "the order expects no authorization for 'b.test'");
        assert_eq!(proofs, []);
        let twice = json!({"status": "pending", "finalize": "https://ca.test/finalize",
            "authorizations": ["https://ca.test/authorization", "https://ca.test/authorization"]});
        assert_eq!(
            why(&with("/order", twice)).0,
            "the order needs 1 to 1 authorizations, one for each name, found 2"
        );
        for token in ["", "a b", "a/../b", "a\r\nb"] {
            let (said, proofs, _) = why(&with("/authorization", of("a.test", token)));
            assert_eq!(said, "the token of the challenge for 'a.test' is malformed");
            assert_eq!(proofs, []);
        }
    }

    #[test]
    fn reasons_are_reported_in_few_visible_words() {
        let error = json!({"type": "urn:ietf:params:acme:error:unauthorized",
            "detail": format!("no\r\n<injected> {}", "x".repeat(9000))});
        let invalid = json!({"status": "invalid", "identifier": {"type": "dns", "value": "a.test"},
            "challenges": [{"type": "http-01", "url": "https://ca.test/c", "token": "t", "error": error}]});
        let (said, ..) = why(&with("/authorization", invalid));
        assert!(said.starts_with(
            "the authorization for 'a.test' is 'invalid' instead of 'valid' (unauthorized: no??<"
        ));
        assert!(said.len() < 400);
        let refused = |_: usize, path: &str, _: &str| match path {
            "/order" => Answer { retry_after: Some(u64::MAX), ..answer(429, error.clone()) },
            _ => well(path, &|_| None),
        };
        let failure = order(&authority(&refused)).unwrap_err();
        assert!(failure.why.starts_with("the order is answered with the status 429 (unauthorized: no??<inj"));
        assert_eq!(failure.retry_after, 24 * 60 * 60);
    }

    #[test]
    fn addresses_without_encryption_are_not_asked() {
        let plain = json!({"newNonce": "http://ca.test/nonce", "newAccount": "https://ca.test/account",
            "newOrder": "https://ca.test/order"});
        assert_eq!(
            why(&with("/dir", plain)).0,
            "'newNonce' of the directory expects a URL of https://, found 'http://ca.test/nonce'"
        );
    }

    #[test]
    fn nonces_that_are_refused_are_replaced_and_not_for_ever() {
        let error = json!({"type": "urn:ietf:params:acme:error:badNonce", "detail": "again"});
        let once = |number: usize, path: &str, _: &str| match path {
            "/account" if number < 5 => answer(400, error.clone()),
            _ => well(path, &|_| None),
        };
        let patient = authority(&once);
        assert!(order(&patient).unwrap_err().why.contains("after 100 polls"));
        let never = |_: usize, path: &str, _: &str| match path {
            "/account" => answer(400, error.clone()),
            _ => well(path, &|_| None),
        };
        let refusing = authority(&never);
        assert_eq!(
            order(&refusing).unwrap_err().why,
            "the account is answered with the status 400 (badNonce: again)"
        );
        assert_eq!(
            refusing.requested.borrow().iter().filter(|path| **path == "/account").count(),
            MOST_NONCES
        );
    }

    /// An order accepts no certificate with a key other than its own.
    #[test]
    fn a_certificate_with_another_key_is_refused() {
        let ready = |number: usize, path: &str, _: &str| match path {
            "/authorization" => answer(
                200,
                json!({"status": "valid",
                "identifier": {"type": "dns", "value": "A.test"}}),
            ),
            "/own" if number > 7 => answer(
                200,
                json!({"status": "valid",
                "certificate": "https://ca.test/certificate"}),
            ),
            "/certificate" => {
                let key = rcgen::KeyPair::generate().unwrap();
                let params = rcgen::CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
                Answer { body: params.self_signed(&key).unwrap().pem().into(), ..answer(200, json!({})) }
            }
            _ => well(path, &|_| None),
        };
        let said = order(&authority(&ready)).unwrap_err().why;
        assert_eq!(said, "the certificate is not taken: its key is not the one that was asked for");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
        /// For any answers, an order ends within its bounds and proves its own names only.
        #[test]
        fn any_answers_end_an_order(
            bodies in prop::collection::vec((any::<u16>(), ".{0,80}", 0_usize..12), 1..12)
        ) {
            let parts = ["pending", "ready", "valid", "invalid", "a.test", "b.test", "http-01", "/", "{"];
            let all = |number: usize, path: &str, _: &str| {
                let (status, text, part) = &bodies[number % bodies.len()];
                let word = parts.get(*part).copied().unwrap_or(text);
                match part % 4 {
                    0 => Answer { status: *status, body: text.clone().into(), ..Answer::default() },
                    1 => {
                        let (nonce, location) = (Some(text.clone()), Some(text.clone()));
                        Answer { nonce, location, ..well(path, &|_| None) }
                    }
                    2 => answer(200, json!({"status": word, "identifier": {"type": "dns", "value": word},
                        "authorizations": [word, text], "challenges": [{"type": word, "token": text}]})),
                    _ => well(path, &|_| None),
                }
            };
            let authority = authority(&all);
            prop_assert!(order(&authority).is_err());
            prop_assert!(authority.requested.borrow().len() < MOST_POLLS * (MOST_NONCES + 1));
            for proof in authority.proofs.borrow().iter() {
                prop_assert_eq!(&*proof.name, "a.test");
                prop_assert!(is_token(&proof.token));
            }
        }
    }
}
