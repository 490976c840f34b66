//! Decides when certificates are due, and keeps the results of orders. The state belongs to the process, so
//! failures and obtained certificates survive reloads and the ends of generations.
//!
//! # Protocol
//! 1. [`due`] returns when a certificate is due: when a third of its life is left; at once if it lacks a
//!    name, if no authority signed it, or if a command requested an order.
//! 2. The process runs one order of a section at a time. Sections are independent, so an order that waits for
//!    TXT records delays only its own section. The holder of [`Running`] runs the order; dropping it ends the
//!    order.
//! 3. The next order after a failure begins after [`FIRST_RETRY`]. Each further failure doubles the wait, up
//!    to [`LONGEST_RETRY`], and a random part of up to a quarter comes on top. An order that a reload
//!    interrupts is not a failure; the next one begins after [`AFTER_RELOAD`], also if a command requested
//!    the interrupted one, whatever certificate the file has by then.
//! 4. [`Running::keep`] records an obtained certificate before a generation installs it, together with the
//!    certificate that the file had. Each generation installs the recorded one if it has not yet and the file
//!    still has the same certificate. [`retain`] drops the recorded one if the file has another.

use crate::answer::Failure;
use crate::certificate::{CertificateInfo, now};
use manylane_sync::{LockClass, Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use zeroize::Zeroizing;

/// Seconds between the first failure and the next order.
const FIRST_RETRY: u64 = 5 * 60;

/// Longest wait after a failure, in seconds, without its random part.
const LONGEST_RETRY: u64 = 24 * 60 * 60;

/// The random part of a wait is below the wait divided by this.
const RETRY_SPREAD: u64 = 4;

/// Seconds between an order that a reload interrupted and the next one.
const AFTER_RELOAD: u64 = 60;

/// Shortest time between a successful order and the next one, in seconds. It bounds the orders for a
/// certificate that is due at once even when it is new.
const SHORTEST_RENEWAL: u64 = 60 * 60;

/// A certificate is due when its life divided by this is left.
const LEFT: u64 = 3;

/// The random delay of a renewal is below the life divided by this.
const SPREAD: u64 = 24;

/// Seed of the random delays. It differs between processes, so the hosts of a site spread their orders.
static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);

static CLASS: LockClass = LockClass::new("certificates of ACME", LockClass::LEAF);
static ALL: LazyLock<Mutex<BTreeMap<Box<str>, Entry>>> =
    LazyLock::new(|| Mutex::new(&CLASS, BTreeMap::new()));

/// The state of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// An order runs.
    pub running: bool,
    /// Number of failed orders since the last success.
    pub failures: u32,
    /// Why the last order failed.
    pub reason: Option<Box<str>>,
    /// A command requested an order that has not begun: the time from which it is due, in seconds since 1970.
    requested: Option<u64>,
    /// A command requested the running order.
    commanded: bool,
    /// Time before which only a command starts an order, in seconds since 1970.
    not_before: u64,
}

#[derive(Default)]
struct Entry {
    state: State,
    /// The section of the running order.
    section: Box<str>,
    /// Names whose TXT records the order needs; true once a command has confirmed the record.
    records: BTreeMap<Box<str>, bool>,
    /// The certificate in DER that the file had, and the last obtained one in PEM with its key.
    obtained: Option<(Box<[u8]>, Zeroizing<String>)>,
    /// Number of obtained certificates, which is the number of the one in `obtained`.
    number: u64,
}

fn lock() -> MutexGuard<'static, BTreeMap<Box<str>, Entry>> {
    ALL.lock()
}

/// A running order. If it is dropped without a result, it counts as interrupted by a reload.
#[derive(Debug)]
pub struct Running {
    certificate: Box<str>,
    result: Option<Result<(), Failure>>,
}

impl Running {
    /// Records the obtained certificate, for this generation and later ones. From then on the order counts as
    /// successful, even if a reload ends the generation before it installs the certificate.
    pub fn keep(&mut self, of_file: Box<[u8]>, pem: Zeroizing<String>) {
        if let Some(entry) = lock().get_mut(&self.certificate) {
            entry.obtained = Some((of_file, pem));
            entry.number += 1;
        }
        self.result = Some(Ok(()));
    }

    /// Ends the order with a failure.
    pub fn fail(mut self, failure: Failure) {
        self.result = Some(Err(failure));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let result = self.result.take();
        if let Some(entry) = lock().get_mut(&self.certificate) {
            entry.records.clear();
            match result {
                Some(result) => entry.state.end(&self.certificate, result, now()),
                None => entry.state.interrupt(now()),
            }
        }
    }
}

impl State {
    fn end(&mut self, name: &str, result: Result<(), Failure>, now: u64) {
        self.running = false;
        match result {
            Ok(()) => (self.failures, self.reason, self.not_before) = (0, None, now + SHORTEST_RENEWAL),
            Err(failure) => {
                let doubled = FIRST_RETRY << self.failures.min(20);
                let wait = doubled.min(LONGEST_RETRY);
                let jitter = SEED.hash_one((name, self.failures, now)) % (wait / RETRY_SPREAD);
                self.not_before = now + (wait + jitter).max(failure.retry_after);
                self.failures = self.failures.saturating_add(1);
                self.reason = Some(failure.why.into());
            }
        }
    }

    fn interrupt(&mut self, now: u64) {
        self.running = false;
        let next = now + AFTER_RELOAD;
        self.not_before = self.not_before.max(next);
        // As a command, it does not wait for the next try after a failure.
        self.requested = self.commanded.then_some(next);
    }

    /// Returns when the certificate is due, in seconds since 1970. Without `scheduled`, only a command makes
    /// it due; otherwise `None`.
    fn due(&self, name: &str, info: &CertificateInfo, names: &[Box<str>], scheduled: bool) -> Option<u64> {
        if self.requested.is_some() {
            return self.requested;
        }
        let life = info.not_after.saturating_sub(info.not_before);
        let by_dates = if info.self_issued || !info.has(names) {
            0
        } else {
            let jitter = SEED.hash_one((name, info.not_after)) % (life / SPREAD).max(1);
            info.not_after.saturating_sub(life / LEFT).saturating_add(jitter)
        };
        scheduled.then(|| by_dates.max(self.not_before))
    }
}

/// Forgets all certificates but these. Each name comes with the certificate in DER that its file has; if the
/// last obtained one belongs to another, it is dropped, since the file is newer.
pub fn retain(certificates: &[(&str, &[u8])]) {
    lock().retain(|name, entry| {
        let own = certificates.iter().find(|(own, _)| *own == &**name);
        let is_current = |obtained: &mut (Box<[u8]>, _)| own.is_some_and(|(_, der)| **der == *obtained.0);
        entry.obtained.take_if(|obtained| !is_current(obtained));
        entry.state.running || own.is_some()
    });
}

/// Returns when a certificate is due, in seconds since 1970 (rule 1).
pub fn due(certificate: &str, info: &CertificateInfo, names: &[Box<str>], scheduled: bool) -> Option<u64> {
    state(certificate).due(certificate, info, names, scheduled)
}

/// Returns the state of a certificate.
pub fn state(certificate: &str) -> State {
    lock().get(certificate).map(|entry| entry.state.clone()).unwrap_or_default()
}

/// Begins an order. `None` if an order of the section or for the certificate runs (rule 2).
pub fn begin(certificate: &str, section: &str) -> Option<Running> {
    let mut all = lock();
    if all.iter().any(|(name, own)| own.state.running && (**name == *certificate || *own.section == *section))
    {
        return None;
    }
    let entry = all.entry(certificate.into()).or_default();
    entry.state.running = true;
    entry.state.commanded = entry.state.requested.take().is_some();
    entry.section = section.into();
    Some(Running { certificate: certificate.into(), result: None })
}

/// Requests an order. Returns false if an order for this certificate runs.
pub fn ask(certificate: &str) -> bool {
    let mut all = lock();
    let state = &mut all.entry(certificate.into()).or_default().state;
    if !state.running {
        state.requested = Some(0);
    }
    !state.running
}

/// True if a command requested an order for the certificate, and the order is due and has not begun.
pub fn is_requested(certificate: &str) -> bool {
    let now = now();
    lock().get(certificate).is_some_and(|entry| entry.state.requested.is_some_and(|at| at <= now))
}

/// Sets the names whose TXT records the running order needs.
pub fn expect(certificate: &str, names: impl IntoIterator<Item = Box<str>>) {
    if let Some(entry) = lock().get_mut(certificate) {
        entry.records = names.into_iter().map(|name| (name, false)).collect();
    }
}

/// Confirms that the TXT record of a name is set. Returns whether this is the first confirmation, and how
/// many records are still missing; `None` if no order needs the record.
pub fn set_ready(certificate: &str, name: &str) -> Option<(bool, usize)> {
    let mut all = lock();
    let records = &mut all.get_mut(certificate)?.records;
    let was = std::mem::replace(records.get_mut(name)?, true);
    Some((!was, records.values().filter(|ready| !**ready).count()))
}

/// True if all TXT records that the order needs are confirmed.
pub fn is_ready(certificate: &str) -> bool {
    lock().get(certificate).is_none_or(|entry| entry.records.values().all(|ready| *ready))
}

/// Returns the number of the last obtained certificate, and its PEM with the key. `None` if its number is not
/// above `after` (the first is 1), or if it belongs to another certificate in DER than `of_file` (rule 4).
pub fn obtained(certificate: &str, of_file: &[u8], after: u64) -> Option<(u64, Zeroizing<String>)> {
    let all = lock();
    let entry = all.get(certificate)?;
    let (own, pem) = entry.obtained.as_ref()?;
    (entry.number > after && **own == *of_file).then(|| (entry.number, pem.clone()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // helpers of tests are tests too
    use super::*;

    fn names() -> [Box<str>; 1] {
        ["a.test".into()]
    }

    fn info(life: u64) -> CertificateInfo {
        CertificateInfo {
            not_before: 1000,
            not_after: 1000 + life,
            names: vec!["a.test".into()],
            self_issued: false,
        }
    }

    #[test]
    fn a_third_of_the_life_is_left_or_a_name_is_missing() {
        let state = State::default();
        let at = state.due("x", &info(2400), &names(), true).unwrap();
        assert!((1000 + 1600..1000 + 1700).contains(&at), "{at}");
        assert_eq!(state.due("x", &info(2400), &names(), false), None);
        assert_eq!(state.due("x", &info(2400), &["b.test".into()], true), Some(0));
        let own = CertificateInfo { self_issued: true, ..info(2400) };
        assert_eq!(state.due("x", &own, &names(), true), Some(0));
        let requested = State { requested: Some(0), not_before: u64::MAX, ..state };
        assert_eq!(requested.due("x", &info(2400), &names(), false), Some(0));
    }

    #[test]
    fn failures_double_the_time_up_to_a_day_and_success_ends_them() {
        let mut state = State::default();
        let fail = |state: &mut State, retry_after| {
            state.end("x", Err(Failure { why: "x".into(), retry_after }), 0);
            state.not_before
        };
        for wait in [300, 600, 1200] {
            let at = fail(&mut state, 0);
            assert!((wait..wait + wait / 4).contains(&at), "{at}");
        }
        assert_eq!(fail(&mut state, 7000), 7000);
        let (failures, reason) = (state.failures, state.reason.clone());
        state.interrupt(7000);
        assert_eq!((state.failures, &state.reason, state.not_before), (failures, &reason, 7060));
        let many: Vec<u64> = (0..40).map(|_| fail(&mut state, 0)).collect();
        assert!(many.iter().skip(20).all(|at| (86_400..108_000).contains(at)), "{many:?}");
        assert_ne!(many[38], many[39], "retries have a jitter");
        let own = CertificateInfo { self_issued: true, ..info(2400) };
        assert_eq!(state.due("x", &own, &names(), true), many.last().copied());
        state.end("x", Ok(()), 50);
        assert_eq!((state.failures, state.not_before), (0, 50 + 3600));
        assert_eq!(state.reason, None);
    }

    /// One test, since all tests of a process share the state.
    #[test]
    fn one_order_runs_and_what_was_obtained_outlives_it() {
        let running = begin("a", "x").unwrap();
        assert!(begin("b", "x").is_none());
        assert!(begin("a", "y").is_none());
        assert!(begin("b", "y").is_some());
        assert!(!ask("a"));
        assert_eq!(set_ready("a", "a.test"), None);
        expect("a", ["a.test".into(), "b.test".into()]);
        assert_eq!(set_ready("a", "a.test"), Some((true, 1)));
        assert_eq!(set_ready("a", "a.test"), Some((false, 1)));
        assert!(!is_ready("a"));
        assert_eq!(set_ready("a", "b.test"), Some((true, 0)));
        assert!(is_ready("a"));
        drop(running);
        assert_eq!(set_ready("a", "b.test"), None);
        let after = state("a");
        assert_eq!((after.running, after.failures, after.reason), (false, 0, None));
        assert!((1..=AFTER_RELOAD).contains(&after.not_before.saturating_sub(now())));
        assert!(ask("a") && is_requested("a"));
        // A reload does not drop what a command requested: another order begins, but not at once.
        let after = AFTER_RELOAD + now();
        drop(begin("a", "x").unwrap());
        assert!(!is_requested("a"));
        let at = due("a", &info(2400), &names(), false).unwrap();
        assert!((after..=AFTER_RELOAD + now()).contains(&at), "{at}");
        let mut running = begin("a", "x").unwrap();
        running.keep(Box::from(*b"der"), Zeroizing::new("pem".to_owned()));
        // The certificate is recorded before the order ends. Dropping the order then is not a failure.
        let pem = || Zeroizing::new("pem".to_owned());
        assert_eq!(obtained("a", b"der", 0), Some((1, pem())));
        assert_eq!(obtained("a", b"der", 1), None);
        assert_eq!(obtained("a", b"another", 0), None);
        drop(running);
        assert!(state("a").not_before > now() + AFTER_RELOAD);
        assert!(!is_requested("a"));
        retain(&[("a", b"der")]);
        assert_eq!(obtained("a", b"der", 0), Some((1, pem())));
        // A newer file drops the recorded certificate.
        retain(&[("a", b"newer")]);
        assert_eq!(obtained("a", b"der", 0), None);
        let mut running = begin("a", "x").unwrap();
        running.keep(Box::from(*b"newer"), pem());
        drop(running);
        assert_eq!(obtained("a", b"newer", 1), Some((2, pem())));
        retain(&[]);
        assert_eq!(obtained("a", b"newer", 0), None);
    }
}
