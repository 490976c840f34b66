//! On the real machine.

use manylane_buf::Chain;
use manylane_io::{Driver, DriverChoice, Kind, Stream, tcp_listener, tcp_socket};
use manylane_sched::{Class, Config, Lane, TaskKind};
use std::cell::Cell;
use std::error::Error;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

const REQUEST: usize = 100;
const RESPONSE: usize = 1024;

static LOAD: TaskKind = TaskKind::new("load");

struct Settings {
    requests: u64,
    rounds: usize,
    connections: u64,
}

fn settings() -> Result<Settings, String> {
    let mut settings = Settings { requests: 40_000, rounds: 5, connections: 64 };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().and_then(|value| value.parse::<u64>().ok()).filter(|value| *value > 0);
        let value = value.ok_or_else(|| format!("{name} wants a number above 0 behind it"))?;
        match name.as_str() {
            "--requests" => settings.requests = value,
            "--rounds" => settings.rounds = value as usize,
            "--connections" => settings.connections = value,
            _ => return Err(format!("{name}: there are --requests, --rounds and --connections")),
        }
    }
    Ok(settings)
}

/// A forwarder to measure.
struct Contestant {
    name: &'static str,
    program: PathBuf,
    driver: &'static str,
    spliced: bool,
    in_c: bool,
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let settings = settings()?;
    let folder =
        std::env::current_exe()?.parent().map(Path::to_path_buf).ok_or("this program is in no folder")?;
    let in_c = compile(&folder, "forward")?;
    let in_c_uring = compile(&folder, "forward_uring")?;
    let ours = folder.join("forward");
    let contestant = |name, program: &Path, driver, spliced, in_c| Contestant {
        name,
        program: program.to_path_buf(),
        driver,
        spliced,
        in_c,
    };
    // The table below takes its ratios to the C programs, at the indexes 0 and 2.
    let contestants = [
        contestant("C, epoll", &in_c, "", false, true),
        contestant("ours, epoll", &ours, "epoll", false, false),
        contestant("C, io_uring", &in_c_uring, "", false, true),
        contestant("ours, io_uring", &ours, "io_uring", false, false),
        contestant("ours, epoll, spliced", &ours, "epoll", true, false),
    ];
    let mut results: Vec<(Vec<f64>, f64)> = contestants.iter().map(|_| (Vec::new(), 0.0)).collect();
    for round in 0..settings.rounds {
        // Up and down the list, so that no contestant is always the first.
        for turn in 0..contestants.len() {
            let who = if round % 2 == 0 { turn } else { contestants.len() - 1 - turn };
            let (time, made) = measure(&contestants[who], &settings)?;
            results[who].0.push(time);
            results[who].1 = made;
        }
    }
    println!(
        "| forwarder | CPU µs a request: least | median | of C's, same driver and round: median (quarters) | \
            system calls a request |"
    );
    println!("|---|---|---|---|---|");
    for (contestant, (times, calls)) in contestants.iter().zip(&results) {
        let in_c = if contestant.driver == "io_uring" { 2 } else { 0 };
        let ratio = if contestant.in_c {
            String::new()
        } else {
            let ratios = times.iter().zip(&results[in_c].0).map(|(ours, in_c)| ours / in_c);
            let [low, median, high] = quarters(ratios);
            format!("{median:.3} ({low:.3} to {high:.3})")
        };
        let least = times.iter().copied().fold(f64::INFINITY, f64::min);
        let [_, median, _] = quarters(times.iter().copied());
        println!("| {} | {least:.2} | {median:.2} | {ratio} | {calls:.2} |", contestant.name);
    }
    Ok(())
}

/// Returns the values below which a quarter, a half and three quarters lie.
fn quarters(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| sorted[sorted.len() * quarter / 4])
}

/// Compiles one of the C programs in `bench/c`.
fn compile(folder: &Path, name: &str) -> Result<PathBuf, Box<dyn Error>> {
    let program = folder.join(format!("{name}-in-c"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../bench/c/{name}.c"));
    let compiled = Command::new("cc").args(["-O2", "-Wall", "-o"]).arg(&program).arg(&source).status()?;
    if !compiled.success() {
        return Err(format!("cc does not compile {}", source.display()).into());
    }
    Ok(program)
}

/// Returns processor microseconds and calls of the forwarder for each request.
fn measure(contestant: &Contestant, settings: &Settings) -> Result<(f64, f64), Box<dyn Error>> {
    let mut lane = Lane::new(Config::new())?;
    let mut driver = Driver::new(lane.here(), DriverChoice::Only(Kind::Epoll))?;
    let io = driver.io();
    let socket = tcp_listener(&"127.0.0.1:0".parse()?, 1024, false)?;
    let target: SocketAddr = rustix::net::getsockname(&socket)?.try_into()?;
    let (mut process, at) = start(contestant, target)?;
    let pid = process.id();
    let (requests, connections) = (settings.requests, settings.connections);
    let spent = lane.block_on(&mut driver, async move {
        let listener = io.listener(socket)?;
        let serving = io.clone();
        io.here().spawn(&LOAD, Class::Normal, async move {
            while let Ok(accepted) = listener.accept().await {
                let _ = serving.here().spawn(&LOAD, Class::Normal, respond(accepted.into_stream(&serving)));
            }
        })?;
        let left = Rc::new(Cell::new(requests / 10));
        let idle = Rc::new(Cell::new(0));
        let mut clients = Vec::new();
        for _ in 0..connections {
            clients.push(Rc::new(io.connect(tcp_socket(&at)?, at).await?));
        }
        let mut spent = Duration::ZERO;
        for phase in [requests / 10, requests] {
            left.set(phase);
            idle.set(0);
            let before = processor_time(pid)?;
            for client in &clients {
                let client = request(client.clone(), left.clone(), idle.clone());
                io.here().spawn(&LOAD, Class::Normal, client)?;
            }
            while idle.get() < connections {
                io.here().sleep(Duration::from_millis(2)).await;
            }
            if left.get() > 0 {
                return Err("a connection broke".into());
            }
            spent = processor_time(pid)?.saturating_sub(before);
        }
        Ok::<_, Box<dyn Error>>(spent)
    })??;
    drop(process.stdin.take()); // ends it
    let mut said = String::new();
    process.stdout.take().ok_or("the forwarder says something")?.read_to_string(&mut said)?;
    process.wait()?;
    let calls = said
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("calls ")?.split(' ').next()?.parse::<f64>().ok());
    // The calls are those of all requests, including the first tenth.
    let all = (requests + requests / 10) as f64;
    Ok((spent.as_secs_f64() * 1e6 / requests as f64, calls.unwrap_or(f64::NAN) / all))
}

/// A forwarder's process, and its address.
fn start(contestant: &Contestant, target: SocketAddr) -> Result<(Child, SocketAddr), Box<dyn Error>> {
    let mut command = Command::new(&contestant.program);
    if contestant.in_c {
        command.args(["0", &target.port().to_string()]);
    } else {
        command.args(["127.0.0.1:0", &target.to_string()]).env("MANYLANE_DRIVER", contestant.driver);
        if contestant.spliced {
            command.arg("splice");
        }
    }
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    let mut first = [0];
    let stdout = process.stdout.as_mut().ok_or("the forwarder says something")?;
    while !line.ends_with('\n') && stdout.read(&mut first)? == 1 {
        line.push(first[0] as char);
    }
    let at = line.split(' ').nth(1).and_then(|at| at.parse().ok());
    Ok((process, at.ok_or_else(|| format!("{} did not start: {line:?}", contestant.name))?))
}

async fn respond(stream: Stream) {
    let Ok(response) = bytes(RESPONSE) else { return };
    let mut got = 0;
    while let Ok(Some(segment)) = stream.recv().await {
        got += segment.len();
        while got >= REQUEST {
            got -= REQUEST;
            let Ok(mut response) = response.share() else { return };
            if stream.send(&mut response).await.is_err() {
                return;
            }
        }
    }
}

async fn request(stream: Rc<Stream>, left: Rc<Cell<u64>>, idle: Rc<Cell<u64>>) {
    let Ok(request) = bytes(REQUEST) else { return };
    'requests: while left.get() > 0 {
        left.set(left.get() - 1);
        let Ok(mut request) = request.share() else { break };
        if stream.send(&mut request).await.is_err() {
            break;
        }
        let mut got = 0;
        while got < RESPONSE {
            match stream.recv().await {
                Ok(Some(segment)) => got += segment.len(),
                _ => {
                    left.set(left.get() + 1);
                    break 'requests;
                }
            }
        }
    }
    idle.set(idle.get() + 1);
}

fn bytes(n: usize) -> Result<Chain, manylane_buf::Error> {
    let mut chain = Chain::new();
    chain.append(&vec![b'x'; n])?;
    Ok(chain)
}

/// Returns the processor time of a process.
fn processor_time(pid: u32) -> Result<Duration, std::io::Error> {
    let mut clock = 0;
    // SAFETY: the result is written to a live variable.
    let error = unsafe { libc::clock_getcpuclockid(pid as libc::pid_t, &raw mut clock) };
    if error != 0 {
        return Err(std::io::Error::from_raw_os_error(error));
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: as above.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}
