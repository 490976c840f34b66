//! Runs rules: evaluates conditions and formats for a session, and applies actions to heads.

mod answer;
mod apply;
mod content;
mod context;
mod forwarded;
mod key;
mod links;
mod memory;
mod normalize;
mod set;
mod stick;
mod text;
mod tracks;

pub use answer::End;
pub(crate) use answer::{Answer, challenge, reply, see_other, to_server};
pub(crate) use apply::{Entrance, Verdict, Walk, after_response, any_holds, apply, connection};
pub(crate) use content::{Content, Lookups, content};
pub(crate) use context::{
    EvalContext, EvalPhase, Scopes, SettingsOf, Spare, current_of, proxy_facts, tls_facts,
};
pub(crate) use forwarded::{Forwarded, Node, Source, forward};
pub(crate) use key::key;
pub(crate) use links::{BackLink, Links};
pub(crate) use memory::{LogLevel, Memory};
pub use normalize::Normalizer;
pub(crate) use stick::Stores;
pub(crate) use tracks::{Countable, HeldEntry, LaneTables, SessionTracks, millis as table_millis};
