//! `load-server-state-from-file`: servers continue in the state in which an earlier process left them (R-G8).
//!
//! A setting of an operator continues unless the configuration of the same thing has changed: the weight if
//! the configured weight is the same, maintenance if `disabled` is the same. Addresses and ports come from
//! the configuration, which may have changed. The file supplies the address of a name for `init-addr last`,
//! and the name that an operator or a service gave to a server of a `resolvers` section. Whether connections
//! are encrypted is what the configuration says: `srv_use_ssl` is not read, and older files have 0 there.

use super::files;
use super::refuse::Refuse;
use super::{Backend, Server};
use manylane_balance::Admin;
use manylane_check::HealthState;
use manylane_check::states::{MOST_BYTES, State, States, admin};
use manylane_config::lex::Word;
use manylane_config::source::Pos;
use manylane_config::tree::{Config, Proxy, Set};
use manylane_sched::Time;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// State files that the proxies of a configuration name.
#[derive(Debug, Default)]
pub(super) struct StateFiles {
    /// The file of all backends, once it was read.
    global: Option<Rc<States>>,
}

impl StateFiles {
    /// Returns the former states of a proxy's servers, if the proxy names a file.
    pub(super) fn of(&mut self, proxy: &Proxy, refuse: &mut Refuse<'_>) -> Option<Rc<States>> {
        match proxy.settings.load_server_state {
            None | Some(Set { value: "none", .. }) => None,
            Some(Set { value: "global", pos }) => {
                Some(self.global.get_or_insert_with(|| Rc::new(global(refuse.config, pos, refuse))).clone())
            }
            Some(Set { pos, .. }) => {
                let statement = proxy.settings.server_state_file.as_ref();
                let named = statement
                    .and_then(|statement| statement.words.first())
                    .filter(|name| **name != *"use-backend-name");
                let path = path(named.unwrap_or(&proxy.name), refuse);
                Some(Rc::new(read(&path, named.map_or(pos, Word::pos), refuse)))
            }
        }
    }
}

/// Restores the states of a backend's servers.
pub(super) fn restore(backend: &Backend, states: &States) {
    let now = Time::now();
    for server in &backend.servers {
        if let Some(state) = states.get(&backend.name, &server.name) {
            one(backend, server, state, now);
        }
    }
}

/// Reads the file of all backends.
fn global(config: &Config, pos: Pos, refuse: &mut Refuse<'_>) -> States {
    match &config.global.server_state_file {
        Some(Set { value: word, .. }) => {
            let path = path(word, refuse);
            read(&path, word.pos(), refuse)
        }
        None => {
            let message = "'load-server-state-from-file global' does nothing without 'server-state-file' in \
                the section 'global'";
            refuse.found.warning(pos, message.to_owned());
            States::default()
        }
    }
}

/// Returns the path of a file; a relative path is in the folder `server-state-base`.
fn path(word: &Word, refuse: &Refuse<'_>) -> PathBuf {
    match (refuse.config.global.server_state_base.as_ref().and_then(|set| set.value.text()), word.text()) {
        (Some(base), Some(name)) => Path::new(base).join(name),
        _ => refuse.path(word),
    }
}

fn read(path: &Path, pos: Pos, refuse: &mut Refuse<'_>) -> States {
    let mut bytes = Vec::new();
    let read = files::open(path).and_then(|file| file.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes));
    if let Err(error) = read {
        let message = format!(
            "cannot read the server state file '{}', so servers begin as the configuration says: {error}",
            path.display()
        );
        refuse.found.warning(pos, message);
        return States::default();
    }
    if bytes.len() > MOST_BYTES {
        let message = format!(
            "the server state file '{}' has more than {MOST_BYTES} bytes; the rest is ignored",
            path.display()
        );
        refuse.found.warning(pos, message);
        bytes.truncate(MOST_BYTES);
    }
    let mut wrong = Vec::new();
    let states = States::read(&bytes, &mut wrong);
    for wrong in wrong {
        refuse.found.warning(pos, format!("server state file '{}', {wrong}", path.display()));
    }
    states
}

/// Restores the state of a server.
fn one(backend: &Backend, server: &Server, state: &State, now: Time) {
    let balancer = &backend.balancer;
    let Some(index) = balancer.servers().index(server.index) else { return };
    let has = |bits: u32| state.admin & bits != 0;
    if has(admin::BY_FILE) == server.disabled {
        let own = match () {
            () if has(admin::MAINTENANCE) => Admin::Maintenance,
            () if has(admin::DRAIN) => Admin::Drain,
            () => Admin::Ready,
        };
        balancer.set_admin(index, own, now);
    }
    if state.file_weight == server.weight && state.weight != server.weight {
        // A static algorithm keeps the weights of the configuration.
        let _ = balancer.set_weight(index, state.weight, now);
    }
    // A server in maintenance is down whatever its checks would report; they start anew when it comes back. A
    // server that tracks another copies its state.
    let running = match state.operation {
        0 => HealthState::Down,
        3 => HealthState::Stopping,
        _ => HealthState::Up,
    };
    let maintained = has(admin::MAINTENANCE | admin::INHERITED_MAINTENANCE | admin::UNRESOLVED);
    if balancer.servers()[index].state().standing().is_in_maintenance() {
        server.paused(true);
    }
    if !maintained && server.tracks.is_none() {
        balancer.set_operation(index, super::track::operation(running), now);
        if let Some(check) = &server.check {
            check.board.restore(running, state.status);
        }
    }
    let serves = !maintained && running != HealthState::Down;
    server.past.restore(serves, now.since(Time::ZERO).saturating_sub(Duration::from_secs(state.since)));
    for (check, disabled, (ip, port)) in [
        (&server.check, state.check_disabled, state.check),
        (&server.agent, state.agent_disabled, state.agent),
    ] {
        let Some(check) = check else { continue };
        check.board.disable(disabled);
        check.target.set(|target| {
            target.ip = ip.or(target.ip);
            target.port = if port == 0 { target.port } else { Some(port) };
        });
    }
}
