//! Sockets of listeners: binds them at the start, takes them over, and binds those of a new configuration
//! beside the running one.

use manylane_net::hand_over::Offer;
use manylane_net::{Bound, Endpoint, HandedOver, ListenOptions, PendingChanges, SocketError, listen_or_take};
use manylane_plan::generation::{FrontendGateState, Generation, Listener, Owner, Peers};
use manylane_sync::Arc;
use std::collections::HashMap;
use std::fmt;

/// The sockets of a listener.
#[derive(Debug)]
pub struct BoundListener {
    /// Number of the frontend in its generation.
    pub frontend: usize,
    /// Number of the listener in the frontend.
    pub listener: usize,
    /// One for each shard (`shards`); one or more lanes accept from each.
    pub sockets: Arc<[Bound]>,
    /// The settings that the sockets were made with, whatever newer files say.
    pub(crate) made: SocketSettings,
}

/// Settings that a socket is made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SocketSettings {
    options: ListenOptions,
    user: Option<Owner>,
    group: Option<Owner>,
    count: usize,
}

impl SocketSettings {
    /// Returns the settings that a listener asks for, when `lanes` lanes serve.
    fn of(listener: &Listener, lanes: usize) -> Self {
        let count = if matches!(listener.endpoint, Endpoint::Ip(_)) { listener.sockets(lanes) } else { 1 };
        Self {
            options: listener.options.clone(),
            user: listener.user.clone(),
            group: listener.group.clone(),
            count,
        }
    }
}

impl BoundListener {
    /// Returns the listener's address, with the port that the system chose.
    pub fn endpoint(&self) -> &Endpoint {
        self.sockets[0].endpoint() // there is at least one socket
    }

    /// Returns the length of the queue that the sockets were made with.
    pub fn backlog(&self) -> u32 {
        self.made.options.backlog
    }

    /// Returns the sockets that can be handed to another process. Unix sockets cannot, since the other
    /// process replaces their files; listeners inside this process cannot either.
    pub fn offers(&self) -> impl Iterator<Item = Offer<'_>> {
        let offered = |bound: &&Bound| matches!(bound.endpoint(), Endpoint::Ip(_) | Endpoint::Abstract(_));
        self.sockets.iter().filter(offered).filter_map(|bound| {
            let ListenOptions { namespace, interface, .. } = &self.made.options;
            Some(Offer {
                socket: bound.socket()?,
                namespace: namespace.as_deref(),
                interface: interface.as_deref(),
            })
        })
    }
}

/// A listener that could not be bound.
#[derive(Debug)]
pub struct BindFailure {
    /// Name of the frontend.
    pub frontend: Box<str>,
    /// The reason, in one sentence that names the address.
    pub reason: String,
}

impl fmt::Display for BindFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Binding for frontend {}: {}", self.frontend, self.reason)
    }
}

/// Binds all listeners of a generation that `lanes` lanes will serve.
///
/// `owner` looks up a user or a group: its arguments are whether it is a group, and the name. Sockets that
/// another process handed over are used where they fit. Everything that other processes could see waits for
/// [`HandedOver::begin`].
///
/// # Errors
/// The listeners that could not be bound. All others are closed.
pub fn bind(
    generation: &Generation,
    lanes: usize,
    owner: impl Fn(bool, &str) -> Result<u32, String>,
    handed_over: &mut HandedOver,
) -> Result<Vec<BoundListener>, Vec<BindFailure>> {
    let bound = bind_each(generation, |listener| {
        let sockets = bind_listener(listener, lanes, &owner, handed_over)?;
        Ok((sockets.into(), SocketSettings::of(listener, lanes)))
    })?;
    bind_peers(generation, |listener| Ok(bind_listener(listener, lanes, &owner, handed_over)?.into()))?;
    super::datagrams::bind_forwards(generation, lanes, &owner, None)?;
    Ok(bound)
}

/// Binds the sockets of `peers` sections, which each of them keeps.
fn bind_peers(
    generation: &Generation,
    mut one: impl FnMut(&Listener) -> Result<Arc<[Bound]>, String>,
) -> Result<(), Vec<BindFailure>> {
    let mut failures = Vec::new();
    for section in generation.peers.iter().filter(|section| section.sockets().is_none()) {
        let Some(listener) = &section.listener else { continue };
        match one(listener) {
            Ok(sockets) => section.set_sockets(Some(sockets)),
            Err(reason) => failures.push(BindFailure { frontend: section.name.clone(), reason }),
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(failures) }
}

/// Result of [`bind_beside`].
#[derive(Debug)]
pub struct ListenersBeside {
    /// The listeners.
    pub bound: Vec<BoundListener>,
    /// Names, as in the file, of listeners whose options differ from the file because their sockets existed
    /// before.
    pub as_before: Vec<Box<str>>,
    /// New backlogs of sockets that existed before.
    pub backlogs: Backlogs,
    /// New unix sockets, whose files get their final names when the generation begins to serve.
    pub begun: PendingChanges,
}

/// Backlogs to be set, each with the number of its frontend and its sockets.
#[derive(Debug)]
pub struct Backlogs(Vec<(usize, Arc<[Bound]>, u32)>);

impl Backlogs {
    /// Sets the backlogs once the generation serves. Setting a backlog makes a socket listen, so a disabled
    /// frontend sets its backlog when it is enabled.
    pub fn take_effect(&self, generation: &Generation) {
        let is_open =
            |frontend: usize| generation.frontends[frontend].gate.state() == FrontendGateState::Open;
        for (_, sockets, backlog) in self.0.iter().filter(|(frontend, ..)| is_open(*frontend)) {
            // A failure leaves the old backlog, which loses no connection.
            let _ = sockets.iter().try_for_each(|socket| socket.set_backlog(*backlog));
        }
    }
}

/// Makes sockets listen again that come from a disabled frontend but now belong to an open one. To be called
/// before a lane accepts.
pub fn listen_again(generation: &Generation, bound: &[BoundListener]) {
    let is_open =
        |bound: &&BoundListener| generation.frontends[bound.frontend].gate.state() == FrontendGateState::Open;
    for bound in bound.iter().filter(is_open) {
        for socket in bound.sockets.iter().filter(|socket| !socket.listens()) {
            // a lane that cannot accept reports the failure
            let _ = socket.set_backlog(bound.made.options.backlog);
        }
    }
}

/// Binds the listeners of a generation that will replace `before`. Sockets that exist already are shared, so
/// no connection to them is lost, and nothing has changed if the reload fails.
///
/// # Errors
/// As of [`bind`]. Also for inherited descriptors (`fd@`, `sockpair@`) that the generation before does not
/// have: their numbers may mean other files by now.
pub fn bind_beside(
    generation: &Generation,
    lanes: usize,
    owner: impl Fn(bool, &str) -> Result<u32, String>,
    before: (&Generation, &[BoundListener]),
) -> Result<ListenersBeside, Vec<BindFailure>> {
    let (older, bound) = before;
    let mut known: HashMap<&Endpoint, Vec<&BoundListener>> = HashMap::new();
    let of = |bound: &BoundListener| &older.frontends[bound.frontend].listeners[bound.listener];
    for bound in bound.iter().rev() {
        known.entry(&of(bound).endpoint).or_default().push(bound);
    }
    let (mut as_before, mut backlogs) = (Vec::new(), Vec::new());
    let mut none = HandedOver::default();
    let bound = bind_each(generation, |listener| {
        // Two lines with one address have two sockets.
        if let Some(same) = known.get_mut(&listener.endpoint).and_then(Vec::pop) {
            let (wanted, mut made) = (SocketSettings::of(listener, lanes), same.made.clone());
            if made.options.backlog != wanted.options.backlog {
                backlogs.push((listener.frontend, same.sockets.clone(), wanted.options.backlog));
                made.options.backlog = wanted.options.backlog;
            }
            if made != wanted {
                as_before.push(listener.written.clone());
            }
            return Ok((same.sockets.clone(), made));
        }
        if matches!(listener.endpoint, Endpoint::Descriptor(_) | Endpoint::SocketPair(_)) {
            return Err(format!(
                "'{}' can be taken over when the process starts only; start another one with '-sf', or \
                    listen at an address",
                listener.written
            ));
        }
        let sockets = bind_listener(listener, lanes, &owner, &mut none)?;
        Ok((sockets.into(), SocketSettings::of(listener, lanes)))
    })?;
    bind_peers(generation, |listener| {
        let at = |section: &&Arc<Peers>| {
            section.listener.as_ref().is_some_and(|own| own.endpoint == listener.endpoint)
        };
        match older.peers.iter().find(at).and_then(|section| section.sockets()) {
            Some(sockets) => Ok(sockets),
            None => Ok(bind_listener(listener, lanes, &owner, &mut none)?.into()),
        }
    })?;
    super::datagrams::bind_forwards(generation, lanes, &owner, Some(older))?;
    let failed = |error: SocketError| vec![BindFailure { frontend: "".into(), reason: error.to_string() }];
    let begun = none.begin(false).map_err(failed)?;
    Ok(ListenersBeside { bound, as_before, backlogs: Backlogs(backlogs), begun })
}

fn bind_each(
    generation: &Generation,
    mut one: impl FnMut(&Listener) -> Result<(Arc<[Bound]>, SocketSettings), String>,
) -> Result<Vec<BoundListener>, Vec<BindFailure>> {
    let mut bound = Vec::new();
    let mut failures = Vec::new();
    for frontend in &generation.frontends {
        for listener in &frontend.listeners {
            match one(listener) {
                Ok((sockets, made)) => bound.push(BoundListener {
                    made,
                    frontend: frontend.number,
                    listener: listener.index,
                    sockets,
                }),
                Err(reason) => failures.push(BindFailure { frontend: frontend.name.clone(), reason }),
            }
        }
    }
    if failures.is_empty() { Ok(bound) } else { Err(failures) }
}

/// Binds one listener for `lanes` lanes, or uses sockets that another process handed over.
///
/// # Errors
/// The reason, in one sentence that names the address.
pub fn bind_listener(
    listener: &Listener,
    lanes: usize,
    owner: &impl Fn(bool, &str) -> Result<u32, String>,
    handed_over: &mut HandedOver,
) -> Result<Vec<Bound>, String> {
    let options = owned(listener, owner)?;
    listen_or_take(&listener.endpoint, &options, listener.sockets(lanes), handed_over)
        .map_err(|error| error.to_string())
}

/// Returns the options of a listener with its owner's numbers.
pub(super) fn owned(
    listener: &Listener,
    owner: &impl Fn(bool, &str) -> Result<u32, String>,
) -> Result<ListenOptions, String> {
    let mut options = listener.options.clone();
    let look_up = |group, wanted: &Option<Owner>| match wanted {
        Some(Owner::Name(name)) => owner(group, name).map(Some),
        Some(Owner::Number(number)) => Ok(Some(*number)),
        None => Ok(None),
    };
    options.unix.user = options.unix.user.or(look_up(false, &listener.user)?);
    options.unix.group = options.unix.group.or(look_up(true, &listener.group)?);
    Ok(options)
}
