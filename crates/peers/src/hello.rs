//! The start of a connection: the connecting process sends three lines with its own name and the peer's, and
//! gets a status.

/// The name and version of the protocol.
const PROTOCOL: &str = "HAProxyS";
const VERSION: &str = "2.1";

/// Longest greeting, in bytes: three lines with two host names.
pub const MAX_HELLO: usize = 1024;

/// The answer to a greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The connection may continue.
    Succeeded,
    /// There is another connection already.
    TryAgain,
    /// The greeting is malformed.
    Protocol,
    /// The version is not supported.
    Version,
    /// The greeting is for another peer.
    WrongLocal,
    /// The sender is not a known peer.
    WrongRemote,
}

/// Numbers of all statuses.
const STATUSES: [(u16, Status); 6] = [
    (200, Status::Succeeded),
    (300, Status::TryAgain),
    (501, Status::Protocol),
    (502, Status::Version),
    (503, Status::WrongLocal),
    (504, Status::WrongRemote),
];

impl Status {
    /// The status's number.
    pub fn number(self) -> u16 {
        STATUSES.iter().find(|(_, status)| *status == self).map_or(0, |(number, _)| *number)
    }

    /// The status as a line.
    pub fn line(self) -> String {
        format!("{}\n", self.number())
    }

    /// Reads a status: the status, or `None` if the line is not one, and the length of the line. Returns
    /// `None` if the line is incomplete.
    pub fn read(bytes: &[u8]) -> Option<(Option<Self>, usize)> {
        let end = match bytes.iter().position(|byte| *byte == b'\n') {
            Some(end) => end,
            None if bytes.len() < MAX_HELLO => return None,
            None => return Some((None, bytes.len())),
        };
        let line = std::str::from_utf8(&bytes[..end]).unwrap_or_default();
        let number: Option<u16> = line.trim_end_matches('\r').parse().ok();
        let status = STATUSES.iter().find(|(known, _)| Some(*known) == number).map(|(_, status)| *status);
        Some((status, end + 1))
    }
}

/// The greeting that process number `process`, named `local`, sends to `remote`.
pub fn hello(remote: &str, local: &str, process: u32) -> String {
    format!("{PROTOCOL} {VERSION}\n{remote}\n{local} {process} 1\n")
}

/// Reads a greeting for `local`: the sender's name, and the length of the greeting. `None` if it is
/// incomplete.
///
/// # Errors
/// The status to answer with.
pub fn read_hello<'a>(bytes: &'a [u8], local: &str) -> Result<Option<(&'a str, usize)>, Status> {
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let mut line = || -> Result<Option<&'a str>, Status> {
        let Some(line) = lines.next().and_then(|line| line.strip_suffix(b"\n")) else {
            return if bytes.len() < MAX_HELLO { Ok(None) } else { Err(Status::Protocol) };
        };
        let line = std::str::from_utf8(line).map_err(|_| Status::Protocol)?;
        Ok(Some(line.strip_suffix('\r').unwrap_or(line)))
    };
    // Each line is checked as soon as it arrives, so a client with another protocol is refused without a
    // further line.
    let Some(first) = line()? else { return Ok(None) };
    let version = first.strip_prefix(PROTOCOL).ok_or(Status::Protocol)?;
    let (major, minor) = version.trim_start().split_once('.').ok_or(Status::Protocol)?;
    if major != "2" || minor.parse::<u16>().is_err() {
        return Err(Status::Version);
    }
    let Some(wanted) = line()? else { return Ok(None) };
    if wanted != local {
        return Err(Status::WrongLocal);
    }
    let Some(third) = line()? else { return Ok(None) };
    let name = third.split(' ').next().filter(|name| !name.is_empty()).ok_or(Status::Protocol)?;
    let used = bytes.split_inclusive(|byte| *byte == b'\n').take(3).map(<[u8]>::len).sum();
    Ok(Some((name, used)))
}
