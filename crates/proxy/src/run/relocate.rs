//! Servers that an operator sends elsewhere: `set server addr`, `set server fqdn`.

use super::Local;
use super::changes::change;
use crate::generation::{Backend, Order};
use manylane_balance::{Index, Standing};
use manylane_net::address::Port;
use manylane_resolve::Name;
use std::net::IpAddr;

/// What came of sending a server elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relocated {
    /// Its address before.
    pub ip: Option<IpAddr>,
    /// Its port before; none for one that is the client's, or so many more.
    pub port: Option<u16>,
}

/// A server is at that address, and at that port if there is one. As it was.
///
/// # Errors
/// Why it cannot be elsewhere.
pub fn relocate(
    local: &Local,
    backend: &Backend,
    index: Index,
    ip: IpAddr,
    port: Option<u16>,
) -> Result<Relocated, &'static str> {
    let server = &backend.servers[index.get()];
    if let Some(why) = server.stays {
        return Err(why);
    }
    let before = server.addr.change(|known| {
        known.port = port.map_or(known.port, Port::One);
        known.by_hand = true;
        known.settle(Some(ip));
    });
    change(local, backend, index, "", |own| Standing { unresolved: false, ..own });
    let port = match before.port {
        Port::One(port) => Some(port),
        _ => None,
    };
    Ok(Relocated { ip: before.ip(), port })
}

/// Why a server gets no other name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotRenamed {
    /// Nobody asks for its name.
    NoResolution,
    /// It stands for one of a service, whose records name it.
    Service,
    /// It has that name.
    Same,
    /// This is no name.
    Wrong(&'static str),
    /// Too much is to be done.
    Busy,
}

/// A server's address is that of another name from now on. The name before.
///
/// # Errors
/// [`NotRenamed`].
pub fn rename(
    local: &Local,
    backend: &Backend,
    index: Index,
    name: &str,
) -> Result<Option<Box<str>>, NotRenamed> {
    let server = &backend.servers[index.get()];
    let Some(resolution) = &server.resolution else { return Err(NotRenamed::NoResolution) };
    if resolution.service.is_some() {
        return Err(NotRenamed::Service);
    }
    let name = Name::parse(name).map_err(NotRenamed::Wrong)?;
    if server.addr.read().name.as_deref() == Some(name.as_str()) {
        return Err(NotRenamed::Same);
    }
    let before = server.addr.change(|known| {
        known.name = Some(name.as_str().into());
        known.renamed = true;
        known.by_hand = false; // the new name says where
    });
    if !local.generation.resolvers[resolution.section].order(Order::Rename(backend.number_of(index))) {
        server.addr.change(|known| *known = before);
        return Err(NotRenamed::Busy);
    }
    Ok(before.name)
}
