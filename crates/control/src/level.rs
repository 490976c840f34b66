//! Levels of clients, and marks of answers.

/// Permissions of a client; each level includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// May see everything that is not secret.
    User,
    /// May see everything.
    Operator,
    /// May change things.
    Admin,
}

impl Level {
    /// The level named `user`, `operator` or `admin`.
    pub fn named(name: &str) -> Option<Self> {
        [Self::User, Self::Operator, Self::Admin].into_iter().find(|level| level.name() == name)
    }

    /// The level's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

/// `severity-output`: the mark before each message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SeverityOutput {
    None,
    Number,
    Word,
}

impl SeverityOutput {
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "none" => Self::None,
            "number" => Self::Number,
            "string" => Self::Word,
            _ => return None,
        })
    }
}

/// Severity of a message, with syslog's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    Error,
    Warning,
    Info,
}

impl Severity {
    pub(crate) fn mark(self, marks: SeverityOutput) -> &'static str {
        match (marks, self) {
            (SeverityOutput::None, _) => "",
            (SeverityOutput::Number, Self::Error) => "[3]: ",
            (SeverityOutput::Number, Self::Warning) => "[4]: ",
            (SeverityOutput::Number, Self::Info) => "[6]: ",
            (SeverityOutput::Word, Self::Error) => "[err]: ",
            (SeverityOutput::Word, Self::Warning) => "[warning]: ",
            (SeverityOutput::Word, Self::Info) => "[info]: ",
        }
    }
}
