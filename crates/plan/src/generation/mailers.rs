//! `mailers` sections and `email-alert`: to whom changes of servers are reported by mail.

use super::bind::text;
use super::refuse::Refuse;
use manylane_config::tree::{self, Proxy, ProxyKind};
use manylane_logs::Level;
use manylane_net::address::{Host, Location, Port};
use manylane_sync::{Arc, LockClass, Mutex};
use std::collections::VecDeque;
use std::time::Duration;

static WAITING: LockClass = LockClass::new("mails to a mail server", LockClass::LEAF);

/// Most mails that wait for a mail server; further ones are dropped.
pub const MOST_MAILS: usize = 256;

/// Time for a mail without `timeout mail`.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A mail server.
#[derive(Debug)]
pub struct Mailer {
    /// Its section and its name, for reports.
    pub name: Box<str>,
    /// Its address, or a name that is resolved for each mail.
    pub host: Box<str>,
    /// Its port.
    pub port: u16,
    /// Time for a mail.
    pub timeout: Duration,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    mails: VecDeque<Mail>,
    /// A job sends the mails.
    is_sending: bool,
}

/// A mail, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mail {
    /// This side's name in the greeting.
    pub host: Box<str>,
    /// Sender.
    pub from: Box<str>,
    /// Receiver.
    pub to: Box<str>,
    /// Head and body, with the dot that ends them.
    pub data: Box<str>,
}

/// What became of a mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queued {
    /// The job that sends others sends it, too.
    Waits,
    /// The caller starts the job.
    First,
    /// There are too many.
    Dropped,
}

impl Mailer {
    /// Queues a mail.
    pub fn queue(&self, mail: Mail) -> Queued {
        let mut waiting = self.waiting.lock();
        if waiting.mails.len() >= MOST_MAILS {
            return Queued::Dropped;
        }
        waiting.mails.push_back(mail);
        if std::mem::replace(&mut waiting.is_sending, true) { Queued::Waits } else { Queued::First }
    }

    /// Takes the next mail. Without one, the job ends: the next mail needs another.
    pub fn next(&self) -> Option<Mail> {
        let mut waiting = self.waiting.lock();
        let mail = waiting.mails.pop_front();
        waiting.is_sending = mail.is_some();
        mail
    }

    /// Drops the mails, since no job can be started. Returns their number.
    pub fn give_up(&self) -> usize {
        let mut waiting = self.waiting.lock();
        waiting.is_sending = false;
        std::mem::take(&mut waiting.mails).len()
    }
}

/// Settings of a backend's alerts.
#[derive(Debug)]
pub struct Alerts {
    /// The least severe level to tell.
    pub level: Level,
    /// Sender.
    pub from: Box<str>,
    /// Receiver.
    pub to: Box<str>,
    /// This side's name in greetings.
    pub host: Box<str>,
    /// The mail servers; each gets each mail.
    pub mailers: Vec<Arc<Mailer>>,
}

/// Builds the `mailers` sections, with their names.
pub(super) fn sections(refuse: &mut Refuse<'_>) -> Vec<(Box<str>, Vec<Arc<Mailer>>)> {
    let config = refuse.config;
    config.mailers.iter().map(|section| (text(&section.name), mailers(section, refuse))).collect()
}

fn mailers(section: &tree::Mailers, refuse: &mut Refuse<'_>) -> Vec<Arc<Mailer>> {
    if section.mailers.is_empty() && refuse.found.errors() == 0 {
        let name = section.name.shown();
        let message = format!("mailers '{name}' expects 'mailer' lines, found none: it sends nothing");
        refuse.found.warning(section.name.pos(), message);
    }
    let mut all = Vec::new();
    for own in &section.mailers {
        let address = &own.address.value;
        let Location::Ip { host, port: Port::One(port) } = &address.location else {
            let message = format!("'mailer' expects a host and a port, found '{address}'");
            refuse.found.alert(own.address.pos, message);
            continue;
        };
        let host = match host {
            Host::V4(ip) => ip.to_string().into(),
            Host::V6(ip) => ip.to_string().into(),
            Host::Name { name, .. } => name.clone(),
        };
        all.push(Arc::new(Mailer {
            name: format!("{}/{}", section.name.shown(), own.name.shown()).into(),
            host,
            port: *port,
            timeout: section.timeout.map_or(TIMEOUT, |set| set.value),
            waiting: Mutex::new(&WAITING, Waiting::default()),
        }));
    }
    all
}

/// Returns the settings of a proxy's alerts, if it has them.
pub(super) fn alerts(
    proxy: &Proxy,
    sections: &[(Box<str>, Vec<Arc<Mailer>>)],
    hostname: &str,
    refuse: &mut Refuse<'_>,
) -> Option<Arc<Alerts>> {
    let tree::EmailAlert { from, level, mailers, host, to } = &proxy.settings.email_alert;
    let words = [from, mailers, host, to].into_iter().flatten().map(|set| set.pos);
    let mut positions = words.chain(level.as_ref().map(|set| set.pos));
    if proxy.kind == ProxyKind::Frontend {
        // Those of a 'defaults' section may be meant for its backends.
        if let Some(pos) = positions.find(|pos| *pos >= proxy.pos) {
            refuse.note(pos, "'email-alert' has no effect here: alerts tell of servers".to_owned());
        }
        return None;
    }
    let (Some(from), Some(to), Some(section)) = (from, to, mailers) else {
        if let Some(pos) = positions.next() {
            let message = "'email-alert' sends nothing: 'email-alert from', 'email-alert to' or 'email-alert \
                mailers' is missing";
            refuse.found.warning(pos, message.to_owned());
        }
        return None;
    };
    for set in [from, to].into_iter().chain(host) {
        if set.value.bytes().iter().any(|byte| byte.is_ascii_control() || !byte.is_ascii()) {
            let message = format!("'email-alert' expects visible ASCII, found '{}'", set.value.shown());
            refuse.found.alert(set.pos, message);
        }
    }
    let name = text(&section.value);
    let (_, mailers) = sections.iter().find(|(own, _)| *own == name)?; // its absence is an error already
    // HAProxy 3.2 warns of it, too.
    let message = format!(
        "'email-alert mailers' of {} '{}' sends mails here, but not with HAProxy 3.3: leave it out of a file \
         for both",
        proxy.kind.name(),
        proxy.name.shown()
    );
    refuse.found.warning(section.pos, message);
    Some(Arc::new(Alerts {
        level: level.map_or(Level::Alert, |set| level_of(set.value)),
        from: text(&from.value),
        to: text(&to.value),
        host: host.as_ref().map_or_else(|| hostname.into(), |set| text(&set.value)),
        mailers: mailers.clone(),
    }))
}

/// The level with this name.
fn level_of(name: &str) -> Level {
    let number = tree::LEVELS.iter().position(|level| *level == name).unwrap_or_default();
    Level::new(u8::try_from(number).unwrap_or(u8::MAX))
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;

    #[test]
    fn one_job_sends_the_mails_of_a_server_and_their_number_is_bounded() {
        let waiting = Mutex::new(&WAITING, Waiting::default());
        let mailer = Mailer { name: "m/a".into(), host: "h".into(), port: 25, timeout: TIMEOUT, waiting };
        let mail = |n: usize| Mail {
            host: "h".into(),
            from: "f".into(),
            to: "t".into(),
            data: n.to_string().into(),
        };
        assert_eq!(mailer.queue(mail(0)), Queued::First);
        for n in 1..MOST_MAILS {
            assert_eq!(mailer.queue(mail(n)), Queued::Waits);
        }
        assert_eq!(mailer.queue(mail(MOST_MAILS)), Queued::Dropped);
        for n in 0..MOST_MAILS {
            assert_eq!(mailer.next(), Some(mail(n)));
        }
        assert_eq!(mailer.queue(mail(7)), Queued::Waits);
        assert_eq!((mailer.next(), mailer.next()), (Some(mail(7)), None));
        assert_eq!(mailer.queue(mail(8)), Queued::First);
        assert_eq!(mailer.give_up(), 1);
        assert_eq!(mailer.queue(mail(9)), Queued::First);
    }
}
