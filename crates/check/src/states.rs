//! Server state files (R-G8): the output of `show servers state`, which a starting process reads.
//!
//! The first line that is not empty is the version, 1. Lines that begin with `#` are comments. Each other
//! line describes one server in at least [`LEAST_FIELDS`] fields, separated by blanks; fields behind
//! [`FIELDS`] belong to later versions and are ignored. Each line is read by itself: a wrong line is reported
//! and left out, and the others apply. So is a last line without an end, because it may be cut within a
//! number.

use crate::status::Status;
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

/// Largest size of a state file, in bytes: that of some 400,000 servers.
pub const MOST_BYTES: usize = 64 << 20;
/// Smallest number of fields in a line.
pub const LEAST_FIELDS: usize = 20;
/// Number of known fields.
pub const FIELDS: usize = 25;
/// Largest number of wrong lines that are reported.
pub const MOST_WRONG: usize = 16;
/// Highest weight.
const MOST_WEIGHT: u16 = 256;

/// Bits of `srv_admin_state`.
pub mod admin {
    /// In maintenance by an operator.
    pub const MAINTENANCE: u32 = 0x01;
    /// In maintenance like the server that it tracks.
    pub const INHERITED_MAINTENANCE: u32 = 0x02;
    /// `disabled` in the file.
    pub const BY_FILE: u32 = 0x04;
    /// Drained by an operator.
    pub const DRAIN: u32 = 0x08;
    /// The server's name has no address.
    pub const UNRESOLVED: u32 = 0x20;
    /// The server's name is not that of the file: an operator or a service set it.
    pub const RENAMED: u32 = 0x40;
}

/// Bits of `srv_check_state` and `srv_agent_state`.
mod checks {
    pub(super) const CONFIGURED: u32 = 0x02;
    pub(super) const ENABLED: u32 = 0x04;
}

/// State of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Address, if the server had one.
    pub address: Option<IpAddr>,
    /// Name, if the server had one.
    pub name: Option<Box<str>>,
    /// Service (SRV records) that the server was part of, if any.
    pub service: Option<Box<str>>,
    /// Port; 0 for none.
    pub port: u16,
    /// `srv_op_state`: 0 down, 1 up and in slow start, 2 up, 3 up without new clients.
    pub operation: u8,
    /// `srv_admin_state`: bits of [`admin`].
    pub admin: u32,
    /// Weight as an operator set it.
    pub weight: u16,
    /// Weight in the configuration file at that time.
    pub file_weight: u16,
    /// Seconds since its last change.
    pub since: u64,
    /// Status of its last check.
    pub status: Status,
    /// True if an operator disabled the checks that the configuration file has.
    pub check_disabled: bool,
    /// True if an operator disabled its agent.
    pub agent_disabled: bool,
    /// Target of its checks as an operator set it: address, and port or 0.
    pub check: (Option<IpAddr>, u16),
    /// Target of its agent as an operator set it.
    pub agent: (Option<IpAddr>, u16),
}

/// All servers of a file, by backend and server name.
#[derive(Debug, Default)]
pub struct States {
    of_backends: HashMap<Box<str>, HashMap<Box<str>, State>>,
}

/// A fault in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineError {
    /// Number of the line, from 1.
    pub line: usize,
    /// The fault.
    pub why: String,
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

impl States {
    /// Reads a file. Faults are added to `wrong`, up to [`MOST_WRONG`] lines; the last one says how many more
    /// there are. A line where the file was cut is always reported.
    pub fn read(bytes: &[u8], wrong: &mut Vec<LineError>) -> Self {
        let mut states = Self::default();
        let ended = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let (whole, cut) = bytes.split_at(ended);
        Self::whole(whole, !cut.trim_ascii().is_empty(), &mut states, wrong);
        if !cut.trim_ascii().is_empty() {
            let line = whole.iter().filter(|byte| **byte == b'\n').count() + 1;
            let why = "it has no line feed: the file was cut there, and the line is ignored".to_owned();
            wrong.push(LineError { line, why });
        }
        states
    }

    /// Reads complete lines.
    fn whole(bytes: &[u8], goes_on: bool, states: &mut Self, wrong: &mut Vec<LineError>) {
        let mut lines = bytes
            .split(|byte| *byte == b'\n')
            .enumerate()
            .map(|(number, line)| (number + 1, line.trim_ascii()));
        let first = lines.find(|(_, line)| !line.is_empty());
        match first {
            None if goes_on => return, // all there is was cut, which is reported
            None => {
                let why = "expected version 1 of the file, found nothing; write it by 'show servers state'";
                return wrong.push(LineError { line: 1, why: why.to_owned() });
            }
            Some((_, b"1")) => {}
            Some((line, version)) => {
                let shown = String::from_utf8_lossy(&version[..version.len().min(20)]);
                let why = format!(
                    "expected version 1 of the file, found '{}'; write it by 'show servers state'",
                    shown.escape_debug()
                );
                return wrong.push(LineError { line, why });
            }
        }
        let mut lines = lines.filter(|(_, line)| !line.is_empty()).peekable();
        if lines.peek().is_none() && !goes_on {
            let why = "nothing follows the version of the file, which may have been cut there";
            return wrong.push(LineError { line: 1, why: why.to_owned() });
        }
        let most = MOST_WRONG - usize::from(goes_on);
        let mut more = 0_usize;
        for (number, line) in lines.filter(|(_, line)| !line.starts_with(b"#")) {
            let outcome =
                Self::line(line).and_then(|(backend, server, state)| states.add(backend, server, state));
            match outcome {
                Ok(()) => {}
                Err(_) if wrong.len() >= most => more += 1,
                Err(why) => wrong.push(LineError { line: number, why }),
            }
        }
        if let (Some(last), true) = (wrong.last_mut(), more > 0) {
            last.why += &format!(" (and {more} more lines are wrong)");
        }
    }

    /// Returns the state of a server.
    pub fn get(&self, backend: &str, server: &str) -> Option<&State> {
        self.of_backends.get(backend)?.get(server)
    }

    /// Returns the number of servers.
    pub fn len(&self) -> usize {
        self.of_backends.values().map(HashMap::len).sum()
    }

    /// Returns whether there are no servers.
    pub fn is_empty(&self) -> bool {
        self.of_backends.is_empty()
    }

    fn add(&mut self, backend: &str, server: &str, state: State) -> Result<(), String> {
        if self.get(backend, server).is_some() {
            return Err(format!("server '{backend}/{server}' has an earlier line, which is used"));
        }
        if !self.of_backends.contains_key(backend) {
            self.of_backends.insert(backend.into(), HashMap::new());
        }
        if let Some(servers) = self.of_backends.get_mut(backend) {
            servers.insert(server.into(), state);
        }
        Ok(())
    }

    fn line(line: &[u8]) -> Result<(&str, &str, State), String> {
        let text = std::str::from_utf8(line).map_err(|_| "it is not UTF-8".to_owned())?;
        let mut fields = [""; FIELDS];
        let mut count = 0;
        for (slot, field) in fields.iter_mut().zip(text.split_ascii_whitespace()) {
            *slot = field;
            count += 1;
        }
        if count < LEAST_FIELDS {
            return Err(format!(
                "expected at least {LEAST_FIELDS} fields, found {count}: the file may have been cut there"
            ));
        }
        let [
            _,
            backend,
            _,
            server,
            address,
            operation,
            admin,
            weight,
            file_weight,
            since,
            status,
            _,
            _,
            check,
            agent,
            _,
            _,
            name,
            port,
            service,
            _,
            check_port,
            check_addr,
            agent_addr,
            agent_port,
        ] = fields;
        let state = State {
            address: ip("srv_addr", address)?,
            name: word(name),
            service: word(service),
            port: number("srv_port", port, u16::MAX)?,
            operation: number("srv_op_state", operation, 3)?,
            admin: number("srv_admin_state", admin, 0x7f)?,
            weight: number("srv_uweight", weight, MOST_WEIGHT)?,
            file_weight: number("srv_iweight", file_weight, MOST_WEIGHT)?,
            since: age("srv_time_since_last_change", since)?,
            // A status of a later version counts as none.
            status: Status::by_number(number("srv_check_status", status, u8::MAX)?).unwrap_or(Status::Ini),
            check_disabled: is_ended(number("srv_check_state", check, u32::MAX)?),
            agent_disabled: is_ended(number("srv_agent_state", agent, u32::MAX)?),
            check: (ip("srv_check_addr", check_addr)?, number("srv_check_port", check_port, u16::MAX)?),
            agent: (ip("srv_agent_addr", agent_addr)?, number("srv_agent_port", agent_port, u16::MAX)?),
        };
        Ok((backend, server, state))
    }
}

/// Returns whether the configuration file has checks that an operator disabled.
fn is_ended(bits: u32) -> bool {
    bits & checks::CONFIGURED != 0 && bits & checks::ENABLED == 0
}

/// Parses a number up to `most`. A field that an older version does not have is 0.
fn number<N: TryFrom<u64> + Into<u64> + Copy>(name: &str, field: &str, most: N) -> Result<N, String> {
    let value = if field.is_empty() || field == "-" { Some(0) } else { field.parse::<u64>().ok() };
    let value = value.filter(|value| *value <= most.into()).and_then(|value| N::try_from(value).ok());
    value
        .ok_or_else(|| format!("{name} expects a number from 0 to {}, found '{}'", most.into(), shown(field)))
}

/// Parses seconds. HAProxy writes -1 for a change in a second that its clock has not reached yet.
fn age(name: &str, field: &str) -> Result<u64, String> {
    match field.strip_prefix('-') {
        Some(digits) if digits.parse::<u32>().is_ok() => Ok(0),
        _ => number(name, field, u64::MAX),
    }
}

/// Parses a field that may be empty.
fn word(field: &str) -> Option<Box<str>> {
    (!field.is_empty() && field != "-").then(|| field.into())
}

fn ip(name: &str, field: &str) -> Result<Option<IpAddr>, String> {
    match field {
        "" | "-" => Ok(None),
        field => field
            .parse()
            .map(Some)
            .map_err(|_| format!("{name} expects an IP address, found '{}'", shown(field))),
    }
}

/// Returns as much of a field as a report has room for.
fn shown(field: &str) -> String {
    field.chars().take(40).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINE: &str =
        "2 b 6 g 127.0.0.1 0 8 3 5 12 8 2 0 2 18 0 0 - 18095 - 0 777 127.0.0.4 127.0.0.5 18096";

    fn read(text: &str) -> (States, Vec<String>) {
        let mut wrong = Vec::new();
        let states = States::read(text.as_bytes(), &mut wrong);
        (states, wrong.iter().map(LineError::to_string).collect())
    }

    #[test]
    fn a_line_says_how_a_server_was() {
        let (states, wrong) = read(&format!("1\n# be_id be_name\n{LINE} a later field\r\n\n"));
        assert!(wrong.is_empty() && states.len() == 1, "{wrong:?}");
        let local = |last| Some(IpAddr::from([127, 0, 0, last]));
        let expected = State {
            address: local(1),
            name: None,
            service: None,
            port: 18095,
            operation: 0,
            admin: admin::DRAIN,
            weight: 3,
            file_weight: 5,
            since: 12,
            status: Status::L4Con,
            check_disabled: true,
            agent_disabled: true,
            check: (local(4), 777),
            agent: (local(5), 18096),
        };
        assert_eq!(states.get("b", "g"), Some(&expected));
        assert_eq!(states.get("b", "h"), None);
        assert_eq!(states.get("g", "b"), None);
    }

    #[test]
    fn fewer_fields_are_those_of_an_older_version() {
        let older: Vec<&str> = LINE.split(' ').take(LEAST_FIELDS).collect();
        let (states, wrong) = read(&format!("1\n{}\n", older.join(" ")));
        assert!(wrong.is_empty(), "{wrong:?}");
        assert_eq!(
            states.get("b", "g").map(|state| (state.port, state.check, state.agent)),
            Some((18095, (None, 0), (None, 0)))
        );
    }

    #[test]
    fn a_change_that_haproxy_has_in_the_future_is_now() {
        let (states, wrong) = read(&format!("1\n{}\n", LINE.replace(" 3 5 12 ", " 3 5 -1 ")));
        assert!(wrong.is_empty(), "{wrong:?}");
        assert_eq!(states.get("b", "g").map(|state| state.since), Some(0));
    }

    #[test]
    fn what_is_wrong_is_reported_by_its_line_and_the_rest_holds() {
        let other = LINE.replace(" g ", " h ");
        for (text, said) in [
            ("2\n", "line 1: expected version 1 of the file, found '2'"),
            ("\n\x01x", "line 2: expected version 1 of the file, found '\\u{1}x'"),
            (
                "1\n2 b 6 g 127.0.0.1 0 8 3\n",
                "line 2: expected at least 20 fields, found 8: the file may have been cut there",
            ),
            (
                &format!("1\n{}", LINE.replace(" 0 8 3 ", " 4 8 3 ")),
                "line 2: srv_op_state expects a number from 0 to 3, found '4'",
            ),
            (
                &format!("1\n{}", LINE.replace(" 3 5 12 ", " 300 5 12 ")),
                "line 2: srv_uweight expects a number from 0 to 256, found '300'",
            ),
            (
                &format!("1\n{}", LINE.replace(" 3 5 12 ", " 3 5 -x ")),
                "line 2: srv_time_since_last_change expects a number from 0 to ",
            ),
            (
                &format!("1\n{}", LINE.replace("127.0.0.5", "nowhere")),
                "line 2: srv_agent_addr expects an IP address, found 'nowhere'",
            ),
            (&format!("1\n\n{LINE}\n{LINE}"), "line 4: server 'b/g' has an earlier line"),
        ] {
            let text = &format!("{}\n", text.trim_end());
            let (_, wrong) = read(text);
            assert!(wrong.len() == 1 && wrong[0].starts_with(said), "{text}: {wrong:?}");
            if text.starts_with('1') {
                let (states, _) = read(&format!("{text}{other}\n"));
                assert!(states.get("b", "h").is_some(), "{text}");
            }
        }
        let (states, wrong) = read(&format!("1\n{}{LINE}\n", "x\n".repeat(100)));
        assert_eq!((states.len(), wrong.len()), (1, MOST_WRONG));
        assert!(wrong[MOST_WRONG - 1].ends_with("(and 84 more lines are wrong)"), "{wrong:?}");
        let (_, wrong) = read(&format!("1\n{}half", "x\n".repeat(100)));
        assert_eq!(wrong.len(), MOST_WRONG);
        assert!(wrong[MOST_WRONG - 2].ends_with("(and 85 more lines are wrong)"), "{wrong:?}");
        assert!(wrong[MOST_WRONG - 1].starts_with("line 102: it has no line feed: "), "{wrong:?}");
    }

    /// Wherever a file is cut, one line reports it, and no server gets the state of half a line.
    #[test]
    fn a_file_that_was_cut_is_reported_and_the_line_of_the_cut_is_left_out() {
        let header = "1\n# be_id be_name srv_id\n";
        let file = format!("{header}{LINE}\n{}\n", LINE.replace(" g ", " h "));
        for cut in 0..file.len() {
            let (states, wrong) = read(&file[..cut]);
            let ended = file[..cut].ends_with('\n');
            let silent = ended && cut >= header.len(); // as if there were no more servers
            assert_eq!(wrong.len(), usize::from(!silent), "{cut}: {wrong:?}");
            let whole = file[..cut].matches('\n').count();
            assert_eq!(states.len(), whole.saturating_sub(2), "{cut}");
        }
        let (_, wrong) = read(&file[..file.len() - 1]);
        assert_eq!(wrong, ["line 4: it has no line feed: the file was cut there, and the line is ignored"]);
        assert_eq!(
            read(&file[..1]).1,
            ["line 1: it has no line feed: the file was cut there, and the line is ignored"]
        );
        assert_eq!(
            read("").1,
            ["line 1: expected version 1 of the file, found nothing; write it by 'show servers state'"]
        );
    }

    #[test]
    fn a_line_has_the_name_of_its_server_and_the_service_that_gave_it() {
        let line =
            LINE.replace(" 0 0 - 18095 - ", " 0 0 a.test 18095 _s._tcp.test ").replace(" 0 8 3 ", " 0 72 3 ");
        let (states, wrong) = read(&format!("1\n{line}\n"));
        assert!(wrong.is_empty(), "{wrong:?}");
        let state = states.get("b", "g").unwrap();
        assert_eq!((state.name.as_deref(), state.service.as_deref()), (Some("a.test"), Some("_s._tcp.test")));
        assert_eq!(state.admin, admin::DRAIN | admin::RENAMED);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_and_lines_beside_them_hold(
            lines in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..12), 0..40),
            version in any::<bool>(),
        ) {
            let junk = lines.join(&b'\n');
            let mut wrong = Vec::new();
            States::read(&[if version { &b"1\n"[..] } else { b"" }, &junk].concat(), &mut wrong);
            prop_assert!(wrong.len() <= MOST_WRONG);
            let file = [b"1\n", &junk[..], b"\n", LINE.as_bytes(), b"\n"].concat();
            let states = States::read(&file, &mut Vec::new());
            prop_assert!(states.get("b", "g").is_some());
        }
    }
}
