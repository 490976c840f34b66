//! A session: one connection of a client, from its first byte to its last.

mod client;
mod greeting;
mod inspect;

pub(crate) use client::{Client, Peers, now};
pub(crate) use inspect::{Inspected, inspect, request as looks_like_request};

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
    if listener.accept_proxy
        && let Err(why) = greeting::read(local, frontend, &mut client).await
    {
        frontend.counts.own().request_errors.add(1);
        client.reset_on_close();
        if let Some(log) = frontend.log.as_ref().filter(|log| why != NoGreeting::Empty || !log.no_null) {
            let scopes = Scopes::default();
            let facts = Facts { local, frontend, listener, peers: client.peers(), first_request: true, scopes: &scopes };
            crate::log::refused(log, &facts, why.words());
        }
        return;
    }
    let scopes = Scopes::default();
    if !frontend.rules.connection.is_empty() {
        let facts = Facts {
            local,
            frontend,
            listener,
            peers: client.peers(),
            first_request: true,
            scopes: &scopes,
        };
        let entrance = rules::connection(&facts, &frontend.rules.connection);
        if entrance != Entrance::Accepted {
            frontend.counts.own().connections_denied.add(1);
            if entrance == Entrance::Dropped {
                client.vanish();
            }
            return;
        }
        client.is_told(scopes.memory.source.get(), scopes.memory.destination.get());
    }
    match frontend.mode {
        Mode::Tcp => tcp::run(local, frontend, listener, client, scopes).await,
        Mode::Http => http::run(local, frontend, listener, client, scopes).await,
    }
}
