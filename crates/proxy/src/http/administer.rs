//! Forms of the statistics page: a POST that names servers and an action for them (`stats admin`). The
//! response redirects to the page and carries the result as `;st=DONE` or the like, as HAProxy does.
//!
//! A browser adds the password that it keeps for the page also when a page of another site sends the form.
//! The browser reports that in `Sec-Fetch-Site` or `Origin`, and then the form changes nothing. A form cannot
//! change a backend that the page hides (`stats scope`).

use manylane_balance::{Admin, Index};
use manylane_check::HealthState;
use manylane_http::Head;
use manylane_lanes::{Local, administer, answer, end_streams, find};
use manylane_plan::Cause;
use manylane_plan::generation::{Backend, StatsPage};
use manylane_sync::Arc;

/// Result of a form: the word behind `st=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Formed {
    /// The action changed every named server.
    Done,
    /// The action changed some of the named servers.
    Part,
    /// Nothing had to change.
    None,
    /// The action, the backend or the server does not exist.
    Wrong,
    /// The form does not fit into a buffer.
    TooLarge,
    /// The client may only read the page, or a page of another site sent the form.
    Denied,
}

/// Returns true if the browser reports that a page of another site sent the request.
///
/// `Sec-Fetch-Site` decides where it is present: the browser adds it on sites that it trusts, and knows the
/// sender better than the proxy does. Otherwise `Origin` decides, which browsers send with all forms (`null`
/// if they hide the origin). Rules may have edited the head since, so this reads the fields as they were
/// received.
pub(super) fn is_of_another_site(head: &Head) -> bool {
    let received = head.original().map_or(&[][..], |original| original);
    let mut sites = values(received, b"sec-fetch-site").peekable();
    if sites.peek().is_some() {
        return sites.any(|addr| !matches!(addr, b"same-origin" | b"none"));
    }
    let host = values(received, b"host").next();
    let is_ours = |origin: &[u8]| {
        let word = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
        word.zip(host).is_some_and(|(text, host)| text.eq_ignore_ascii_case(host))
    };
    values(received, b"origin").any(|origin| !is_ours(origin))
}

/// Values of one field in a head as it was received.
fn values<'a>(received: &'a [u8], name: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    received.split(|byte| *byte == b'\n').skip(1).filter_map(move |line| {
        let (field, value) = line.split_at_checked(name.len())?;
        let value = value.strip_prefix(b":")?;
        field.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
    })
}

impl Formed {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Done => "DONE",
            Self::Part => "PART",
            Self::None => "NONE",
            Self::Wrong => "ERRP",
            Self::TooLarge => "EXCD",
            Self::Denied => "DENY",
        }
    }
}

/// Action of a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Set(Admin),
    /// From older forms: enters this state, unless the server is in it or a stronger one. `OutOf` leaves it.
    Into(Admin),
    OutOf(Admin),
    Checks(bool),
    Found(HealthState),
    Agent(bool),
    Answered(HealthState),
    EndStreams,
}

impl Order {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "ready" => Self::Set(Admin::Ready),
            "drain" => Self::Set(Admin::Drain),
            "maint" => Self::Set(Admin::Maintenance),
            "disable" => Self::Into(Admin::Maintenance),
            "enable" => Self::OutOf(Admin::Maintenance),
            "stop" => Self::Into(Admin::Drain),
            "start" => Self::OutOf(Admin::Drain),
            "dhlth" => Self::Checks(false),
            "ehlth" => Self::Checks(true),
            "hrunn" => Self::Found(HealthState::Up),
            "hnolb" => Self::Found(HealthState::Stopping),
            "hdown" => Self::Found(HealthState::Down),
            "dagent" => Self::Agent(false),
            "eagent" => Self::Agent(true),
            "arunn" => Self::Answered(HealthState::Up),
            "adown" => Self::Answered(HealthState::Down),
            "shutdown" => Self::EndStreams,
            _ => return None,
        })
    }
}

/// Fields of a form.
#[derive(Debug, Default, PartialEq, Eq)]
struct Form {
    servers: Vec<String>,
    backend: Option<String>,
    action: Option<String>,
}

impl Form {
    fn read(bytes: &[u8]) -> Self {
        let mut form = Self::default();
        for pair in bytes.split(|byte| *byte == b'&') {
            let at = pair.iter().position(|byte| *byte == b'=');
            let Some((key, value)) = at.map(|at| (&pair[..at], decoded(&pair[at + 1..]))) else { continue };
            match key {
                b"s" => form.servers.push(value),
                b"b" => form.backend = Some(value).filter(|value| !value.is_empty()),
                b"action" => form.action = Some(value).filter(|value| !value.is_empty()),
                _ => {}
            }
        }
        form
    }
}

/// Decodes a value of a form: `+` is a blank, `%41` is an `A`.
fn decoded(value: &[u8]) -> String {
    let hex = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value;
    while let [first, more @ ..] = rest {
        rest = more;
        bytes.push(match (first, more) {
            (b'+', _) => b' ',
            (b'%', [high, low, behind @ ..]) if hex(*high).is_some() && hex(*low).is_some() => {
                rest = behind;
                hex(*high).zip(hex(*low)).map_or(b'%', |(high, low)| high << 4 | low)
            }
            (other, _) => *other,
        });
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Carries out a form. Yields to other tasks after each server.
pub(super) async fn formed(local: &Local, page: &StatsPage, bytes: &[u8]) -> Formed {
    let Form { servers, backend, action } = Form::read(bytes);
    let (Some(backend), Some(action)) = (backend, action) else { return Formed::None };
    if servers.is_empty() {
        return Formed::None;
    }
    let generation = local.generation.clone();
    let found: Option<&Arc<Backend>> = match backend.strip_prefix('#').map(str::parse::<u32>) {
        Some(Ok(id)) => generation.backends.iter().find(|own| own.id == id),
        Some(Err(_)) => None,
        None => generation.backends.iter().find(|own| *own.name == *backend),
    };
    let found = found.filter(|own| page.shows(&own.name));
    let (Some(backend), Some(order)) = (found, Order::named(&action)) else { return Formed::Wrong };
    let (mut changed, mut unknown) = (0, false);
    for name in &servers {
        let index =
            backend.balancer.servers().by_name(name).filter(|index| !backend.servers[index.get()].stands_in);
        match index {
            Some(index) => changed += usize::from(obey(local, backend, index, order)),
            None => unknown = true,
        }
        local.here().yield_now().await;
    }
    match changed {
        0 if unknown => Formed::Wrong,
        0 => Formed::None,
        all if all == servers.len() => Formed::Done,
        _ => Formed::Part,
    }
}

/// Applies an action to one server and returns true if there was something to do.
fn obey(local: &Local, backend: &Backend, index: Index, order: Order) -> bool {
    let server = &backend.servers[index.get()];
    let now = backend.balancer.servers()[index].state().standing().own;
    match order {
        Order::Set(admin) => administer(local, backend, index, admin),
        Order::Into(admin) if now < admin => administer(local, backend, index, admin),
        Order::OutOf(admin) if now == admin => administer(local, backend, index, Admin::Ready),
        Order::Into(_) | Order::OutOf(_) => return false,
        Order::Checks(on) | Order::Agent(on) => {
            let of = if matches!(order, Order::Checks(_)) { &server.check } else { &server.agent };
            let Some(check) = of else { return false };
            check.board.disable(!on);
            check.notify.notify_one();
        }
        Order::Found(_) if server.tracks.is_some() => return false,
        Order::Found(running) => find(local, backend, index, running),
        Order::Answered(running) => {
            if server.agent.as_ref().is_none_or(|agent| agent.board.read().disabled) {
                return false;
            }
            answer(local, backend, index, running);
        }
        Order::EndStreams => {
            end_streams(local, backend.number_of(index), Cause::Killed);
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_they_were_received() {
        let received = b"POST /host:x HTTP/1.1\r\nHOST:\t a \r\nhost-name: b\r\nhos: c\r\nhost:\r\n\r\n";
        assert_eq!(values(received, b"host").collect::<Vec<_>>(), [&b"a"[..], b""]);
    }

    #[test]
    fn a_form_is_read_in_any_order_and_what_is_no_pair_is_passed_over() {
        let form = Form::read(b"s=a&s=b%2Fc&x=1&nothing&action=maint&b=%234&s=%zz+d%4");
        assert_eq!(form.servers, ["a", "b/c", "%zz d%4"]);
        assert_eq!((form.backend.as_deref(), form.action.as_deref()), (Some("#4"), Some("maint")));
        assert_eq!(Form::read(b"b=&action="), Form::default());
        assert_eq!(Form::read(b"\xff\x00=&&==&s"), Form::default());
    }
}
