//! The daemon process of a mount: start in the background, readiness, signals, end.
//!
//! ```text
//! h5dir mount ---fork--> child: setsid, fork -> daemon: open, mount, wait for the first answer
//!      |  <-------------------------- pipe: 1 byte exit code, message ---------|
//!    exit                                                     until unmounted or a signal
//! ```

use super::confine::{Rights, Starter};
use super::control::{self, Changeable, Control};
use super::failure::{Exit, Failure, reason};
use super::metrics_file::MetricsFile;
use crate::base::escape::escaped;
use crate::config::MountPlan;
use crate::fs::Operations;
use crate::fs::open::UsedDirectory;
use crate::fs::types::ROOT;
use crate::fuse::daemon_liveness::{self, Announcement, EndFailure};
use crate::fuse::guard::guard;
use crate::fuse::session::Confinement;
use crate::fuse::{Mounted, SessionConfig, UnmountError, Unmounter};
use daemonize::{Daemonize, Outcome};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{ForkResult, chdir, dup2_stderr, dup2_stdin, dup2_stdout, fork, setsid};
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGXCPU};
use signal_hook::iterator::Signals;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// Time after a signal in which open files can still be read.
const OPEN_FILES_GRACE: Duration = Duration::from_secs(1);
/// Checks for changes of the file take at most the inverse of this share of the time.
const CHECK_TIME_DIVISOR: u32 = 10;
/// Longest wait for an event.
const EVENT_WAIT_MAX: Duration = Duration::from_secs(3600);

/// Reports the outcome of the start to the parent process, once; later calls do nothing.
#[derive(Debug)]
pub(crate) struct Ready {
    pipe: Option<PipeWriter>,
    /// The daemon leaves the process group of its parent when the mount answers.
    leaves_group: bool,
}

impl Ready {
    /// A daemon in the foreground: no parent waits.
    pub(crate) fn foreground() -> Self {
        Ready { pipe: None, leaves_group: false }
    }

    fn report(&mut self, code: u8, message: &str) {
        if let Some(mut pipe) = self.pipe.take() {
            // The parent may have been killed: the mount works without it.
            let _ = pipe.write_all(&[&[code], message.as_bytes()].concat());
        }
    }

    /// Reports that the mount answers requests, and what its user should know.
    pub(crate) fn succeeded(&mut self, warning: &str) {
        if self.leaves_group {
            // Fails for the leader of a process group only, which a forked process is not.
            let _ = setsid();
        }
        self.report(0, warning);
    }

    /// Reports why mounting failed.
    pub(crate) fn failed(&mut self, failure: &Failure) {
        self.report(failure.exit as u8, &failure.message);
    }
}

/// Runs `daemon` in the background. Returns in the parent when the daemon reported its start, in
/// the daemon when `daemon` returns.
///
/// `automount`: autofs waits for this mount. All processes but those of the process group that
/// autofs knows block at the mountpoint until the parent has ended, so the daemon stays in the
/// group until the mount answers. The process must have one thread.
pub(crate) fn background(automount: bool, daemon: impl FnOnce(&mut Ready) -> Result<(), Failure>) -> Result<(), Failure> {
    let general = |e: &dyn std::fmt::Display| Failure::new(Exit::General, format!("cannot go into the background: {e}; use --foreground"));
    let (reader, writer) = io::pipe().map_err(|e| general(&e))?;
    let started = if automount { fork_in_group() } else { fork_session() };
    match started.map_err(|e| general(&e))? {
        Side::Parent => {
            // The daemon has the only write end then: its death is EOF for the reader.
            drop(writer);
            let warning = read_outcome(reader)?;
            if !warning.is_empty() {
                super::print_error(&format!("warning: {warning}"));
            }
            Ok(())
        }
        Side::Daemon(detached) => {
            drop(reader);
            let mut ready = Ready { pipe: Some(writer), leaves_group: automount };
            let result = detached.map_err(|e| general(&e)).and_then(|()| daemon(&mut ready));
            if let Err(failure) = &result {
                tracing::error!("{}", failure.message);
                ready.failed(failure);
            }
            result
        }
    }
}

/// Which process this is after a fork.
enum Side {
    Parent,
    /// Whether it could leave the terminal and the working directory of its parent.
    Daemon(Result<(), String>),
}

/// Forks a daemon with a session of its own. The process must have one thread.
fn fork_session() -> Result<Side, String> {
    let daemonize = Daemonize::new().working_directory("/").umask(0o077);
    // SAFETY: fork is sound in a process with one thread; commands start threads only in `daemon`.
    match unsafe { daemonize.execute() } {
        Outcome::Parent(parent) => parent.map(|_| Side::Parent).map_err(|e| e.to_string()),
        Outcome::Child(child) => Ok(Side::Daemon(child.map(drop).map_err(|e| e.to_string()))),
    }
}

/// Forks a daemon in the process group of its parent. The process must have one thread.
fn fork_in_group() -> Result<Side, String> {
    // SAFETY: as in `fork_session`.
    match unsafe { fork() }.map_err(|e| e.desc().to_owned())? {
        ForkResult::Parent { .. } => Ok(Side::Parent),
        ForkResult::Child => Ok(Side::Daemon(detach().map_err(|e| reason(&e)))),
    }
}

/// Leaves the working directory and the standard streams of the parent.
fn detach() -> io::Result<()> {
    umask(Mode::from_bits_truncate(0o077));
    chdir("/")?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    Ok(dup2_stdin(&null).and_then(|()| dup2_stdout(&null)).and_then(|()| dup2_stderr(&null))?)
}

/// The warning of a daemon that started; empty if there is none.
fn read_outcome(mut pipe: PipeReader) -> Result<String, Failure> {
    let mut received = Vec::new();
    // Errors are ignored: nothing received means that the daemon died.
    let _ = pipe.read_to_end(&mut received);
    match received.split_first() {
        Some((0, warning)) => Ok(String::from_utf8_lossy(warning).into_owned()),
        Some((code, message)) => Err(Failure::new(Exit::from_code(*code), String::from_utf8_lossy(message))),
        None => Err(Failure::new(Exit::General, "the daemon ended before the mount answered; use --foreground to see why")),
    }
}

enum Event {
    Signal(i32),
    Ended(io::Result<()>),
}

/// A container that was located but not opened.
pub(crate) struct Opening {
    /// The directories that the mount uses.
    pub(crate) directories: Vec<UsedDirectory>,
    /// Opens the container; runs in a confined thread.
    pub(crate) open: Box<dyn FnOnce() -> Result<Arc<dyn Operations>, Failure> + Send>,
}

/// Confinement of the daemon: rights of the main thread, and the thread that starts others.
struct Sandbox {
    rights: Option<Rights>,
    starter: Starter,
}

impl Sandbox {
    fn new(plan: &MountPlan, directories: &[UsedDirectory]) -> io::Result<Sandbox> {
        if !plan.sandbox {
            return Ok(Sandbox { rights: None, starter: Starter::unconfined() });
        }
        let rights = Rights::new(directories, !plan.session.read_only, plan.session.stay_awake)?;
        Ok(Sandbox { starter: Starter::confined(&rights)?, rights: Some(rights) })
    }

    /// Confines the calling thread. All other threads are confined already.
    fn enter(&mut self) -> io::Result<()> {
        self.rights.take().map_or(Ok(()), Rights::confine_thread)
    }
}

fn confinement_failed(e: &io::Error) -> Failure {
    Failure::new(Exit::General, format!("cannot confine the daemon: {}; --no-sandbox mounts without confinement", reason(e)))
}

/// Starts the process that unmounts for a confined daemon. The process must have one thread.
fn start_unmounter(plan: &MountPlan, control: Option<&Control>) -> io::Result<Option<Unmounter>> {
    let confine = || {
        if let Err(e) = Rights::to_unmount().and_then(Rights::confine_thread) {
            tracing::warn!("cannot confine the process that unmounts: {e}");
        }
    };
    let answer = || control.map(Control::read_again).unwrap_or_default();
    // SAFETY: the caller started no thread.
    plan.sandbox.then(|| unsafe { Unmounter::start(&plan.session.mountpoint, confine, answer) }).transpose()
}

/// Opens and mounts what `locate` finds, reports readiness, and serves until unmounted or
/// signalled.
///
/// Closes the container in any case. The process must have one thread.
pub(crate) fn serve(
    locate: impl FnOnce() -> Result<Opening, Failure>,
    plan: &MountPlan,
    control: Option<Control>,
    ready: &mut Ready,
) -> Result<(), Failure> {
    let hang_up = if plan.foreground && has_terminal() { HangUp::Unmount } else { HangUp::ReadAgain };
    let unmounter = start_unmounter(plan, control.as_ref()).map_err(|e| confinement_failed(&e))?;
    let Opening { mut directories, open } = locate()?;
    let metrics = plan.metrics.as_ref().map(MetricsFile::open).transpose()?.map(Arc::new);
    if let Some(file) = &metrics {
        directories.push(file.directory().map_err(|e| confinement_failed(&e))?);
    }
    let mut sandbox = Sandbox::new(plan, &directories).map_err(|e| confinement_failed(&e))?;
    drop(directories);
    let operations = sandbox.starter.run(open).map_err(|e| confinement_failed(&e))??;
    let mut announced = None;
    let signals = SignalActions { hang_up, control };
    let result = serve_open(&operations, (plan, metrics.clone()), ready, &mut announced, (&mut sandbox, unmounter), signals);
    metrics.iter().for_each(|file| file.end());
    let closed = match guard("shutdown", ROOT, || Ok(operations.shutdown())) {
        Ok(closed) => closed.map_err(|e| {
            let failure = if e.is_unfinished { EndFailure::Unfinished } else { EndFailure::Changes(e.errno.0) };
            (failure, e.message)
        }),
        Err(_) => Err((EndFailure::Panic, "closing the file failed".into())),
    };
    let closed = closed.map_err(|(kind, message)| {
        tracing::error!("{message}");
        announced.iter().for_each(|a: &Announcement| a.fail(kind));
        Failure::new(Exit::General, message)
    });
    result.and(closed)
}

/// What SIGHUP does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HangUp {
    /// The terminal of a daemon in the foreground was closed.
    Unmount,
    /// The configuration is read again.
    ReadAgain,
}

/// What signals do that do not end the daemon.
struct SignalActions {
    hang_up: HangUp,
    control: Option<Control>,
}

/// True if the process has a controlling terminal, whose end sends SIGHUP.
fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

fn serve_open(
    operations: &Arc<dyn Operations>,
    (plan, metrics): (&MountPlan, Option<Arc<MetricsFile>>),
    ready: &mut Ready,
    announced: &mut Option<Announcement>,
    (sandbox, unmounter): (&mut Sandbox, Option<Unmounter>),
    signals: SignalActions,
) -> Result<(), Failure> {
    let config = &plan.session;
    let (sender, events) = mpsc::channel();
    let thread = |e: &io::Error| Failure::new(Exit::General, format!("cannot start a thread: {}", reason(e)));
    // Before the mount: a signal without a handler would leave a dead mount.
    let watched = sender.clone();
    let watching = sandbox.starter.run(move || watch_signals(watched)).flatten();
    watching.map_err(|e| Failure::new(Exit::General, format!("cannot handle signals: {}", reason(&e))))?;
    let mut mounted = mount(operations, config, announced, sandbox, unmounter)?;
    sandbox.enter().map_err(|e| confinement_failed(&e))?;
    let timers = Timers::start(operations, plan, &mounted, metrics)?;
    let at = mounted.mountpoint().to_owned();
    mounted.on_end(move |result| drop(sender.send(Event::Ended(result)))).map_err(|e| thread(&e))?;
    tracing::info!("mounted {} at {}", escaped(&config.source), escaped(&at));
    notify(&[NotifyState::Ready, NotifyState::Status(&serving(config))]);
    ready.succeeded(&operations.warning().unwrap_or_default());
    let result = wait(
        &mounted,
        &events,
        signals,
        &mut |control| {
            let reloading = NotifyState::monotonic_usec_now().map(|now| vec![NotifyState::Reloading, now]).unwrap_or_default();
            notify(&reloading);
            let answer = mounted.answer().unwrap_or_else(|| Ok(control.read_again()));
            let outcome = answer.map_err(|e| reason(&e)).and_then(|answer| control.apply(&answer, &timers.changeable(&**operations)));
            let outcome = control::report_reload(control.file.as_ref(), outcome);
            notify(&[NotifyState::Ready, NotifyState::Status(&format!("{}; {outcome}", serving(config)))]);
        },
        &|| control::report(&**operations),
    );
    tracing::info!("unmounted {}", escaped(&at));
    result
}

/// Status of the daemon for systemd.
fn serving(config: &SessionConfig) -> String {
    format!("serving {}", escaped(&config.source))
}

/// Threads that repeat a task at intervals. They end when this is dropped.
struct Timers {
    commit: Option<Sender<Duration>>,
    check: Option<Sender<Duration>>,
    metrics: Option<Sender<Duration>>,
}

impl Timers {
    fn start(
        operations: &Arc<dyn Operations>,
        plan: &MountPlan,
        mounted: &Mounted,
        metrics: Option<Arc<MetricsFile>>,
    ) -> Result<Timers, Failure> {
        let thread = |e: io::Error| Failure::new(Exit::General, format!("cannot start a thread: {}", reason(&e)));
        // A failed commit is logged, and the next fsync returns it.
        let commit = |o: &dyn Operations| o.commit().unwrap_or_default();
        let every = plan.commit_interval.unwrap_or_default();
        let commit =
            (!plan.session.read_only).then(|| repeat("commit", every, 0, operations.clone(), commit)).transpose().map_err(thread)?;
        let memory = mounted.memory();
        let look = move |o: &dyn Operations| o.look(&*memory);
        let every = plan.check_interval.or(operations.look_interval());
        let check = every.map(|every| repeat("look", every, CHECK_TIME_DIVISOR, operations.clone(), look)).transpose().map_err(thread)?;
        let mut writes = None;
        if let Some((file, plan)) = metrics.zip(plan.metrics.as_ref()) {
            let at = mounted.mountpoint().to_owned();
            // One that cannot be written at all is an error of the mount.
            file.write(&operations.measurements(&at))?;
            let write = move |o: &dyn Operations| {
                if let Err(failure) = file.write(&o.measurements(&at)) {
                    tracing::warn!("{}", failure.message);
                }
            };
            writes = Some(repeat("metrics", plan.every, 0, operations.clone(), write).map_err(thread)?);
        }
        Ok(Timers { commit, check, metrics: writes })
    }

    fn changeable<'a>(&'a self, operations: &'a dyn Operations) -> Changeable<'a> {
        Changeable { operations, commit: self.commit.as_ref(), check: self.check.as_ref(), metrics: self.metrics.as_ref() }
    }
}

fn mount(
    operations: &Arc<dyn Operations>,
    config: &SessionConfig,
    announced: &mut Option<Announcement>,
    sandbox: &Sandbox,
    unmounter: Option<Unmounter>,
) -> Result<Mounted, Failure> {
    let run = |work: Box<dyn FnOnce() + Send>| sandbox.starter.run(work);
    let announce = |device| match daemon_liveness::announce(device, &run) {
        Ok(socket) => *announced = Some(socket),
        Err(e) => tracing::debug!("cannot create the socket by which h5dir umount waits: {e}"),
    };
    let confinement = Confinement { unmounter, run: &run };
    Mounted::announced(operations.clone(), config, announce, confinement).map_err(|e| Failure::mount(&config.source, &e))
}

/// Calls `f` at intervals of `every` in a new thread, until the returned sender is dropped. What is
/// sent is the new interval; at 0 `f` is not called.
///
/// The interval grows to `divisor` times the duration of the last call.
fn repeat(
    what: &'static str,
    mut every: Duration,
    divisor: u32,
    operations: Arc<dyn Operations>,
    f: impl Fn(&dyn Operations) + Send + 'static,
) -> io::Result<Sender<Duration>> {
    let (sender, changes) = mpsc::channel();
    thread::Builder::new().name(format!("h5dir-{what}")).spawn(move || {
        let mut pause = every;
        loop {
            let wait = if every.is_zero() { EVENT_WAIT_MAX } else { pause };
            match changes.recv_timeout(wait) {
                Ok(changed) => {
                    every = changed;
                    pause = changed;
                }
                Err(RecvTimeoutError::Timeout) if every.is_zero() => {}
                Err(RecvTimeoutError::Timeout) => {
                    let start = Instant::now();
                    let _ = guard(what, ROOT, || {
                        f(&*operations);
                        Ok(())
                    });
                    pause = every.max(start.elapsed().saturating_mul(divisor));
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    })?;
    Ok(sender)
}

fn watch_signals(sender: Sender<Event>) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGXCPU, SIGUSR1])?;
    thread::Builder::new().name("h5dir-signals".into()).spawn(move || {
        for signal in signals.forever() {
            if sender.send(Event::Signal(signal)).is_err() {
                break;
            }
        }
    })?;
    Ok(())
}

/// Waits for the end of the session.
///
/// A signal unmounts. If files are open, the mount is detached, and the session ends after
/// [`OPEN_FILES_GRACE`] or a second signal. SIGUSR1 calls `report`; SIGHUP may call `read_again`.
fn wait(
    mounted: &Mounted,
    events: &Receiver<Event>,
    SignalActions { hang_up, mut control }: SignalActions,
    read_again: &mut dyn FnMut(&mut Control),
    report: &dyn Fn(),
) -> Result<(), Failure> {
    let watchdog = sd_notify::watchdog_enabled().map(|limit| limit / 2);
    let mut deadline: Option<Instant> = None;
    loop {
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        match events.recv_timeout(left.or(watchdog).unwrap_or(EVENT_WAIT_MAX)) {
            Ok(Event::Ended(Ok(()))) => return Ok(()),
            Ok(Event::Ended(Err(e))) => return Err(Failure::new(Exit::Mount, format!("the FUSE session failed: {}", reason(&e)))),
            Ok(Event::Signal(SIGUSR1)) => report(),
            Ok(Event::Signal(SIGHUP)) if hang_up == HangUp::ReadAgain => match &mut control {
                Some(control) if deadline.is_none() => read_again(control),
                _ => {}
            },
            Ok(Event::Signal(_)) if deadline.is_some() => return Ok(()),
            Ok(Event::Signal(signal)) => {
                tracing::info!("signal {signal}: unmounting");
                notify(&[NotifyState::Stopping]);
                unmount_or_detach(mounted)?;
                deadline = Some(Instant::now() + OPEN_FILES_GRACE);
            }
            Err(RecvTimeoutError::Timeout) if deadline.is_some() => {
                tracing::warn!("files on {} are still open; requests to them fail now", escaped(mounted.mountpoint()));
                return Ok(());
            }
            Err(RecvTimeoutError::Timeout) => ping_watchdog(mounted, watchdog.is_some()),
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

fn unmount_or_detach(mounted: &Mounted) -> Result<(), Failure> {
    let result = match mounted.unmount(false) {
        Err(UnmountError::Busy) => {
            tracing::warn!("{} is in use: detaching it", escaped(mounted.mountpoint()));
            mounted.unmount(true)
        }
        other => other,
    };
    match result {
        Ok(()) | Err(UnmountError::NotMounted) => Ok(()),
        Err(e) => Err(Failure::unmount(mounted.mountpoint(), &e)),
    }
}

/// Pings the watchdog of systemd, if the mount answers.
fn ping_watchdog(mounted: &Mounted, wanted: bool) {
    if wanted && nix::sys::statvfs::statvfs(mounted.mountpoint()).is_ok() {
        notify(&[NotifyState::Watchdog]);
    }
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(e) = sd_notify::notify(states) {
        tracing::warn!("cannot notify systemd: {e}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_gets_the_outcome_of_the_daemon() {
        let outcome = |f: &dyn Fn(&mut Ready)| {
            let (reader, writer) = io::pipe().unwrap();
            f(&mut Ready { pipe: Some(writer), leaves_group: false });
            read_outcome(reader)
        };
        assert_eq!(outcome(&|ready| ready.succeeded("")), Ok(String::new()));
        assert_eq!(outcome(&|ready| ready.succeeded("cut")), Ok("cut".to_owned()));
        let failure = Failure::new(Exit::File, "cannot mount x: reason");
        assert_eq!(outcome(&|ready| ready.failed(&failure)), Err(failure.clone()));
        assert_eq!(outcome(&|_| {}).unwrap_err().exit, Exit::General);
    }
}
