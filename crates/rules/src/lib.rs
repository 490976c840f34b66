#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
// Its modules evaluate rules for what makes system calls, so models and simulations leave all of them out.
#![cfg(not(any(loom, manylane_sim)))]

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

pub use answer::{Answer, challenge, reply, see_other, to_server};
pub use apply::{
    Verdict, Walk, after_response, any_holds, apply, backend_of, chosen_backend, chosen_server,
    first_persist, takes_streams,
};
pub use context::{EvalContext, EvalPhase, SettingsOf, proxy_info, tls_info};
pub use forward::forward;
pub use key::{key, of_rdp_cookie};
pub use log::{Record, logs_step, refused};
pub use once::Once;
pub use stick::Stores;
