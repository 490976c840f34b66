//! `show dev`, `show libs`: facts about the program and the machine for a report of a defect.

use super::Call;
use crate::process::ProcessInfo;
use crate::serve::Control;
use std::fmt::Write;
use std::fs;

/// `show dev`
pub(super) async fn show(call: &mut Call<'_, '_>) {
    let (info, node) = (call.control.process().info.clone(), call.generation.node().to_owned());
    answer(call, move || program_and_machine(&info, &node)).await;
}

/// `show libs`: the files whose code the process has mapped: addresses of first and last byte, size, name.
pub(super) async fn libraries(call: &mut Call<'_, '_>) {
    let read = || {
        let mut text = String::new();
        for (name, first, last) in objects(&fs::read_to_string("/proc/self/maps").unwrap_or_default()) {
            let _ = writeln!(text, "{first:#014x}-{last:#014x} ({:#09x}) {name}", last - first + 1);
        }
        text
    };
    answer(call, read).await;
}

/// Replies with what `read` reads on the blocking pool: the kernel locks the mappings for their list, and
/// takes milliseconds for the processors of a large machine.
async fn answer(call: &mut Call<'_, '_>, read: impl FnOnce() -> String + Send + 'static) {
    match Control::aside().run(read) {
        Ok(reading) => call.reply.put(&reading.await),
        Err(refused) => call.error(&format!("Cannot read the system's files: {refused}.")),
    }
}

fn program_and_machine(info: &ProcessInfo, node: &str) -> String {
    let system = |name: &str| read(&format!("/proc/sys/kernel/{name}"));
    let command = fs::read("/proc/self/cmdline").unwrap_or_default();
    let command = String::from_utf8_lossy(&command).replace('\0', " ");
    format!(
        "Manylane version {}\nBuild options\n  Driver : {}\n  Lanes : {}\nPlatform info\n  cpu model: {}\n  \
            OS name: {}\n  OS release: {}\n  OS version: {}\n  OS architecture: {}\n  node name: {node}\n  \
            distro pretty name: {}\nProcess info\n  pid: {}\n  cmdline: {}\n",
        info.version,
        super::info::drivers(),
        info.lanes,
        field("/proc/cpuinfo", "model name", ':'),
        system("ostype"),
        system("osrelease"),
        system("version"),
        std::env::consts::ARCH,
        field("/etc/os-release", "PRETTY_NAME", '='),
        std::process::id(),
        command.trim_end(),
    )
}

/// The files of a list of mappings (proc_pid_maps(5)) that have executable parts, in the order of addresses.
fn objects(maps: &str) -> Vec<(&str, u64, u64)> {
    let mut all: Vec<(&str, u64, u64, bool)> = Vec::new();
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(range), Some(rights)) = (words.next(), words.next()) else { continue };
        let Some(name) = line.find('/').map(|at| &line[at..]) else { continue };
        let ends = range.split_once('-').and_then(|(first, end)| {
            Some((u64::from_str_radix(first, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
        });
        let Some((first, end)) = ends else { continue };
        let runs = rights.contains('x');
        match all.iter_mut().find(|(known, ..)| *known == name) {
            Some((_, _, last, code)) => (*last, *code) = (end - 1, *code || runs),
            None => all.push((name, first, end - 1, runs)),
        }
    }
    all.into_iter().filter(|(.., runs)| *runs).map(|(name, first, last, _)| (name, first, last)).collect()
}

/// The first line of a file.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

/// The value behind `name` and `separator` in a file, without its quotes.
fn field(path: &str, name: &str, separator: char) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(separator));
    value.unwrap_or_default().trim().trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests {
    use super::objects;

    #[test]
    fn files_with_code_are_found_from_their_first_to_their_last_byte() {
        let maps = "1000-3000 r--p 00000000 08:01 7 /bin/program\n\
            3000-4000 r-xp 00002000 08:01 7 /bin/program\n\
            4000-5000 rw-p 00000000 00:00 0 [heap]\n7000-8000 r--p 00000000 08:01 8 /data file\n\
            9000-a000 r-xp 00000000 08:01 9 /lib/a.so (deleted)\n";
        let expected = [("/bin/program", 0x1000, 0x3fff), ("/lib/a.so (deleted)", 0x9000, 0x9fff)];
        assert_eq!(objects(maps), expected);
    }
}
