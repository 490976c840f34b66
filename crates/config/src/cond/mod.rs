//! Conditions: the expressions of `.if`, `.elif` and `-cc`, and the facts they ask for.
//!
//! ```text
//! expression := conjunction { "||" conjunction }
//! conjunction := term { "&&" term }
//! term := { "!" } ( "(" expression ")" | integer | predicate [ "(" arguments ")" ] )
//! ```
//!
//! The whole expression is read before any of it is evaluated, so that a mistake behind `1 ||` is found too.
//! An empty expression is false. Integers are written as in C (`10`, `0x1f`, `-1`); all but zero are true.
//!
//! Stricter than HAProxy, which answers something: a predicate without its argument is an error.

mod expression;
mod predicate;
mod version;

pub use expression::{ConditionError, evaluate, evaluate_option};
pub use predicate::Predicate;
pub use version::{LibraryVersion, Version};

/// What was built: the answers that do not come from the environment. The program supplies it, so that
/// `feature()` and the program's own `-vv` cannot differ.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// The version of HAProxy whose configuration language is spoken: what `version_atleast` compares with.
    pub version: Version,
    /// Names that `feature()` answers with true, as HAProxy spells them (`OPENSSL`, `THREAD`...).
    pub features: &'static [&'static str],
    /// Names that `enabled()` answers with true unless they are switched off: run-time choices such as
    /// `POLL` or `SPLICE`.
    pub enabled: &'static [&'static str],
    /// A bit for each of them that is switched off, by option or keyword: see [`without`](Self::without).
    pub disabled: u32,
    /// The TLS library, if there is one: its name as it calls itself and its version.
    pub tls: Option<(&'static str, LibraryVersion)>,
    /// The number of AWS-LC's interface, if that is the TLS library.
    pub awslc_api: Option<u64>,
}

impl Build {
    /// Nothing built but the language itself, which is HAProxy 3.5's.
    pub const fn bare() -> Self {
        Self {
            version: Version::SPOKEN,
            features: &[],
            enabled: &[],
            disabled: 0,
            tls: None,
            awslc_api: None,
        }
    }

    /// The same with a run-time choice switched off, if it is one of ours.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        if let Some(number) = self.enabled.iter().position(|known| *known == name) {
            self.disabled |= 1 << number;
        }
        self
    }

    /// Names for which `enabled()` is true.
    pub fn enabled(&self) -> impl Iterator<Item = &'static str> {
        let of = |number: usize| self.disabled & 1 << number == 0;
        self.enabled.iter().enumerate().filter(move |(number, _)| of(*number)).map(|(_, name)| *name)
    }
}
