"""Transactions of containers, through mounts: peers of one version, kills, aborts, dependencies, conflicts."""
import contextlib
import errno
import glob
import mmap
import os
import random
import re
import signal
import stat
import subprocess
import threading
import time

import numpy

import harness

PEERS = 4


def run(options, *arguments):
    return subprocess.run([options.bin, *arguments], capture_output=True, text=True, timeout=120)


def write(path, data, offset=0):
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        os.pwrite(fd, data, offset)
        os.fsync(fd)
    finally:
        os.close(fd)


def create(options, path):
    """A container with a file of 4000 bytes that all peers write to."""
    done = run(options, "create", "iod:" + path)
    assert done.returncode == 0, done.stderr
    with harness.mounted(options.bin, "iod:" + path, "--read-write") as mount:
        write(os.path.join(mount, "shared"), b"-" * 4000)
    return "iod:" + path


def peer(options, container, transaction):
    """A mount whose changes are the part of a peer."""
    return harness.mounted(options.bin, container, "--read-write", "--commit-interval=0.05", "--transaction", transaction)


def order(mount, name, word):
    """Writes a word to the control file; returns the errno."""
    try:
        with open(os.path.join(mount, ".h5dir/tx", name, "control"), "w") as f:
            f.write(word + "\n")
    except OSError as e:
        return e.errno
    return 0


def state(options, container, name):
    done = run(options, "tx", "status", container, name)
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


def content(options, container):
    """Names and the shared file of the newest version."""
    with harness.mounted(options.bin, container) as mount:
        return sorted(os.listdir(mount)), harness.read(os.path.join(mount, "shared"))


def daemons(mount):
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            words = open(path, "rb").read().split(b"\0")
        except OSError:
            continue
        if mount.encode() in words and b"mount" in words:
            yield int(path.split("/")[2])


def watch(options, container, names, stop, seen, tally):
    """Opens the newest version again and again: each shows nothing or everything of the transaction."""
    while not stop.is_set():
        listed = set(run(options, "ls", container).stdout.split())
        found = {name for name in names if any(name in word for word in listed)}
        part = run(options, "cat", container + ":/shared").stdout.strip("-\n")
        tally.check(found in (set(), set(names)), f"a part of a transaction is visible: {found}")
        tally.check(bool(part) or not found, "names without bytes")
        seen.append(len(found))


def peers(options, tally, folder):
    """Four mounts are peers; a reader polls meanwhile."""
    container = create(options, os.path.join(folder, "peers"))
    done = run(options, "tx", "begin", "--peers", str(PEERS), container, "step1")
    tally.equal(done.returncode, 0, f"tx begin: {done.stderr}")
    names = [f"of-{k}" for k in range(PEERS)]
    stop, seen = threading.Event(), []
    with contextlib.ExitStack() as stack:
        mounts = [stack.enter_context(peer(options, container, "step1")) for _ in range(PEERS)]
        watcher = threading.Thread(target=watch, args=(options, container, names, stop, seen, tally))
        watcher.start()
        try:
            for k, mount in enumerate(mounts):
                write(os.path.join(mount, f"of-{k}"), b"%d" % k * 30000)
                write(os.path.join(mount, "shared"), b"%d" % k * 1000, 1000 * k)
                tally.check(f"of-{k}" in os.listdir(mount), "a peer sees its part")
            time.sleep(0.2)
            tally.equal(content(options, container), (["shared"], b"-" * 4000), "fsync in a transaction publishes nothing")
            for k, mount in enumerate(mounts):
                tally.equal(state(options, container, "step1")["state"], "open", f"the state before peer {k} finished")
                tally.equal(order(mount, "step1", "finish"), 0, f"finish of peer {k}")
                try:
                    write(os.path.join(mount, "late"), b"x")
                    # The last peer shows the version that it committed.
                    tally.check(False, "a finished part was changed")
                except OSError as e:
                    tally.equal(e.errno, errno.EROFS, "a change after finish")
            tally.equal(order(mounts[0], "step1", "abort"), errno.EALREADY, "abort of a committed transaction")
            time.sleep(0.2)
        finally:
            stop.set()
            watcher.join()
    tally.check(seen and seen[0] == 0 and seen[-1] == PEERS, f"the watcher saw the time before and after: {seen}")
    status = state(options, container, "step1")
    tally.equal((status["state"], status["finished"]), ("committed", "1 2 3 4"), "the state of a committed transaction")
    log = run(options, "iod", "log", container).stdout
    tally.equal(log.count("step1"), 1, f"one version publishes it: {log}")
    want = b"".join(b"%d" % k * 1000 for k in range(PEERS))
    tally.equal(content(options, container), (sorted([*names, "shared"]), want), "all parts")


def kills(options, tally, folder):
    """kill -9 of a peer before it finished: nothing is visible, another mount takes its place, or aborts."""
    for name in ("again", "aborted"):
        container = create(options, os.path.join(folder, "killed-" + name))
        with peer(options, container, name + ",peers=2") as first:
            write(os.path.join(first, "of-first"), b"1" * 5000)
            point = os.path.join(folder, "dead-" + name)
            os.makedirs(point, exist_ok=True)
            mount = ["mount", "--read-write", "--transaction", name, container, point]
            subprocess.run([options.bin, *mount], check=True, timeout=60)
            write(os.path.join(point, "of-dead"), b"2" * 5000)
            tally.equal(order(first, name, "finish"), 0, "finish beside a peer that is killed later")
            for pid in daemons(point):
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.2)
            subprocess.run(["umount", "-l", point], capture_output=True)
            tally.equal(content(options, container)[0], ["shared"], "nothing is visible after a kill")
            done = run(options, "tx", "finish", container, name)
            tally.check(done.returncode != 0 and "peers 2" in done.stderr, f"finish without the killed peer: {done.stderr}")
            full = run(options, *mount)
            tally.check(full.returncode != 0 and "all 2 peers" in full.stderr, f"a third peer: {full.stderr}")
            if name == "again":
                with peer(options, container, name + ",peer=2") as second:
                    write(os.path.join(second, "of-second"), b"3")
                    tally.equal(order(second, name, "finish"), 0, "finish in place of a killed peer")
                want = ["of-first", "of-second", "shared"]
            else:
                done = run(options, "tx", "abort", container, name)
                tally.equal(done.returncode, 0, f"abort by another process: {done.stderr}")
                tally.equal(order(first, name, "finish"), errno.ECANCELED, "finish of an aborted transaction")
                want = ["shared"]
        tally.equal(content(options, container)[0], want, f"names of {name}")


def unfinished(options, tally, folder):
    """Unmounting a peer that was not finished drops its changes, and says so."""
    container = create(options, os.path.join(folder, "unfinished"))
    point = os.path.join(folder, "u")
    os.makedirs(point, exist_ok=True)
    for number, (changed, ended) in enumerate([(False, False), (True, False), (True, True)]):
        name = f"t{number}"
        subprocess.run([options.bin, "mount", "--read-write", "--transaction", name, container, point], check=True, timeout=60)
        if changed:
            write(os.path.join(point, "dropped"), b"1")
        if ended:
            tally.equal(order(point, name, "abort"), 0, "abort")
        done = run(options, "umount", point)
        lost = changed and not ended
        tally.check((done.returncode != 0) == lost and ("could not be written" in done.stderr) == lost, f"{changed}, {ended}: {done}")
        tally.check(not os.path.ismount(point), "it is unmounted")


def killed_commits(options, tally, folder):
    """kill -9 of the last peer while it commits: any other process ends the transaction, by what is stored."""
    rng, ends = random.Random(options.seed), set()
    for number in range(60 if os.environ.get("H5DIR_LONG") else 3):
        container = create(options, os.path.join(folder, f"committing{number}"))
        point = os.path.join(folder, f"c{number}")
        os.makedirs(point, exist_ok=True)
        with peer(options, container, "t,peers=2") as first:
            write(os.path.join(first, "of-first"), b"1" * 5000)
            tally.equal(order(first, "t", "finish"), 0, "finish of the first peer")
            subprocess.run([options.bin, "mount", "--read-write", "--transaction", "t", container, point], check=True, timeout=60)
            write(os.path.join(point, "of-last"), b"2" * 5000)
            killed = list(daemons(point))
            last = threading.Thread(target=order, args=(point, "t", "finish"))
            last.start()
            time.sleep(rng.random() * 0.03)
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
            last.join()
            subprocess.run(["umount", "-l", point], capture_output=True)
            visible = content(options, container)[0]
            tally.check(visible in (["shared"], ["of-first", "of-last", "shared"]), f"names after a kill: {visible}")
            found = state(options, container, "t")["state"]
            ends.add(found)
            if found == "open":
                tally.equal(order(first, "t", "abort"), 0, "abort after a kill")
                tally.equal((content(options, container)[0], visible), (["shared"],) * 2, "names after an abort")
            else:
                done = run(options, "tx", "finish", container, "t")
                tally.equal(done.returncode, 0, f"finish by another process: {done.stderr}")
                tally.equal(content(options, container)[0], ["of-first", "of-last", "shared"], "names after the finish")
                tally.equal(state(options, container, "t")["state"], "committed", "the state after the finish")
            tally.check(run(options, "iod", "log", container).stdout.count("transaction t") <= 1, "it is committed once")
    print("states after kills:", *sorted(ends))


def dependencies(options, tally, folder):
    container = create(options, os.path.join(folder, "after"))
    run(options, "tx", "begin", container, "one")
    with peer(options, container, "two,after=one") as two, peer(options, container, "one") as one:
        write(os.path.join(two, "of-two"), b"2")
        write(os.path.join(one, "of-one"), b"1")
        tally.equal(order(two, "two", "finish"), errno.EAGAIN, "finish before a transaction that it waits for")
        write(os.path.join(two, "more"), b"2")
        tally.equal(order(one, "one", "finish"), 0, "finish of the first")
        tally.equal(order(two, "two", "finish"), 0, "finish of the second")
        tally.check("which has not ended" in harness.read(os.path.join(two, ".h5dir/log")).decode(), "the reason is in the log")
    tally.equal(content(options, container)[0], ["more", "of-one", "of-two", "shared"], "both transactions")
    done = run(options, "tx", "skip", container, "three")
    tally.equal(done.returncode, 0, f"skip: {done.stderr}")
    with peer(options, container, "four,after=three") as four:
        tally.equal(order(four, "four", "nonsense"), errno.EINVAL, "an unknown word")
        tally.equal(order(four, "four", "finish"), 0, "finish after one that was skipped")
        names = sorted(os.listdir(os.path.join(four, ".h5dir/tx")))
        tally.equal(names, ["four", "one", "three", "two"], "the directory of transactions")
        tally.check("state committed" in harness.read(os.path.join(four, ".h5dir/tx/four/status")).decode(), "status")
        tally.check(not os.path.exists(os.path.join(four, ".h5dir/tx/five")), "a transaction that is not there")
    listed = run(options, "tx", "list", container).stdout.splitlines()
    tally.equal(listed, ["four committed", "one committed", "three skipped", "two committed"], "tx list")


def conflicts(options, tally, folder):
    """Peers that write the same elements, and a commit of another writer since the base."""
    container = create(options, os.path.join(folder, "conflicts"))
    with peer(options, container, "both,peers=2") as a, peer(options, container, "both") as b:
        write(os.path.join(a, "shared"), b"a" * 10)
        write(os.path.join(b, "shared"), b"b" * 10, 5)
        write(os.path.join(b, "of-b"), b"b")
        tally.equal(order(a, "both", "finish"), 0, "the first of two that conflict")
        tally.equal(order(b, "both", "finish"), errno.ECANCELED, "the second of two that conflict")
    reason = state(options, container, "both")
    tally.check(reason["state"] == "aborted" and "conflict at /shared with peer 2" in reason["reason"], f"the reason: {reason}")
    with peer(options, container, "late") as late, harness.mounted(options.bin, container, "--read-write") as other:
        os.setxattr(os.path.join(late, "shared"), "user.title", b"late")
        write(os.path.join(late, "of-late"), b"l")
        os.setxattr(os.path.join(other, "shared"), "user.title", b"other")
        write(os.path.join(other, "of-other"), b"o")
        tally.equal(order(late, "late", "finish"), errno.ECANCELED, "a conflict with a later version")
    reason = state(options, container, "late").get("reason", "")
    tally.check('attribute "title" of /shared with version' in reason, f"the reason: {reason}")
    tally.equal(content(options, container), (["of-other", "shared"], b"-" * 4000), "nothing of refused transactions")
    h5 = os.path.join(folder, "plain.h5")
    run(options, "create", h5)
    for arguments, text in [
        (["--transaction", "t", container], "needs --read-write"),
        (["--read-write", "--transaction", "T", container], "is no name of a transaction"),
        (["--read-write", "--transaction", "t", h5], "only containers in object stores"),
    ]:
        done = run(options, "mount", *arguments, folder)
        tally.check(done.returncode != 0 and text in done.stderr, f"{arguments}: {done.stderr}")


def errno_of(action, *arguments):
    try:
        action(*arguments)
    except OSError as e:
        return e.errno
    return 0


def directories(options, tally, folder):
    """mkdir begins a transaction of one peer on the newest version; its name is never used again."""
    container = create(options, os.path.join(folder, "directories"))
    with harness.mounted(options.bin, container, "--read-write") as mount:
        newest = int(run(options, "iod", "log", container).stdout.split()[0])
        at = os.path.join(mount, ".h5dir/tx")
        os.mkdir(os.path.join(at, "step"))
        tally.equal(os.listdir(at), ["step"], "the directory of the transaction")
        tally.equal(sorted(os.listdir(os.path.join(at, "step"))), ["control", "status", "tree"], "its files")
        begun = state(options, container, "step")
        tally.equal([begun[key] for key in ("state", "base", "peers", "after")], ["open", str(newest), "1", "none"], "its state")
        tally.equal(errno_of(os.mkdir, os.path.join(at, "step")), errno.EEXIST, "another one of the name")
        for name in ("Step", "a b", "x" * 65, "\udcff"):
            tally.equal(errno_of(os.mkdir, os.path.join(at, name)), errno.EINVAL, f"the name {name!a}")
        tally.equal(errno_of(os.mkdir, os.path.join(at, "step/below")), errno.EPERM, "a directory in it")
        tally.equal(errno_of(os.rmdir, os.path.join(at, "step")), errno.EPERM, "removal")
        tally.equal(errno_of(open, os.path.join(at, "file"), "w"), errno.EPERM, "a file beside it")
        with peer(options, container, "step") as other:
            write(os.path.join(other, "of-step"), b"1")
            tally.equal(order(other, "step", "finish"), 0, "finishing it")
        tally.equal(state(options, container, "step")["state"], "committed", "the state after it")
        os.mkdir(os.path.join(at, "dropped"))
        tally.equal(order(mount, "dropped", "abort"), 0, "aborting another one")
        tally.equal(errno_of(os.mkdir, os.path.join(at, "dropped")), errno.EEXIST, "the name of an aborted one")
    tally.equal(content(options, container)[0], ["of-step", "shared"], "what it published")
    with harness.mounted(options.bin, container) as mount:
        tally.check(errno_of(os.mkdir, os.path.join(mount, ".h5dir/tx/more")) in (errno.EROFS, errno.ENOENT), "a read-only mount")


def later(read, wanted):
    """What `read` returns, repeated until it is `wanted` or some seconds are over: the kernel caches names."""
    for _ in range(400):
        found = read()
        if found == wanted:
            break
        time.sleep(0.05)
    return found


def trees(options, tally, folder):
    """`.h5dir/tx/NAME/tree`: a mount takes part in several transactions, and publishes each as a whole."""
    container = create(options, os.path.join(folder, "trees"))
    numbers = numpy.arange(300_000, dtype="<i4")
    with harness.mounted(options.bin, container, "--read-write") as mount, harness.mounted(options.bin, container, "--read-write") as other:
        for name in ("one", "two"):
            os.mkdir(os.path.join(mount, ".h5dir/tx", name))
        at, two = (os.path.join(mount, ".h5dir/tx", name, "tree") for name in ("one", "two"))
        subprocess.run(["ls", "-lR", at], check=True, capture_output=True)
        tally.equal((sorted(os.listdir(at)), harness.read(os.path.join(at, "shared"))), (["shared"], b"-" * 4000), "the base")
        tally.equal(state(options, container, "one")["joined"], "none", "reading takes no place")
        # All that a mount can do: files, directories, links, attributes, views, mappings, holes.
        os.makedirs(os.path.join(at, "a/b"))
        write(os.path.join(at, "a/b/raw"), b"first")
        os.rename(os.path.join(at, "a/b/raw"), os.path.join(at, "a/moved"))
        os.link(os.path.join(at, "a/moved"), os.path.join(at, "second"))
        os.symlink("a/moved", os.path.join(at, "soft"))
        os.setxattr(os.path.join(at, "a"), "user.title", b"a group")
        numpy.save(os.path.join(at, ".h5dir/npy/numbers.npy"), numbers)
        with open(os.path.join(at, "a/moved"), "r+b") as f, mmap.mmap(f.fileno(), 5) as mapped:
            mapped[0:5] = b"FIRST"
            mapped.flush()
        with open(os.path.join(at, "sparse"), "wb") as f:
            f.truncate(64 << 20)
            os.pwrite(f.fileno(), b"x", 32 << 20)
        write(os.path.join(two, "of-two"), b"2")
        os.remove(os.path.join(two, "shared"))
        shown = ["a", "numbers", "second", "shared", "soft", "sparse"]
        tally.equal(sorted(os.listdir(at)), shown, "names in the tree")
        tally.equal((harness.read(os.path.join(at, "soft")), os.stat(os.path.join(at, "second")).st_nlink), (b"FIRST", 2), "links in the tree")
        tally.equal((os.stat(os.path.join(at, "second")).st_ino, os.path.samefile(at, mount)), (os.stat(os.path.join(at, "a/moved")).st_ino, False),
                    "inode numbers of hard links")
        inodes = [line.split() for line in subprocess.run(["find", mount, at, two, "-printf", "%i %y %n\n"], capture_output=True, text=True,
                                                          check=True).stdout.splitlines()]
        single = [inode for inode, _, links in inodes if links == "1"]
        tally.equal(len(single), len(set(single)), "each file has its own inode number")
        tally.equal(sorted(os.listdir(two)), ["of-two"], "names in the other tree")
        tally.equal((os.listdir(mount), sorted(os.listdir(other))), (["shared"], ["shared"]), "nothing is published")
        tally.equal([errno_of(os.rename, os.path.join(at, "second"), os.path.join(mount, "x")), errno_of(os.link, os.path.join(two, "of-two"),
                     os.path.join(at, "x")), errno_of(os.rename, os.path.join(mount, "shared"), os.path.join(two, "x"))], [errno.EXDEV] * 3,
                    "names between trees")
        subprocess.run(["cp", "-a", os.path.join(at, "a"), two], check=True)
        tally.equal((harness.read(os.path.join(two, "a/moved")), os.getxattr(os.path.join(two, "a"), "user.title")), (b"FIRST", b"a group"),
                    "a copy between trees")
        tally.equal([errno_of(os.rmdir, at), errno_of(os.rename, at, os.path.join(mount, "x"))], [errno.EPERM, errno.EXDEV], "the tree itself")
        here = os.open(at, os.O_RDONLY | os.O_DIRECTORY)
        tally.equal(order(mount, "one", "finish"), 0, "finishing it")
        tally.equal(later(lambda: sorted(os.listdir(mount)), shown), shown, "what it published, in the mount")
        published = numpy.load(os.path.join(mount, ".h5dir/npy/numbers.npy"))
        tally.check(numpy.array_equal(published, numbers), "elements that it published")
        tally.equal((harness.read(os.path.join(mount, "soft")), os.getxattr(os.path.join(mount, "a"), "user.title")), (b"FIRST", b"a group"),
                    "links and attributes that it published")
        with open(os.path.join(mount, "sparse"), "rb") as f:
            tally.check(os.lseek(f.fileno(), 0, os.SEEK_DATA) > 0, "holes that it published")
        tally.equal(later(lambda: sorted(os.listdir(other)), shown), shown, "what it published, elsewhere")
        tally.equal(errno_of(lambda: os.mkdir("late", dir_fd=here)), errno.EROFS, "a change after the end")
        os.close(here)
        tally.equal(later(lambda: os.path.exists(at), False), False, "its tree after the end")
        tally.equal(state(options, container, "one")["state"], "committed", "its state")
        tally.equal(order(mount, "two", "abort"), 0, "aborting the other one")
        tally.equal(later(lambda: os.path.exists(two), False), False, "an aborted tree")
    tally.equal(content(options, container)[0], shown, "what is there afterwards")


def trees_of_peers(options, tally, folder):
    """Two mounts publish together by their trees; a third one has no place."""
    container = create(options, os.path.join(folder, "peers-of-trees"))
    run(options, "tx", "begin", "--peers", "2", container, "both")
    with contextlib.ExitStack() as stack:
        mounts = [stack.enter_context(harness.mounted(options.bin, container, "--read-write")) for _ in range(3)]
        roots = [os.path.join(mount, ".h5dir/tx/both/tree") for mount in mounts]
        for n in range(2):
            write(os.path.join(roots[n], f"of-{n}"), b"%d" % n)
            write(os.path.join(roots[n], "shared"), b"%d" % n, 100 * n)
        tally.equal(errno_of(write, os.path.join(roots[2], "shared"), b"2"), errno.EBUSY, "a third peer")
        tally.equal(harness.read(os.path.join(roots[2], "shared")), b"-" * 4000, "reading by a third one")
        tally.equal(order(mounts[0], "both", "finish"), 0, "the first finishes")
        tally.equal(errno_of(write, os.path.join(roots[0], "of-0"), b"!"), errno.EROFS, "a change by a peer that finished")
        tally.equal(sorted(os.listdir(roots[0])), ["of-0", "shared"], "what it shows until the other one finishes")
        tally.equal(order(mounts[2], "both", "finish"), errno.EAGAIN, "finishing elsewhere")
        tally.equal(order(mounts[1], "both", "finish"), 0, "the second finishes")
    names, shared = content(options, container)
    tally.equal((names, shared[:1], shared[100:101]), (["of-0", "of-1", "shared"], b"0", b"1"), "one version of both")


def many_trees(options, tally, folder):
    """Trees of ended transactions are dropped: a mount takes part in any number, one after another."""
    container = create(options, os.path.join(folder, "many"))
    with harness.mounted(options.bin, container, "--read-write") as mount:
        for n in range(80):
            run(options, "tx", "begin", container, f"unopened-{n}")
        subprocess.run(["ls", "-lR", os.path.join(mount, ".h5dir/tx")], check=True, capture_output=True)
        for n in range(80):
            os.mkdir(os.path.join(mount, f".h5dir/tx/t{n}"))
            write(os.path.join(mount, f".h5dir/tx/t{n}/tree/file"), b"%02d" % n)
            tally.equal(order(mount, f"t{n}", "finish"), 0, f"transaction {n}")
        tally.equal(later(lambda: harness.read(os.path.join(mount, "file")), b"79"), b"79", "the last one")
    tally.equal(content(options, container)[0], ["file", "shared"], "what is there afterwards")


def left_trees(options, tally, folder):
    """A mount that ends with changes in trees says so for each, and their places are free."""
    container, point = create(options, os.path.join(folder, "left-trees")), os.path.join(folder, "left")
    os.mkdir(point)
    log = os.path.join(folder, "left.log")
    run(options, "mount", container, point, "--read-write", "--log-file", log)
    try:
        for name in ("left", "behind"):
            os.mkdir(os.path.join(point, ".h5dir/tx", name))
            write(os.path.join(point, ".h5dir/tx", name, "tree/lost"), b"1")
    finally:
        done = run(options, "umount", point)
    said = harness.read(log).decode().splitlines()[-1]
    # Regression: one of several errors was reported.
    tally.equal((done.returncode, "of transaction left" in said, "of transaction behind" in said), (1, True, True),
                f"unmounting with changes in trees: {said}")
    # Regression: a command took the only place, and dropped what it wrote.
    done = run(options, "cp", __file__, container + ":/.h5dir/tx/left/tree/copy")
    tally.equal((done.returncode != 0, state(options, container, "left")["joined"]), (True, "none"), f"cp into a tree: {done.stderr}")
    # Regression: the place was taken for ever.
    with harness.mounted(options.bin, container, "--read-write") as mount:
        tree = os.path.join(mount, ".h5dir/tx/left/tree")
        # Regression: a file without a name was published when it was open.
        with open(os.path.join(tree, "gone"), "w+b") as f:
            f.write(b"x" * 300_000)
            f.flush()
            os.remove(os.path.join(tree, "gone"))
            write(os.path.join(tree, "kept"), b"2")
            tally.equal(order(mount, "left", "finish"), 0, "finishing what another mount left")
            f.seek(0)
            tally.equal(f.read(), b"x" * 300_000, "an open file without a name")
    done = run(options, "check", container)
    tally.equal(done.returncode, 0, f"check: {done.stdout} {done.stderr}")
    tally.equal(content(options, container)[0], ["kept", "shared"], "what is there afterwards")


def ends_elsewhere(options, tally, folder):
    """The tree of a transaction goes when it ends, whoever ended it."""
    container = create(options, os.path.join(folder, "elsewhere"))
    with harness.mounted(options.bin, container, "--read-write", "--entry-timeout=60") as mount:
        os.chmod(mount, 0o700)
        write(os.path.join(mount, "shared"), b"-")
        trees = {name: os.path.join(mount, ".h5dir/tx", name, "tree") for name in ("read", "written", "skipped")}
        for name in trees:
            os.mkdir(os.path.join(mount, ".h5dir/tx", name))
        os.chmod(mount, 0o755)
        # Regression: permissions were those of the newest version until the tree was opened.
        tally.equal({stat.S_IMODE(os.stat(tree).st_mode) for tree in trees.values()}, {0o700}, "the mode of the group in the base")
        tally.equal([os.listdir(tree) for tree in trees.values()], [["shared"]] * 3, "what they show")
        tally.check(not os.path.exists(os.path.join(trees["read"], ".h5dir/tx")), "transactions within a tree")
        write(os.path.join(trees["written"], "lost"), b"1")
        write(os.path.join(trees["skipped"], "lost"), b"1")
        here = os.open(trees["written"], os.O_RDONLY | os.O_DIRECTORY)
        with peer(options, container, "read") as other:
            write(os.path.join(other, "published"), b"1")
            tally.equal(order(other, "read", "finish"), 0, "finishing it elsewhere")
        run(options, "tx", "abort", container, "written")
        run(options, "tx", "skip", container, "skipped")
        tally.equal(order(mount, "skipped", "finish"), errno.ECANCELED, "finishing a skipped one")
        for name, tree in trees.items():
            tally.equal(later(lambda tree=tree: os.path.exists(tree), False), False, f"the tree of {name}")
        tally.equal(errno_of(lambda: os.mkdir("late", dir_fd=here)), errno.EROFS, "a change after it was aborted")
        os.close(here)
        # Regression: trees that were only read were kept for ever. The kernel keeps some for names that were looked up late.
        status = lambda: re.search(r"open_trees (\d+)", harness.read(os.path.join(mount, ".h5dir/status")).decode())[1]
        for n in range(70):
            run(options, "tx", "begin", container, f"r{n}")
            os.listdir(os.path.join(mount, f".h5dir/tx/r{n}/tree"))
            run(options, "tx", "abort", container, f"r{n}")
        tally.check(later(lambda: int(status()) <= 3, True), f"{status()} trees are kept")
    tally.equal(content(options, container)[0], ["published", "shared"], "what is there afterwards")


def main():
    options, tally = harness.arguments(__doc__), harness.Tally()
    with harness.folder(options.keep) as folder:
        for part in (peers, kills, unfinished, killed_commits, dependencies, conflicts, directories, trees, trees_of_peers, many_trees, left_trees, ends_elsewhere):
            part(options, tally, folder)
    tally.finish()


if __name__ == "__main__":
    main()
