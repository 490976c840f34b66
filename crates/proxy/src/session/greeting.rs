//! `accept-proxy`: the header that the proxy before this one sends first.

use super::Client;
use crate::generation::Frontend;
use crate::run::Local;
use manylane_net::proxy_protocol::{Ends, Parsed, parse};
use std::rc::Rc;

/// The connection is of no use: the header was bad, late or cut short.
#[derive(Debug)]
pub(super) struct NoGreeting;

/// Reads the header and takes it off; what follows stays in `client.received`.
pub(super) async fn read(local: &Rc<Local>, frontend: &Frontend, client: &mut Client) -> Result<(), NoGreeting> {
    let reading = header(client);
    match frontend.timeouts.handshake {
        None => reading.await,
        Some(time) => local.here().timeout(time, reading).await.unwrap_or(Err(NoGreeting)),
    }
}

async fn header(client: &mut Client) -> Result<(), NoGreeting> {
    loop {
        let length = client.received.len();
        // A header is bounded, and `parse` refuses longer ones.
        let bytes = client.received.pull_up(length).map_err(|_| NoGreeting)?;
        let complete = match parse(bytes).map_err(|_| NoGreeting)? {
            Parsed::Incomplete { .. } => None,
            Parsed::Complete { header, length } => {
                let told = match header.ends.filter(|_| header.relayed) {
                    Some(Ends::Ip { source, destination, .. }) => Some((source, destination)),
                    _ => None,
                };
                Some((told, length))
            }
        };
        match complete {
            Some((told, length)) => {
                if let Some((source, destination)) = told {
                    client.is_between(source, destination);
                }
                return client.received.trim_front(length).map_err(|_| NoGreeting);
            }
            None => {
                let segment = client.connection.recv().await.map_err(|_| NoGreeting)?;
                let segment = segment.ok_or(NoGreeting)?;
                client.received.push_back(segment).map_err(|_| NoGreeting)?;
            }
        }
    }
}
