//! Commands that change a client's own settings.

use super::Call;
use crate::level::SeverityOutput;
use crate::prompt::PromptUsage;
use crate::session::Settings;
use manylane_config::value::Unit;
use std::time::Duration;

/// `expert-mode`, `experimental-mode`: turns the mode on or off, or shows it.
pub(super) fn set_mode(call: &mut Call<'_, '_>, name: &str, of: impl FnOnce(&mut Settings) -> &mut bool) {
    let word = call.word(0);
    let mode = of(call.settings);
    match word {
        "" => {
            let now = if *mode { "ON" } else { "OFF" };
            call.info(&format!("{name} is {now}"));
        }
        "on" => *mode = true,
        "off" => *mode = false,
        _ => call.error(&format!("'{name}' expects 'on', 'off' or nothing.")),
    }
}

/// `set severity-output`
pub(super) fn set_severity(call: &mut Call<'_, '_>) {
    match SeverityOutput::named(call.word(0)) {
        Some(marks) => call.settings.marks = marks,
        None => call.error("one of 'none', 'number', 'string' is a required argument"),
    }
}

/// The longest `set timeout cli`.
const LONGEST_SILENCE: Duration = Duration::from_secs(86_400);

/// `set timeout cli`
pub(super) fn set_timeout(call: &mut Call<'_, '_>) {
    match manylane_config::value::time(call.word(0).as_bytes(), Unit::S) {
        Ok(time) if !time.is_zero() && time <= LONGEST_SILENCE => call.settings.timeout = time,
        _ if call.word(0).is_empty() => call.error("Expects an integer value."),
        _ => call.error("Invalid timeout value."),
    }
}

/// `echo`
pub(super) fn echo(call: &mut Call<'_, '_>) {
    // Without a text the answer is empty: an empty line would end it before its end (rule 4).
    if !call.words.is_empty() {
        call.info(&call.words.join(" "));
    }
}

const PROMPT_HELP: &str = "\
'prompt [help | n | i | p | timed]*' changes how this client is served; the last mode counts.
  n      the connection ends behind the answers to a line
  i      it stays open
  p      it stays open, and a prompt asks for each line
  timed  the prompt has the time since the start of the process, or no longer
Without a word, 'prompt' changes between 'p' and 'n'.
";

/// `prompt`
pub(super) fn set_prompt(call: &mut Call<'_, '_>) {
    match call.settings.prompt.with(call.words) {
        Ok(mode) => call.settings.prompt = mode,
        Err(PromptUsage::Requested) => call.reply.put(PROMPT_HELP),
        Err(PromptUsage::Wrong) => call.error(PROMPT_HELP.trim_end()),
    }
}
