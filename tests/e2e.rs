//! End-to-end tests, in one test program, since each further one is linked again in each profile.

#![allow(clippy::unwrap_used)] // helpers of tests are tests too

mod common;

mod agents;
mod buffers;
mod checks;
mod contents;
mod control;
mod costs;
mod courses;
mod defects;
mod demo;
mod drips;
mod dry_run;
mod dumps;
mod faults;
mod filters;
mod foreign;
mod forward;
mod framing;
mod grpc;
mod h2;
mod h2_chains;
mod h2_clients;
mod h2_servers;
mod h2_settings;
mod h2_websocket;
mod http;
mod isolation;
mod logs;
mod master;
mod members;
mod names;
mod page;
mod peers;
mod private;
mod process;
mod reload;
mod reuse;
mod rules;
mod servers;
mod slow_readers;
mod states;
mod stick;
mod takeover;
mod tcp;
mod tls;
mod tls_limits;
mod tls_ocsp;
mod tls_renewal;
mod tls_runtime;
mod tls_sessions;
mod tls_verify;
mod turns;
mod unread;
