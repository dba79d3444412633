//! Mount namespaces of single tests.

use std::process::Command;

/// Leaves a new mount namespace without the mounts that other tests have: those here would last as long as the namespace.
const ALONE: &str = r#"
    mount --make-rprivate /
    table=$(cat /proc/self/mounts)
    echo "$table" | while read -r source at kind rest; do
        if [ "$kind" = fuse.h5dir ]; then umount --lazy "$at"; fi
    done
"#;

/// A command that runs `script` by `shell` in a mount namespace of its own, in which nothing of h5dir is mounted.
pub fn in_own_namespace(shell: &str, script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", shell, "-c", &format!("{ALONE}{script}"), shell]);
    command
}
