#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod certificate;
mod chain;
mod challenge;
mod choose;
mod client;
mod conn;
mod der;
mod error;
mod files;
mod generate;
mod hello;
mod issuers;
mod keylog;
mod line_options;
#[cfg(feature = "measure")]
mod measure;
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
mod url;
mod watch;

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests;

pub use certificate::Definition;
pub use chain::{IgnoredErrors, Verified, verify_error};
pub use challenge::AlpnChallenge;
pub use choose::{Bases, ListLine, ShownName, Source};
pub use client::{ClientContext, ClientSettings, Hello, ServerVerify};
pub use conn::{Connection, MOST_RECORDS, MOST_UNREAD, Progress};
pub use error::{Error, Problem};
pub use files::{decode_base64, encode_base64};
pub use generate::GeneratedCertificates;
pub use hello::ClientHello;
pub use issuers::FileSettings;
pub use keylog::Secrets;
pub use line_options::LineOptions;
#[cfg(feature = "measure")]
pub use measure::time_choices;
pub use names::{OLD_VERSIONS, Version, not_spoken};
pub use negotiated::{Info, Negotiated, OwnCertificate};
pub use ocsp::{OcspId, OcspStatus, check_ocsp, ocsp_text};
pub use ocsp_update::{LONGEST_ANSWER, NoQuestion, OcspQuestion, OcspState, OcspUpdate, OcspUpdateSettings};
pub use openssl::Reason;
pub use provider::{CommonSettings, RecordSizes};
pub use rustls::pki_types::ServerName;
pub use rustls::{CertificateError, Error as RustlsError};
pub use server::{
    ClientVerify, MOST_EARLY_DATA, ServerContext, ServerSettings, SessionLookups, session_lookups,
};
pub use store::{BadOcsp, Failure, Kind, Names, RevokedLists, Store, StoredFile};
pub use tickets::{BadKey, check_ticket_keys};
pub use url::HttpUrl;
pub use watch::FileChange;
