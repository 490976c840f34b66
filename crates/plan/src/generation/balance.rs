//! `balance`, `hash-type` and related settings.

use super::refuse::Refuse;
use super::server::{HashKey, Server, ServerAddress};
use manylane_balance::hash::HashFunction;
use manylane_balance::key::{self, UriKey};
use manylane_balance::{
    Affinity, Algorithm, Balancer, BuildError, HashMethod, HashType, Key, Options, ServerSpec, Servers,
};
use manylane_buf::{Chain, MAX_CLUSTER};
use manylane_config::lex::Word;
use manylane_config::table::OptionSwitch;
use manylane_config::tree::{self, AlgorithmKey, Mode, Settings};
use manylane_http::Head;
use manylane_net::Endpoint;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;

/// Key by which streams are balanced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BalanceKey {
    /// No key: servers take turns.
    None,
    /// The client's address.
    Source,
    /// A part of the target.
    Uri(UriKey),
    /// A parameter of the query. With `check_post` (the flag), also of a form in the body of a POST.
    Parameter(Box<[u8]>, bool),
    /// A header field; with the flag, only the main part of a host name.
    Header(Box<[u8]>, bool),
    /// The value of the expression [`Rules::balance`](super::Rules::balance).
    Expression,
    /// The cookie at the start of an RDP connection, which [`Rules::balance`](super::Rules::balance) reads.
    RdpCookie,
}

impl BalanceKey {
    /// Returns true if an expression computes the key.
    #[inline]
    pub fn is_expression(&self) -> bool {
        matches!(self, Self::Expression | Self::RdpCookie)
    }

    /// Returns true if the key may be in the request's body, so that the proxy waits for the body.
    #[inline]
    pub fn wants_body(&self) -> bool {
        matches!(self, Self::Parameter(_, true))
    }

    /// Returns the key in a body (`check_post`).
    #[inline]
    pub fn of_body(&self, function: HashFunction, body: &Chain) -> Key<'static> {
        let Self::Parameter(name, true) = self else { return Key::None };
        let Ok(mut body) = body.share() else { return Key::None };
        // Reads only the part in one piece; the rest of a longer body is ignored.
        let length = body.len().min(MAX_CLUSTER);
        let found = body.pull_up(length).ok().and_then(|body| key::url_param(body, name));
        found.map_or(Key::None, |value| Key::Number(function.hash(value)))
    }

    /// Returns the key of a stream in TCP mode, where only addresses are known.
    #[inline]
    pub fn of_connection(&self, source: Option<SocketAddr>) -> Key<'static> {
        match (self, source) {
            (Self::Source, Some(source)) => Key::Number(key::source_key(source.ip())),
            _ => Key::None,
        }
    }

    /// Returns the key of a request.
    #[inline]
    pub fn of_request<'h>(&self, source: Option<SocketAddr>, head: &'h Head) -> Key<'h> {
        let bytes = match self {
            Self::None | Self::Expression | Self::RdpCookie => None,
            Self::Source => return self.of_connection(source),
            Self::Uri(part) => part.of(head.target()),
            Self::Parameter(name, _) => head.query().and_then(|query| key::url_param(query, name)),
            Self::Header(name, main) => {
                head.value(&**name).map(|value| if *main { key::domain_only(value) } else { value })
            }
        };
        bytes.map_or(Key::None, Key::Bytes)
    }
}

pub(super) fn balancer(
    settings: &Settings,
    mode: Mode,
    servers: &[Server],
    lanes: usize,
    refuse: &mut Refuse<'_>,
) -> (Balancer, BalanceKey, tree::Algorithm) {
    let kind = settings.hash_type.map_or(HashType::MAP, |set| {
        let tree::HashType { consistent, function, avalanche } = set.value;
        HashType {
            method: if consistent { HashMethod::Consistent } else { HashMethod::Map },
            // The table of keywords checked the name.
            function: HashFunction::by_name(function).unwrap_or(HashFunction::Sdbm),
            avalanche,
        }
    });
    let (named, words) = named_algorithm(settings, mode, refuse);
    let (algorithm, key) = algorithm(named, words, mode, kind, refuse);
    let options = Options {
        all_backups: settings.option(OptionSwitch::ALLBACKUPS),
        balance_factor: settings.hash_balance_factor.map_or(0, |set| set.value),
        affinity: match settings.hash_preserve_affinity.map(|set| set.value) {
            Some("maxconn") => Affinity::MaxConn,
            Some("maxqueue") => Affinity::MaxQueue,
            _ => Affinity::Always,
        },
        fullconn: settings.fullconn.map_or(0, |set| set.value),
        lanes,
        // Balancers that draw the same numbers choose the same servers at the same time.
        seed: RandomState::new().hash_one(servers.len()),
        ..Options::default()
    };
    let specs = servers.iter().map(spec);
    let servers = Servers::new(specs).unwrap_or_else(|error| {
        // The check of the configuration has reported duplicates already, with their positions.
        let reported =
            matches!(error, BuildError::SameName(_) | BuildError::SameId(_)) && refuse.found.errors() > 0;
        if !reported {
            let pos = settings.balance.as_ref().map(|set| set.pos);
            refuse.found.push(manylane_config::diag::Severity::Alert, pos, error.to_string());
        }
        Servers::new([]).expect("no servers are no error")
    });
    (Balancer::new(servers, algorithm, options), key, named)
}

/// Returns the algorithm of the section's `balance` and its words, or `roundrobin` with a warning if the mode
/// has no such algorithm.
fn named_algorithm<'s>(
    settings: &'s Settings,
    mode: Mode,
    refuse: &mut Refuse<'_>,
) -> (tree::Algorithm, &'s [Word]) {
    let Some(set) = &settings.balance else { return (tree::Algorithm::ROUNDROBIN, &[]) };
    let needs = match set.value.algorithm.key {
        AlgorithmKey::Uri | AlgorithmKey::Parameter | AlgorithmKey::Header if mode != Mode::Http => "http",
        AlgorithmKey::LogLine if mode != Mode::Log => "log",
        _ => return (set.value.algorithm, &set.value.words),
    };
    let message = format!("this 'balance' needs 'mode {needs}'; 'balance roundrobin' is used");
    refuse.found.warning(set.pos, message);
    (tree::Algorithm::ROUNDROBIN, &[])
}

fn algorithm(
    named: tree::Algorithm,
    words: &[Word],
    mode: Mode,
    kind: HashType,
    refuse: &mut Refuse<'_>,
) -> (Algorithm, BalanceKey) {
    let key = match named.key {
        AlgorithmKey::None => BalanceKey::None,
        AlgorithmKey::Source => BalanceKey::Source,
        AlgorithmKey::SourceOrExpression if words.is_empty() => BalanceKey::Source,
        AlgorithmKey::Expression | AlgorithmKey::SourceOrExpression | AlgorithmKey::LogLine => {
            BalanceKey::Expression
        }
        AlgorithmKey::Uri => BalanceKey::Uri(uri(words, refuse)),
        AlgorithmKey::Parameter => {
            let [name, more @ ..] = words else { return (Algorithm::RoundRobin, BalanceKey::None) };
            // The table of keywords allows only `check_post` here. Its number has no effect any more.
            BalanceKey::Parameter(name.bytes().into(), !more.is_empty())
        }
        AlgorithmKey::Header => {
            let [name, more @ ..] = words else { return (Algorithm::RoundRobin, BalanceKey::None) };
            let main = more.iter().any(|word| *word == *"use_domain_only");
            BalanceKey::Header(name.bytes().to_ascii_lowercase().into(), main)
        }
        AlgorithmKey::RdpCookie => BalanceKey::RdpCookie,
    };
    // Log lines are no load that servers could be compared by.
    let draws = if mode == Mode::Log { 1 } else { named.draws };
    (Algorithm::by_name(named.name, draws, kind), key)
}

/// Reads `len n`, `depth n`, `whole` and `path-only`.
fn uri(words: &[Word], refuse: &mut Refuse<'_>) -> UriKey {
    let mut key = UriKey::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|word| word.text()?.parse().ok());
        let fine = match word.bytes() {
            b"len" => number().map(|n| key.len = n).is_some(),
            b"depth" => number().map(|n| key.depth = n).is_some(),
            b"whole" => {
                key.whole = true;
                true
            }
            b"path-only" => {
                key.path_only = true;
                true
            }
            _ => false,
        };
        if !fine {
            let message = format!(
                "'balance uri' expects len <number>, depth <number>, whole or path-only, found '{}'",
                word.shown()
            );
            refuse.found.alert(word.pos(), message);
        }
    }
    key
}

pub(super) fn spec(server: &Server) -> ServerSpec {
    let endpoint = server.addr.read().address;
    let address = || match &endpoint {
        ServerAddress::At(Endpoint::Ip(address)) => Some(*address),
        _ => None,
    };
    let hash_key = match &server.hash_key {
        HashKey::Id => None,
        HashKey::Guid(guid) => guid.as_ref().map(|guid| String::from_utf8_lossy(guid).into_owned()),
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
        disabled: server.disabled,
        unresolved: endpoint == ServerAddress::Nowhere,
        hash_key: hash_key.map(|text| HashFunction::Crc32.hash(text.as_bytes())),
        ..ServerSpec::new(server.name.clone(), server.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_at_the_beginning_of_a_body_is_found_however_long_it_is() {
        let key = BalanceKey::Parameter((*b"id").into(), true);
        let of = |length: usize| {
            let mut body = Chain::new();
            body.append(b"id=7&text=").expect("there is memory");
            body.append(&vec![b'x'; length]).expect("there is memory");
            key.of_body(HashFunction::Sdbm, &body)
        };
        assert_eq!(of(10), Key::Number(HashFunction::Sdbm.hash(b"7")));
        assert_eq!(of(3 * MAX_CLUSTER), of(10));
    }
}
