//! The demo's page of traffic and its two buttons.

use super::service::{Answer, DemoRequest};
use manylane_balance::Admin;
use manylane_plan::Generation;
use manylane_sched::Time;
use std::fmt::Write;

/// Answers a request to the page's port. `secure` is a request over TLS, if the demo has a port for it.
pub(super) fn answer(
    generation: &Generation,
    config: &str,
    secure: Option<&str>,
    request: &DemoRequest<'_>,
) -> Answer {
    let mut parts = request.target.trim_start_matches('/').split('/');
    match (parts.next().unwrap_or_default(), parts.next()) {
        ("", None) => {
            let hint = secure.map(|line| {
                let line = line.replace('&', "&amp;").replace('<', "&lt;");
                format!("<p>Over TLS, with the authority of this run:<br><code>{line}</code></p>")
            });
            Answer::page(PAGE.replace("<!--secure-->", &hint.unwrap_or_default()))
        }
        ("rows", None) => Answer::page(rows(generation)),
        ("config", None) => Answer::text(200, config.into()),
        (verb @ ("stop" | "start"), Some(name)) => {
            let backend = &generation.backends[0];
            let Some(index) = backend.balancer.servers().by_name(name) else {
                return Answer::text(404, format!("there is no server '{name}'\n"));
            };
            let state = if verb == "stop" { Admin::Maintenance } else { Admin::Ready };
            backend.balancer.set_admin(index, state, Time::now());
            let shown = if verb == "stop" { "maintenance" } else { "ready" };
            super::print(&format!("server {name}: {shown}\n"));
            Answer::text(200, format!("{name}: {verb}\n"))
        }
        _ => Answer::text(404, "there are /, /config, /stop/NAME and /start/NAME\n".into()),
    }
}

/// Returns the table, which the page fetches once a second.
fn rows(generation: &Generation) -> String {
    let mut text =
        String::from("<tr><th>what<th>state<th>now<th>requests<th>bytes in<th>bytes out<th>errors</tr>");
    let mut row = |name: &str, state: &str, now: u64, requests: u64, bytes_in: u64, out: u64, errors: u64| {
        let _ = write!(
            text,
            "<tr><td>{name}<td>{state}<td>{now}<td>{requests}<td>{bytes_in}<td>{out}<td>{errors}</tr>"
        );
    };
    for frontend in &generation.frontends {
        let of = |pick: fn(&manylane_plan::counts::FrontendCounts) -> &manylane_stats::Tally| {
            frontend.counts.read_cheap_one(pick)
        };
        let now = of(|c| &c.connections).saturating_sub(of(|c| &c.connections_ended));
        let errors = of(|c| &c.request_errors);
        let name = format!("frontend {}", frontend.name);
        row(&name, "open", now, of(|c| &c.requests), of(|c| &c.bytes_in), of(|c| &c.bytes_out), errors);
    }
    for backend in &generation.backends {
        for server in backend.listed() {
            let Some(index) = backend.balancer.servers().index(server.index) else { continue };
            let state = match backend.balancer.servers()[index].state().admin() {
                Admin::Ready => "up",
                Admin::Drain => "drain",
                Admin::Maintenance => "maintenance",
            };
            let of = |pick: fn(&manylane_plan::counts::ServerCounts) -> &manylane_stats::Tally| {
                server.counts.read_cheap_one(pick)
            };
            let now = of(|c| &c.streams).saturating_sub(of(|c| &c.streams_ended));
            let errors = of(|c| &c.connection_errors) + of(|c| &c.response_errors);
            let name = format!("server {}/{}", backend.name, server.name);
            row(&name, state, now, of(|c| &c.streams), of(|c| &c.bytes_in), of(|c| &c.bytes_out), errors);
        }
    }
    text
}

const PAGE: &str = "<!doctype html>
<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Manylane</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 60em; padding: 0 1em; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: right; padding: .3em .7em; border-bottom: 1px solid #ccc; font-variant-numeric: \
tabular-nums; }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) { text-align: left; }
@media (prefers-color-scheme: dark) { body { background: #111; color: #ddd; } th, td { border-color: #333; } }
</style></head><body>
<h1>Manylane</h1>
<table id=\"rows\"></table>
<!--secure-->
<script>
const rows = document.getElementById('rows');
async function look() {
  try { rows.innerHTML = await (await fetch('/rows')).text(); } catch { document.title = 'Manylane has \
  ended'; }
}
look();
setInterval(look, 1000);
</script>
</body></html>
";
