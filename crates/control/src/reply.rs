//! Answers to a client.

use manylane_buf::{Chain, External};
use manylane_net::Connection;
use manylane_plan::pages::{PageProgress, PageWriter, Parts};
use manylane_sched::{Here, Refused};
use std::fmt;
use std::time::Duration;

/// Bytes that are gathered before they are sent.
pub const SLICE: usize = 16_384;

/// The client is gone or does not read, or there is no memory for its answer.
#[derive(Debug)]
pub(crate) struct ReplyError;

/// Gathers text and sends it in slices (rules 7 and 8).
#[derive(Debug)]
pub(crate) struct Reply<'a> {
    connection: &'a Connection,
    here: Here,
    /// Longest time that the client may take for a slice.
    timeout: Duration,
    text: String,
}

impl<'a> Reply<'a> {
    pub(crate) fn new(connection: &'a Connection, here: Here, timeout: Duration) -> Self {
        Self { connection, here, timeout, text: String::with_capacity(SLICE + SLICE / 4) }
    }

    /// Returns whether the client has closed its connection. One that has only ended its commands has not.
    pub(crate) fn client_is_gone(&self) -> bool {
        self.connection.has_hung_up()
    }

    /// Sets the longest time that the client may take for a slice.
    pub(crate) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Appends to the text that is sent next.
    pub(crate) fn put(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// True if the gathered text is empty or ends with a line end; NUL is that of `show events -0`.
    pub(crate) fn ends_a_line(&self) -> bool {
        self.text.is_empty() || self.text.ends_with(['\n', '\0'])
    }

    /// Bytes that are gathered and not yet sent.
    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    /// Called between two records of a long answer: once a slice is full, sends it and yields. Returns true
    /// if it did. A command whose records may add nothing to the answer has to yield by itself.
    pub(crate) async fn breathe(&mut self) -> Result<bool, ReplyError> {
        if self.text.len() < SLICE {
            return Ok(false);
        }
        self.yield_now().await?;
        Ok(true)
    }

    /// Sends the gathered text and yields.
    pub(crate) async fn yield_now(&mut self) -> Result<(), ReplyError> {
        self.flush().await?;
        self.here.yield_now().await;
        Ok(())
    }

    /// Sends the text that `parts` makes on the reporter's thread, which writes to the connection. The
    /// process holds one part for a client that reads slowly. `Ok(Err)`: the reporter refused, and nothing
    /// was sent.
    pub(crate) async fn make(
        &mut self,
        parts: impl Parts + 'static,
    ) -> Result<Result<(), Refused>, ReplyError> {
        let (mut page, mut begun) = (PageWriter::new(parts, false), false);
        loop {
            let turn = match page.turn() {
                Ok(making) => making.await,
                // Half an answer would look like a whole one.
                Err(_) if begun => return Err(ReplyError),
                Err(refused) => return Ok(Err(refused)),
            };
            if turn.gone {
                return Err(ReplyError);
            }
            let PageProgress { left, rest, begin, .. } = turn;
            if left.is_none() && !begun && rest.len() < SLICE {
                self.put(&String::from_utf8_lossy(&rest));
                self.breathe().await?;
                return Ok(Ok(()));
            }
            self.flush().await?;
            if begin < rest.len() {
                // The text is sent without a copy.
                let all = External::from_vec(rest).map_err(|_| ReplyError)?;
                let mut chain = Chain::new();
                let segment = all.slice(begin..all.len()).map_err(|_| ReplyError)?;
                chain.push_back(segment).map_err(|_| ReplyError)?;
                self.send(&mut chain).await?;
            }
            let Some(more) = left else { return Ok(Ok(())) };
            (page, begun) = (more, true);
            match self.here.timeout(self.timeout, self.connection.flush()).await {
                Ok(Ok(())) => page.write_to(self.connection),
                _ => return Err(ReplyError),
            }
        }
    }

    /// Sends the gathered text.
    pub(crate) async fn flush(&mut self) -> Result<(), ReplyError> {
        if self.text.is_empty() {
            return Ok(());
        }
        let mut chain = Chain::new();
        chain.append(self.text.as_bytes()).map_err(|_| ReplyError)?;
        self.text.clear();
        self.send(&mut chain).await
    }

    /// Sends a text that has a secret, of which no copy is left uncleared.
    pub(crate) async fn secret(&mut self, text: &str) -> Result<(), ReplyError> {
        self.flush().await?;
        let mut chain = Chain::new();
        chain.append(text.as_bytes()).map_err(|_| ReplyError)?;
        chain.zero_on_free().map_err(|_| ReplyError)?;
        self.send(&mut chain).await
    }

    async fn send(&self, chain: &mut Chain) -> Result<(), ReplyError> {
        match self.here.timeout(self.timeout, self.connection.send(chain)).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(ReplyError), // the client takes one of few permits (rule 3)
        }
    }
}

impl fmt::Write for Reply<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.put(text);
        Ok(())
    }
}
