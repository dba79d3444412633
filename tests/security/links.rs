//! Symbolic links of other users, in every path that a command takes.

use super::races::{ATTACKER, Arena};
use super::support::{h5dir, run};
use std::os::unix::fs::{lchown, symlink};
use std::path::Path;

/// Commands, split at spaces, that open or create something at `LINK/...`. `OWN` is a file that no link leads to.
const COMMANDS: [&str; 30] = [
    "create LINK/new.h5",
    "create --log LINK/new.h5",
    "create iod:LINK/new",
    "ls LINK/x.h5",
    "ls iod:LINK/container",
    "stat LINK/x.h5",
    "check LINK/x.h5",
    "recover LINK/x.h5",
    "recover iod:LINK/container",
    "cat LINK/x.h5:/text",
    "diff LINK/text OWN:/text",
    "diff LINK/files OWN:/files",
    "cp LINK/text OWN:/new",
    "cp -r LINK/files OWN:/new",
    "cp OWN:/text LINK/new",
    "cp OWN:/text LINK",
    "cp -r OWN:/files LINK/new",
    "cp -r OWN iod:LINK/new",
    "cp --create OWN:/text LINK/new.h5:/text",
    "defined --mask LINK/new OWN:/text",
    "log export OWN LINK/new.h5",
    "man --dir LINK/new",
    "config show --config LINK/config.yaml",
    "mount --cache-dir LINK/new http://127.0.0.1:1/x.h5 MNT",
    "mount --log-file LINK/new OWN MNT",
    "mount --metrics-file LINK/new OWN MNT",
    "mount --external-root LINK/files OWN MNT",
    "mount --config LINK/config.yaml OWN MNT",
    "mount iod:LINK/container MNT",
    "mount LINK MNT",
];

fn command(arena: &Arena, line: &str, link: &Path) -> (i32, String) {
    let (own, mnt) = (arena.dir().join("own.h5"), arena.mnt());
    let [link, own, mnt] = [link, &own, &mnt].map(|path| path.to_str().unwrap());
    let words: Vec<String> = line.split(' ').map(|w| w.replace("LINK", link).replace("OWN", own).replace("MNT", mnt)).collect();
    let mut run_by = h5dir(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let found = run(&mut run_by);
    if line.starts_with("mount") && found.0 == 0 {
        assert_eq!(run(h5dir(&["umount"]).arg(mnt)), (0, String::new()), "{line}");
    }
    found
}

/// The files of root that the links lead to.
fn files(arena: &Arena) {
    let real = arena.dir().join("real");
    let _ = std::fs::remove_dir_all(&real);
    std::fs::create_dir_all(real.join("files")).unwrap();
    let container = format!("iod:{}", real.join("container").display());
    for path in [real.join("x.h5").to_str().unwrap(), &container] {
        assert_eq!(run(&mut h5dir(&["create", path])), (0, String::new()));
    }
    for name in ["text", "files/text"] {
        std::fs::write(real.join(name), "text").unwrap();
    }
    std::fs::write(real.join("config.yaml"), "mount: {threads: 2}\n").unwrap();
    let own = arena.dir().join("own.h5");
    let _ = std::fs::remove_file(&own);
    let copy = |from: &Path, to: &Path, path: &str| {
        let to = format!("{}:{path}", to.display());
        assert_eq!(run(h5dir(&["cp", "-r", "--create"]).arg(from).arg(to)), (0, String::new()));
    };
    copy(&real.join("text"), &real.join("x.h5"), "/text");
    copy(&real.join("text"), &own, "/text");
    copy(&real.join("files"), &own, "/files");
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(directory).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Regression: only HDF5 files had the rule of links. All else was read and created through them.
#[test]
fn links_of_other_users_lead_to_their_own_files_only_in_every_path() {
    let arena = Arena::new();
    let real = arena.dir().join("real");
    let outcome = |link: &Path, line: &str| {
        files(&arena);
        let before = names(&real);
        let (code, message) = command(&arena, line, link);
        (code, message, names(&real) != before)
    };
    let link = arena.dir().join("link");
    symlink("real", &link).unwrap();
    for line in COMMANDS {
        // Root's own link, and a link to that one, as /var/run is.
        let expected = outcome(&real, line);
        assert!(line.contains("127.0.0.1") || expected.0 == 0, "{line}: {expected:?}");
        assert_eq!(outcome(&link, line).0, expected.0, "{line}: {:?}", outcome(&link, line));
    }
    lchown(&link, Some(ATTACKER), Some(ATTACKER)).unwrap();
    let path = link.to_str().unwrap();
    for line in COMMANDS {
        let (code, message, changed) = outcome(&link, line);
        assert!(code != 0 && !changed, "{line}: {message}");
        assert!(message.contains(&format!("the symbolic link {path} belongs to ")) && message.contains("65534"), "{line}: {message}");
    }
}

/// A user's links within the user's own files are no danger to who follows them.
#[test]
fn links_of_a_user_to_files_of_that_user_are_followed() {
    let arena = Arena::new();
    files(&arena);
    let link = arena.dir().join("link");
    symlink("real", &link).unwrap();
    let chown = std::process::Command::new("chown").args(["-hR", "65534:65534"]).arg(arena.dir().join("real")).arg(&link).status();
    assert!(chown.unwrap().success());
    for line in ["ls LINK/x.h5", "create LINK/new.h5", "cp OWN:/text LINK/new", "diff LINK/text OWN:/text", "mount LINK MNT"] {
        let (code, message) = command(&arena, line, &link);
        assert_eq!(code, 0, "{line}: {message}");
    }
}

/// Configuration comes from a pipe, too: `--config <(...)`.
#[test]
fn descriptors_of_the_process_are_opened() {
    let arena = Arena::new();
    files(&arena);
    let script = "echo 'mount: {threads: 2}' | \"$1\" config show --config /dev/stdin && \"$1\" config show --config /dev/fd/3 3< <(echo 'mount: {threads: 2}')";
    let h5dir = h5dir(&[]);
    let done = std::process::Command::new("bash").args(["-euc", script, "-"]).arg(h5dir.get_program()).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
