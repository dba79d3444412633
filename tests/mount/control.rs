//! Signals to a daemon, and the file of measurements.

use super::configuration::Folder;
use super::python;
use super::support::{eventually, h5dir, is_mounted};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A daemon in the foreground without a terminal. Killed when it is dropped.
struct Daemon(Child);

impl Daemon {
    /// Mounts in `folder`, at `a`.
    fn start(folder: &Folder, args: &[&str], change: impl FnOnce(&mut Command)) -> Self {
        let log = std::fs::File::create(folder.path("stderr")).unwrap();
        let mut command = h5dir(&["mount", "-f"]);
        command.args(args).current_dir(folder.path("")).stdout(Stdio::null()).stderr(log);
        change(&mut command);
        // SAFETY: setsid is safe between fork and exec.
        unsafe { command.pre_exec(|| nix::unistd::setsid().map(drop).map_err(Into::into)) };
        let mut child = command.spawn().unwrap();
        eventually("the mount answers", || is_mounted(&folder.path("a")) || child.try_wait().unwrap().is_some());
        assert!(is_mounted(&folder.path("a")), "{}", folder.read("stderr"));
        Daemon(child)
    }

    fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.0.id() as i32), signal).unwrap();
    }

    fn end(mut self) -> Option<i32> {
        self.signal(nix::sys::signal::SIGTERM);
        eventually("the daemon ends", || self.0.try_wait().unwrap().is_some());
        self.0.try_wait().unwrap().unwrap().code()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for a line of the log that has `part`, after the first `skip` lines; the line.
fn logged(folder: &Folder, part: &str, skip: usize) -> String {
    let find = || folder.read("stderr").lines().skip(skip).find(|line| line.contains(part)).map(str::to_owned);
    eventually(part, || find().is_some());
    find().unwrap()
}

#[test]
fn sigusr1_logs_the_counters() {
    let folder = Folder::new(&["a"]);
    let daemon = Daemon::start(&folder, &["a.h5", "a"], |_| ());
    daemon.signal(nix::sys::signal::SIGUSR1);
    let line = logged(&folder, "status: ", 0);
    let counters: Vec<String> = folder.read("a/.h5dir/status").lines().map(str::to_owned).collect();
    for name in ["version ", "cache_budget_bytes "] {
        assert!(counters.iter().any(|counter| counter.starts_with(name) && line.contains(counter.as_str())), "{line}");
    }
    assert!(line.contains(", open_files "), "{line}");
    assert_eq!(daemon.end(), Some(0));
}

#[test]
fn sighup_reads_the_configuration_again() {
    for options in [&[][..], &["--no-sandbox"]] {
        let folder = Folder::new(&["a"]);
        let text = "mounts:\n  one:\n    source: a.h5\n    at: a\n    read-write: true\n    cache-size: 64M\n    metrics-interval: 100\n    metrics-file: m.prom\n";
        folder.write("c.yaml", text);
        let daemon = Daemon::start(&folder, &[&["--config", "c.yaml", "one"], options].concat(), |_| ());
        let hang_up = |text: &str, part: &str| {
            let before = folder.read("stderr").lines().count();
            // As an editor does: another file takes the name.
            std::fs::rename(folder.write("new.yaml", text), folder.path("c.yaml")).unwrap();
            daemon.signal(nix::sys::signal::SIGHUP);
            logged(&folder, part, before)
        };
        let budget = || folder.read("a/.h5dir/status").lines().any(|line| line == "cache_budget_bytes 33554432");
        hang_up(text, "nothing changed");
        assert!(!budget());
        let changed = text.replace("64M", "32M").replace("100", "0.1")
            + "    commit-interval: 0.1\n    log-level: debug\n    uid: 7\n    threads: 3\n";
        let line = hang_up(&changed, "c.yaml again: ");
        let wanted = "cache-size 64M -> 32M, commit-interval 5 -> 0.1, log-level warn -> debug, metrics-interval 100 -> 0.1; not changed until it is mounted again: ";
        assert!(line.contains(wanted) && line.contains("uid") && line.contains("threads"), "{line}");
        eventually("the new budget", budget);
        // The new intervals are in effect.
        std::fs::write(folder.path("a/x"), "x").unwrap();
        eventually("a commit and a write of measurements after it", || {
            let text = folder.read("m.prom");
            text.lines().any(|line| line.starts_with("h5dir_commit_seconds_count{") && !line.ends_with(" 0"))
        });
        let line = hang_up("mounts: {one: {source: a.h5}}", "ERROR");
        assert!(line.contains("the key 'at' is missing") && line.contains("all options stay as they are"), "{line}");
        assert!(is_mounted(&folder.path("a")) && budget());
        assert_eq!(daemon.end(), Some(0));
        assert!(!folder.path("m.prom").exists(), "measurements of a mount that has ended");
    }
}

#[test]
fn sighup_without_a_configuration_file_changes_nothing() {
    let folder = Folder::new(&["a"]);
    let daemon = Daemon::start(&folder, &["a.h5", "a"], |_| ());
    daemon.signal(nix::sys::signal::SIGHUP);
    logged(&folder, "there is no configuration file to read again", 0);
    assert!(is_mounted(&folder.path("a")));
    assert_eq!(daemon.end(), Some(0));
}

/// In the foreground of a terminal SIGHUP says that the terminal was closed.
#[test]
fn the_end_of_the_terminal_unmounts() {
    let folder = Folder::new(&["a"]);
    folder.write("c.yaml", "mounts: {one: {source: a.h5, at: a}}");
    let inner = format!("exec '{}' mount -f --config c.yaml one", env!("CARGO_BIN_EXE_h5dir"));
    let mut command = Command::new("script");
    command.args(["-qec", &inner, "/dev/null"]).current_dir(folder.path("")).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut terminal = command.spawn().unwrap();
    eventually("the mount answers", || is_mounted(&folder.path("a")) || terminal.try_wait().unwrap().is_some());
    assert!(is_mounted(&folder.path("a")));
    terminal.kill().unwrap();
    terminal.wait().unwrap();
    eventually("it is unmounted", || !is_mounted(&folder.path("a")));
}

#[test]
fn systemd_is_told_of_a_reload() {
    let folder = Folder::new(&["a"]);
    folder.write("c.yaml", "mounts: {one: {source: a.h5, at: a, cache-size: 64M}}");
    let socket = UnixDatagram::bind(folder.path("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let receive = || {
        let mut buf = [0; 1000];
        let n = socket.recv(&mut buf).unwrap();
        String::from_utf8_lossy(&buf[..n]).into_owned()
    };
    let daemon = Daemon::start(&folder, &["--config", "c.yaml", "one"], |command| {
        command.env("NOTIFY_SOCKET", folder.path("notify"));
    });
    assert!(receive().starts_with("READY=1\n"));
    folder.write("c.yaml", "mounts: {one: {source: a.h5, at: a, cache-size: 65M}}");
    daemon.signal(nix::sys::signal::SIGHUP);
    let reloading = receive();
    let mut lines = reloading.lines();
    assert_eq!(lines.next(), Some("RELOADING=1"));
    assert!(lines.next().and_then(|line| line.strip_prefix("MONOTONIC_USEC=")).unwrap().parse::<u64>().unwrap() > 0);
    let ready = receive();
    assert!(ready.starts_with("READY=1\nSTATUS=serving ") && ready.contains("cache-size 64M -> 65M"), "{ready}");
    assert_eq!(daemon.end(), Some(0));
}

/// Two files of one node_exporter, which refuses samples that differ in no label.
const SAMPLES: &str = "
import sys
from prometheus_client.parser import text_string_to_metric_families as parse
seen = set()
for path in sys.argv[1:]:
    for family in parse(open(path).read()):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in seen, key
            seen.add(key)
            print(sample.name, sample.labels['mountpoint'])
";

#[test]
fn measurements_are_written_to_a_file() {
    let folder = Folder::new(&["a", "b"]);
    std::fs::create_dir(folder.path("m")).unwrap();
    for name in ["a", "b"] {
        let (code, _, error) =
            folder.h5dir(&["mount", "--metrics-interval=0.1", &format!("--metrics-file=m/{name}.prom"), &format!("{name}.h5"), name]);
        assert_eq!((code, error.as_str()), (0, ""));
        assert!(folder.path(&format!("m/{name}.prom")).exists(), "it is there before the command returns");
    }
    let lookups = || {
        folder
            .read("m/a.prom")
            .lines()
            .find_map(|l| l.strip_prefix("h5dir_operation_seconds_count{")?.contains("\"lookup\"").then(|| l.to_owned()))
    };
    let _ = std::fs::metadata(folder.path("a/none"));
    eventually("a lookup is counted", || lookups().is_some());
    let before = lookups();
    let _ = std::fs::metadata(folder.path("a/none2"));
    eventually("the file is written again", || lookups() != before);
    let output =
        Command::new(python::with_h5py()).args(["-c", SAMPLES]).args([folder.path("m/a.prom"), folder.path("m/b.prom")]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let samples = String::from_utf8(output.stdout).unwrap();
    for name in ["a", "b"] {
        let at = folder.path(name);
        assert!(
            samples.contains(&format!("h5dir_build_info {}\n", at.display()))
                && samples.contains(&format!("h5dir_cache_bytes {}\n", at.display()))
        );
        assert_eq!(folder.h5dir(&["umount", name]), (0, String::new(), String::new()));
    }
    assert_eq!(std::fs::read_dir(folder.path("m")).unwrap().count(), 0);
    let (code, _, error) = folder.h5dir(&["mount", "--metrics-file=none/x.prom", "a.h5", "a"]);
    assert!(code == 1 && error.contains("cannot write the metrics file") && error.contains("none/x.prom: No such file"), "{error}");
    assert!(!is_mounted(&folder.path("a")));
}
