//! What clients may do, and how answers are marked.

/// What a client may do; each level includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Looks at what is no secret.
    User,
    /// Looks at everything.
    Operator,
    /// Changes things.
    Admin,
}

impl Level {
    /// The level of that name: `user`, `operator` or `admin`.
    pub fn named(name: &str) -> Option<Self> {
        [Self::User, Self::Operator, Self::Admin].into_iter().find(|level| level.name() == name)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

/// `severity-output`: what stands before a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marks {
    None,
    Number,
    Word,
}

impl Marks {
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "none" => Self::None,
            "number" => Self::Number,
            "string" => Self::Word,
            _ => return None,
        })
    }
}

/// How bad news are, as syslog counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    Error,
    Warning,
    Info,
}

impl Severity {
    pub(crate) fn mark(self, marks: Marks) -> &'static str {
        match (marks, self) {
            (Marks::None, _) => "",
            (Marks::Number, Self::Error) => "[3]: ",
            (Marks::Number, Self::Warning) => "[4]: ",
            (Marks::Number, Self::Info) => "[6]: ",
            (Marks::Word, Self::Error) => "[err]: ",
            (Marks::Word, Self::Warning) => "[warning]: ",
            (Marks::Word, Self::Info) => "[info]: ",
        }
    }
}
