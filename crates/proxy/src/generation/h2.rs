//! `tune.h2.*`: what is allowed to peers that speak HTTP/2.

use manylane_h1::Limits;
use manylane_mux::h2::Config;

/// Settings of HTTP/2, of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct H2Settings {
    /// To clients.
    pub front: Config,
    /// To servers.
    pub back: Config,
}

impl H2Settings {
    /// To a client of a proxy whose requests may have these heads.
    pub fn of_client(&self, limits: &Limits) -> Config {
        Config { head: limits.head, room: limits.room, fields: limits.fields, ..self.front }
    }

    /// To a server of a proxy whose responses may have these heads.
    pub fn of_server(&self, limits: &Limits) -> Config {
        Config { head: limits.head, room: limits.room, fields: limits.fields, ..self.back }
    }
}
