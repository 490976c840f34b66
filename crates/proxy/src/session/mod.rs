//! A session: one connection of a client, from its first byte to its last.

mod client;
mod greeting;
mod inspect;

pub(crate) use client::{Client, Peers, now};
pub(crate) use inspect::{Inspected, inspect, request as looks_like_request};

use crate::generation::{ConnectionAction, Frontend, Listener, Rule};
use greeting::NoGreeting;
use crate::run::{Local, Ticket};
use crate::rules::{self, Entrance, Facts, Scopes};
use crate::{http, tcp};
use manylane_config::tree::Mode;
use manylane_net::Incoming;
use std::rc::Rc;

/// Serves a connection until it ends.
pub(crate) async fn run(local: &Rc<Local>, incoming: Incoming, ticket: &Ticket) {
    let frontend = &local.generation.frontends[ticket.frontend];
    let listener = &frontend.listeners[ticket.listener];
    if listener.nice != 0 {
        let _ = local.here().set_nice(listener.nice); // its range was checked
    }
    let mut client = Client::new(incoming, &local.io);
    if local.generation.process.reject_privileged
        && client.source.is_some_and(|address| address.port() < 1024)
    {
        frontend.counts.own().connections_denied.add(1);
        return;
    }
    let scopes = Scopes::default();
    let entered = enter(local, frontend, listener, &frontend.rules.connection, &mut client, &scopes);
    let Some(greeted) = entered else { return };
    if (listener.accept_proxy || greeted)
        && let Err(why) = greeting::read(local, frontend, &mut client).await
    {
        frontend.counts.own().request_errors.add(1);
        client.reset_on_close();
        if let Some(log) = frontend.log.as_ref().filter(|log| why != NoGreeting::Empty || !log.no_null) {
            let facts = Facts { local, frontend, listener, peers: client.peers(), first_request: true, scopes: &scopes };
            crate::log::refused(log, &facts, why.words());
        }
        return;
    }
    if enter(local, frontend, listener, &frontend.rules.session, &mut client, &scopes).is_none() {
        return;
    }
    match frontend.mode {
        Mode::Tcp => tcp::run(local, frontend, listener, client, scopes).await,
        Mode::Http => http::run(local, frontend, listener, client, scopes).await,
    }
}

/// Runs `tcp-request connection` or `tcp-request session`. None if the connection ends here; else whether a rule wants a header of the PROXY
/// protocol.
fn enter(
    local: &Rc<Local>,
    frontend: &Frontend,
    listener: &Listener,
    rules: &[Rule<ConnectionAction>],
    client: &mut Client,
    scopes: &Scopes,
) -> Option<bool> {
    if rules.is_empty() {
        return Some(false);
    }
    let facts = Facts { local, frontend, listener, peers: client.peers(), first_request: true, scopes };
    match rules::connection(&facts, rules) {
        Entrance::Accepted { greeted } => {
            // What they say holds for the connection; what comes later goes by it.
            client.is_told(scopes.memory.source.take(), scopes.memory.destination.take());
            Some(greeted)
        }
        entrance => {
            frontend.counts.own().connections_denied.add(1);
            if entrance == Entrance::Dropped {
                client.vanish();
            }
            None
        }
    }
}
