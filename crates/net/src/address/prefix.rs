//! The table of address prefixes.

use super::{Family, Transport};

/// Kind of address that a prefix announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A host and a port follow.
    Ip(Option<Family>),
    /// A path follows.
    Unix,
    /// A name in the abstract namespace follows.
    Abstract { padded: bool },
    /// A number of a descriptor follows.
    Descriptor,
    /// The number of a connected unix socket's descriptor follows.
    SocketPair,
    /// A name follows.
    Local,
    /// A prefix that HAProxy has and this program does not; `remedy` says how to do without it.
    Refused { remedy: &'static str },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Prefix {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// Transport that the prefix forces.
    pub(super) transport: Option<Transport>,
    /// True if `stream+` and `dgram+` may stand before it.
    pub(super) plain: bool,
}

const fn plain(name: &'static str, kind: Kind) -> Prefix {
    Prefix { name, kind, transport: None, plain: true }
}

const fn alias(name: &'static str, kind: Kind, transport: Transport) -> Prefix {
    Prefix { name, kind, transport: Some(transport), plain: false }
}

const fn refused(name: &'static str, remedy: &'static str) -> Prefix {
    Prefix { name, kind: Kind::Refused { remedy }, transport: None, plain: false }
}

const NO_QUIC: &str = "QUIC is not built; listen with TCP and 'ssl' for HTTP/1 and HTTP/2";

use Transport::{Datagram, Multipath, Stream};

pub(super) static PREFIXES: &[Prefix] = &[
    plain("ip", Kind::Ip(None)),
    plain("ipv4", Kind::Ip(Some(Family::V4))),
    plain("ipv6", Kind::Ip(Some(Family::V6))),
    alias("tcp", Kind::Ip(None), Stream),
    alias("tcp4", Kind::Ip(Some(Family::V4)), Stream),
    alias("tcp6", Kind::Ip(Some(Family::V6)), Stream),
    alias("udp", Kind::Ip(None), Datagram),
    alias("udp4", Kind::Ip(Some(Family::V4)), Datagram),
    alias("udp6", Kind::Ip(Some(Family::V6)), Datagram),
    plain("unix", Kind::Unix),
    alias("uxst", Kind::Unix, Stream),
    alias("uxdg", Kind::Unix, Datagram),
    plain("abns", Kind::Abstract { padded: true }),
    plain("abnsz", Kind::Abstract { padded: false }),
    plain("fd", Kind::Descriptor),
    plain("sockpair", Kind::SocketPair),
    Prefix { name: "local", kind: Kind::Local, transport: None, plain: false },
    refused("quic4", NO_QUIC),
    refused("quic6", NO_QUIC),
    refused(
        "rhttp",
        "reverse HTTP is not built; have the server accept connections at an address of its own",
    ),
    alias("mptcp", Kind::Ip(None), Multipath),
    alias("mptcp4", Kind::Ip(Some(Family::V4)), Multipath),
    alias("mptcp6", Kind::Ip(Some(Family::V6)), Multipath),
];

pub(super) fn find(name: &str) -> Option<&'static Prefix> {
    PREFIXES.iter().find(|prefix| prefix.name == name)
}
