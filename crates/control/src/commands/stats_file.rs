//! `dump stats-file`: counters of what has a GUID, for a process that begins with `stats-file`.

use super::Call;
use super::columns::COLUMNS;
use super::stat::{self, Line, STEPS_AT_ONCE};
use super::values::{Form, Value};
use crate::reply::ReplyError;
use crate::walk::{Step, Walk};
use manylane_plan::Generation;
use manylane_plan::pages::{PART, Parts};
use manylane_sync::{Arc, Reader};
use std::fmt::Write;

/// HAProxy's columns of frontends and listeners, behind `guid`.
const FRONT: &str = "stot,bin,bout,dreq,dresp,ereq,rate,hrsp_1xx,hrsp_2xx,hrsp_3xx,hrsp_4xx,hrsp_5xx,\
    hrsp_other,req_rate,req_tot,comp_in,comp_out,comp_byp,comp_rsp,conn_rate,conn_tot,intercepted,dcon,dses,\
    wrew,cache_lookups,cache_hits,eint,h1sess,h2sess,h3sess,req_other,h1req,h2req,h3req";
/// HAProxy's columns of backends and servers, behind `guid`.
const BACK: &str = "stot,bin,bout,dreq,dresp,econ,eresp,wretr,wredis,chkfail,chkdown,lastchg,lbtot,rate,\
    hrsp_1xx,hrsp_2xx,hrsp_3xx,hrsp_4xx,hrsp_5xx,hrsp_other,hanafail,req_tot,cli_abrt,srv_abrt,comp_in,\
    comp_out,comp_byp,comp_rsp,lastsess,wrew,connect,reuse,cache_lookups,cache_hits,eint";

/// `dump stats-file`
pub(super) async fn dump(call: &mut Call<'_, '_>) -> Result<(), ReplyError> {
    let generation = call.generation.clone();
    let walk = Walk::new(&generation);
    if let Err(refused) = call.reply.make(Dump { generation, walk, back: false, begun: false }).await? {
        call.error(&format!("Cannot dump the counters: {refused}."));
    }
    Ok(())
}

/// The state of writing the lines. It runs on the reporter's thread, like that of `show stat`.
struct Dump {
    generation: Arc<Generation>,
    walk: Walk,
    /// True in the section of backends and servers, which follows that of frontends and listeners.
    back: bool,
    /// The names of the section's columns were written.
    begun: bool,
}

impl Parts for Dump {
    fn next(&mut self, text: &mut String, reader: &Reader) -> bool {
        let Self { generation, walk, back, begun } = self;
        let (side, names) = if *back { ("be", BACK) } else { ("fe", FRONT) };
        if !std::mem::replace(begun, true) {
            let _ = writeln!(text, "#{side} guid,{names},");
        }
        for _ in 0..STEPS_AT_ONCE {
            if text.len() >= PART {
                return true;
            }
            let Some(step) = walk.next(generation) else {
                if std::mem::replace(back, true) {
                    return false;
                }
                text.push('\n');
                (*walk, *begun) = (Walk::new(generation), false);
                return true;
            };
            let (guid, line) = match step {
                Step::Frontend(own) if !*back => {
                    (&own.guid, own.guid.as_ref().map(|_| stat::frontend(own, generation.conn_limit.most())))
                }
                Step::Listener(front, own) if !*back => {
                    (&own.guid, own.guid.as_ref().map(|_| stat::listener(front, own)))
                }
                Step::Server(backend, index, own) if *back => (
                    &own.guid,
                    own.guid.as_ref().map(|_| stat::server(generation, backend, index, own, reader)),
                ),
                Step::Backend(own) if *back => {
                    (&own.guid, own.guid.as_ref().map(|_| stat::backend(own, Form::default())))
                }
                _ => continue,
            };
            if let (Some(guid), Some(line)) = (guid, line) {
                put(text, guid, names, &line);
            }
        }
        true
    }
}

/// Appends a row. Absent and negative values become 0.
fn put(text: &mut String, guid: &str, names: &str, line: &Line) {
    text.push_str(guid);
    for name in names.split(',') {
        let index = COLUMNS.iter().position(|column| column.name == name);
        debug_assert!(index.is_some(), "there is no column '{name}'");
        let value = index.and_then(|position| line.values[position].as_ref());
        match value {
            Some(value @ (Value::Number32(_) | Value::Number64(_))) => {
                let _ = write!(text, ",{value}");
            }
            Some(Value::Signed(n)) => {
                let _ = write!(text, ",{}", (*n).max(0));
            }
            _ => text.push_str(",0"),
        }
    }
    text.push_str(",\n");
}
