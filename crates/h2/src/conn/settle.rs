//! Settings, pings, and the end of a connection.

use super::streams::Side;
use super::{Connection, Role};
use crate::error::{Problem, Reason, SendError};
use crate::event::Event;
use crate::frame::settings::{self, Setting};
use crate::frame::{Header, goaway, ping, window_update};
use crate::stream_id::StreamId;
use manylane_buf::Chain;
use std::time::Duration;

/// Payload of the ping whose answer proves that the peer has seen the first GOAWAY.
const LEAVE: [u8; 8] = *b"leaving!";

/// Progress of both sides toward the end of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Leaving {
    ours: Ours,
    /// Last stream of this side that the peer accepts.
    theirs: Option<StreamId>,
}

/// Announcements of this side. A server leaves in two steps (RFC 9113, 6.8), so that it still accepts
/// streams that are under way.
///
/// ```text
///   Stays --- GOAWAY(2^31 - 1), PING ---> Warned --- the answer, or a second call: GOAWAY(last) ---> Leaves
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Ours {
    #[default]
    Stays,
    Warned,
    Leaves {
        last: StreamId,
    },
}

impl Connection {
    /// Writes preface and settings, and enlarges the connection's window.
    pub(super) fn announce(&mut self) -> Result<(), Problem> {
        if self.role == Role::Client {
            self.put(super::receive::PREFACE)?;
        }
        let config = self.config;
        let mut all = [Setting::Unknown; 7];
        let mut count = 0;
        let mut add = |setting| {
            all[count] = setting;
            count += 1;
        };
        add(Setting::HeaderTableSize(config.table));
        match self.role {
            Role::Client => add(Setting::EnablePush(false)),
            Role::Server => add(Setting::MaxConcurrentStreams(config.max_streams)),
        }
        add(Setting::InitialWindowSize(config.stream_window));
        add(Setting::MaxFrameSize(config.max_frame));
        add(Setting::MaxHeaderListSize(config.header_list()));
        if config.connect_protocol && self.role == Role::Server {
            add(Setting::EnableConnectProtocol(true));
        }
        let mut frame = Vec::new();
        settings::write(&all[..count], &mut frame);
        self.put(&frame)?;
        match self.receive_window.enlarge(config.connection_window) {
            Some(more) => self.put(&window_update::frame(StreamId::CONNECTION, more)),
            None => Ok(()),
        }
    }

    pub(super) fn settings(
        &mut self,
        now: Duration,
        header: &Header,
        payload: &Chain,
    ) -> Result<(), Problem> {
        if settings::is_ack(header)? {
            return self.acknowledged(now);
        }
        if self.settled {
            self.cheap_frame(now)?;
        }
        self.settled = true;
        self.apply(payload)?;
        self.answer(&settings::ack())?;
        self.event = Some(Event::Settings);
        Ok(())
    }

    /// Puts the peer's settings into force.
    pub(super) fn apply(&mut self, payload: &Chain) -> Result<(), Problem> {
        let (mut peer, encoder) = (self.peer, &mut self.encoder);
        let role = self.role;
        settings::read(payload, |setting| {
            match setting {
                // Each one in order: the smallest must be signalled, too (RFC 7541, 4.2).
                Setting::HeaderTableSize(size) => encoder.set_limit(size as usize),
                // A server may not push to a server, nor announce it (RFC 9113, 6.5.2).
                Setting::EnablePush(true) if role == Role::Client => return Err(Problem::BadSetting),
                Setting::MaxConcurrentStreams(streams) => peer.max_streams = streams,
                Setting::InitialWindowSize(size) => peer.stream_window = size,
                Setting::MaxFrameSize(size) => peer.max_frame = size as usize,
                Setting::MaxHeaderListSize(size) => peer.header_list = size,
                Setting::EnableConnectProtocol(false) if peer.connect_protocol => {
                    return Err(Problem::ConnectSwitch);
                }
                Setting::EnableConnectProtocol(on) => peer.connect_protocol = on,
                Setting::EnablePush(_) | Setting::Unknown => {}
            }
            Ok(())
        })?;
        let change = i64::from(peer.stream_window) - i64::from(self.peer.stream_window);
        self.peer = peer;
        if change != 0 {
            self.change_windows(change)?;
        }
        Ok(())
    }

    /// Changes the send windows of all streams (RFC 9113, 6.9.2).
    fn change_windows(&mut self, by: i64) -> Result<(), Problem> {
        let mut opened = std::mem::take(&mut self.opened);
        let mut changed = Ok(());
        for (id, stream) in self.streams.iter_mut() {
            changed = changed.and(stream.send_window.change(by));
            if by > 0 {
                opened.push(id);
            }
        }
        // In the order of the streams, not that of the table.
        opened.sort_unstable();
        opened.drain(..).for_each(|id| self.window_has_opened(id));
        self.opened = opened;
        changed
    }

    /// Puts this side's settings into force: the peer acknowledged them (rule 1).
    fn acknowledged(&mut self, now: Duration) -> Result<(), Problem> {
        if self.settings_sent.take().is_none() {
            return self.cheap_frame(now);
        }
        self.decoder.set_limit(self.config.table as usize);
        let size = self.config.stream_window;
        self.stream_window = size;
        let mut updates: Vec<(StreamId, u32)> = Vec::new();
        for (id, stream) in self.streams.iter_mut() {
            let more = stream.receive_window.resize(size);
            updates.extend(more.filter(|_| stream.receive != Side::Done).map(|more| (id, more)));
        }
        updates.sort_unstable_by_key(|(id, _)| *id); // in the order of the streams, not that of the table
        updates.iter().try_for_each(|(id, more)| self.put(&window_update::frame(*id, *more)))
    }

    /// Sends a ping, which the peer answers ([`Event::Pong`]), to find out whether it is alive.
    ///
    /// # Errors
    /// [`SendError`]
    pub fn ping(&mut self, payload: [u8; 8]) -> Result<(), SendError> {
        self.sending(|this| this.put(&ping::frame(false, payload)))
    }

    pub(super) fn pong(&mut self, now: Duration, payload: [u8; 8]) -> Result<(), Problem> {
        self.cheap_frame(now)?;
        if payload == LEAVE && self.leaving.ours == Ours::Warned {
            return self.leave();
        }
        self.event = Some(Event::Pong { payload });
        Ok(())
    }

    /// Ends the connection gracefully: open streams go on, no others begin. A server still accepts streams
    /// that are under way until the peer has answered; a second call ends that, for callers that end it by
    /// time.
    ///
    /// # Errors
    /// [`SendError`]
    pub fn shutdown(&mut self) -> Result<(), SendError> {
        self.sending(|this| match (this.leaving.ours, this.role) {
            (Ours::Leaves { .. }, _) => Ok(()),
            (Ours::Stays, Role::Server) => {
                this.leaving.ours = Ours::Warned;
                this.put(&goaway::frame(StreamId::LAST, Reason::NO_ERROR))?;
                this.put(&ping::frame(false, LEAVE))
            }
            (Ours::Warned, _) | (_, Role::Client) => this.leave(),
        })
    }

    fn leave(&mut self) -> Result<(), Problem> {
        let last = self.last_peer;
        self.leaving.ours = Ours::Leaves { last };
        self.put(&goaway::frame(last, Reason::NO_ERROR))
    }

    /// Returns whether a stream of the peer is one that our GOAWAY refuses.
    pub(super) fn is_beyond_goaway(&self, stream: StreamId) -> bool {
        let Ours::Leaves { last } = self.leaving.ours else { return false };
        self.role == Role::Server && stream.is_of_client() && stream > last
    }

    /// Handles the peer's GOAWAY.
    pub(super) fn goaway(&mut self, last: StreamId, reason: Reason) -> Result<(), Problem> {
        if self.leaving.theirs.is_some_and(|before| last > before) {
            return Err(Problem::GoawayRaised);
        }
        self.leaving.theirs = Some(last);
        if self.role == Role::Client {
            let mut refused: Vec<_> =
                self.streams.iter_mut().filter(|(id, s)| *id > last && !s.ended).map(|(id, _)| id).collect();
            refused.sort_unstable();
            for id in refused {
                self.forget(id, false)?;
                self.refused.push_back(id);
            }
        }
        self.event = Some(Event::GoAway { last, reason });
        Ok(())
    }

    /// Returns whether either side has announced that it leaves.
    pub fn is_leaving(&self) -> bool {
        self.leaving.ours != Ours::Stays || self.leaving.theirs.is_some()
    }

    /// Returns whether nothing is left to do: either side leaves, no stream is open, and a server has
    /// accepted what was under way. Close the connection once the output is written.
    pub fn is_drained(&self) -> bool {
        let left = match self.role {
            Role::Server => self.leaving.theirs.is_some() || matches!(self.leaving.ours, Ours::Leaves { .. }),
            Role::Client => self.is_leaving(),
        };
        left && self.streams.len() == 0 && self.event.is_none() && self.refused.is_empty()
    }

    /// Returns whether this client may begin a stream now.
    pub fn can_begin(&self) -> bool {
        self.failed.is_none()
            && self.next_own.is_some()
            && !self.is_leaving()
            && self.open < self.streams_limit()
    }
}
