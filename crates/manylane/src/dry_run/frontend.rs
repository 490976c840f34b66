//! Finds the frontend and the listener that get the request of `manylane test`.

use super::arguments::TestArguments;
use super::found;
use super::request::Request;
use manylane_config::tree::Mode;
use manylane_net::Endpoint;
use manylane_plan::Generation;
use manylane_plan::generation::{Frontend, Listener};
use manylane_proxy::dry_run::Input;
use std::net::SocketAddr;

/// Names of frontends in one message at most.
const MOST_NAMED: usize = 8;

/// A listener, and why it was chosen.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) frontend: usize,
    pub(super) listener: usize,
    pub(super) why: &'static str,
}

/// Port of a listener, if it has one.
fn port(listener: &Listener) -> Option<u16> {
    match &listener.endpoint {
        Endpoint::Ip(address) => Some(address.port()),
        _ => None,
    }
}

/// Frontends with their addresses, for messages.
fn named<'a>(frontends: impl Iterator<Item = &'a Frontend>) -> String {
    let mut names: Vec<String> = frontends
        .map(|frontend| {
            let all: Vec<&str> = frontend.listeners.iter().map(|listener| &*listener.written).collect();
            format!(
                "'{}' ({})",
                frontend.name,
                if all.is_empty() { "no bind".into() } else { all.join(", ") }
            )
        })
        .collect();
    if names.len() > MOST_NAMED {
        let more = names.len() - MOST_NAMED;
        names.truncate(MOST_NAMED);
        names.push(format!("{more} more"));
    }
    names.join(", ")
}

/// Finds the listener.
///
/// # Errors
/// A sentence: there is none, or several frontends have one.
pub(super) fn find(
    generation: &Generation,
    arguments: &TestArguments,
    request: &Request,
) -> Result<Found, String> {
    let usual = request.tls.map(|tls| if tls { 443 } else { 80 });
    let explicit = arguments.destination.map(|to| to.port()).filter(|port| *port > 0).or(request.port);
    let tls = |listener: &&Listener| request.tls.is_none_or(|tls| listener.tls.is_some() == tls);
    let at =
        |wanted: Option<u16>| move |listener: &&Listener| wanted.is_some_and(|w| port(listener) == Some(w));
    if let Some(name) = &arguments.frontend {
        let known = || generation.frontends.iter().map(|frontend| &*frontend.name);
        let Some(frontend) = generation.frontends.iter().find(|frontend| *frontend.name == **name) else {
            let guess = manylane_config::guess(name.as_bytes(), known());
            return Err(format!("unknown frontend {}{guess}", found(name)));
        };
        let all = || frontend.listeners.iter().filter(tls);
        let best = all().find(at(explicit)).or_else(|| all().find(at(usual))).or_else(|| all().next());
        return match best {
            Some(listener) => {
                Ok(Found { frontend: frontend.number, listener: listener.index, why: "by its name" })
            }
            None => Err(format!(
                "frontend '{name}' expects a listener {}, found {}",
                match request.tls {
                    Some(true) => "with 'ssl' for a request of https",
                    Some(false) => "without 'ssl' for a request of http",
                    None => "for the request",
                },
                named([frontend].into_iter())
            )),
        };
    }
    let fits =
        |frontend: &&Frontend| !request.in_words || frontend.mode == Mode::Http || frontend.switches_mode;
    let all = || generation.frontends.iter().filter(fits);
    let listeners = || all().flat_map(|frontend| &frontend.listeners).filter(tls);
    let mut why = "by its port";
    let mut matching: Vec<&Listener> = listeners().filter(at(explicit.or(usual))).collect();
    if matching.is_empty() && explicit.is_none() {
        why = "the only one";
        matching = listeners().collect();
    }
    let mut frontends: Vec<usize> = matching.iter().map(|listener| listener.frontend).collect();
    frontends.sort_unstable();
    frontends.dedup();
    match (&frontends[..], matching.first()) {
        ([_], Some(listener)) => Ok(Found { frontend: listener.frontend, listener: listener.index, why }),
        ([], _) | (_, None) => {
            let wanted = match (explicit, request.tls) {
                (Some(port), Some(true)) => format!(" on port {port} with 'ssl'"),
                (Some(port), Some(false)) => format!(" on port {port} without 'ssl'"),
                (Some(port), None) => format!(" on port {port}"),
                (None, Some(true)) => " with 'ssl'".to_owned(),
                (None, _) => String::new(),
            };
            let there = match all().next() {
                None => "none of this mode".to_owned(),
                Some(_) => named(all()),
            };
            Err(format!("no frontend listens{wanted}; there are {there}: name one with '--frontend'"))
        }
        (several, _) => {
            let several = several.iter().map(|number| &generation.frontends[*number]);
            Err(format!(
                "several frontends match: {}; name one with '--frontend', or its port in the URL",
                named(several)
            ))
        }
    }
}

impl Found {
    /// The connection over which the request comes.
    pub(super) fn input(
        &self,
        generation: &Generation,
        arguments: &TestArguments,
        request: Request,
    ) -> Input {
        let listener = &generation.frontends[self.frontend].listeners[self.listener];
        let bound = match &listener.endpoint {
            Endpoint::Ip(address) => Some(*address),
            _ => None,
        };
        let destination = arguments.destination.map(|to| match (to.port(), bound) {
            (0, Some(bound)) => SocketAddr::new(to.ip(), bound.port()),
            _ => to,
        });
        let is_name = |host: &String| host.parse::<std::net::IpAddr>().is_err();
        let server_name = arguments.server_name.clone();
        Input {
            frontend: self.frontend,
            listener: self.listener,
            bytes: request.bytes,
            source: arguments.source,
            destination: destination.or(bound.filter(|bound| !bound.ip().is_unspecified())),
            server_name: server_name.or(request.host.filter(is_name).map(Into::into)),
        }
    }
}
