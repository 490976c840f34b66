//! Rules at work: conditions and formats evaluated against a session, actions done to heads.

mod apply;
mod content;
mod facts;

pub(crate) use apply::{Answer, Verdict, apply, connection};
pub(crate) use content::{Content, content};
pub(crate) use facts::{Facts, Moment, Scopes};
