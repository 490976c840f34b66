#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod certificate;
mod chain;
mod choose;
mod client;
mod conn;
mod der;
mod error;
mod files;
mod keylog;
mod names;
mod negotiated;
mod ocsp;
mod ocsp_update;
mod openssl;
mod provider;
mod scratch;
mod server;
mod sigalgs;
mod store;
mod tickets;
mod trust;

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests;

pub use certificate::Definition;
pub use chain::{IgnoredErrors, Verified};
pub use choose::{ListLine, Source};
pub use client::{ClientContext, ClientSettings, ServerVerify};
pub use conn::{Connection, MOST_RECORDS, MOST_UNREAD, Progress};
pub use error::{Error, Problem};
pub use files::encode_base64;
pub use keylog::Secrets;
pub use names::Version;
pub use negotiated::{Info, Negotiated, OwnCertificate};
pub use ocsp::{OcspId, OcspStatus, check_ocsp, ocsp_text};
pub use ocsp_update::{
    LONGEST_ANSWER, NoQuestion, OcspQuestion, OcspState, OcspUpdate, OcspUpdateSettings, Responder,
};
pub use openssl::Reason;
pub use provider::CommonSettings;
pub use rustls::pki_types::ServerName;
pub use rustls::{CertificateError, Error as RustlsError};
pub use server::{ClientVerify, ServerContext, ServerSettings, SessionLookups, session_lookups};
pub use store::{BadOcsp, Failure, Kind, Names, Shown, Store};
pub use tickets::{BadKey, check_ticket_keys};
