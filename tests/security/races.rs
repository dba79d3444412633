//! An attacker exchanges the file, its directory or its journal at every system call of a command. Nothing outside of the
//! attacker's directory may change.

use super::stepper::step;
use super::support::{Place, h5dir, is_mounted, run};
use h5dir::base::Address;
use h5dir::file::Identity;
use h5dir::file::journal::Journal;
use h5dir::format::superblock::Superblock;
use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, lchown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The user nobody.
pub const ATTACKER: u32 = 65534;
/// Another user.
const VICTIM: u32 = 65533;
/// Moments tried in each command; all of them with H5DIR_LONG.
const MOMENTS: usize = 24;

/// The attacker's directory, and another one that must not change.
pub struct Arena(Place);

impl Arena {
    pub fn new() -> Self {
        assert!(nix::unistd::geteuid().is_root(), "this test needs root");
        let place = Place::new();
        // Users must be able to go through it.
        std::fs::set_permissions(place.dir(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        Arena(place)
    }

    pub fn dir(&self) -> &Path {
        self.0.dir()
    }

    pub fn mnt(&self) -> PathBuf {
        self.0.mnt()
    }
}

/// The file `whole` after a commit that was interrupted, and its journal, which writes "PWNED" all over the second sector.
pub fn interrupted(whole: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut image = whole.to_vec();
    image.resize(1024.max(whole.len().next_multiple_of(512)), 0);
    let mut superblock = Superblock::decode(&image, Address(0)).unwrap();
    superblock.eof = Address(image.len() as u64);
    let sector = |s: &Superblock| {
        let bytes = s.encode().unwrap();
        [&bytes[..], &image[bytes.len()..512]].concat()
    };
    let (marked, settled) = (sector(&superblock.marked(42)), sector(&superblock));
    let owner = Identity { device: 0, inode: 0 };
    let records = vec![(512, b"PWNED!!!".repeat(64))];
    let journal = Journal { owner, nonce: 42, root: 0, marked: marked.clone(), settled, records, free_record: None }.encode();
    image[..512].copy_from_slice(&marked);
    (image, journal)
}

/// Path, content, inode, mode, owner and time of everything below `dir`.
type Snapshot = BTreeMap<PathBuf, (Vec<u8>, u64, u32, u32, i64)>;

fn snapshot(dir: &Path) -> Snapshot {
    let entries = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    let mut all: Snapshot = entries
        .map(|path| {
            let m = std::fs::metadata(&path).unwrap();
            let state = (std::fs::read(&path).unwrap(), m.ino(), m.mode(), m.uid(), m.mtime_nsec() ^ m.mtime());
            (path, state)
        })
        .collect();
    let m = std::fs::metadata(dir).unwrap();
    all.insert(dir.to_owned(), (Vec::new(), m.ino(), m.mode(), m.uid(), m.mtime_nsec() ^ m.mtime()));
    all
}

/// What the attacker does.
#[derive(Debug, Clone, Copy)]
enum Swap {
    /// The file becomes a symbolic link to another user's file that waits for the same journal.
    File,
    /// The file's directory becomes a symbolic link to another directory.
    Directory,
    /// The journal becomes a symbolic link.
    Journal,
}

fn foreign_link(target: &Path, link: &Path) {
    symlink(target, link).unwrap();
    lchown(link, Some(ATTACKER), Some(ATTACKER)).unwrap();
}

/// `sub/f.h5` of the attacker, and `outside/f.h5` of the user who runs the command, in the same state.
struct Scene {
    sub: PathBuf,
    outside: PathBuf,
}

impl Scene {
    /// `waiting`: both files wait for a journal, and the attacker has one beside the own file.
    fn new(dir: &Path, waiting: bool, victim: u32) -> Scene {
        let (sub, outside) = (dir.join("sub"), dir.join("outside"));
        for (folder, owner) in [(&sub, ATTACKER), (&outside, victim)] {
            let _ = std::fs::remove_file(folder);
            let _ = std::fs::remove_dir_all(folder);
            std::fs::create_dir(folder).unwrap();
            let file = folder.join("f.h5");
            assert_eq!(run(&mut h5dir(&["create", file.to_str().unwrap()])).0, 0);
            let (image, journal) = interrupted(&std::fs::read(&file).unwrap());
            if waiting {
                std::fs::write(&file, image).unwrap();
            }
            if waiting && *folder == sub {
                std::fs::write(folder.join("f.h5.h5dir-journal"), journal).unwrap();
            }
            for path in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).chain([folder.clone()]) {
                lchown(&path, Some(owner), Some(owner)).unwrap();
            }
        }
        let _ = std::fs::remove_dir_all(dir.join("moved"));
        Scene { sub, outside }
    }

    fn swap(&self, swap: Swap) {
        match swap {
            Swap::File => {
                std::fs::rename(self.sub.join("f.h5"), self.sub.join("moved.h5")).unwrap();
                foreign_link(&self.outside.join("f.h5"), &self.sub.join("f.h5"));
            }
            Swap::Directory => {
                std::fs::rename(&self.sub, self.sub.with_file_name("moved")).unwrap();
                foreign_link(&self.outside, &self.sub);
            }
            Swap::Journal => {
                let journal = self.sub.join("f.h5.h5dir-journal");
                let _ = std::fs::remove_file(&journal);
                foreign_link(&self.outside.join("f.h5"), &journal);
            }
        }
    }
}

/// A thread that works on the mount until the command has ended.
type Work = Option<Box<dyn FnOnce(&AtomicBool) + Send>>;

/// Runs what `command` makes, with its work beside it; `act` is called at moment `n`. Returns how many moments there were.
fn play((mut command, work): (Command, Work), n: usize, act: impl FnOnce()) -> usize {
    let ended = AtomicBool::new(false);
    std::thread::scope(|s| {
        if let Some(work) = work {
            s.spawn(|| work(&ended));
        }
        let (moments, _) = step(&mut command, n, act);
        ended.store(true, Ordering::SeqCst);
        moments
    })
}

/// Exchanges what `swaps` say at the moments of `command`, which is made anew for each.
fn race(arena: &Arena, waiting: bool, victim: u32, swaps: &[Swap], command: &dyn Fn(&Scene) -> (Command, Work)) {
    let scene = Scene::new(arena.dir(), waiting, victim);
    let moments = play(command(&scene), usize::MAX, || ());
    assert!(moments > 10, "{moments} system calls were seen");
    let every = if std::env::var_os("H5DIR_LONG").is_some() { 1 } else { moments.div_ceil(MOMENTS) };
    for &swap in swaps {
        for n in (0..moments).step_by(every) {
            let scene = Scene::new(arena.dir(), waiting, victim);
            let before = snapshot(&scene.outside);
            play(command(&scene), n, || scene.swap(swap));
            assert!(snapshot(&scene.outside) == before, "{swap:?} at system call {n} of {moments} changed what is outside");
        }
    }
}

const ALL: [Swap; 3] = [Swap::File, Swap::Directory, Swap::Journal];

fn command(arguments: &[&str], scene: &Scene, victim: u32) -> Command {
    let mut command = h5dir(arguments);
    command.arg(scene.sub.join("f.h5")).stdout(Stdio::null()).stderr(Stdio::null()).uid(victim).gid(victim);
    command
}

/// Regression: `ls` of an attacker's file, which recovered it, wrote to any file of the caller.
#[test]
fn reading_changes_nothing_outside_whatever_is_swapped() {
    for victim in [0, VICTIM] {
        let arena = Arena::new();
        race(&arena, true, victim, &ALL, &|scene| (command(&["ls"], scene, victim), None));
    }
}

#[test]
fn recovering_changes_nothing_outside_whatever_is_swapped() {
    let arena = Arena::new();
    race(&arena, true, 0, &ALL, &|scene| (command(&["recover"], scene, 0), None));
}

/// Mounts, changes, commits, unmounts: the work is done by another thread as soon as the mount answers.
fn mounted(arena: &Arena, options: &[&str], waiting: bool, script: &str) {
    let mnt = arena.mnt();
    race(arena, waiting, 0, &ALL, &|scene| {
        let mut command = command(&[&["mount", "-f"], options].concat(), scene, 0);
        command.arg(&mnt);
        let (mnt, script) = (mnt.clone(), script.to_owned());
        let work = move |ended: &AtomicBool| {
            while !is_mounted(&mnt) {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            let _ = Command::new("sh").args(["-c", &script]).current_dir(&mnt).stderr(Stdio::null()).status();
            while is_mounted(&mnt) && !ended.load(Ordering::SeqCst) {
                let _ = run(h5dir(&["umount"]).arg(&mnt));
            }
        };
        (command, Some(Box::new(work)))
    });
}

#[test]
fn mounting_changes_nothing_outside_whatever_is_swapped() {
    mounted(&Arena::new(), &["--check-interval=0.05"], true, "ls -l; sleep 0.1");
}

/// Regression: root made and truncated journals in another directory when the mounted file's directory was swapped.
#[test]
fn committing_changes_nothing_outside_whatever_is_swapped() {
    mounted(&Arena::new(), &["--read-write"], false, "mkdir a; for i in 1 2 3 4 5 6; do echo $i > a/$i; done; sync a; rm a/3");
}
