#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod body;
mod chunks;
mod error;
mod leniency;
mod limits;
mod lines;
mod message;
mod parse;
mod settle;
mod write;

pub use body::{BodyReader, From, Progress};
pub use error::{Error, Problem};
pub use leniency::{Leniency, Relaxed};
pub use limits::Limits;
pub use message::{Body, Connection, RequestInfo, is_websocket_key};
pub use parse::{Request, RequestParser, Response, ResponseParser};
pub use settle::{Reader, settle_request, settle_response};
pub use write::{
    BodyWriter, NamePolicy, Persist, WriteError, frame_for, has_close_option, restrict_names, restrict_te,
    set_body, set_connection, write_head,
};
