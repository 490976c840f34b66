//! Sockets of `log-forward` sections for datagrams.

use super::listen::{BindFailure, owned};
use manylane_net::{Bound, Endpoint};
use manylane_plan::generation::{DatagramListener, Frontend, Generation, Listener, LogForward};

/// The addresses of a generation at which messages come as datagrams.
pub fn datagram_listeners(
    generation: &Generation,
) -> impl Iterator<Item = (&Frontend, &LogForward, &DatagramListener)> {
    generation.frontends.iter().flat_map(|frontend| {
        let sections = frontend.forward.iter().map(|section| &**section);
        sections.flat_map(move |section| section.datagrams.iter().map(move |own| (frontend, section, own)))
    })
}

/// Binds the sockets for datagrams. Those that `before` has at the same address are shared, so no message is
/// lost when a generation takes the place of another.
///
/// # Errors
/// The addresses that could not be bound.
pub(super) fn bind_forwards(
    generation: &Generation,
    lanes: usize,
    owner: &impl Fn(bool, &str) -> Result<u32, String>,
    before: Option<&Generation>,
) -> Result<(), Vec<BindFailure>> {
    let mut failures = Vec::new();
    for (frontend, _, own) in datagram_listeners(generation).filter(|(.., own)| own.sockets().is_none()) {
        let same = before.into_iter().flat_map(datagram_listeners);
        let same = same.map(|(.., was)| was).find(|was| was.listener.endpoint == own.listener.endpoint);
        let sockets = match same.and_then(DatagramListener::sockets) {
            Some(sockets) => Ok(sockets),
            None => bind_datagrams(&own.listener, lanes, owner).map(Into::into),
        };
        match sockets {
            Ok(sockets) => own.set_sockets(Some(sockets)),
            Err(reason) => failures.push(BindFailure { frontend: frontend.name.clone(), reason }),
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(failures) }
}

/// Binds the sockets for datagrams of one address.
///
/// # Errors
/// The reason, in one sentence that names the address.
fn bind_datagrams(
    listener: &Listener,
    lanes: usize,
    owner: &impl Fn(bool, &str) -> Result<u32, String>,
) -> Result<Vec<Bound>, String> {
    let options = owned(listener, owner)?;
    let mut endpoint = listener.endpoint.clone();
    let count = if matches!(endpoint, Endpoint::Ip(_)) { listener.sockets(lanes) } else { 1 };
    let mut all: Vec<Bound> = Vec::with_capacity(count);
    while all.len() < count {
        let next = manylane_net::bind_datagrams(&endpoint, &options).map_err(|error| error.to_string())?;
        endpoint = next.endpoint().clone(); // with the port that the system chose
        all.push(next);
    }
    Ok(all)
}
