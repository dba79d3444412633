//! The process behind a mount: into the background, "it answers", signals, the end.
//!
//! ```text
//! h5dir mount ---fork--> child: setsid, fork -> daemon: open, mount, wait for the first answer
//!      |  <-------------------------- pipe: 1 byte exit code, sentence ---------|
//!    exit                                                     until unmounted or a signal
//! ```

use super::confine::{Rights, Starter};
use super::failure::{Exit, Failure, reason};
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
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXCPU};
use signal_hook::iterator::Signals;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// After a signal, how long processes may go on with files they have open.
const LINGER: Duration = Duration::from_secs(1);
/// Looking for changes takes at most one part in so many of the time.
const BUSY: u32 = 10;
/// Longest wait for an event.
const LONG: Duration = Duration::from_secs(3600);

/// Tells whoever started the daemon how that went. Once; later calls do nothing.
#[derive(Debug)]
pub struct Ready(Option<PipeWriter>);

impl Ready {
    /// Nobody waits.
    pub fn foreground() -> Self {
        Ready(None)
    }

    fn tell(&mut self, code: u8, message: &str) {
        if let Some(mut pipe) = self.0.take() {
            // The other end may have been killed: not the daemon's concern.
            let _ = pipe.write_all(&[&[code], message.as_bytes()].concat());
        }
    }

    /// The mount answers.
    pub fn done(&mut self) {
        self.tell(0, "");
    }

    /// It failed.
    pub fn failed(&mut self, failure: &Failure) {
        self.tell(failure.exit as u8, &failure.message);
    }
}

/// Runs `daemon` in the background and returns once it told how it went. In the daemon itself this
/// returns when the daemon is done.
///
/// No thread may run yet.
pub fn background(daemon: impl FnOnce(&mut Ready) -> Result<(), Failure>) -> Result<(), Failure> {
    let general = |e: &dyn std::fmt::Display| Failure::new(Exit::General, format!("cannot go into the background: {e}; use --foreground"));
    let (reader, writer) = io::pipe().map_err(|e| general(&e))?;
    let daemonize = Daemonize::new().working_directory("/").umask(0o077);
    // SAFETY: fork is sound in a process with one thread; commands start threads only in `daemon`.
    let outcome = unsafe { daemonize.execute() };
    match outcome {
        Outcome::Parent(Ok(_)) => {
            // The daemon holds the only other end now, so that its death ends the reading.
            drop(writer);
            report(reader)
        }
        Outcome::Parent(Err(e)) => Err(general(&e)),
        Outcome::Child(result) => {
            drop(reader);
            let mut ready = Ready(Some(writer));
            let result = result.map_err(|e| general(&e)).and_then(|_| daemon(&mut ready));
            if let Err(failure) = &result {
                tracing::error!("{}", failure.message);
                ready.failed(failure);
            }
            result
        }
    }
}

fn report(mut pipe: PipeReader) -> Result<(), Failure> {
    let mut told = Vec::new();
    // An error here leaves `told` as it is; empty means the daemon died.
    let _ = pipe.read_to_end(&mut told);
    match told.split_first() {
        Some((0, _)) => Ok(()),
        Some((code, message)) => Err(Failure::new(Exit::from_code(*code), String::from_utf8_lossy(message))),
        None => Err(Failure::new(Exit::General, "the daemon ended before the mount answered; use --foreground to see why")),
    }
}

enum Event {
    Signal(i32),
    Ended(io::Result<()>),
}

/// A container that was found, and how it is opened.
pub struct Opening {
    /// The directories that the mount uses.
    pub directories: Vec<UsedDirectory>,
    /// Opens it. Runs with no more rights than the mount needs.
    pub open: Box<dyn FnOnce() -> Result<Arc<dyn Operations>, Failure> + Send>,
}

/// How the daemon gives up rights.
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

    /// Confines the calling thread. All others are confined already.
    fn enter(&mut self) -> io::Result<()> {
        self.rights.take().map_or(Ok(()), Rights::confine_thread)
    }
}

fn confined(e: &io::Error) -> Failure {
    Failure::new(Exit::General, format!("the daemon cannot be confined: {}; --no-sandbox mounts without that", reason(e)))
}

/// The process that unmounts for a confined daemon. No thread may run yet.
fn unmounter(plan: &MountPlan) -> io::Result<Option<Unmounter>> {
    let confine = || {
        if let Err(e) = Rights::to_unmount().and_then(Rights::confine_thread) {
            tracing::warn!("the process that unmounts keeps its rights: {e}");
        }
    };
    // SAFETY: the caller started no thread.
    plan.sandbox.then(|| unsafe { Unmounter::start(&plan.session.mountpoint, confine) }).transpose()
}

/// Opens and mounts what `locate` finds, reports when the mount answers, and serves until it is unmounted or a signal comes. The
/// container is closed at the end in any case. No thread may run yet.
pub fn serve(locate: impl FnOnce() -> Result<Opening, Failure>, plan: &MountPlan, ready: &mut Ready) -> Result<(), Failure> {
    let unmounter = unmounter(plan).map_err(|e| confined(&e))?;
    let Opening { directories, open } = locate()?;
    let mut sandbox = Sandbox::new(plan, &directories).map_err(|e| confined(&e))?;
    drop(directories);
    let operations = sandbox.starter.run(open).map_err(|e| confined(&e))??;
    let mut announced = None;
    let result = serve_open(&operations, plan, ready, &mut announced, &mut sandbox, unmounter);
    let closed = match guard("shutdown", ROOT, || Ok(operations.shutdown())) {
        Ok(closed) => closed.map_err(|e| (EndFailure::Changes(e.errno.0), e.message)),
        Err(_) => Err((EndFailure::Panic, "closing the file failed".into())),
    };
    let closed = closed.map_err(|(kind, message)| {
        tracing::error!("{message}");
        announced.iter().for_each(|a: &Announcement| a.fail(kind));
        Failure::new(Exit::General, message)
    });
    result.and(closed)
}

fn serve_open(
    operations: &Arc<dyn Operations>,
    plan: &MountPlan,
    ready: &mut Ready,
    announced: &mut Option<Announcement>,
    sandbox: &mut Sandbox,
    unmounter: Option<Unmounter>,
) -> Result<(), Failure> {
    let config = &plan.session;
    let (sender, events) = mpsc::channel();
    let thread = |e: &io::Error| Failure::new(Exit::General, format!("cannot start a thread: {}", reason(e)));
    // Before the mount, so that no signal can leave it behind.
    let watched = sender.clone();
    let watching = sandbox.starter.run(move || watch_signals(watched)).flatten();
    watching.map_err(|e| Failure::new(Exit::General, format!("cannot handle signals: {}", reason(&e))))?;
    let mut mounted = mount(operations, config, announced, sandbox, unmounter)?;
    sandbox.enter().map_err(|e| confined(&e))?;
    // These end with this function. A failed commit is in the log, and reported to the next fsync.
    let commit = |o: &dyn Operations| o.commit().unwrap_or_default();
    let _committing =
        plan.commit_interval.map(|every| repeat("commit", every, 0, operations.clone(), commit)).transpose().map_err(|e| thread(&e))?;
    let memory = mounted.memory();
    let look = move |o: &dyn Operations| o.look(&*memory);
    let _looking =
        plan.check_interval.map(|every| repeat("look", every, BUSY, operations.clone(), look)).transpose().map_err(|e| thread(&e))?;
    let at = mounted.mountpoint().to_owned();
    mounted.on_end(move |result| drop(sender.send(Event::Ended(result)))).map_err(|e| thread(&e))?;
    tracing::info!("mounted {} at {}", escaped(&config.source), escaped(&at));
    notify(&[NotifyState::Ready, NotifyState::Status(&format!("serving {}", escaped(&config.source)))]);
    ready.done();
    let result = wait(&mounted, &events);
    tracing::info!("unmounted {}", escaped(&at));
    result
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
        Err(e) => tracing::debug!("h5dir umount will not wait for this daemon: {e}"),
    };
    let confinement = Confinement { unmounter, run: &run };
    Mounted::announced(operations.clone(), config, announce, confinement).map_err(|e| Failure::mount(&config.source, &e))
}

/// Does `f` `every` so often, less often if that would be more than one part in `busy` of the time, until what is returned is
/// dropped.
fn repeat(
    what: &'static str,
    every: Duration,
    busy: u32,
    operations: Arc<dyn Operations>,
    f: impl Fn(&dyn Operations) + Send + 'static,
) -> io::Result<Sender<()>> {
    let (sender, ended) = mpsc::channel();
    thread::Builder::new().name(format!("h5dir-{what}")).spawn(move || {
        let mut pause = every;
        while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            let start = Instant::now();
            let _ = guard(what, ROOT, || {
                f(&*operations);
                Ok(())
            });
            pause = every.max(start.elapsed().saturating_mul(busy));
        }
    })?;
    Ok(sender)
}

fn watch_signals(sender: Sender<Event>) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGXCPU])?;
    thread::Builder::new().name("h5dir-signals".into()).spawn(move || {
        for signal in signals.forever() {
            if sender.send(Event::Signal(signal)).is_err() {
                break;
            }
        }
    })?;
    Ok(())
}

/// Until the session has ended. A signal unmounts; with files still open the mount is detached and the
/// session given up after a while; a second signal ends it at once.
fn wait(mounted: &Mounted, events: &Receiver<Event>) -> Result<(), Failure> {
    let watchdog = sd_notify::watchdog_enabled().map(|limit| limit / 2);
    let mut give_up: Option<Instant> = None;
    loop {
        let left = give_up.map(|at| at.saturating_duration_since(Instant::now()));
        match events.recv_timeout(left.or(watchdog).unwrap_or(LONG)) {
            Ok(Event::Ended(Ok(()))) => return Ok(()),
            Ok(Event::Ended(Err(e))) => return Err(Failure::new(Exit::Mount, format!("the session broke off: {}", reason(&e)))),
            Ok(Event::Signal(_)) if give_up.is_some() => return Ok(()),
            Ok(Event::Signal(signal)) => {
                tracing::info!("signal {signal}: unmounting");
                notify(&[NotifyState::Stopping]);
                stop(mounted)?;
                give_up = Some(Instant::now() + LINGER);
            }
            Err(RecvTimeoutError::Timeout) if give_up.is_some() => {
                tracing::warn!("files on {} are still open; they fail from now on", escaped(mounted.mountpoint()));
                return Ok(());
            }
            Err(RecvTimeoutError::Timeout) => feed_watchdog(mounted, watchdog.is_some()),
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

fn stop(mounted: &Mounted) -> Result<(), Failure> {
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

/// The watchdog of systemd is fed only while the mount answers.
fn feed_watchdog(mounted: &Mounted, wanted: bool) {
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
    fn report_is_what_the_daemon_told() {
        let told = |f: &dyn Fn(&mut Ready)| {
            let (reader, writer) = io::pipe().unwrap();
            f(&mut Ready(Some(writer)));
            report(reader)
        };
        assert_eq!(told(&|ready| ready.done()), Ok(()));
        let failure = Failure::new(Exit::File, "cannot mount x: reason");
        assert_eq!(told(&|ready| ready.failed(&failure)), Err(failure.clone()));
        assert_eq!(told(&|_| {}).unwrap_err().exit, Exit::General);
    }
}
