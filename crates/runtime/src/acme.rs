//! Renews certificates by ACME: the IO for `manylane_acme`, the publication of proofs, and the installation
//! of certificates.
//!
//! # Protocol
//! 1. The first lane of a generation has a task for each section, which runs one order after another.
//!    `manylane_acme` decides which certificate is due, and admits one order of a section at a time in the
//!    process.
//! 2. Work that may block (the store's lock, changes of maps, host names, new keys) runs on the thread of
//!    [`pool`].
//! 3. The task limits each request to [`TIMEOUT`], and the order to the deadline of its challenge.
//! 4. Dropping [`LaneTransport`] removes the proofs from the map and from the listeners, also after a failure
//!    or a deadline. A reload ends the order. A command that adds or removes a server does not.

use super::checks::unless_stopped;
use super::http_client::{self, aside, pool};
use manylane_acme::{
    Answer, Challenge, Failure, KeyKind, LONGEST_ANSWER, NewKey, Proof, Request, Running, Transport, Wanted,
};
use manylane_expr::{EntrySelector, Reference, http_date};
use manylane_http::Method;
use manylane_lanes::{Local, log_globally};
use manylane_logs::Level;
use manylane_plan::generation::{AcmeCertificate, certificate_info, server_name};
use manylane_sched::{Class, TaskKind};
use manylane_sync::LaneId;
use manylane_tls::AlpnChallenge;
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

static RENEWALS: TaskKind = TaskKind::new("renewal of ACME certificates");

/// Interval of polls for orders that commands request, and for confirmed TXT records.
const TICK: Duration = Duration::from_secs(1);

/// Number of ticks between two searches for certificates that are due.
const TICKS: usize = 30;

/// Time limit of a request to an authority, including its answer.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Starts the tasks on the first of `lanes`.
///
/// # Errors
/// A sentence, if there is no memory.
pub(super) fn start(local: &Rc<Local>, lanes: &[LaneId]) -> Result<(), String> {
    let certificates = &local.generation.acme.certificates;
    if lanes.first() != Some(&local.here().lane()) {
        return Ok(());
    }
    let kept: Vec<(&str, &[u8])> = certificates.iter().map(|own| (&*own.name, &*own.of_file)).collect();
    manylane_acme::retain(&kept);
    let mut sections: BTreeMap<&str, Vec<AcmeCertificate>> = BTreeMap::new();
    for own in certificates {
        sections.entry(&own.section.name).or_default().push(own.clone());
    }
    for certificates in sections.into_values() {
        let task = renew_due(local.clone(), certificates);
        local.here().spawn(&RENEWALS, Class::Normal, task).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Orders the section's certificates as they become due, until the generation ends.
async fn renew_due(local: Rc<Local>, certificates: Vec<AcmeCertificate>) {
    loop {
        if let Some(certificate) = first_due(&local, &certificates).await
            && let Some(running) = manylane_acme::begin(&certificate.name, &certificate.section.name)
        {
            let order = Box::pin(renew(&local, &certificate, running));
            let result = unless_replaced(&local, order).await;
            if result.is_none() {
                let text = "The order was interrupted by a reload or a stop. After a reload, another one \
                            begins in a minute or more if the certificate is still due or a command \
                            requested it.";
                say(&local, &certificate.name, Level::Notice, &text);
            }
            if result.is_none() || local.stopping.has_happened() {
                return;
            }
            continue;
        }
        for _ in 0..TICKS {
            if unless_stopped(&local, local.here().sleep(TICK)).await.is_none() {
                return;
            }
            if certificates.iter().any(|own| manylane_acme::is_requested(&own.name)) {
                break;
            }
        }
    }
}

/// Runs an order until a reload replaces its certificates and maps. A command that adds or removes a server
/// makes a generation that shares them, so the order continues.
async fn unless_replaced<T>(local: &Rc<Local>, mut order: Pin<Box<impl Future<Output = T>>>) -> Option<T> {
    let mut serving = local.clone();
    loop {
        if let Some(result) = unless_stopped(&serving, order.as_mut()).await {
            return Some(result);
        }
        let shares = |own: &Rc<Local>| own.generation.is_related(&local.generation);
        serving = Local::all().find(|own| shares(own) && !own.stopping.has_happened())?;
    }
}

/// Installs obtained certificates that the generation does not have yet. Returns the certificate that is due
/// first; `None` if none is due.
async fn first_due(local: &Local, certificates: &[AcmeCertificate]) -> Option<AcmeCertificate> {
    let all = certificates.to_vec();
    let scheduled = local.generation.acme.scheduled;
    let read = move |store: &manylane_tls::Store| {
        let mut installed = Vec::new();
        let due = all.into_iter().filter_map(|own| {
            match own.install(store) {
                Some(Err(manylane_tls::Failure::Open)) => return None, // a later call installs it
                Some(result) => installed.push((own.name.clone(), result)),
                None => {}
            }
            let at =
                manylane_acme::due(&own.name, &certificate_info(store, &own.name)?, &own.names, scheduled)?;
            (at <= manylane_acme::now()).then_some((at, own))
        });
        let due = due.min_by_key(|(at, _)| *at).map(|(_, own)| own);
        (installed, due)
    };
    let (installed, due) = aside(local, read).await?;
    for (name, result) in installed {
        match result {
            Ok(()) => say(local, &name, Level::Notice, &"The certificate that was obtained is installed."),
            Err(manylane_tls::Failure::Bad(problem)) => {
                let text = format!("The certificate that was obtained cannot be used: {}.", problem.text);
                say(local, &name, Level::Warning, &text);
            }
            Err(_) => say(local, &name, Level::Warning, &"The certificate that was obtained cannot be used."),
        }
    }
    due
}

/// Writes a line about a certificate to the logs of `global`.
fn say(local: &Local, certificate: &str, level: Level, text: &dyn Display) {
    log_globally(local, level, &format!("acme: {certificate}: {text}"));
}

/// Runs an order, installs its certificate, and logs both.
async fn renew(local: &Local, own: &AcmeCertificate, mut running: Running) {
    let say = |level, text: &dyn Display| say(local, &own.name, level, text);
    say(Level::Notice, &format_args!("Ordering a certificate at {}.", own.section.directory.url));
    let failed = |running: Running, failure: Failure| {
        say(Level::Warning, &format_args!("The order failed: {}.", failure.why));
        running.fail(failure);
    };
    match obtain(local, own).await {
        Ok(pem) => running.keep((*own.of_file).into(), pem),
        Err(failure) => return failed(running, failure),
    }
    let certificate = own.clone();
    match aside(local, move |store| certificate.install(store)).await {
        Some(Some(Err(manylane_tls::Failure::Bad(problem)))) => failed(running, problem.text.into()),
        Some(None | Some(Ok(()))) => say(
            Level::Notice,
            &format_args!(
                "The certificate was renewed, in memory alone: 'dump ssl cert {}' has it for its file.",
                own.name
            ),
        ),
        Some(Some(Err(manylane_tls::Failure::Open))) => say(
            Level::Warning,
            &format_args!(
                "The certificate was obtained, and is installed after the open transaction: say 'commit ssl \
                 cert {0}' or 'abort ssl cert {0}'.",
                own.name
            ),
        ),
        _ => say(Level::Warning, &"The certificate was obtained, and is not installed yet."),
    }
}

/// True for addresses of this host, of private and shared networks (RFC 1918, RFC 6598, RFC 4193) and of a
/// link.
fn is_internal(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(own) => {
            own.is_loopback()
                || own.is_private()
                || own.is_link_local()
                || own.octets()[0] == 0
                || matches!(own.octets(), [100, 64..=127, ..])
        }
        IpAddr::V6(own) => {
            own.is_loopback() || own.is_unspecified() || own.is_unique_local() || own.is_unicast_link_local()
        }
    }
}

/// Obtains a certificate within the deadline, and removes the proofs (rule 4).
async fn obtain(local: &Local, own: &AcmeCertificate) -> Result<zeroize::Zeroizing<String>, Failure> {
    let section = &own.section;
    let account = section.account().ok_or_else(|| Failure::from("the account has no key".to_owned()))?;
    let wanted = Wanted {
        directory: &section.directory,
        contact: section.contact.as_deref(),
        account,
        external: section.external.as_ref(),
        names: &own.names,
        challenge: section.challenge,
    };
    let deadline = section.challenge.deadline();
    let transport = LaneTransport {
        local,
        own,
        proofs: RefCell::default(),
        published: RefCell::default(),
        allows_internal: OnceCell::new(),
    };
    let order = manylane_acme::obtain(&wanted, section.kind, &transport);
    match local.here().timeout(deadline, order).await {
        Ok(result) => result,
        Err(_) => Err(format!("it was not over within {} seconds", deadline.as_secs()).into()),
    }
}

/// Returns a line for each name whose TXT records an operator has to add. `*.a.test` and `a.test` are one
/// name with two records: a line for each would have the first confirmation count for both.
fn records_to_add(certificate: &str, proofs: &[Proof]) -> Vec<String> {
    let mut values: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for Proof { name, value, .. } in proofs {
        values.entry(name).or_default().push(format!("\"{value}\""));
    }
    let line = |(name, values): (&str, Vec<String>)| {
        let records = if values.len() == 1 { "record" } else { "records" };
        format!(
            "Add the TXT {records} {} to _acme-challenge.{name}, then say 'acme challenge_ready \
             {certificate} domain {name}' at the run-time interface.",
            values.join(" and ")
        )
    };
    values.into_iter().map(line).collect()
}

/// Returns the seconds that a `Retry-After` has the client wait: it is their number, or a date (RFC 9110,
/// 10.2.3).
fn seconds_left(text: &str, now: u64) -> Option<u64> {
    let text = text.trim();
    text.parse().ok().or_else(|| Some(u64::try_from(http_date(text.as_bytes())?).ok()?.saturating_sub(now)))
}

/// The IO of an order on a lane.
struct LaneTransport<'a> {
    local: &'a Local,
    own: &'a AcmeCertificate,
    /// The proofs in the map, with `http-01`.
    proofs: RefCell<Vec<Proof>>,
    /// The certificates at the listeners, with `tls-alpn-01`.
    published: RefCell<Vec<AlpnChallenge>>,
    /// All addresses of the directory's host are internal.
    allows_internal: OnceCell<bool>,
}

impl Transport for LaneTransport<'_> {
    async fn exchange(&self, request: Request<'_>) -> Result<Answer, String> {
        let url = request.url;
        let failed = |why: &dyn Display| format!("{} is not reached: {why}", url.host);
        let acme = &self.local.generation.acme;
        let tls = acme.tls.as_ref().zip(server_name(url));
        let Some((context, name)) = tls else { return Err(failed(&"expected a host name or an IP address")) };
        let (method, word) = match request.method {
            manylane_acme::Method::Get => (Method::Get, "GET"),
            manylane_acme::Method::Head => (Method::Head, "HEAD"),
            manylane_acme::Method::Post => (Method::Post, "POST"),
        };
        let port = if url.port == 443 { String::new() } else { format!(":{}", url.port) };
        let body = match request.method {
            manylane_acme::Method::Post => {
                format!("content-type: application/jose+json\r\ncontent-length: {}\r\n", request.body.len())
            }
            _ => String::new(),
        };
        let head = format!(
            "{word} {} HTTP/1.1\r\nhost: {}{port}\r\naccept: */*\r\nuser-agent: Manylane\r\n\
             connection: close\r\n{body}\r\n",
            url.path, url.host
        );
        let bytes = [head.as_bytes(), &request.body].concat();
        let answer = async {
            let addresses = http_client::resolve(self.local, &url.host, url.port).await?;
            let addresses = self.allowed(addresses)?;
            let tls = Some((context, name));
            http_client::exchange(self.local, &addresses, tls, method, &bytes, LONGEST_ANSWER).await
        };
        let answer = match self.local.here().timeout(TIMEOUT, answer).await {
            Ok(answer) => answer.map_err(|why| failed(&why))?,
            Err(_) => {
                return Err(failed(&format_args!("it gave no answer within {} seconds", TIMEOUT.as_secs())));
            }
        };
        let field = |name: &str| answer.head.value(name).map(|own| String::from_utf8_lossy(own).into_owned());
        Ok(Answer {
            status: answer.head.status(),
            nonce: field("replay-nonce"),
            location: field("location"),
            retry_after: field("retry-after").and_then(|text| seconds_left(&text, manylane_acme::now())),
            body: answer.body,
        })
    }

    async fn before_signing(&self) {
        self.local.here().turn_in(Class::Heavy).await; // an RSA signature takes as long as a handshake
    }

    async fn wait(&self, time: Duration) {
        self.local.here().sleep(time).await;
    }

    async fn new_key(&self, kind: KeyKind) -> Result<NewKey, String> {
        pool().run(move || NewKey::generate(kind)).map_err(|error| error.to_string())?.await
    }

    async fn prove(&self, proofs: Vec<Proof>) -> Result<(), String> {
        match self.own.section.challenge {
            Challenge::Http01 => {
                let map = self.map().ok_or("no rule reads the map")?;
                self.proofs.borrow_mut().clone_from(&proofs);
                let set = |map: &Reference, own: &Proof| map.set(own.token.as_bytes(), own.value.as_bytes());
                let add = move || proofs.iter().try_for_each(|own| set(&map, own));
                return pool().run(add).map_err(|error| error.to_string())?.await;
            }
            Challenge::TlsAlpn01 => {
                let publish = move || proofs.iter().map(Proof::publish_certificate).collect();
                let published: Result<_, String> =
                    pool().run(publish).map_err(|error| error.to_string())?.await;
                *self.published.borrow_mut() = published?;
                return Ok(());
            }
            Challenge::Dns01 => {}
        }
        let certificate = &self.own.name;
        // Before the lines: a script may confirm a record as soon as it reads its line.
        manylane_acme::expect(certificate, proofs.iter().map(|own| own.name.clone()));
        for line in records_to_add(certificate, &proofs) {
            say(self.local, certificate, Level::Notice, &line);
        }
        while !manylane_acme::is_ready(certificate) {
            self.local.here().sleep(TICK).await;
        }
        Ok(())
    }
}

impl LaneTransport<'_> {
    /// Drops internal addresses, and refuses a host that has no others: an authority on the Internet could
    /// use its URLs to reach internal services. An authority whose directory has internal addresses only may
    /// use them. The first request of an order is for the directory, so its addresses decide.
    fn allowed(&self, mut addresses: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, String> {
        let only_internal = || addresses.iter().all(|own| is_internal(own.ip()));
        if !*self.allows_internal.get_or_init(only_internal) {
            addresses.retain(|own| !is_internal(own.ip()));
            if addresses.is_empty() {
                return Err("expected a public address as for the directory, found internal ones".to_owned());
            }
        }
        Ok(addresses)
    }

    fn map(&self) -> Option<manylane_sync::Arc<Reference>> {
        let name = self.own.section.map.as_deref()?;
        self.local.generation.expressions.references.get(name, true)
    }
}

impl Drop for LaneTransport<'_> {
    fn drop(&mut self) {
        let proofs = self.proofs.take();
        if let Some(map) = self.map().filter(|_| !proofs.is_empty()) {
            let remove = move || {
                for own in &proofs {
                    map.remove(EntrySelector::Pattern(own.token.as_bytes()));
                }
            };
            // Fails if the queue of the pool is full. The tokens that remain are harmless: an authority
            // issues a new one for each challenge.
            drop(pool().run(remove));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_says_when_to_retry_in_seconds_or_by_date() {
        let now = 784_111_777;
        for (text, expected) in [
            (" 120 ", Some(120)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sunday, 06-Nov-94 08:50:37 GMT", Some(60)),
            ("Sun Nov  6 08:50:37 1994", Some(60)),
            ("Sun, 06 Nov 1994 08:48:37 GMT", Some(0)),
            ("soon", None),
            ("-1", None),
        ] {
            assert_eq!(seconds_left(text, now), expected, "{text}");
        }
    }

    #[test]
    fn the_records_of_a_name_are_in_one_line() {
        let proof =
            |name: &str, value: &str| Proof { name: name.into(), token: "".into(), value: value.into() };
        let proofs = [proof("a.test", "v1"), proof("b.test", "w"), proof("a.test", "v2")];
        let lines = records_to_add("x.pem", &proofs);
        let says = ["TXT records \"v1\" and \"v2\" to _acme-challenge.a.test,", "TXT record \"w\" to _acme"];
        assert_eq!(lines.len(), says.len(), "{lines:?}");
        assert!(lines.iter().zip(says).all(|(line, say)| line.contains(say)), "{lines:?}");
    }

    #[test]
    fn internal_addresses_are_known() -> Result<(), std::net::AddrParseError> {
        let internal = [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "0.0.0.0",
            "100.64.0.1",
            "::1",
            "::",
            "fd00::1",
            "fe80::1",
            "::ffff:127.0.0.1",
        ];
        for address in internal {
            assert!(is_internal(address.parse()?), "{address}");
        }
        for address in ["1.1.1.1", "172.32.0.1", "100.128.0.1", "2001:db8::1", "::ffff:1.1.1.1"] {
            assert!(!is_internal(address.parse()?), "{address}");
        }
        Ok(())
    }
}
