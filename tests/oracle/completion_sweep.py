#!/usr/bin/env python3
"""What Tab does on command lines of h5dir, in real shells: bash (alone and with bash-completion), zsh and fish.

Each shell runs in a terminal. A key is bound to print the command line, and to empty it; it is pressed after Tab.
"""
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import time

import h5py
import numpy as np

import harness

BASH_COMPLETION = "/usr/share/bash-completion/bash_completion"
TIMEOUT = 60
TAB, SHOW = b"\t", b"\x0f"
# A name that a shell would run, or expand, if it were not quoted.
HOSTILE = "$(touch pwned)`touch pwned`;*"


def make(folder):
    with h5py.File(f"{folder}/data.h5", "w") as f:
        run = f.create_group("run1")
        run["temperature"], run["two words"] = np.arange(5), 1
        run["temperature"].attrs["units"] = "K"
        run.create_group("sub")["deep"] = 1
        f["mask"], f[HOSTILE], f["bad\nname"] = np.zeros(4), 1, 1
        f["soft"], f["nowhere"] = h5py.SoftLink("/run1/sub"), h5py.SoftLink("/x")
        f["naïve"] = 1
    with h5py.File(f"{folder}/my file.h5", "w") as f:
        f["only"] = 1
    with h5py.File(f"{folder}/wide.h5", "w") as f:
        wide = f.create_group("wide")
        for i in range(20_000):
            wide.create_group(f"g{i:05}")
    with open(f"{folder}/data.h5", "rb") as f:
        damaged = bytearray(f.read())
    damaged[100:] = os.urandom(len(damaged) - 100)
    with open(f"{folder}/torn.h5", "wb") as f:
        f.write(damaged)
    os.mkdir(f"{folder}/etc")
    with open(f"{folder}/etc/config.yaml", "w") as f:
        f.write("mounts:\n  nightly: {source: /srv/a.h5, at: /mnt/a}\n  weekly: {source: /srv/b.h5, at: /mnt/b}\n")
    os.mkfifo(f"{folder}/pipe")


class Shell:
    """A shell in a terminal, with the completions of h5dir."""

    def __init__(self, argv, setup, folder, environment):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe(argv[0], argv, environment)
        self.seen = b""
        self.send(setup.encode() + b"\n")
        self.send(b"echo rea''dy\n")
        self.until(b"ready")

    def send(self, data):
        os.write(self.terminal, data)

    def until(self, wanted):
        """Reads until `wanted`, a pattern, and returns its match."""
        end = time.time() + TIMEOUT
        while True:
            found = re.search(wanted, self.seen, re.DOTALL)
            if found:
                self.seen = self.seen[found.end():]
                return found
            ready, _, _ = select.select([self.terminal], [], [], max(0, end - time.time()))
            if not ready:
                raise AssertionError(f"no {wanted!r} in {self.seen[-2000:]!r}")
            self.seen += os.read(self.terminal, 1 << 16)

    def tab(self, line):
        """The command line after Tab."""
        self.send(line.encode() + TAB + SHOW)
        return self.until(rb"<<(.*?)>>").group(1).decode()

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)


def shells(options, folder):
    """Shells by name: their arguments, and what prepares them."""
    home = os.path.join(folder, "home")
    os.makedirs(home, exist_ok=True)
    scripts = {}
    for name in ("bash", "zsh", "fish"):
        scripts[name] = os.path.join(folder, f"script.{name}")
        with open(scripts[name], "wb") as f:
            subprocess.run([options.bin, "completions", name], check=True, stdout=f)
    path = os.path.dirname(os.path.abspath(options.bin)) + ":" + os.environ["PATH"]
    environment = {"PATH": path, "HOME": home, "TERM": "dumb", "LC_ALL": "C.UTF-8", "PS1": "$ ", "COLUMNS": "200"}
    bash = f"source {scripts['bash']}; bind 'set completion-query-items 0' 'set bell-style none' 'set page-completions off'; " \
        "bind -x '\"\\C-o\": printf \"\\n<<%s>>\\n\" \"$READLINE_LINE\"; READLINE_LINE='"
    zsh = "autoload -Uz compinit; compinit -u -D; LISTMAX=10000; unsetopt beep prompt_cr zle_bracketed_paste; " \
        f"source {scripts['zsh']}; show() {{ zle -I; print -r -- \"<<$BUFFER>>\"; BUFFER= }}; zle -N show; bindkey '^O' show"
    assert os.path.exists(BASH_COMPLETION), "install bash-completion"
    fish = f"source {scripts['fish']}; bind \\co 'echo; echo \"<<\"(commandline | string collect)\">>\"; commandline -r \"\"'"
    plain = ["bash", "--noprofile", "--norc", "-i"]
    return {
        "bash": (plain, bash, environment),
        "bash-completion": (plain, f"source {BASH_COMPLETION}; {bash}", environment),
        "zsh": (["zsh", "-f", "-i"], zsh, environment),
        "fish": (["fish", "--no-config", "-i"], fish, environment),
    }


def lines(point):
    """Command lines, and what Tab makes of them in all shells."""
    return [
        ("h5dir mou", "h5dir mount "),
        ("h5dir mount --cache-s", "h5dir mount --cache-size "),
        ("h5dir mount --log-level deb", "h5dir mount --log-level debug "),
        ("h5dir ls --external=of", "h5dir ls --external=off "),
        ("h5dir ls data.h5:/ru", "h5dir ls data.h5:/run1/"),
        ("h5dir ls data.h5:/run1/te", "h5dir ls data.h5:/run1/temperature "),
        ("h5dir ls data.h5:/run1/s", "h5dir ls data.h5:/run1/sub/"),
        ("h5dir ls data.h5:/so", "h5dir ls data.h5:/soft/"),
        ("h5dir ls data.h5:/soft/", "h5dir ls data.h5:/soft/deep "),
        ("h5dir ls data.h5:/now", "h5dir ls data.h5:/nowhere "),
        ("h5dir ls data.h5:/na", "h5dir ls data.h5:/naïve "),
        ("h5dir ls data.h5:/bad", "h5dir ls data.h5:/bad"),
        ("h5dir ls data.h5:/run1/tw", "h5dir ls data.h5:/run1/two\\ words "),
        ("h5dir cat data.h5:/mask data.h5:/run1/te", "h5dir cat data.h5:/mask data.h5:/run1/temperature "),
        ("h5dir cat data.h5:/.h5dir/REA", "h5dir cat data.h5:/.h5dir/README "),
        ("h5dir mount data.h5:/ma", "h5dir mount data.h5:/ma"),
        ("h5dir diff data.h5:/mask data.h5:/run1/te", "h5dir diff data.h5:/mask data.h5:/run1/temperature "),
        ("h5dir cp data.h5:/ma", "h5dir cp data.h5:/mask "),
        ("h5dir attr get data.h5:/run1/temperature un", "h5dir attr get data.h5:/run1/temperature units "),
        ("h5dir find data.h5 -maxd", "h5dir find data.h5 -maxdepth "),
        ("h5dir ls ./data.h5:/run1/te", "h5dir ls ./data.h5:/run1/temperature "),
        ("h5dir ls my\\ file.h5:/on", "h5dir ls my\\ file.h5:/only "),
        ("h5dir ls ~/data.h5:/run1/te", "h5dir ls ~/data.h5:/run1/temperature "),
        ("h5dir check et", "h5dir check etc/"),
        ("h5dir ls iod:runs:/ma", "h5dir ls iod:runs:/mask "),
        ("h5dir iod log iod:ru", "h5dir iod log iod:runs/"),
        ("h5dir mount --config etc/config.yaml --name ni", "h5dir mount --config etc/config.yaml --name nightly "),
        (f"h5dir umount {point[:-1]}", f"h5dir umount {point} "),
        (f"h5dir status {point[:-1]}", f"h5dir status {point} "),
        # Nothing: damaged and missing files, pipes, URLs.
        ("h5dir ls torn.h5:/", "h5dir ls torn.h5:/"),
        ("h5dir ls none.h5:/", "h5dir ls none.h5:/"),
        ("h5dir ls pipe:/", "h5dir ls pipe:/"),
        ("h5dir ls s3://bucket/", "h5dir ls s3://bucket/"),
        ("h5dir ls http://127.0.0.1:1/x.h5:/", "h5dir ls http://127.0.0.1:1/x.h5:/"),
        ("h5dir ls iod+s3://bucket/p:/", "h5dir ls iod+s3://bucket/p:/"),
        ("h5dir ls data.h5:/none/", "h5dir ls data.h5:/none/"),
        ("h5dir ls data.h5:/mask/", "h5dir ls data.h5:/mask/"),
    ]


def in_shell(t, name, shell, folder, point):
    for line, wanted in lines(point):
        if name == "fish" and line.startswith("h5dir find"):
            # fish takes candidates with one dash for letters.
            continue
        t.equal(shell.tab(line), wanted, f"{name}: {line}")
    quote = shell.tab("h5dir ls \"my file.h5:/on")
    t.check(quote.startswith("h5dir ls \"my file.h5:/only"), f"{name}: {quote}")
    # A name is inserted as a word, which the shell does not run.
    hostile = shell.tab("h5dir stat data.h5:/\\$")
    argument = hostile.removeprefix("h5dir stat ").strip()
    kind = name.split("-")[0]
    said = subprocess.run([kind, "-c", f"printf %s {argument}"], cwd=folder, stdout=subprocess.PIPE, check=True).stdout
    t.equal(said.decode(), f"data.h5:/{HOSTILE}", f"{name}: {hostile}")
    t.check(not os.path.exists(f"{folder}/pwned"), f"{name}: the name was run")
    # A file is not the end of the word.
    t.equal(shell.tab("h5dir ls dat"), "h5dir ls data.h5", f"{name}: a file")


def protocol(t, options, folder):
    """Limits, and what reaches the shell."""

    def ask(*words, **more):
        environment = {**os.environ, "COMPLETE": "bash", "_CLAP_COMPLETE_INDEX": str(len(words) - 1), **more}
        done = subprocess.run([options.bin, "--", *words], cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
        t.equal((done.returncode, done.stderr), (0, b""), f"{words}: status and messages")
        return done.stdout.decode().splitlines()

    t.equal(ask("h5dir", "ls", "data.h5:/run1/"), ["data.h5:/run1/sub/", "data.h5:/run1/temperature", "data.h5:/run1/two words"], "a group")
    t.equal(ask("h5dir", "ls", "data.h5"), ["data.h5", "data.h5:/"], "a file")
    t.check("data.h5:/run1/" in ask("h5dir", "ls", "data.h5:"), "the slash follows")
    wide = ask("h5dir", "ls", "wide.h5:/wide/")
    t.check(0 < len(wide) <= 4096 and len(set(wide)) == len(wide), f"a wide group: {len(wide)}")
    t.equal(ask("h5dir", "ls", "wide.h5:/wide/g1999"), [f"wide.h5:/wide/g1999{i}/" for i in range(10)], "the end of a wide group")
    t.equal(ask("h5dir", "config", "show", "--config", "etc/config.yaml", ""), ["nightly", "weekly"], "names of the configuration")
    for words in [("ls", "torn.h5:/"), ("ls", "none.h5:/"), ("cat", "pipe:/"), ("ls", "s3://b/"), ("check", "http://h/"), ("umount", "/none")]:
        t.equal(ask("h5dir", *words), [], f"{words}")
    # A variable of that name is no request.
    done = subprocess.run([options.bin, "ls", "data.h5"], cwd=folder, env={**os.environ, "COMPLETE": "bash"}, capture_output=True)
    t.check(done.returncode == 0 and b"run1" in done.stdout, "COMPLETE in the environment")
    # Nothing is left behind: no mount, no journal, no file.
    t.check(not any(name.startswith(".") or "journal" in name for name in os.listdir(folder)), "files left behind")


def main():
    options = harness.arguments(__doc__)
    t = harness.Tally()
    with harness.folder(options.keep) as folder:
        folder = os.path.realpath(folder)
        make(folder)
        subprocess.run([options.bin, "cp", "-r", "data.h5", "iod:runs"], cwd=folder, check=True, capture_output=True)
        for name in ("bash", "zsh", "fish"):
            assert shutil.which(name), f"install {name}"
        all_shells = shells(options, folder)
        shutil.copy(f"{folder}/data.h5", f"{folder}/home/data.h5")
        with harness.mounted(options.bin, f"{folder}/data.h5") as point:
            protocol(t, options, folder)
            for name, (argv, setup, environment) in all_shells.items():
                shell = Shell(argv, setup, folder, environment)
                try:
                    in_shell(t, name, shell, folder, point)
                finally:
                    shell.close()
    t.finish()


if __name__ == "__main__":
    main()
