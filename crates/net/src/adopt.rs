//! Changes that other processes would see: options of sockets that another process has, too, and files of
//! unix sockets. They are made once everything that this process needs is bound and checked, so a start that
//! fails has changed nothing.
//!
//! # Steps
//! 1. While listeners are bound, the changes are noted. Their options are tried on a fresh socket of the same
//!    family, so an option that the system refuses ends the start here.
//! 2. [`Changes::begin`] makes sockets listen that do not. If the process is about to give up its rights, it
//!    also makes the changes that need them: it renames files, and sets privileged options. Dropping the
//!    returned [`PendingChanges`] takes all of that back, except for the files.
//! 3. [`PendingChanges::rename_files`] runs once everything that accepts is ready, and
//!    [`PendingChanges::complete`] once the process serves; it makes all other changes. A socket that was
//!    taken over becomes what a new one would be, so options that left the configuration do not stay. An
//!    inherited socket belongs to the parent, and only gets the options in the configuration.

use crate::apply::{CLIENTS, Options};
use crate::endpoint::Endpoint;
use crate::error::{Purpose, Refused, SocketError, Step};
use crate::listen::open;
use crate::options::ListenOptions;
use crate::unix_file::PendingFile;
use manylane_io::options::{
    SocketOption, buffers_are_fixed, congestion_control, fix_buffers, option, reset_on_close,
    set_congestion_control, set_linger, set_option,
};
use manylane_io::socket::{self, Shape};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Options that need privileges. Each is at its default if it is 0.
const PRIVILEGED: [SocketOption; 3] =
    [SocketOption::Mark, SocketOption::TransparentV4, SocketOption::TransparentV6];

/// Other options of a listener, or of its connections.
const OTHERS: [SocketOption; 12] = [
    SocketOption::DeferAccept,
    SocketOption::FastOpen,
    SocketOption::NoDelay,
    SocketOption::UserTimeout,
    SocketOption::ReceiveBuffer,
    SocketOption::SendBuffer,
    SocketOption::NotSentLowWater,
    SocketOption::KeepAliveIdle,
    SocketOption::KeepAliveInterval,
    SocketOption::KeepAliveCount,
    SocketOption::KeepAlive,
    SocketOption::Tos,
];

/// Changes to make once everything is bound.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    sockets: Vec<Change>,
    files: Vec<(PendingFile, Endpoint)>,
}

/// A socket, and the options that it is to have.
#[derive(Debug)]
struct Change {
    socket: OwnedFd,
    endpoint: Endpoint,
    shape: Shape,
    options: ListenOptions,
    model: Model,
    /// True if the socket was taken over, false if it was inherited.
    taken: bool,
}

/// Option values of a new socket. Options that this kind of socket does not have are left out.
#[derive(Debug, Default)]
struct Model {
    privileged: Vec<(SocketOption, i32)>,
    others: Vec<(SocketOption, i32)>,
    buffers_are_fixed: Option<i32>,
    congestion_control: Option<String>,
    resets: bool,
}

impl Changes {
    /// Notes that an existing socket is to have `options`, which are tried here.
    pub(crate) fn note(
        &mut self,
        socket: &OwnedFd,
        endpoint: &Endpoint,
        shape: Shape,
        options: &ListenOptions,
        taken: bool,
    ) -> Result<(), Refused> {
        let failed = |errno| (Step::Inherit, errno);
        let family = socket::family(socket.as_fd()).map_err(failed)?;
        let trial = open(family, shape, None)?;
        let on = Options { socket: trial.as_fd(), family };
        on.packets(&options.common)?;
        if shape == Shape::Stream {
            on.before_listen(options)?;
            on.connection(&options.common, &CLIENTS)?;
        }
        if taken && options.transparent && on.is_ip() {
            on.transparent("transparent")?;
        }
        let own = socket.try_clone().map_err(|error| failed(crate::unix_file::errno(&error)))?;
        self.sockets.push(Change {
            socket: own,
            endpoint: endpoint.clone(),
            shape,
            options: options.clone(),
            model: if taken { Model::of(trial.as_fd()) } else { Model::default() },
            taken,
        });
        Ok(())
    }

    /// Notes that the file of a unix socket is to be renamed to its path.
    pub(crate) fn rename_later(&mut self, file: PendingFile, endpoint: &Endpoint) {
        self.files.push((file, endpoint.clone()));
    }

    /// Begins the changes; everything is bound and checked. `gives_rights_up` says that changes that need
    /// rights have to be made now.
    pub(crate) fn begin(mut self, gives_rights_up: bool) -> Result<PendingChanges, SocketError> {
        let files = std::mem::take(&mut self.files);
        let mut begun = PendingChanges { sockets: self.sockets, files: Vec::new(), undo: Vec::new() };
        for change in &begun.sockets {
            let refused = |refused| SocketError::new(Purpose::Listen, &change.endpoint, refused);
            if gives_rights_up {
                change.set_privileged(&mut begun.undo).map_err(refused)?;
            }
            if change.shape == Shape::Stream && !socket::listens(change.socket.as_fd()).unwrap_or(true) {
                let undo = change.socket.try_clone();
                socket::listen(change.socket.as_fd(), change.options.backlog)
                    .map_err(|errno| refused((Step::Listen, errno)))?;
                begun.undo.extend(undo.map(Undo::Listens));
            }
        }
        if gives_rights_up {
            for (file, endpoint) in &files {
                file.rename().map_err(|refused| SocketError::new(Purpose::Listen, endpoint, refused))?;
            }
        } else {
            begun.files = files;
        }
        Ok(begun)
    }

    /// Begins and completes the changes at once.
    pub(crate) fn now(self) -> Result<(), SocketError> {
        self.begin(false)?.complete().map_or(Ok(()), Err)
    }
}

/// Changes that were begun and can be taken back, and those still to make. Dropping it takes them back.
#[derive(Debug)]
#[must_use = "dropped, all is as before"]
pub struct PendingChanges {
    sockets: Vec<Change>,
    files: Vec<(PendingFile, Endpoint)>,
    undo: Vec<Undo>,
}

#[derive(Debug)]
enum Undo {
    /// The socket did not listen before.
    Listens(OwnedFd),
    Option(OwnedFd, SocketOption, i32),
    CongestionControl(OwnedFd, String),
}

impl PendingChanges {
    /// Renames the remaining files to their paths. Everything that accepts is ready.
    ///
    /// # Errors
    /// The first failure.
    pub fn rename_files(&mut self) -> Result<(), SocketError> {
        self.files.drain(..).try_for_each(|(file, endpoint)| {
            file.rename().map_err(|refused| SocketError::new(Purpose::Listen, &endpoint, refused))
        })
    }

    /// Makes all other changes; the process serves. Returns the first error of the system; the other changes
    /// are made nevertheless.
    pub fn complete(mut self) -> Option<SocketError> {
        self.undo.clear();
        let mut first = self.rename_files().err();
        for change in &self.sockets {
            if let Err(refused) = change.finish() {
                first.get_or_insert(SocketError::new(Purpose::Listen, &change.endpoint, refused));
            }
        }
        first
    }
}

impl Drop for PendingChanges {
    fn drop(&mut self) {
        for undo in self.undo.drain(..).rev() {
            // If the rights are gone by now, this fails, and the error cannot be reported.
            let _ = match undo {
                Undo::Listens(socket) => socket::refuse(socket.as_fd()),
                Undo::Option(socket, which, value) => set_option(socket.as_fd(), which, value),
                Undo::CongestionControl(socket, name) => set_congestion_control(socket.as_fd(), &name),
            };
        }
    }
}

impl Change {
    fn set_privileged(&self, undo: &mut Vec<Undo>) -> Result<(), Refused> {
        let socket = self.socket.as_fd();
        let failed = |which: SocketOption| {
            let keyword = if which == SocketOption::Mark { "mark" } else { "transparent" };
            move |errno| (Step::Option(keyword, which.name()), errno)
        };
        let mut set = |which, value| {
            let before = option(socket, which).map_err(failed(which))?;
            if before != value {
                set_option(socket, which, value).map_err(failed(which))?;
                undo.extend(self.socket.try_clone().map(|own| Undo::Option(own, which, before)));
            }
            Ok(())
        };
        for (which, value) in &self.model.privileged {
            set(*which, *value)?;
        }
        if let Some(mark) = self.options.common.mark.filter(|_| !self.taken) {
            set(SocketOption::Mark, mark.cast_signed())?;
        }
        let wanted =
            self.model.congestion_control.as_deref().or(self.options.common.congestion_control.as_deref());
        if let Some(wanted) = wanted
            && let Ok(before) = congestion_control(socket)
            && before != wanted
        {
            set_congestion_control(socket, wanted)
                .map_err(|errno| (Step::Option("cc", "TCP_CONGESTION"), errno))?;
            undo.extend(self.socket.try_clone().map(|own| Undo::CongestionControl(own, before)));
        }
        Ok(())
    }

    /// Makes the changes that did not wait for rights.
    fn finish(&self) -> Result<(), Refused> {
        let family = socket::family(self.socket.as_fd()).map_err(|errno| (Step::Inherit, errno))?;
        let on = Options { socket: self.socket.as_fd(), family };
        if self.taken {
            self.become_the_model(&on)?;
        } else {
            if option(on.socket, SocketOption::Mark).ok() != self.options.common.mark.map(u32::cast_signed) {
                on.packets(&self.options.common)?;
            }
            if self.shape == Shape::Stream {
                on.before_listen(&self.options)?;
                on.connection(&self.options.common, &CLIENTS)?;
            }
        }
        if self.shape == Shape::Datagram {
            return Ok(());
        }
        socket::listen(on.socket, self.options.backlog).map_err(|errno| (Step::Listen, errno))?;
        on.after_listen(&self.options)
    }

    fn become_the_model(&self, on: &Options<'_>) -> Result<(), Refused> {
        self.set_privileged(&mut Vec::new())?;
        for (which, value) in &self.model.others {
            if option(on.socket, *which) != Ok(*value) {
                // The system doubles the values of these.
                let half = matches!(which, SocketOption::ReceiveBuffer | SocketOption::SendBuffer);
                on.set("bind", *which, if half { value / 2 } else { *value })?;
            }
        }
        if let Some(fixed) = self.model.buffers_are_fixed {
            // kernels before 5.14 keep a size once it was set
            let _ = fix_buffers(on.socket, fixed);
        }
        if on.is_ip() {
            // Not all kernels report this option of a listener.
            on.set("mss", SocketOption::MaxSegment, self.options.mss.unwrap_or(0).into())?;
            if reset_on_close(on.socket) != Ok(self.model.resets) {
                set_linger(on.socket, self.model.resets)
                    .map_err(|errno| (Step::Option("nolinger", "SO_LINGER"), errno))?;
            }
        }
        Ok(())
    }
}

impl Model {
    fn of(socket: BorrowedFd<'_>) -> Self {
        let values = |all: &[SocketOption]| -> Vec<_> {
            all.iter().filter_map(|which| Some((*which, option(socket, *which).ok()?))).collect()
        };
        let mut others = values(&OTHERS);
        if socket::family(socket) == Ok(socket::AddressFamily::INET6) {
            others.extend(values(&[SocketOption::TrafficClass]));
        }
        Self {
            privileged: values(&PRIVILEGED),
            others,
            buffers_are_fixed: buffers_are_fixed(socket).ok(),
            congestion_control: congestion_control(socket).ok(),
            resets: reset_on_close(socket).unwrap_or(false),
        }
    }
}
