//! `httpclient.*`: how the process connects to hosts that it asks itself: responders of OCSP, and authorities
//! of ACME.

use manylane_config::tree::Config;
use manylane_resolve::Kind;
use std::time::Duration;

/// How the process connects to the hosts of its own requests.
#[derive(Clone, Debug)]
pub struct HttpClientSettings {
    /// Time for an address to accept.
    pub connect: Duration,
    /// How often all addresses of a host are tried again.
    pub retries: u32,
    /// Names of hosts are not resolved.
    pub no_names: bool,
    /// The `resolvers` section that is asked for names, if not the system's resolver.
    pub resolvers: Option<usize>,
    /// The family of addresses that comes first, if it was set.
    pub family: Option<Kind>,
}

pub(super) fn settings(config: &Config) -> HttpClientSettings {
    let own = &config.global.tls;
    let section = own.client_resolvers.as_ref().map(|set| set.value.bytes());
    let connect = own.client_connect.map(|set| set.value).filter(|time| !time.is_zero());
    HttpClientSettings {
        connect: connect.unwrap_or(Duration::from_secs(5)),
        retries: own.client_retries.map_or(3, |set| set.value),
        no_names: own.client_no_names.is_some_and(|set| set.value),
        // The configuration refuses names of sections that do not exist.
        resolvers: section.and_then(|name| config.resolvers.iter().position(|own| own.name.bytes() == name)),
        family: own.client_family.map(|set| if set.value == "ipv4" { Kind::A } else { Kind::Aaaa }),
    }
}
