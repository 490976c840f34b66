//! The statistics page (`stats uri`): HTML tables, CSV and JSON, with the values of `show stat`.

use crate::cells::{cell, duration, escaped};
use crate::commands::columns::{COLUMNS, Column, header};
use crate::commands::info;
use crate::commands::schema;
use crate::commands::stat::{self, Line, STEPS_AT_ONCE};
use crate::commands::values::Form;
use crate::process::ProcessInfo;
use crate::walk::{Step, Walk};
use manylane_plan::Generation;
use manylane_plan::generation::{Backend, StatsPage};
use manylane_plan::pages::{PART, Page, Parts};
use manylane_sync::{Arc, Reader};
use std::fmt::Write;

/// `type` of a server's line.
const SERVER: &str = "2";

const STYLE: &str = "body{font:13px sans-serif;margin:1em;color:#222;background:#fff}\
table{border-collapse:collapse;margin:.3em 0 1.2em}th,td{border:1px solid #bbb;padding:2px \
6px;text-align:right;white-space:nowrap}\
th{background:#eef}td:first-child,th:first-child{text-align:left}\
td b{font-weight:inherit;margin-right:.2em}.legend span{padding:0 .5em;margin-right:.5em}\
form.scope{display:inline}\
caption{text-align:left;font-weight:bold;padding:2px 0}\
.up{background:#d9f2d9}.down{background:#f8d0d0}.going{background:#fdf0c0}.maint{background:#ecd9c0}.drain{background:#cfe3fb}\
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}a{color:#8cf}a:visited{color:#c9f}th{background:#223}th,td{border-color:#555}.up{background:#1d3b1d}.down{background:#551d1d}.going{background:#4d4416}.maint{background:#4a3820}.drain{background:#1d3350}}";

/// What the colours of lines say.
const LEGEND: &str = "<span class=up>up, or not checked</span><span class=going>going up or down</span>\
<span class=down>down</span><span class=drain>draining: no new clients</span>\
<span class=maint>in maintenance</span>";

/// Chooses all servers of a table.
const ALL: &str = "<label><input type=\"checkbox\" onclick=\"for(const c of \
this.form.elements)if(c.name=='s')c.checked=this.checked\"> all</label>";

/// Groups of a table: a heading, and for each column its heading and its column of `show stat`.
const GROUPS: &[(&str, &[(&str, Column)])] = &[
    ("Queue", &[("Cur", Column::Qcur), ("Max", Column::Qmax), ("Limit", Column::Qlimit)]),
    ("Rate", &[("Cur", Column::Rate), ("Max", Column::RateMax), ("Limit", Column::RateLim)]),
    (
        "Sessions",
        &[
            ("Cur", Column::Scur),
            ("Max", Column::Smax),
            ("Limit", Column::Slim),
            ("Total", Column::Stot),
            ("Chosen", Column::Lbtot),
            ("Last", Column::Lastsess),
        ],
    ),
    ("Bytes", &[("In", Column::Bin), ("Out", Column::Bout)]),
    ("Denied", &[("Req", Column::Dreq), ("Resp", Column::Dresp)]),
    ("Errors", &[("Req", Column::Ereq), ("Conn", Column::Econ), ("Resp", Column::Eresp)]),
    ("Warnings", &[("Retr", Column::Wretr), ("Redis", Column::Wredis)]),
    (
        "Server",
        &[
            ("Status", Column::Status),
            ("Check", Column::CheckStatus),
            ("Weight", Column::Weight),
            ("Act", Column::Act),
            ("Bck", Column::Bck),
            ("Failed", Column::Chkfail),
            ("Down", Column::Chkdown),
            ("Downtime", Column::Downtime),
        ],
    ),
];

/// Options after the page's path: `;csv`, `;json`, `;typed`, `;json-schema`, `;up`, `;no-maint`,
/// `;norefresh`, `;st=word`, `?scope=text`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PageQuery<'a> {
    csv: bool,
    json: bool,
    typed: bool,
    schema: bool,
    up: bool,
    no_maintenance: bool,
    no_refresh: bool,
    /// The result of the last form, from `;st=`.
    formed: Option<&'a str>,
    scope: &'a str,
}

impl<'a> PageQuery<'a> {
    fn read(text: &'a [u8]) -> Self {
        let mut query = Self::default();
        for word in std::str::from_utf8(text).unwrap_or_default().split([';', '?', '&']) {
            match word {
                "csv" => query.csv = true,
                "json" => query.json = true,
                "typed" => query.typed = true,
                "json-schema" => query.schema = true,
                "up" => query.up = true,
                "no-maint" => query.no_maintenance = true,
                "norefresh" => query.no_refresh = true,
                _ => match word.strip_prefix("st=") {
                    Some(formed) => query.formed = Some(formed),
                    None => query.scope = word.strip_prefix("scope=").unwrap_or(query.scope),
                },
            }
        }
        query
    }
}

/// The message for the word in `;st=`, and the CSS class of its line.
fn outcome(word: &str) -> (&'static str, &'static str) {
    match word {
        "DONE" => ("up", "Done."),
        "NONE" => ("going", "Nothing has changed."),
        "PART" => ("going", "Done in part: some of the servers are not there, or it does not apply to them."),
        "ERRP" => ("down", "Not done: there is no such action, backend or server."),
        "EXCD" => ("down", "Not done: the form is larger than a buffer. Choose fewer servers at a time."),
        "DENY" => ("down", "Not done: this page may only be read."),
        _ => ("going", "The result is not known."),
    }
}

/// Actions of the form: the value that is sent, and the label.
const ACTIONS: &[(&str, &str)] = &[
    ("", ""),
    ("ready", "Set state to READY"),
    ("drain", "Set state to DRAIN"),
    ("maint", "Set state to MAINT"),
    ("dhlth", "Health: disable checks"),
    ("ehlth", "Health: enable checks"),
    ("hrunn", "Health: force UP"),
    ("hnolb", "Health: force NOLB"),
    ("hdown", "Health: force DOWN"),
    ("dagent", "Agent: disable checks"),
    ("eagent", "Agent: enable checks"),
    ("arunn", "Agent: force UP"),
    ("adown", "Agent: force DOWN"),
    ("shutdown", "End sessions"),
];

/// Makes the page for a request. With `admin`, the page has forms that change servers.
pub(crate) fn page(
    info: &ProcessInfo,
    generation: &Arc<Generation>,
    page: &Arc<StatsPage>,
    query: &[u8],
    admin: bool,
) -> Page {
    let wanted = PageQuery::read(query);
    if wanted.schema {
        return Page::new("application/json", None, Schema);
    }
    let typed = wanted.typed && !wanted.json;
    let form = Form {
        json: wanted.json,
        typed,
        up: wanted.up,
        no_maintenance: wanted.no_maintenance,
        ..Form::default()
    };
    let as_page = !wanted.csv && !wanted.json && !typed;
    let refresh = page
        .refresh
        .filter(|time| !time.is_zero() && !wanted.no_refresh)
        .map(|time| time.as_millis().div_ceil(1000) as u64);
    let making = StatsPageWriter {
        info: info.clone(),
        generation: generation.clone(),
        page: page.clone(),
        wanted: wanted.scope.replace("%3A", ":"), // as browsers write it
        form,
        as_page,
        admin: admin && as_page,
        formed: wanted.formed.map(outcome),
        first: true,
        begun: false,
        walk: Walk::new(generation),
    };
    let content_type = match (wanted.json, wanted.csv || typed) {
        (true, _) => "application/json",
        (_, true) => "text/plain",
        _ => "text/html",
    };
    Page::new(content_type, refresh, making)
}

/// `show schema json`
struct Schema;

impl Parts for Schema {
    fn next(&mut self, text: &mut String, _: &Reader) -> bool {
        text.push_str(&schema::text());
        false
    }
}

/// The state of writing a page.
struct StatsPageWriter {
    info: ProcessInfo,
    generation: Arc<Generation>,
    page: Arc<StatsPage>,
    /// Only proxies whose names contain this are shown.
    wanted: String,
    form: Form,
    /// HTML tables instead of CSV or JSON.
    as_page: bool,
    /// The page has forms that change servers.
    admin: bool,
    /// Message and CSS class for the last form's result.
    formed: Option<(&'static str, &'static str)>,
    /// No line was written yet.
    first: bool,
    begun: bool,
    walk: Walk,
}

impl StatsPageWriter {
    fn shows(&self, proxy: &str) -> bool {
        self.page.shows(proxy) && proxy.contains(&*self.wanted)
    }

    /// Writes the part before the first proxy.
    fn begin(&self, text: &mut String) {
        if self.form.json {
            text.push('[');
            return;
        }
        if !self.as_page {
            if !self.form.typed {
                let _ = writeln!(text, "{}", header());
            }
            return;
        }
        let Self { page, generation, info, .. } = self;
        let version = if page.shows_version { format!(" version {}", info.version) } else { String::new() };
        let mut title = format!("Statistics of Manylane{version}");
        if let Some(node) = &page.node {
            let own = generation.process.node.as_deref().unwrap_or(&generation.logs.hostname);
            let _ = write!(title, " on {}", escaped(node.as_deref().unwrap_or(own)));
        }
        let _ = write!(
            text,
            "<!DOCTYPE html>\n<html><head><meta \
                charset=\"utf-8\"><title>{title}</title><style>{STYLE}</style></head>\n\
                <body><h1>{title}</h1>\n"
        );
        if let Some(description) = &page.description
            && let Some(description) = description.as_deref().or(generation.process.description.as_deref())
        {
            let _ = writeln!(text, "<p>{}</p>", escaped(description));
        }
        let _ = write!(text, "<p>");
        for (name, field) in [
            ("process", "Pid"),
            ("lanes", "Nbthread"),
            ("up", "Uptime_sec"),
            ("connections", "CurrConns"),
            ("of", "Maxconn"),
            ("a second", "ConnRate"),
            ("requests", "CumReq"),
            ("tasks", "Tasks"),
            ("lost log lines", "DroppedLogs"),
        ] {
            if let Some(value) = info::value(generation, info, field, false) {
                let shown = match (field, value.text().parse()) {
                    ("Uptime_sec", Ok(seconds)) => duration(seconds),
                    _ => value.text(),
                };
                let _ = write!(text, "{name} <b>{shown}</b> ");
            }
        }
        let uri = escaped(&String::from_utf8_lossy(&page.uri));
        let _ = writeln!(
            text,
            "</p>\n<p><a href=\"{uri}\">all</a> <a href=\"{uri};up\">only what is up</a> <a \
                href=\"{uri};norefresh\">without refreshing</a> \
             <a href=\"{uri};csv\">CSV</a> <a href=\"{uri};json\">JSON</a> <form class=scope \
                action=\"{uri}\"><label>Scope <input name=\"scope\" size=8 maxlength=20 \
                value=\"{}\"></label></form></p>\n<p class=legend>{LEGEND}</p>",
            escaped(&self.wanted)
        );
        if let Some((class, words)) = self.formed {
            let _ = writeln!(text, "<p class={class}><a href=\"{uri}\">[X]</a> {words}</p>");
        }
    }

    /// `chooses`: it has servers that can be chosen.
    fn head_of_table(&self, text: &mut String, name: &str, chooses: bool) {
        if self.admin {
            text.push_str("<form method=\"post\">");
        }
        let all = if self.admin && chooses { ALL } else { "" };
        let _ = write!(text, "<table><caption>{}</caption><tr><th rowspan=2>{all}</th>", escaped(name));
        for (name, columns) in GROUPS {
            let _ = write!(text, "<th colspan={}>{name}</th>", columns.len());
        }
        let _ = write!(text, "</tr>\n<tr>");
        for (name, column) in GROUPS.iter().flat_map(|(_, columns)| *columns) {
            let _ = write!(text, "<th title=\"{}\">{name}</th>", escaped(COLUMNS[*column as usize].help));
        }
        let _ = writeln!(text, "</tr>");
    }

    fn foot_of_table(&self, text: &mut String, back: Option<&Backend>) {
        if self.as_page {
            text.push_str("</table>\n");
        }
        if self.admin {
            if let Some(back) = back.filter(|back| back.listed().next().is_some()) {
                let _ = write!(text, "<p>With the chosen servers: <select name=\"action\">");
                for (value, shown) in ACTIONS {
                    let _ = write!(text, "<option value=\"{value}\">{shown}</option>");
                }
                let _ = writeln!(
                    text,
                    "</select> <input type=\"hidden\" name=\"b\" value=\"#{}\"><input type=\"submit\" \
                        value=\"Apply\"></p>",
                    back.id
                );
            }
            text.push_str("</form>\n");
        }
    }

    fn put(&mut self, text: &mut String, line: &Line) {
        if !self.as_page {
            return stat::put(text, self.form, &mut self.first, line);
        }
        let value = |column: Column| {
            line.values[column as usize].as_ref().map(|value| value.text()).unwrap_or_default()
        };
        let status = value(Column::Status);
        let class = match status.split(' ').next().unwrap_or_default() {
            "UP" | "DOWN" if status.contains('/') && !status.contains('(') => "going",
            "DOWN" => "down",
            "MAINT" => "maint",
            "DRAIN" | "NOLB" => "drain",
            _ => "up",
        };
        let legend = match self.page.legends {
            true => format!("{} {}", value(Column::Addr), value(Column::Algo)),
            false => String::new(),
        };
        let name = escaped(&value(Column::Svname));
        let _ = write!(text, "<tr class={class}><td title=\"{}\">", escaped(legend.trim()));
        if self.admin && value(Column::Type) == SERVER {
            let _ = write!(
                text,
                "<label><input type=\"checkbox\" name=\"s\" value=\"{name}\"> {name}</label></td>"
            );
        } else {
            let _ = write!(text, "{name}</td>");
        }
        for (_, column) in GROUPS.iter().flat_map(|(_, columns)| *columns) {
            let _ = write!(text, "<td>{}</td>", cell(line, *column));
        }
        let _ = writeln!(text, "</tr>");
    }
}

impl Parts for StatsPageWriter {
    fn next(&mut self, text: &mut String, reader: &Reader) -> bool {
        let generation = self.generation.clone();
        if !std::mem::replace(&mut self.begun, true) {
            self.begin(text);
        }
        for _ in 0..STEPS_AT_ONCE {
            if text.len() >= PART {
                return true;
            }
            let Some(step) = self.walk.next(&generation) else {
                text.push_str(match (self.form.json, self.as_page) {
                    (true, _) => "]\n",
                    (_, true) => "</body></html>\n",
                    _ => "",
                });
                return false;
            };
            match step {
                Step::Begin(sides) if !self.shows(sides.name()) => self.walk.skip(),
                Step::Begin(sides) => {
                    if self.as_page {
                        let chooses = sides.back.is_some_and(|back| back.listed().next().is_some());
                        self.head_of_table(text, sides.name(), chooses);
                    }
                }
                Step::Frontend(front) => self.put(text, &stat::frontend(front, generation.conn_limit.most())),
                Step::Listener(front, own) => self.put(text, &stat::listener(front, own)),
                Step::Server(back, index, own) if self.form.shows(back, index) => {
                    self.put(text, &stat::server(&generation, back, index, own, reader));
                }
                Step::Server(..) => {}
                Step::Backend(back) => self.put(text, &stat::backend(back, self.form)),
                Step::End(sides) => self.foot_of_table(text, sides.back),
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_the_path_of_the_page_says_what_is_requested() {
        assert_eq!(PageQuery::read(b""), PageQuery::default());
        assert_eq!(
            PageQuery::read(b";csv;norefresh"),
            PageQuery { csv: true, no_refresh: true, ..PageQuery::default() }
        );
        assert_eq!(
            PageQuery::read(b";up?scope=web&x"),
            PageQuery { up: true, scope: "web", ..PageQuery::default() }
        );
        assert_eq!(
            PageQuery::read(b";st=DONE;up"),
            PageQuery { up: true, formed: Some("DONE"), ..PageQuery::default() }
        );
        assert_eq!(PageQuery::read(b"\xff;csv"), PageQuery::default());
    }
}
