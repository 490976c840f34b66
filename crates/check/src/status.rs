//! Results of checks, in the words of HAProxy's manual.

/// Status of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// No check was made yet.
    Ini,
    /// An agent said nothing about health.
    Checked,
    /// Live traffic had too many errors in a row (`observe`).
    Hana,
    /// The check could not be made: no descriptor, no memory.
    SockErr,
    /// Connected, and that was the whole check.
    L4Ok,
    /// Not connected in time.
    L4Tout,
    /// Not connected.
    L4Con,
    /// The answer is TLS, and that was the whole check.
    L6Ok,
    /// No answer of TLS in time.
    L6Tout,
    /// The answer is not TLS.
    L6Rsp,
    /// No answer in time.
    L7Tout,
    /// The answer is invalid, or lacks the expected content.
    L7Rsp,
    /// The answer is as expected.
    L7Ok,
    /// The server works and takes no new clients (`disable-on-404`).
    L7OkC,
    /// The status of the answer reports a failure.
    L7Sts,
    /// An external program reports a failure, or failed itself.
    ProcErr,
    /// An external program took too long.
    ProcTout,
    /// An external program reports success.
    ProcOk,
}

/// Class of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    Unknown,
    Failed,
    Passed,
    Conditional,
}

impl Status {
    /// Returns the name in `show stat`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ini => "INI",
            Self::Checked => "CHECKED",
            Self::Hana => "HANA",
            Self::SockErr => "SOCKERR",
            Self::L4Ok => "L4OK",
            Self::L4Tout => "L4TOUT",
            Self::L4Con => "L4CON",
            Self::L6Ok => "L6OK",
            Self::L6Tout => "L6TOUT",
            Self::L6Rsp => "L6RSP",
            Self::L7Tout => "L7TOUT",
            Self::L7Rsp => "L7RSP",
            Self::L7Ok => "L7OK",
            Self::L7OkC => "L7OKC",
            Self::L7Sts => "L7STS",
            Self::ProcErr => "PROCERR",
            Self::ProcTout => "PROCTOUT",
            Self::ProcOk => "PROCOK",
        }
    }

    /// Returns the description in words.
    pub fn description(self) -> &'static str {
        match self {
            Self::Ini => "Initializing",
            Self::Checked => "No status change",
            Self::Hana => "Health analyze",
            Self::SockErr => "Socket error",
            Self::L4Ok => "Layer4 check passed",
            Self::L4Tout => "Layer4 timeout",
            Self::L4Con => "Layer4 connection problem",
            Self::L6Ok => "Layer6 check passed",
            Self::L6Tout => "Layer6 timeout",
            Self::L6Rsp => "Layer6 invalid response",
            Self::L7Tout => "Layer7 timeout",
            Self::L7Rsp => "Layer7 invalid response",
            Self::L7Ok => "Layer7 check passed",
            Self::L7OkC => "Layer7 check conditionally passed",
            Self::L7Sts => "Layer7 wrong status",
            Self::ProcErr => "External check error",
            Self::ProcTout => "External check timeout",
            Self::ProcOk => "External check passed",
        }
    }

    /// Returns the number in `show servers state`.
    pub fn number(self) -> u8 {
        match self {
            Self::Ini => 1,
            Self::Checked => 3,
            Self::Hana => 4,
            Self::SockErr => 5,
            Self::L4Ok => 6,
            Self::L4Tout => 7,
            Self::L4Con => 8,
            Self::L6Ok => 9,
            Self::L6Tout => 10,
            Self::L6Rsp => 11,
            Self::L7Tout => 12,
            Self::L7Rsp => 13,
            Self::L7Ok => 15,
            Self::L7OkC => 16,
            Self::L7Sts => 17,
            Self::ProcErr => 18,
            Self::ProcTout => 19,
            Self::ProcOk => 20,
        }
    }

    const ALL: [Self; 18] = [
        Self::Ini,
        Self::Checked,
        Self::Hana,
        Self::SockErr,
        Self::L4Ok,
        Self::L4Tout,
        Self::L4Con,
        Self::L6Ok,
        Self::L6Tout,
        Self::L6Rsp,
        Self::L7Tout,
        Self::L7Rsp,
        Self::L7Ok,
        Self::L7OkC,
        Self::L7Sts,
        Self::ProcErr,
        Self::ProcTout,
        Self::ProcOk,
    ];

    /// Returns the status with this [`number`](Self::number).
    pub fn by_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.number() == number)
    }

    /// Returns the status with this name.
    pub fn by_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name().as_bytes() == name)
    }

    /// Returns whether a code is reported with it.
    pub(crate) fn has_code(self) -> bool {
        matches!(self, Self::L7Ok | Self::L7OkC | Self::L7Sts | Self::ProcErr | Self::ProcTout | Self::ProcOk)
    }

    pub(crate) fn outcome(self) -> Outcome {
        match self {
            Self::Ini | Self::Checked => Outcome::Unknown,
            Self::Hana
            | Self::SockErr
            | Self::L4Tout
            | Self::L4Con
            | Self::L6Tout
            | Self::L6Rsp
            | Self::L7Tout
            | Self::L7Rsp
            | Self::L7Sts
            | Self::ProcErr
            | Self::ProcTout => Outcome::Failed,
            Self::L4Ok | Self::L6Ok | Self::L7Ok | Self::ProcOk => Outcome::Passed,
            Self::L7OkC => Outcome::Conditional,
        }
    }

    /// Returns whether the server did not answer in time.
    pub fn is_late(self) -> bool {
        matches!(self, Self::L4Tout | Self::L6Tout | Self::L7Tout | Self::ProcTout)
    }

    /// Returns the number of its class in `show servers state`: 0 unknown, 2 failed, 3 passed, 4
    /// conditionally passed.
    pub fn result(self) -> u8 {
        match self.outcome() {
            Outcome::Unknown => 0,
            Outcome::Failed => 2,
            Outcome::Passed => 3,
            Outcome::Conditional => 4,
        }
    }
}

/// Result of a check, as reports show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckResult {
    /// Status.
    pub status: Status,
    /// Status code of the HTTP answer, or its equivalent in other protocols; 0 if they have none.
    pub code: Option<i64>,
    /// Reason, or the server's own text; may be empty. Bytes that are not printable become dots.
    pub info: Box<str>,
}

impl CheckResult {
    /// Creates a result without a code.
    pub fn new(status: Status, info: impl Into<Box<str>>) -> Self {
        Self { status, code: None, info: info.into() }
    }

    /// Creates a result with the first line of a server's text.
    pub(crate) fn said(status: Status, code: u16, said: &[u8]) -> Self {
        let line = said.split(|byte| matches!(byte, b'\r' | b'\n' | 0)).next().unwrap_or_default();
        Self { status, code: Some(code.into()), info: Self::shown(line) }
    }

    /// Returns foreign bytes in the form that reports show.
    pub(crate) fn shown(bytes: &[u8]) -> Box<str> {
        let shown = bytes.iter().take(LONGEST_INFO).map(|&byte| match byte {
            b' '..=b'~' => char::from(byte),
            _ => '.',
        });
        shown.collect()
    }
}

/// Largest number of bytes kept of a server's text.
pub(crate) const LONGEST_INFO: usize = 127;
