//! `balance`, `hash-type` and what belongs to them.

use super::bind::text;
use super::refuse::Refuse;
use super::server::{HashKey, Server, ServerPlace};
use manylane_balance::hash::HashFunction;
use manylane_balance::{Affinity, Algorithm, Balancer, HashMethod, HashType, Options, ServerSpec, Servers};
use manylane_config::table::Toggle;
use manylane_config::tree::{self, Mode, Settings};
use manylane_net::Endpoint;

/// What a stream is balanced by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BalanceKey {
    /// Nothing: it gets its turn.
    None,
    /// The client's address.
    Source,
}

pub(super) fn balancer(
    settings: &Settings,
    mode: Mode,
    servers: &[Server],
    refuse: &mut Refuse<'_>,
) -> (Balancer, BalanceKey) {
    let kind = settings.hash_type.map_or(HashType::MAP, |set| {
        let tree::HashType { consistent, function, avalanche } = set.value;
        HashType {
            method: if consistent { HashMethod::Consistent } else { HashMethod::Map },
            function: HashFunction::by_name(function).unwrap_or(HashFunction::Sdbm), // the table checked the name
            avalanche,
        }
    });
    let (algorithm, key) = algorithm(settings, mode, kind, refuse);
    let options = Options {
        all_backups: settings.option(Toggle::ALLBACKUPS),
        balance_factor: settings.hash_balance_factor.map_or(0, |set| set.value),
        affinity: match settings.hash_preserve_affinity.map(|set| set.value) {
            Some("maxconn") => Affinity::MaxConn,
            Some("maxqueue") => Affinity::MaxQueue,
            _ => Affinity::Always,
        },
        fullconn: settings.fullconn.map_or(0, |set| set.value),
        ..Options::default()
    };
    let specs = servers.iter().map(spec);
    let servers = Servers::new(specs).unwrap_or_else(|error| {
        let pos = settings.balance.as_ref().map(|set| set.pos);
        refuse.found.push(manylane_config::diag::Severity::Alert, pos, error.to_string());
        Servers::new([]).expect("no servers are no error")
    });
    (Balancer::new(servers, algorithm, options), key)
}

fn algorithm(
    settings: &Settings,
    mode: Mode,
    kind: HashType,
    refuse: &mut Refuse<'_>,
) -> (Algorithm, BalanceKey) {
    let Some(set) = &settings.balance else { return (Algorithm::RoundRobin, BalanceKey::None) };
    let tree::Balance { algorithm, words } = &set.value;
    let mut by_message = |name: &str| {
        if mode == Mode::Tcp {
            let message =
                format!("'balance {name}' needs 'mode http'; falling back to 'balance roundrobin'");
            refuse.found.warning(set.pos, message);
        } else {
            refuse.keyword(set.pos, &format!("balance {name}"), "it is not built yet");
        }
        (Algorithm::RoundRobin, BalanceKey::None)
    };
    match algorithm {
        tree::Algorithm::Roundrobin => (Algorithm::RoundRobin, BalanceKey::None),
        tree::Algorithm::StaticRr => (Algorithm::StaticRr, BalanceKey::None),
        tree::Algorithm::Leastconn => (Algorithm::LeastConn, BalanceKey::None),
        tree::Algorithm::First => (Algorithm::First, BalanceKey::None),
        tree::Algorithm::Random(draws) => (Algorithm::Random { draws: *draws }, BalanceKey::None),
        tree::Algorithm::Ewma => (Algorithm::Ewma { draws: 2 }, BalanceKey::None),
        tree::Algorithm::Source => (Algorithm::Hash(kind), BalanceKey::Source),
        tree::Algorithm::Maglev if words.is_empty() => (Algorithm::Maglev(kind), BalanceKey::Source),
        tree::Algorithm::Maglev => by_message("maglev"),
        tree::Algorithm::Uri => by_message("uri"),
        tree::Algorithm::UrlParam => by_message("url_param"),
        tree::Algorithm::Hdr => by_message(&format!("hdr({})", words.first().map(text).unwrap_or_default())),
        tree::Algorithm::Hash => {
            refuse.keyword(set.pos, "balance hash", "it is not built yet");
            (Algorithm::RoundRobin, BalanceKey::None)
        }
    }
}

fn spec(server: &Server) -> ServerSpec {
    let address = || match &server.place {
        ServerPlace::At(Endpoint::Ip(address)) => Some(*address),
        _ => None,
    };
    let hash_key = match server.hash_key {
        HashKey::Id => None,
        HashKey::Address => address().map(|address| address.ip().to_string()),
        HashKey::AddressAndPort => address().map(|address| address.to_string()),
    };
    ServerSpec {
        weight: server.weight,
        backup: server.backup,
        cookie: server.cookie.clone(),
        maxconn: server.maxconn,
        minconn: server.minconn,
        maxqueue: server.maxqueue,
        slowstart: server.slowstart,
        disabled: server.disabled || matches!(server.place, ServerPlace::Nowhere),
        hash_key: hash_key.map(|text| HashFunction::Crc32.hash(text.as_bytes())),
        ..ServerSpec::new(server.name.clone(), server.id)
    }
}
