//! Serves one client: reads lines and writes answers.

use crate::commands::events::{Events, follow};
use crate::commands::wait::Wait;
use crate::commands::{Call, run};
use crate::level::{Level, Severity, SeverityOutput};
use crate::line::{Command, LONGEST_LINE, LONGEST_PAYLOAD, commands};
use crate::line_buffer::{LineBuffer, Taken};
use crate::prompt::PromptMode;
use crate::reply::{Reply, ReplyError};
use crate::serve::{self, Control};
use manylane_lanes::BoundListener;
use manylane_net::hand_over::Offer;
use manylane_net::{Connection, Endpoint, hand_over};
use manylane_plan::generation::Rights;
use manylane_sched::Here;
use std::time::Duration;
use zeroize::Zeroizing;

/// Prompt for the next line of a payload.
const MORE: &str = "+ ";

/// The commands that may have a key, as a word or in their payload.
const SEND_KEYS: [[&str; 3]; 2] = [["set", "ssl", "cert"], ["set", "ssl", "tls-key"]];

/// Settings of a client.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) level: Level,
    pub(crate) marks: SeverityOutput,
    /// `prompt`
    pub(crate) prompt: PromptMode,
    /// `set timeout cli`
    pub(crate) timeout: Duration,
    /// `expert-mode`
    pub(crate) expert: bool,
    /// `experimental-mode`
    pub(crate) experimental: bool,
    /// `show events -w`: lines are shown from here on, after the command has released the generation.
    pub(crate) events: Option<Events>,
    /// `wait`: the session waits from here on, after the command has released the generation.
    pub(crate) wait: Option<Wait>,
    /// `quit`
    pub(crate) over: bool,
}

impl Settings {
    /// Writes a message, with its severity if the client wants that.
    pub(crate) fn message(&self, reply: &mut Reply<'_>, severity: Severity, text: &str) {
        reply.put(severity.mark(self.marks));
        reply.put(text);
        reply.put("\n");
    }
}

/// Lines of a connection.
struct Lines<'a> {
    connection: &'a Connection,
    here: Here,
    buffer: LineBuffer,
}

enum Next {
    Line(Zeroizing<Vec<u8>>),
    /// The line is longer than allowed.
    TooLong,
    /// No more lines: the client has finished, was silent for too long, or is gone.
    End,
}

impl<'a> Lines<'a> {
    fn new(connection: &'a Connection, here: Here) -> Self {
        Self { connection, here, buffer: LineBuffer::default() }
    }

    /// Reads the next line, without its line end.
    async fn next(&mut self, longest: usize, silence: Duration) -> Next {
        loop {
            match self.buffer.take(longest) {
                Taken::Line(line) => return Next::Line(line),
                Taken::TooLong => return Next::TooLong,
                Taken::Part => {}
            }
            let segment = match self.here.timeout(silence, self.connection.recv()).await {
                Ok(Ok(Some(segment))) => segment,
                _ => return Next::End, // rule 2: an unfinished line is not run
            };
            // The command and the beginning of its key may arrive in one segment. Limit: with io_uring, small
            // pieces that arrived before this call were joined by a copy, before anybody could mark them; the
            // kernel's buffers that they came in are not zeroed.
            let _ = segment.zero_on_free();
            self.buffer.add(segment.as_slice());
            self.here.yield_now().await; // a client that sends an endless line must not hold the lane
        }
    }

    /// Reads the lines up to an empty one and joins them. `None` if they do not arrive or are too long. With
    /// `prompted`, writes a prompt for each line.
    async fn payload(
        &mut self,
        end: &str,
        reply: &mut Reply<'_>,
        prompted: bool,
        silence: Duration,
        secret: bool,
    ) -> Option<Zeroizing<String>> {
        let mut text = Zeroizing::new(String::new());
        let whole = self.gather(end, &mut text, reply, prompted, silence).await;
        if secret {
            self.buffer.wipe();
        }
        whole.map(|()| text)
    }

    async fn gather(
        &mut self,
        end: &str,
        text: &mut Zeroizing<String>,
        reply: &mut Reply<'_>,
        prompted: bool,
        silence: Duration,
    ) -> Option<()> {
        loop {
            // No prompt for lines that have arrived already.
            if prompted && !self.buffer.has_line() {
                reply.put(MORE);
                reply.flush().await.ok()?;
            }
            match self.next(LONGEST_LINE, silence).await {
                Next::Line(line) if *line == *end.as_bytes() => return Some(()),
                Next::Line(line) if text.len() + line.len() < LONGEST_PAYLOAD => {
                    let line = std::str::from_utf8(&line).ok()?;
                    let length = text.len() + line.len() + 1;
                    if text.capacity() < length {
                        // A string that grows by itself leaves copies of what may be a secret.
                        let mut larger = Zeroizing::new(String::with_capacity(length.next_power_of_two()));
                        larger.push_str(text);
                        *text = larger;
                    }
                    text.push_str(line);
                    text.push('\n');
                }
                _ => return None,
            }
        }
    }
}

/// Most bytes that are read and discarded when a client sends more than it may.
const MOST_DISCARDED: usize = 1 << 20;

impl Lines<'_> {
    /// Reads until the client ends. Closing earlier would make the client lose the answer.
    async fn discard(&mut self, silence: Duration) {
        let _ = self.here.timeout(silence, self.connection.finish()).await;
        let mut discarded = 0;
        while discarded < MOST_DISCARDED {
            match self.here.timeout(silence, self.connection.recv()).await {
                Ok(Ok(Some(segment))) => discarded += segment.len(),
                _ => return,
            }
        }
    }
}

/// Passes the listening sockets to a process that takes over. A receiver that cannot read them all sees the
/// connection end.
async fn hand_over_all(control: &Control, connection: &Connection, here: Here, timeout: Duration) {
    let generation = control.generation();
    let bound = manylane_runtime::bound(&generation);
    let of_peers: Vec<_> = generation.peers.iter().filter_map(|section| section.sockets()).collect();
    let of_peers = of_peers.iter().flat_map(|sockets| sockets.iter());
    let of_interface = control.handed_over();
    let offers: Vec<_> =
        bound
            .iter()
            .flat_map(|bound| bound.iter())
            .flat_map(BoundListener::offers)
            .chain(of_peers.filter(|bound| matches!(bound.endpoint(), Endpoint::Ip(_))).filter_map(|bound| {
                Some(Offer { socket: bound.socket()?, namespace: None, interface: None })
            }))
            .chain(serve::offers(&of_interface, &generation))
            .collect();
    let _ = hand_over::hand_over(here, connection, &offers, timeout).await;
}

/// Serves a client until it ends.
pub(crate) async fn serve(
    control: &Control,
    connection: &Connection,
    here: Here,
    rights: Rights,
) -> Result<(), ReplyError> {
    let timeout = control.generation().process.stats_timeout;
    let mut settings = Settings {
        level: Level::named(rights.level).unwrap_or(Level::Operator),
        marks: SeverityOutput::named(rights.severity).unwrap_or(SeverityOutput::None),
        prompt: PromptMode::default(),
        timeout,
        expert: false,
        experimental: false,
        events: None,
        wait: None,
        over: false,
    };
    let mut lines = Lines::new(connection, here);
    let mut reply = Reply::new(connection, here, timeout);
    loop {
        let line = match lines.next(LONGEST_LINE, settings.timeout).await {
            Next::Line(line) => line,
            Next::TooLong => {
                let text = format!("The line has more than {LONGEST_LINE} bytes; nothing was done.\n\n");
                reply.put(&text);
                reply.flush().await?;
                lines.discard(settings.timeout).await;
                return Ok(());
            }
            Next::End => return Ok(()),
        };
        let all = match commands(&line) {
            Ok(all) => all,
            Err(unusable) => {
                reply.put(Severity::Error.mark(settings.marks));
                reply.put(&unusable.sentence());
                reply.put("\n\n");
                reply.flush().await?;
                // The lines behind it may be a payload, and no commands.
                lines.discard(settings.timeout).await;
                return Ok(());
            }
        };
        let mut behind = all.len();
        for Command { words, payload: ends } in all {
            behind -= 1;
            if *words == [hand_over::QUESTION] {
                reply.flush().await?;
                if rights.exposes {
                    hand_over_all(control, connection, here, timeout).await;
                }
                return Ok(()); // a client without permission sees the connection end
            }
            let mut payload = None;
            let secret = SEND_KEYS.iter().any(|own| words.iter().take(own.len()).eq(own));
            if let Some(end) = ends {
                let prompted = settings.prompt.prompts;
                match lines.payload(&end, &mut reply, prompted, settings.timeout, secret).await {
                    Some(text) => payload = Some(text),
                    None => {
                        reply.put(
                            "The payload did not come whole (an empty line ends it, or the pattern behind \
                            '<<'), or is too long or no text; nothing was done.\n\n",
                        );
                        reply.flush().await?;
                        lines.discard(settings.timeout).await;
                        return Ok(());
                    }
                }
            }
            let generation = control.generation();
            let mut call = Call {
                control,
                generation: &generation,
                settings: &mut settings,
                words: &words,
                payload,
                reply: &mut reply,
                here,
            };
            let before = call.reply.len();
            run(&mut call).await?;
            drop(generation);
            if secret {
                lines.buffer.wipe();
            }
            if let Some(wait) = settings.wait.take() {
                wait.run(control, &mut settings, &mut reply, here).await;
            }
            if let Some(events) = settings.events.take() {
                // Anything that the client has sent, including a further command on this line, ends the wait
                // before it begins.
                if behind == 0 && lines.buffer.is_empty() {
                    let stop = async { drop(connection.recv().await) };
                    follow(events, &mut reply, stop).await?;
                }
            }
            if settings.over {
                return reply.flush().await;
            }
            if !reply.ends_a_line() && reply.len() != before {
                reply.put("\n");
            }
            reply.put("\n"); // rule 4
            reply.set_timeout(settings.timeout);
            // A line may hold thousands of commands, and there may be thousands of lines.
            reply.breathe().await?;
            here.yield_now().await;
        }
        if settings.prompt.prompts {
            reply.put(&settings.prompt.time(control.process().info.started));
            reply.put("> ");
        }
        reply.flush().await?;
        if !settings.prompt.interactive {
            return Ok(());
        }
    }
}
