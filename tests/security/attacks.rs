//! Files that an attacker puts where h5dir looks.

use super::races::{ATTACKER, Arena, interrupted};
use super::support::{h5dir, run};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Runs a shell command as the attacker.
fn attack(dir: &Path, script: &str) {
    let status = Command::new("sh").args(["-ec", script]).current_dir(dir).uid(ATTACKER).gid(ATTACKER).status().unwrap();
    assert!(status.success(), "{script}");
}

/// A directory like /tmp.
fn sticky(arena: &Arena) -> std::path::PathBuf {
    let dir = arena.dir().join("shared");
    std::fs::create_dir(&dir).unwrap();
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o1777)).unwrap();
    dir
}

/// Regression: a journal that any user planted beside root's file was applied by `ls`.
#[test]
fn a_journal_that_a_stranger_planted_is_left_alone() {
    let arena = Arena::new();
    let dir = sticky(&arena);
    let file = dir.join("f.h5");
    assert_eq!(run(&mut h5dir(&["create", file.to_str().unwrap()])).0, 0);
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    let whole = std::fs::read(&file).unwrap();
    let (waiting, journal) = interrupted(&whole);
    let planted = dir.join("f.h5.h5dir-journal");
    for (content, code) in [(&whole, 0), (&waiting, 3)] {
        std::fs::write(&file, content).unwrap();
        std::fs::write(arena.dir().join("journal"), &journal).unwrap();
        std::fs::set_permissions(arena.dir().join("journal"), PermissionsExt::from_mode(0o644)).unwrap();
        attack(&dir, "cp ../journal f.h5.h5dir-journal");
        for (arguments, code) in [(&["ls"][..], code), (&["stat"], code), (&["recover"], code), (&["mount", "--read-write"], 3)] {
            let mut command = h5dir(arguments);
            command.arg(&file);
            if arguments.contains(&"mount") {
                command.arg(arena.mnt());
            }
            let (found, message) = run(&mut command);
            assert_eq!(found, code, "{arguments:?}: {message}");
            assert!(code == 0 || message.contains("f.h5.h5dir-journal is a file of another user"), "{message}");
        }
        assert!(std::fs::read(&file).unwrap() == *content && std::fs::read(&planted).unwrap() == journal);
        std::fs::remove_file(&planted).unwrap();
    }
}

/// Regression: a file that another user put at the journal's name was adopted, and its owner read a private file's data.
#[test]
fn the_journal_is_never_a_strangers_file() {
    let arena = Arena::new();
    let dir = sticky(&arena);
    let file = dir.join("f.h5");
    assert_eq!(run(&mut h5dir(&["create", file.to_str().unwrap()])).0, 0);
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    let options = ["mount", "--read-write", "--commit-interval=0"];
    // Put there between mounting and the first change, which makes the journal.
    assert_eq!(run(h5dir(&options).arg(&file).arg(arena.mnt())), (0, String::new()));
    attack(&dir, "echo mine > f.h5.h5dir-journal; chmod 666 f.h5.h5dir-journal");
    let work = |script: &str| Command::new("sh").args(["-c", script]).current_dir(arena.mnt()).status().unwrap().success();
    // Changes of several sectors need the journal, and there is none.
    assert!(!work(
        "mkdir g; for i in 1 2 3 4 5 6 7 8 9; do echo TOPSECRET > g/$i; done; sync g && for i in 1 2 3; do rm g/$i; done && sync g"
    ));
    let planted = dir.join("f.h5.h5dir-journal");
    assert_eq!((std::fs::read(&planted).unwrap(), std::fs::metadata(&planted).unwrap().uid()), (b"mine\n".to_vec(), ATTACKER));
    std::fs::remove_file(&planted).unwrap();
    assert!(work("sync g"), "once the name is free");
    let made = std::fs::metadata(&planted).unwrap();
    assert_eq!((made.uid(), made.mode() & 0o777), (0, 0o600));
    assert_eq!(run(h5dir(&["umount"]).arg(arena.mnt())), (0, String::new()));
    assert!(!planted.exists());
}

/// Regression: a confined process could not make the name of a journal durable, and so not recover or commit.
#[test]
fn confined_processes_recover_and_commit() {
    let arena = Arena::new();
    let (file, journal) = (arena.dir().join("f.h5"), arena.dir().join("f.h5.h5dir-journal"));
    assert_eq!(run(&mut h5dir(&["create", file.to_str().unwrap()])).0, 0);
    let whole = std::fs::read(&file).unwrap();
    let (waiting, stored) = interrupted(&whole);
    std::fs::write(&file, waiting).unwrap();
    std::fs::write(&journal, stored).unwrap();
    std::fs::set_permissions(&journal, PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(run(h5dir(&["recover"]).arg(&file)), (0, String::new()));
    assert!(std::fs::read(&file).unwrap()[512..].starts_with(b"PWNED!!!") && !journal.exists());

    std::fs::write(&file, whole).unwrap();
    assert_eq!(run(h5dir(&["mount", "--read-write", "--external=off"]).arg(&file).arg(arena.mnt())), (0, String::new()));
    let script = "mkdir g; for i in 1 2 3 4 5 6 7 8 9; do echo $i > g/$i; done; sync g && for i in 1 2 3; do rm g/$i; done && sync g";
    assert!(Command::new("sh").args(["-c", script]).current_dir(arena.mnt()).status().unwrap().success());
    assert!(journal.exists());
    assert_eq!(run(h5dir(&["umount"]).arg(arena.mnt())), (0, String::new()));
}

/// A confined daemon has only the capabilities that it needs, in every thread.
#[test]
fn the_daemon_drops_capabilities() {
    const DAC_READ_SEARCH: u64 = 1 << 2;
    const WRITING: u64 = DAC_READ_SEARCH | 1 | 1 << 1 | 1 << 3;
    let arena = Arena::new();
    let file = arena.dir().join("f.h5");
    assert_eq!(run(&mut h5dir(&["create", file.to_str().unwrap()])).0, 0);
    for (options, most) in [(&[][..], DAC_READ_SEARCH), (&["--read-write"], WRITING)] {
        let mut daemon = h5dir(&["mount", "-f"]).args(options).arg(&file).arg(arena.mnt()).spawn().unwrap();
        super::support::eventually("it is mounted", || super::support::is_mounted(&arena.mnt()));
        let confined = || {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.id())).unwrap();
            let status = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
            let capabilities = |status: String| {
                let field = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)).map_or(0, hexadecimal);
                (field("CapEff:") | field("CapPrm:")) & !most == 0
            };
            tasks.into_iter().all(|t| capabilities(status(t.unwrap())))
        };
        super::support::eventually("all threads are confined", confined);
        // Programs that look for the daemon by its command line find it, and not the process that unmounts.
        let command_lines = std::fs::read_dir("/proc").unwrap().filter_map(|e| std::fs::read(e.unwrap().path().join("cmdline")).ok());
        let mnt = arena.mnt().into_os_string().into_encoded_bytes();
        assert_eq!(command_lines.filter(|line| line.windows(mnt.len()).any(|w| w == mnt)).count(), 1);
        assert_eq!(run(h5dir(&["umount"]).arg(arena.mnt())), (0, String::new()));
        assert!(daemon.wait().unwrap().success());
    }
}

fn hexadecimal(text: &str) -> u64 {
    u64::from_str_radix(text.trim(), 16).unwrap()
}
