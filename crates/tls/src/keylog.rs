//! The secrets of connections, for programs that read captured traffic (`tune.ssl.keylog`).

use rustls::KeyLog;
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use zeroize::Zeroize;

/// What rustls calls them, and what `tune.ssl.keylog` files do.
const LABELS: [&str; 6] = [
    Secrets::MASTER,
    "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
    "SERVER_HANDSHAKE_TRAFFIC_SECRET",
    "CLIENT_TRAFFIC_SECRET_0",
    "SERVER_TRAFFIC_SECRET_0",
    "EXPORTER_SECRET",
];

thread_local! {
    /// Of the connection that rustls is at work on: it tells them to who logs them, and to nobody else.
    static TOLD: RefCell<Secrets> = RefCell::default();
}

/// The secrets of a connection by their labels. They are overwritten when nobody wants to know them any more.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets(Vec<(&'static str, Box<[u8]>)>);

impl Secrets {
    /// The label of what the client chose at random, by which captured connections are found.
    pub const CLIENT_RANDOM: &str = "client random";
    /// The label of the key that all others of TLS 1.2 are made of.
    pub const MASTER: &str = "CLIENT_RANDOM";

    /// All of them, with their labels.
    pub fn all(&self) -> &[(&'static str, Box<[u8]>)] {
        &self.0
    }

    fn add(&mut self, label: &'static str, secret: &[u8]) {
        if !self.0.iter().any(|(own, _)| *own == label) {
            self.0.push((label, secret.into()));
        }
    }

    /// Takes over what was told since the last call.
    pub(crate) fn take_told(&mut self) {
        TOLD.with_borrow_mut(|told| self.0.append(&mut told.0));
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

/// Keeps what rustls tells until [`Secrets::take_told`].
#[derive(Debug)]
struct Keeper;

impl KeyLog for Keeper {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let Some(label) = LABELS.iter().find(|own| **own == label) else { return };
        TOLD.with_borrow_mut(|told| {
            told.add(Secrets::CLIENT_RANDOM, client_random);
            told.add(label, secret);
        });
    }
}

/// What contexts have rustls tell, if they have it tell anything.
pub(crate) fn keeper() -> Arc<dyn KeyLog> {
    Arc::new(Keeper)
}
