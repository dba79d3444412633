# What a user who is not root does: FOLDER holds h5dir and the empty directory mnt.
set -eu
cd "$1"
# Where daemons are announced.
XDG_RUNTIME_DIR=$PWD/runtime
export XDG_RUNTIME_DIR
mkdir -m 700 "$XDG_RUNTIME_DIR"

# Also when something fails, no daemon is left that holds the caller's output open.
trap '[ -z "${daemon:-}" ] || kill -9 $daemon 2>said || :; fusermount3 -uzq mnt || :' EXIT

is_mounted() {
    grep -q " $PWD/mnt " /proc/self/mountinfo
}

fails() {
    if "$@" 2>said; then echo "done, and must not be: $*" >&2; exit 1; fi
}

# refused STATUS PATTERN COMMAND...
refused() {
    wanted=$1 pattern=$2 status=0
    shift 2
    "$@" 2>said || status=$?
    [ "$status" = "$wanted" ]
    grep -q "$pattern" said
}

# Serves in the foreground, until it is told to end.
mount_here() {
    ./h5dir mount -f "$@" f.h5 mnt & daemon=$!
    for _ in $(seq 400); do
        # Another file system is there, and it answers.
        if is_mounted && stat mnt/x >said 2>&1; then return; fi
        sleep 0.05
    done
    return 1
}

./h5dir create f.h5
./h5dir mount --read-write f.h5 mnt
echo hello >mnt/x
mkdir mnt/g
cp -a mnt/x mnt/g/y
setfattr -n user.note -v kept mnt/g/y
[ "$(stat -c '%u %a' mnt/x)" = "$(id -u) 644" ]
fails chown 0 mnt/x
refused 3 'another program has it open' ./h5dir mount --read-write f.h5 mnt
is_mounted
./h5dir umount mnt 2>said
[ ! -s said ]
fails is_mounted

# Others are let in only where /etc/fuse.conf says so.
if ! grep -qs '^user_allow_other' /etc/fuse.conf; then
    refused 4 user_allow_other ./h5dir mount --allow-other f.h5 mnt
fi

mount_here
[ "$(cat mnt/x)" = hello ]
[ "$(getfattr --only-values -n user.note mnt/g/y)" = kept ]
fails touch mnt/z
kill $daemon
wait $daemon
fails is_mounted

# A daemon that was killed leaves a dead mount, over which the next one mounts; what was closed is there.
mount_here --read-write --commit-on-close
echo more >mnt/z
kill -9 $daemon
wait $daemon 2>said || [ $? = 137 ]
./h5dir mount f.h5 mnt
[ "$(cat mnt/z)" = more ]
./h5dir umount mnt
fails is_mounted
daemon=
