//! The secrets of connections, for programs that decrypt captured traffic (`tune.ssl.keylog`).

use rustls::KeyLog;
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use zeroize::Zeroize;

/// The labels of rustls, which key log files use, too.
const LABELS: [&str; 7] = [
    Secrets::MASTER,
    "CLIENT_EARLY_TRAFFIC_SECRET",
    "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
    "SERVER_HANDSHAKE_TRAFFIC_SECRET",
    "CLIENT_TRAFFIC_SECRET_0",
    "SERVER_TRAFFIC_SECRET_0",
    "EXPORTER_SECRET",
];

thread_local! {
    /// Secrets of the connection that rustls is working on: rustls passes them only to a `KeyLog`.
    static LOGGED: RefCell<Secrets> = RefCell::default();
}

/// The secrets of a connection by label. They are zeroized on drop.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets(Vec<(&'static str, Box<[u8]>)>);

impl Secrets {
    /// The label of the client's random value, which identifies a captured connection.
    pub const CLIENT_RANDOM: &str = "client random";
    /// The label of the master secret of TLS 1.2.
    pub const MASTER: &str = "CLIENT_RANDOM";

    /// All secrets with their labels.
    pub fn all(&self) -> &[(&'static str, Box<[u8]>)] {
        &self.0
    }

    fn add(&mut self, label: &'static str, secret: &[u8]) {
        if !self.0.iter().any(|(own, _)| *own == label) {
            self.0.push((label, secret.into()));
        }
    }

    /// Takes the secrets that were logged since the last call.
    pub(crate) fn take_logged(&mut self) {
        LOGGED.with_borrow_mut(|logged| self.0.append(&mut logged.0));
    }
}

impl Drop for Secrets {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(|(_, secret)| secret.zeroize());
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").finish_non_exhaustive()
    }
}

/// Keeps secrets until [`Secrets::take_logged`].
#[derive(Debug)]
struct Keeper;

impl KeyLog for Keeper {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let Some(label) = LABELS.iter().find(|own| **own == label) else { return };
        LOGGED.with_borrow_mut(|logged| {
            logged.add(Secrets::CLIENT_RANDOM, client_random);
            logged.add(label, secret);
        });
    }
}

/// The `KeyLog` for contexts that keep secrets.
pub(crate) fn keeper() -> Arc<dyn KeyLog> {
    Arc::new(Keeper)
}
