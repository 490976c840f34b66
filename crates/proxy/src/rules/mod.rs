//! Runs rules: evaluates conditions and formats for a session, and applies actions to heads.

mod answer;
mod apply;
mod context;
mod edit;
mod forward;
mod key;
mod log;
mod once;
mod set;
mod stick;
mod text;
mod tracks;

pub(crate) use answer::{Answer, challenge, reply, see_other, to_server};
pub(crate) use apply::{
    Verdict, Walk, after_response, any_holds, apply, backend_of, chosen_backend, chosen_server,
    first_persist, takes_streams,
};
pub(crate) use context::{EvalContext, EvalPhase};
pub use context::{SettingsOf, proxy_info, tls_info};
pub(crate) use forward::forward;
pub(crate) use key::{key, of_rdp_cookie};
pub(crate) use log::{Record, logs_step, refused};
pub(crate) use once::Once;
pub(crate) use stick::Stores;
