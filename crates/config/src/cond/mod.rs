//! Conditions: the expressions of `.if`, `.elif` and `-cc`, and the facts that they test.
//!
//! ```text
//! expression := conjunction { "||" conjunction }
//! conjunction := term { "&&" term }
//! term := { "!" } ( "(" expression ")" | integer | predicate [ "(" arguments ")" ] )
//! ```
//!
//! The whole expression is parsed before any of it is evaluated, so an error after `1 ||` is found too. An
//! empty expression is false. Integers have C syntax (`10`, `0x1f`, `-1`); all except zero are true.
//!
//! Unlike in HAProxy, most predicates refuse an empty argument.

mod expression;
mod predicate;
mod version;

pub use expression::{ConditionError, evaluate, evaluate_option};
pub use predicate::Predicate;
pub use version::{LibraryVersion, Version};

/// Properties of the program that conditions test. The program supplies them, so `feature()` and `-vv` always
/// agree.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// The version of HAProxy whose configuration language this is. `version_atleast` compares with it.
    pub version: Version,
    /// Features for `feature()`, as HAProxy spells them (`OPENSSL`, `THREAD`...).
    pub features: &'static [&'static str],
    /// Run-time options for `enabled()`, such as `POLL` or `SPLICE`.
    pub enabled: &'static [&'static str],
    /// One bit per entry of `enabled`, set if it is off; see [`without`](Self::without).
    pub disabled: u32,
    /// Name and version of the TLS library; `None` without TLS.
    pub tls: Option<(&'static str, LibraryVersion)>,
    /// API version of AWS-LC, if that is the TLS library.
    pub awslc_api: Option<u64>,
}

impl Build {
    /// No features, only the language of HAProxy 3.5.
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

    /// The same with a run-time option turned off. Ignores unknown names.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        if let Some(number) = self.enabled.iter().position(|known| *known == name) {
            self.disabled |= 1 << number;
        }
        self
    }

    /// The same with other names for which `feature()` is true.
    #[must_use]
    pub fn having(mut self, features: &'static [&'static str]) -> Self {
        self.features = features;
        self
    }

    /// Run-time options that are on.
    pub fn enabled(&self) -> impl Iterator<Item = &'static str> {
        let of = |number: usize| self.disabled & 1 << number == 0;
        self.enabled.iter().enumerate().filter(move |(number, _)| of(*number)).map(|(_, name)| *name)
    }
}
