//! Moves servers to other addresses for an operator: `set server addr`, `set server fqdn`.

use manylane_balance::{Availability, Index};
use manylane_lanes::{Local, change};
use manylane_net::address::Port;
use manylane_plan::generation::{Backend, Order};
use manylane_resolve::Name;
use std::net::IpAddr;

/// Address of a server before it was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreviousAddress {
    /// The former address.
    pub ip: Option<IpAddr>,
    /// The former port; `None` if the port is the client's, or an offset to it.
    pub port: Option<u16>,
}

/// Moves a server to an address, and to a port if one is given. Returns the former place.
///
/// # Errors
/// The reason why the server cannot be moved.
pub fn relocate(
    local: &Local,
    backend: &Backend,
    index: Index,
    ip: IpAddr,
    port: Option<u16>,
) -> Result<PreviousAddress, &'static str> {
    let server = &backend.servers[index.get()];
    if let Some(why) = server.stays {
        return Err(why);
    }
    let before = server.addr.change(|known| {
        known.port = port.map_or(known.port, Port::One);
        known.set_by_operator = true;
        known.settle(Some(ip));
    });
    change(local, backend, index, "", |own| Availability { unresolved: false, ..own });
    let port = match before.port {
        Port::One(port) => Some(port),
        _ => None,
    };
    Ok(PreviousAddress { ip: before.ip(), port })
}

/// Reason why a server does not get another name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotRenamed {
    /// No resolver looks up names for the server.
    NoResolution,
    /// The server stands for a member of a service, whose records name it.
    Service,
    /// The server has this name already.
    Same,
    /// The text is not a valid name.
    Wrong(&'static str),
    /// Too many orders are queued.
    Busy,
}

/// Gives a server another name, whose address it then gets. Returns the former name.
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
        known.set_by_operator = false; // the new name decides about the address
    });
    if !local.generation.resolvers[resolution.section].order(Order::Rename(backend.number_of(index))) {
        server.addr.change(|known| *known = before);
        return Err(NotRenamed::Busy);
    }
    Ok(before.name)
}
