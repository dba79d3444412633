//! Merges the sources of options, applies defaults, and makes the plan of a mount.

use super::args::{CommonMountArgs, MountArgs};
use super::catalog::Catalog;
use super::file::{ConfigFile, NamedMount, Trust};
use super::layers::Layers;
use super::options::MountOptions;
use super::side_args::ExternalArgs;
use super::target::{Target, well_named};
use super::value::{ExternalFiles, Level, LogFormat, LogView, Patterns, Seconds, Switch, VdsMissing};
use super::view_args::{ViewArgs, ViewOptions};
use super::{UsageError, applicable, file, memory};
use crate::base::escape::escaped;
use crate::base::remote::{DEFAULT_CACHE_DIR_BYTES, DEFAULT_TIMEOUT, RemoteOptions, is_container, is_prefix, is_url, with_folder};
use crate::fs::create_rules::CreateRule;
use crate::fs::open::Directory;
use crate::fs::spec::{DEFAULT_DIR_MODE, DEFAULT_FILE_MODE, Modes, TransactionUse, VersionName};
use crate::fs::{ExternalPolicy, MountSpec};
use crate::fuse::{Access, CacheTimes, SessionConfig};
use crate::mirror::{MirrorSpec, Naming};
use nix::sys::resource::{Resource, getrlimit};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long the kernel caches names and attributes of a read-only mount.
const READ_ONLY_TIMEOUT: Duration = Duration::from_secs(86_400);
/// How long the kernel caches names and attributes of a read-write mount.
const READ_WRITE_TIMEOUT: Duration = Duration::from_secs(1);
/// Default time between commits.
const DEFAULT_COMMIT_INTERVAL: Duration = Duration::from_secs(5);
/// Default time between commits of a SWMR writer, whose readers wait for them.
const SWMR_COMMIT_INTERVAL: Duration = Duration::from_secs(1);
/// Default time between checks for changes of the file.
const DEFAULT_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long the kernel caches names and attributes of a mirror.
const MIRROR_TIMEOUT: Duration = Duration::from_secs(1);
/// Least time between checks of a mirror.
const MIRROR_INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Default time after which a container of a mirror is closed.
const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Most containers open at a time, by default.
const OPEN_MAX: usize = 1024;
/// Default time between two writes of the file of measurements.
pub(crate) const DEFAULT_METRICS_INTERVAL: Duration = Duration::from_secs(15);
/// Least time for a GET.
const REMOTE_TIMEOUT_MIN: Duration = Duration::from_millis(100);
/// Default read-ahead of the kernel, bytes.
const DEFAULT_READAHEAD_BYTES: u64 = 1 << 20;

/// Destination, level and format of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogPlan {
    /// Least severe level that is logged.
    pub(crate) level: Level,
    /// Log file; `None`: standard error or syslog.
    pub(crate) file: Option<PathBuf>,
    /// Format of a line.
    pub(crate) format: LogFormat,
}

/// A file of measurements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MetricsPlan {
    /// Its path.
    pub(crate) file: PathBuf,
    /// Time between two writes.
    pub(crate) every: Duration,
}

/// Plan of a mount: every option with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountPlan {
    /// Stay in the foreground.
    pub(crate) foreground: bool,
    /// Logging.
    pub(crate) log: LogPlan,
    /// Options of the FUSE session.
    pub(crate) session: SessionConfig,
    /// Time between commits; `None`: no timed commits.
    pub(crate) commit_interval: Option<Duration>,
    /// Time between checks for changes of the file; `None`: no checks.
    pub(crate) check_interval: Option<Duration>,
    /// Confine the daemon.
    pub(crate) sandbox: bool,
    /// The file of measurements.
    pub(crate) metrics: Option<MetricsPlan>,
}

/// A mount with everything that is known of it.
#[derive(Debug)]
pub(crate) struct Resolved {
    /// The container to open, or how those of a directory are.
    pub(crate) spec: MountSpec,
    /// The directory to mount; `None`: it is a container.
    pub(crate) mirror: Option<MirrorSpec>,
    /// The mount.
    pub(crate) plan: MountPlan,
    /// Where its options come from.
    pub(crate) layers: Layers,
    /// Its name in the configuration.
    pub(crate) name: Option<String>,
    /// Configuration files that could not be read, as sentences.
    pub(crate) warnings: Vec<UsageError>,
}

impl Resolved {
    /// The options of a mounted directory, also of a container.
    pub(crate) fn mirror_options(&self) -> MirrorSpec {
        self.mirror.clone().unwrap_or_else(|| mirror_spec(&self.layers.merged(), &self.spec))
    }
}

/// Makes the plan of `h5dir mount`.
pub(crate) fn mount(args: &MountArgs) -> Result<Resolved, UsageError> {
    let layers = Layers::of_command(&args.common)?;
    let config = args.common.config.as_deref();
    match (&args.target, &args.mountpoint, &args.name) {
        (Some(target), Some(mountpoint), _) => {
            let layers = config.map(|path| single(path, layers.clone())).transpose()?.unwrap_or(layers);
            resolved(target.clone(), mountpoint.clone(), layers, None)
        }
        (_, _, Some(name)) => by_name(name, config, layers),
        (Some(target), None, None) => match target.to_str().filter(|name| !name.contains('/')) {
            Some(name) if Path::new(target).symlink_metadata().is_err() => by_name(name, config, layers),
            _ => {
                let (file, end) = (escaped(target), "or a name of the configuration with --name");
                Err(UsageError(format!("{file} needs a MOUNTPOINT; give an existing directory after it, {end}")))
            }
        },
        (None, ..) => Err(UsageError("nothing to mount; give FILE and MOUNTPOINT, a name of the configuration, or --all".into())),
    }
}

/// Adds the options and rules of `--config` for a file of the command line.
fn single(path: &Path, layers: Layers) -> Result<Layers, UsageError> {
    let file = file::read(path, Trust::Named)?;
    file.usable()?;
    Ok(layers.with_file(&file))
}

fn by_name(name: &str, config: Option<&Path>, layers: Layers) -> Result<Resolved, UsageError> {
    let catalog = Catalog::read(config)?;
    let (file, mount) = catalog.find(name)?;
    let resolved = named(file, mount, layers)?;
    let warnings = catalog.unreadable.into_iter().chain(resolved.warnings).collect();
    Ok(Resolved { warnings, ..resolved })
}

/// Makes the plan of `mount` in `file`. `layers`: options of the command line.
pub(crate) fn named(file: &ConfigFile, mount: &NamedMount, layers: Layers) -> Result<Resolved, UsageError> {
    file.usable_mount(mount)?;
    let layers = layers.with_mount(file, mount);
    resolved(mount.source.clone(), mount.mountpoint.clone(), layers, Some(mount.name.clone()))
}

fn resolved(target: OsString, mountpoint: PathBuf, layers: Layers, name: Option<String>) -> Result<Resolved, UsageError> {
    let options = layers.merged();
    let spec = MountSpec { create: layers.create.clone().into(), ..spec(&options, Target::parse(&target))? };
    let source = source(&spec);
    let plan = plan(&options, &layers, source, mountpoint)?;
    let mirror = is_tree(&spec.file).then(|| mirror_spec(&options, &spec));
    if is_prefix(&spec.file) && spec.writable {
        let remedy = "leave out --read-write, or copy the objects to this machine";
        return Err(UsageError(format!("--read-write: the objects of {} are only read; {remedy}", escaped(&spec.file))));
    }
    if mirror.is_some() && spec.swmr {
        return Err(UsageError("--swmr needs an HDF5 file; a directory is mounted without it".into()));
    }
    if mirror.is_some() && spec.log_writer.is_some() {
        return Err(UsageError("--log-writer needs an HDF5 file; a directory is mounted without it".into()));
    }
    if mirror.is_some() && spec.transaction.is_some() {
        return Err(UsageError("--transaction needs a container in an object store; a directory is mounted without it".into()));
    }
    let warnings = applicable::check(&layers, &spec, mirror.is_some())?;
    let plan = if mirror.is_some() { mirror_plan(&options, plan) } else { plan };
    Ok(Resolved { spec, mirror, plan, layers, name, warnings })
}

/// Checks that the options of `mount:` and `defaults:` in `file` agree.
pub(crate) fn single_options(file: &ConfigFile) -> Result<(), UsageError> {
    resolved("/".into(), "/".into(), Layers::default().with_file(file), None).map(drop)
}

/// The mirror that `h5dir ls` lists, if `container` names a directory or a prefix of objects.
pub(crate) fn listed_mirror(container: &MountSpec) -> Option<MirrorSpec> {
    is_tree(&container.file).then(|| mirror_spec(&MountOptions::default(), container))
}

/// True for the name of a directory or of a prefix of objects.
fn is_tree(name: &Path) -> bool {
    is_prefix(name) || !is_url(name) && name.is_dir()
}

/// The plan of the mount of a directory. Names in it change without a notice; containers are closed
/// when idle.
fn mirror_plan(options: &MountOptions, plan: MountPlan) -> MountPlan {
    let brief = |timeout: Option<Seconds>| timeout.map_or(MIRROR_TIMEOUT, |s| s.0);
    let times = CacheTimes { entry: brief(options.entry_timeout), attr: brief(options.attr_timeout), absent: Duration::ZERO };
    let check_interval = options.check_interval.map_or(DEFAULT_CHECK_INTERVAL, |s| s.0).max(MIRROR_INTERVAL_MIN);
    MountPlan { session: SessionConfig { times, ..plan.session }, check_interval: Some(check_interval), ..plan }
}

/// The mirror of a directory whose containers are shown as `container`.
fn mirror_spec(options: &MountOptions, container: &MountSpec) -> MirrorSpec {
    let patterns = |given: &Option<Patterns>| given.as_ref().map_or_else(Vec::new, |p| p.0.clone());
    let umask = container.umask;
    MirrorSpec {
        root: container.file.clone(),
        naming: options.mirror_names.unwrap_or(Naming::Replace),
        include: patterns(&options.include),
        exclude: patterns(&options.exclude),
        open_max: options.max_open.map_or_else(default_open_max, |n| n.0),
        idle: options.idle_timeout.map_or(DEFAULT_IDLE_TIMEOUT, |s| s.0),
        uid: options.uid.map(|u| u.0),
        gid: options.gid.map(|g| g.0),
        file_mode: options.file_mode.map(|m| m.0 & !umask),
        dir_mode: options.dir_mode.map(|m| m.0 & !umask),
        container: container.clone(),
    }
}

/// A quarter of the limit of open files: an open container uses up to four.
fn default_open_max() -> usize {
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
    usize::try_from(limit / 4).unwrap_or(OPEN_MAX).clamp(1, OPEN_MAX)
}

/// Makes the plan of `h5dir bench-memory-fs`.
pub(crate) fn memory_mount(args: &CommonMountArgs, mountpoint: PathBuf) -> Result<MountPlan, UsageError> {
    let layers = Layers::of_command(args)?;
    let layers = args.config.as_deref().map(|path| single(path, layers.clone())).transpose()?.unwrap_or(layers);
    plan(&layers.merged(), &layers, "h5dir-memory".into(), mountpoint)
}

/// Resolves the target of a command: the container to open and the path in it.
pub(crate) fn view(args: &ViewArgs) -> Result<(MountSpec, Vec<u8>), UsageError> {
    view_of(&args.target, &args.options)
}

/// Resolves one target of `h5dir ls` and `h5dir stat`: the container to open and the path in it.
pub(crate) fn view_of(target: &OsStr, args: &ViewOptions) -> Result<(MountSpec, Vec<u8>), UsageError> {
    let target = Target::parse(target);
    let inner = target.inner.unwrap_or_else(|| b"/".to_vec());
    Ok((unfollowed(&target.file, &args.files)?, inner))
}

/// The container of one side of `cp`, `cat` or `diff`.
pub(crate) fn side(file: &Path, external: &ExternalArgs) -> Result<MountSpec, UsageError> {
    // What is copied is what is stored.
    Ok(MountSpec { modes: Modes::All, ..unfollowed(file, external)? })
}

/// A container whose changes by other programs are not followed.
fn unfollowed(file: &Path, external: &ExternalArgs) -> Result<MountSpec, UsageError> {
    let options = MountOptions {
        external: (external.external != ExternalFiles::Visible).then_some(external.external),
        external_root: external.external_root.clone(),
        version: external.version.clone(),
        ..MountOptions::default()
    };
    let spec = spec(&options, Target { file: file.to_owned(), inner: None })?;
    has_version(&spec.file, &spec.version)?;
    Ok(MountSpec { follow: false, ..spec })
}

/// Errors: a version is asked for of a file without versions.
pub(crate) fn has_version(file: &Path, version: &VersionName) -> Result<(), UsageError> {
    if *version == VersionName::Newest || is_container(file) || is_tree(file) || applicable::has_revisions(file) {
        return Ok(());
    }
    let file = escaped(file);
    Err(UsageError(format!("--version needs a container in an object store, and {file} has no versions; leave it out")))
}

/// The rules for new files of a configuration file.
pub(crate) fn create_rules(path: &Path) -> Result<Vec<CreateRule>, UsageError> {
    let file = file::read(path, Trust::Named)?;
    file.usable()?;
    Ok(file.create)
}

fn on(switch: Option<Switch>) -> bool {
    switch.is_some_and(|s| s.0)
}

/// Whether the mount is read-write.
fn writable(options: &MountOptions) -> Result<bool, UsageError> {
    if options.log_writer.is_some() {
        let other = on(options.read_write) || on(options.read_only) || on(options.swmr);
        let reason = "--log-writer writes beside the file, not into it; leave out --read-write, --read-only and --swmr";
        return if other { Err(UsageError(reason.into())) } else { Ok(true) };
    }
    match (options.read_only.map(|s| s.0), options.read_write.map(|s| s.0)) {
        (Some(a), Some(b)) if a == b => Err(UsageError("--read-only and --read-write exclude each other; give one of them".into())),
        (read_only, read_write) => Ok(read_write.unwrap_or(read_only == Some(false))),
    }
}

/// Time between checks for changes of the file; `None`: no checks.
fn check_interval(options: &MountOptions, writable: bool) -> Option<Duration> {
    let interval = options.check_interval.map_or(DEFAULT_CHECK_INTERVAL, |s| s.0);
    (!writable && !interval.is_zero()).then_some(interval)
}

/// Shortest life of a pin.
const PIN_MIN: Duration = Duration::from_secs(1);

fn spec(options: &MountOptions, target: Target) -> Result<MountSpec, UsageError> {
    well_named(&target.file)?;
    let log_writer = options.log_writer.as_ref().map(|writer| writer.0);
    let writable = writable(options)?;
    let rescue = on(options.rescue);
    if rescue && writable {
        return Err(UsageError("--rescue and --read-write exclude each other: a damaged file is only read".into()));
    }
    let swmr = on(options.swmr);
    if swmr && !writable {
        return Err(UsageError("--swmr needs --read-write: it lets readers follow the changes of the mount; give both".into()));
    }
    if writable && options.version.as_ref().is_some_and(|v| v.0 != VersionName::Newest) {
        return Err(UsageError("--version shows a version that is never changed; leave out --read-write".into()));
    }
    if !writable && options.transaction.is_some() {
        return Err(UsageError("--transaction needs --read-write: the changes of the mount are a part of it; give both".into()));
    }
    let modes_given = options.file_mode.is_some() || options.dir_mode.is_some();
    if options.umask.is_some() && modes_given {
        return Err(UsageError("--umask and --file-mode or --dir-mode exclude each other; give one of them".into()));
    }
    // The kernel has no "owner and root", only "all users": the modes exclude the other users.
    let owner_only = on(options.allow_root) && !modes_given && options.uid.is_none();
    let umask = options.umask.map_or(if owner_only { 0o077 } else { 0 }, |m| m.0);
    // The daemon changes its working directory. A missing file fails at open.
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let file = absolute_name(&target.file);
    let remote = RemoteOptions {
        anonymous: on(options.anonymous),
        timeout: options.remote_timeout.map_or(DEFAULT_TIMEOUT, |s| s.0.max(REMOTE_TIMEOUT_MIN)),
        cache_dir: options.cache_dir.as_deref().map(absolute),
        cache_dir_bytes: options.cache_dir_size.map_or(DEFAULT_CACHE_DIR_BYTES, |s| s.0),
    };
    Ok(MountSpec {
        file,
        group: target.inner,
        version: options.version.as_ref().map(|v| v.0.clone()).unwrap_or_default(),
        transaction: options.transaction.clone().map(|t| TransactionUse::Peer { spec: t.spec, peer: t.peer }),
        trees: writable,
        views: options.views.clone().unwrap_or_default(),
        pin: options.pin.filter(|s| !s.0.is_zero()).map(|s| s.0.max(PIN_MIN)),
        cache_bytes: options.cache_size.map_or_else(memory::default_cache_bytes, |s| s.0),
        external: external(options, writable)?,
        external_hidden: options.external == Some(ExternalFiles::All),
        vds_missing_fill: options.vds_missing == Some(VdsMissing::Fill),
        uid: options.uid.map_or_else(|| nix::unistd::geteuid().as_raw(), |u| u.0),
        gid: options.gid.map_or_else(|| nix::unistd::getegid().as_raw(), |g| g.0),
        file_mode: options.file_mode.map_or(DEFAULT_FILE_MODE, |m| m.0) & !umask,
        dir_mode: options.dir_mode.map_or(DEFAULT_DIR_MODE, |m| m.0) & !umask,
        umask,
        modes: options.modes.unwrap_or(Modes::Stored),
        threads: threads(options),
        writable,
        swmr,
        log_writer,
        follow: check_interval(options, writable).is_some() && !rescue,
        rescue,
        raw_log: options.log == Some(LogView::Raw),
        remote,
        commit_on_close: on(options.commit_on_close),
        keep_types: options.keep_types.is_none_or(|switch| switch.0),
        create: Arc::default(),
    })
}

fn external(options: &MountOptions, writable: bool) -> Result<ExternalPolicy, UsageError> {
    let written = on(options.external_write);
    if written && (!writable || options.external_root.is_none()) {
        return Err(UsageError("--external-write needs --read-write and --external-root; give both".into()));
    }
    let default = options.external_root.is_some() || !on(options.allow_other);
    if !options.external.map_or(default, |files| files != ExternalFiles::Off) {
        return match options.external_root {
            Some(_) => Err(UsageError("--external-root and --external=off exclude each other; give one of them".into())),
            None => Ok(ExternalPolicy::Off),
        };
    }
    let Some(root) = &options.external_root else { return Ok(ExternalPolicy::Beneath(None)) };
    match Directory::open(root).and_then(|root| root.path()) {
        Ok(root) if written => Ok(ExternalPolicy::Written(root)),
        Ok(root) => Ok(ExternalPolicy::Beneath(Some(root))),
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
            Err(UsageError(format!("--external-root {} is not a directory; give a directory", escaped(root))))
        }
        Err(e) => Err(UsageError(format!("--external-root {} cannot be used: {e}; check the path", escaped(root)))),
    }
}

fn plan(options: &MountOptions, layers: &Layers, source: String, mountpoint: PathBuf) -> Result<MountPlan, UsageError> {
    let writable = writable(options)?;
    let timeout = if writable { READ_WRITE_TIMEOUT } else { READ_ONLY_TIMEOUT };
    let check_interval = check_interval(options, writable);
    let entry = options.entry_timeout.map_or(timeout, |s| s.0);
    let default_interval = if on(options.swmr) { SWMR_COMMIT_INTERVAL } else { DEFAULT_COMMIT_INTERVAL };
    let interval = options.commit_interval.map_or(default_interval, |s| s.0);
    let access = match (on(options.allow_other), on(options.allow_root)) {
        (true, true) => return Err(UsageError("--allow-other and --allow-root exclude each other; give one of them".into())),
        (true, false) => Access::Everyone,
        (false, true) => Access::OwnerAndRoot,
        (false, false) => Access::Owner,
    };
    Ok(MountPlan {
        foreground: on(options.foreground) || layers.debug,
        log: log(options, layers),
        session: SessionConfig {
            mountpoint,
            source,
            read_only: !writable,
            noexec: on(options.noexec),
            access,
            threads: threads(options),
            times: CacheTimes {
                entry,
                // The daemon cannot invalidate absent names.
                absent: check_interval.map_or(entry, |every| entry.min(every)),
                attr: options.attr_timeout.map_or(timeout, |s| s.0),
            },
            readahead: options.readahead.map_or(DEFAULT_READAHEAD_BYTES, |s| s.0),
            stay_awake: on(options.stay_awake),
        },
        commit_interval: (writable && !interval.is_zero()).then_some(interval),
        check_interval,
        sandbox: !on(options.no_sandbox),
        metrics: metrics(options)?,
    })
}

fn metrics(options: &MountOptions) -> Result<Option<MetricsPlan>, UsageError> {
    let every = options.metrics_interval.map_or(DEFAULT_METRICS_INTERVAL, |s| s.0);
    let Some(file) = &options.metrics_file else { return Ok(None) };
    if every.is_zero() {
        return Err(UsageError("--metrics-interval is more than 0 seconds; without --metrics-file nothing is written".into()));
    }
    Ok(Some(MetricsPlan { file: std::path::absolute(file).unwrap_or_else(|_| file.clone()), every }))
}

fn log(options: &MountOptions, layers: &Layers) -> LogPlan {
    let more = match layers.verbose {
        _ if layers.debug => Level::Debug,
        0 => Level::Off,
        1 => Level::Info,
        2 => Level::Debug,
        _ => Level::Trace,
    };
    LogPlan {
        level: options.log_level.unwrap_or(Level::Warn).max(more),
        file: options.log_file.as_deref().map(|f| std::path::absolute(f).unwrap_or_else(|_| f.to_owned())),
        format: options.log_format.unwrap_or(LogFormat::Text),
    }
}

fn threads(options: &MountOptions) -> usize {
    let processors = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    options.threads.map_or_else(|| (2 * processors()).clamp(4, 16), |t| t.0)
}

/// The name of a container with its path made absolute.
pub(crate) fn absolute_name(name: &Path) -> PathBuf {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    if is_url(name) { with_folder(name, absolute) } else { absolute(name) }
}

/// Source of the mount as shown in the mount table.
fn source(spec: &MountSpec) -> String {
    let file: &Path = &spec.file;
    let group = spec.group.as_deref().filter(|g| *g != b"/").map(|g| format!(":{}", String::from_utf8_lossy(g)));
    let canonical = if is_url(file) { None } else { file.canonicalize().ok() };
    format!("{}{}", canonical.as_deref().unwrap_or(file).display(), group.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::args::{Cli, Command};
    use clap::Parser;

    fn resolve(args: &[&str]) -> Result<(MountSpec, MountPlan), UsageError> {
        let cli = Cli::try_parse_from([&["h5dir", "mount"], args, &["/dev/null:/g", "/m"]].concat()).unwrap();
        let Command::Mount(args) = cli.command else { panic!() };
        mount(&args).map(|r| (r.spec, r.plan))
    }

    #[test]
    fn defaults() {
        let (spec, plan) = resolve(&[]).unwrap();
        assert_eq!((spec.file_mode, spec.dir_mode, spec.group.as_deref()), (0o644, 0o755, Some(&b"/g"[..])));
        assert_eq!(spec.external, ExternalPolicy::Beneath(None));
        assert!(!spec.vds_missing_fill && !plan.foreground && plan.session.read_only);
        assert_eq!(plan.session.times, CacheTimes { entry: READ_ONLY_TIMEOUT, absent: DEFAULT_CHECK_INTERVAL, attr: READ_ONLY_TIMEOUT });
        assert!(spec.follow && plan.check_interval == Some(DEFAULT_CHECK_INTERVAL));
        let (spec, plan) = resolve(&["--check-interval=0"]).unwrap();
        assert!(!spec.follow && plan.check_interval.is_none() && plan.session.times.absent == READ_ONLY_TIMEOUT);
        let (spec, plan) = resolve(&[]).unwrap();
        assert_eq!((plan.session.source.as_str(), plan.session.readahead), ("/dev/null:/g", 1 << 20));
        assert_eq!((plan.session.access, plan.log.level), (Access::Owner, Level::Warn));
        assert_eq!(spec.threads, plan.session.threads);
    }

    #[test]
    fn long_option_before_fstab_before_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.yaml");
        std::fs::write(&path, "mount: {threads: 1, uid: 1, gid: 1, vds-missing: fill}").unwrap();
        let (spec, _) = resolve(&["--config", path.to_str().unwrap(), "-o", "uid=2,threads=2", "--threads=3"]).unwrap();
        assert_eq!((spec.threads, spec.uid, spec.gid, spec.vds_missing_fill), (3, 2, 1, true));
    }

    #[test]
    fn external_files_are_off_for_everyone_unless_asked_for() {
        let policy = |args: &[&str]| resolve(args).map(|(spec, _)| spec.external);
        assert_eq!(policy(&["--allow-other"]), Ok(ExternalPolicy::Off));
        assert_eq!(policy(&["--allow-other", "--external=on"]), Ok(ExternalPolicy::Beneath(None)));
        assert_eq!(policy(&["--allow-other", "--external-root=/tmp/"]), Ok(ExternalPolicy::Beneath(Some("/tmp".into()))));
        assert_eq!(policy(&["--external-root=/tmp", "--external-write", "--read-write"]), Ok(ExternalPolicy::Written("/tmp".into())));
        for without in [&["--external-write", "--read-write"][..], &["--external-write", "--external-root=/tmp"]] {
            assert!(policy(without).is_err());
        }
        assert_eq!(policy(&["--external=off"]), Ok(ExternalPolicy::Off));
        assert!(policy(&["--external=off", "--external-root=/tmp"]).is_err());
        assert!(policy(&["--external-root=/nonexistent"]).is_err());
    }

    #[test]
    fn options_of_a_directory() {
        let resolve = |args: &[&str]| {
            let cli = Cli::try_parse_from([&["h5dir", "mount"], args, &["/tmp", "/m"]].concat()).unwrap();
            let Command::Mount(args) = cli.command else { panic!() };
            let resolved = mount(&args)?;
            Ok::<_, UsageError>((resolved.mirror.unwrap(), resolved.plan))
        };
        let (spec, plan) = resolve(&[]).unwrap();
        assert_eq!((spec.root.as_path(), spec.naming, spec.uid, spec.file_mode), (Path::new("/tmp"), Naming::Replace, None, None));
        assert!(spec.include.is_empty() && (1..=OPEN_MAX).contains(&spec.open_max) && spec.idle == DEFAULT_IDLE_TIMEOUT);
        assert_eq!(plan.session.times, CacheTimes { entry: MIRROR_TIMEOUT, attr: MIRROR_TIMEOUT, absent: Duration::ZERO });
        assert!(plan.check_interval.is_some() && plan.session.read_only);
        let args = ["--read-write", "--include=*.h5,a/*", "-o", "mirror-names=both,max-open=3", "--uid=5", "--dir-mode=700"];
        let (spec, plan) = resolve(&args).unwrap();
        assert_eq!((spec.naming, spec.open_max, spec.include.len(), spec.uid, spec.dir_mode), (Naming::Both, 3, 2, Some(5), Some(0o700)));
        assert!(plan.check_interval.is_some() && spec.container.writable && plan.commit_interval.is_some());
    }

    #[test]
    fn a_prefix_is_a_mirror_that_is_only_read() {
        let resolve = |args: &[&str]| {
            let cli = Cli::try_parse_from([&["h5dir", "mount"], args, &["s3://bucket/p/", "/m"]].concat()).unwrap();
            let Command::Mount(args) = cli.command else { panic!() };
            mount(&args)
        };
        let resolved = resolve(&["--exclude=*.tmp"]).unwrap();
        let mirror = resolved.mirror.unwrap();
        assert_eq!((mirror.root.as_path(), mirror.exclude.len()), (Path::new("s3://bucket/p/"), 1));
        assert_eq!(resolved.plan.session.source, "s3://bucket/p/");
        assert!(resolve(&["--read-write"]).unwrap_err().0.contains("only read"));
    }

    #[test]
    fn modes_and_levels() {
        let (spec, plan) = resolve(&["--umask=0077", "-vv", "--noexec"]).unwrap();
        assert_eq!((spec.file_mode, spec.dir_mode), (0o600, 0o700));
        assert_eq!((plan.log.level, plan.session.noexec), (Level::Debug, true));
        let (spec, plan) = resolve(&["--allow-root"]).unwrap();
        assert_eq!((spec.file_mode, spec.dir_mode, plan.session.access), (0o600, 0o700, Access::OwnerAndRoot));
        assert!(resolve(&["-d"]).unwrap().1.foreground);
        assert_eq!(resolve(&["--log-level=off"]).unwrap().1.log.level, Level::Off);
        for wrong in [&["--umask=022", "--file-mode=444"][..], &["--allow-other", "--allow-root"], &["--read-only", "-o", "rw"]] {
            assert!(resolve(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn read_write_has_several_spellings() {
        for args in [&["--read-write"][..], &["-o", "rw"], &["--read-only=off"], &["-o", "ro,rw"], &["--read-only=off", "--read-write"]] {
            let (spec, plan) = resolve(args).unwrap();
            assert!(spec.writable && !plan.session.read_only, "{args:?}");
            assert_eq!((spec.file_mode, spec.dir_mode, plan.commit_interval), (0o644, 0o755, Some(DEFAULT_COMMIT_INTERVAL)));
            assert_eq!(plan.session.times, CacheTimes { entry: READ_WRITE_TIMEOUT, absent: READ_WRITE_TIMEOUT, attr: READ_WRITE_TIMEOUT });
        }
        for args in [&["--read-only"][..], &["-o", "rw,ro"], &["--read-write=off"], &["--read-only", "--read-write=off"]] {
            let (spec, plan) = resolve(args).unwrap();
            assert!(!spec.writable && plan.session.read_only && plan.commit_interval.is_none(), "{args:?}");
        }
        let (spec, plan) = resolve(&["--read-write", "--umask=077", "--commit-interval=0"]).unwrap();
        assert_eq!((spec.file_mode, spec.dir_mode, plan.commit_interval), (0o600, 0o700, None));
        for args in [&["--read-only", "--read-write"][..], &["--read-only=off", "--read-write=off"], &["-o", "ro", "--read-write"]] {
            assert!(resolve(args).is_err(), "{args:?}");
        }
    }
}
