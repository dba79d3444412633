"""A Ceph cluster in one folder of this machine: a monitor, a manager, three OSDs on files, and radosgw.

Debian packages: ceph-mon ceph-mgr ceph-osd radosgw ceph-common. `stages` has the seconds of each step."""

import contextlib
import os
import signal
import subprocess
import time
import uuid

import servers

OSDS = 3
PROGRAMS = ("ceph", "ceph-authtool", "ceph-mgr", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin")

# Replicas may be on OSDs of one host (chooseleaf type 0). Without tcp_nodelay a GET takes 40 ms more.
CONFIGURATION = """
[global]
fsid = {fsid}
mon host = {address}
public network = 127.0.0.0/8
cluster network = 127.0.0.0/8
keyring = {folder}/keyring
run dir = {folder}/run
admin socket = {folder}/run/$name.sock
pid file = {folder}/run/$name.pid
log file = {folder}/log/$name.log
osd pool default size = 3
osd pool default min size = 2
osd pool default pg num = 8
osd pool default pgp num = 8
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
osd memory target = 939524096
bluestore block size = 4294967296
mon allow pool size one = true
mon data avail warn = 2
mon data avail crit = 1
mon osd down out interval = 600
osd heartbeat interval = 2
osd heartbeat grace = 6

[mon.a]
host = localhost
mon data = {folder}/mon

[mgr.x]
mgr data = {folder}/mgr

[osd]
osd data = {folder}/osd$id

[client.rgw.a]
rgw frontends = beast endpoint=127.0.0.1:{port} tcp_nodelay=1
rgw data = {folder}/rgw
"""


def missing():
    """Programs that are not installed."""
    import shutil
    return [name for name in PROGRAMS if shutil.which(name) is None]


class Cluster(servers.S3):
    """A running cluster; its gateway is the S3 server."""

    def __init__(self, folder):
        super().__init__(servers.free_port())
        self.folder, self.stages, self.daemons = folder, [], {}
        self.began = time.monotonic()
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    def run(self, *command, timeout=120):
        done = subprocess.run(command, env={**os.environ, "CEPH_CONF": self.configuration}, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=timeout)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr[-600:]}")
        return done.stdout

    def spawn(self, name, *command):
        """Starts a daemon in the foreground."""
        with open(os.path.join(self.folder, "log", name + ".out"), "ab") as log:
            self.daemons[name] = subprocess.Popen([*command, "-f"], env={**os.environ, "CEPH_CONF": self.configuration},
                                                  stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def note(self, stage):
        self.stages.append((stage, time.monotonic() - self.began))

    def start(self):
        for name in ("mgr", "run", "log", "rgw"):
            os.makedirs(os.path.join(self.folder, name))
        fsid, keyring, monmap = str(uuid.uuid4()), os.path.join(self.folder, "keyring"), os.path.join(self.folder, "monmap")
        address = f"[v2:127.0.0.1:{servers.free_port()},v1:127.0.0.1:{servers.free_port()}]"
        self.configuration = os.path.join(self.folder, "ceph.conf")
        with open(self.configuration, "w") as f:
            f.write(CONFIGURATION.format(fsid=fsid, folder=self.folder, port=self.port, address=address))
        self.run("ceph-authtool", "--create-keyring", keyring, "--gen-key", "--name=mon.", "--cap", "mon", "allow *")
        self.run("ceph-authtool", keyring, "--gen-key", "--name=client.admin", *(w for d in ("mon", "osd", "mgr") for w in ("--cap", d, "allow *")))
        self.run("monmaptool", "--create", "--clobber", "--fsid", fsid, "--addv", "a", address, monmap)
        self.run("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap, "--keyring", keyring)
        self.spawn("mon.a", "ceph-mon", "-i", "a")
        self.run("ceph", "--connect-timeout", "60", "-s")
        self.note("monitor")
        self.key("mgr.x", "mgr", "mon", "allow profile mgr", "osd", "allow *", "mds", "allow *")
        self.spawn("mgr.x", "ceph-mgr", "-i", "x", "--keyring", self.keyring("mgr"))
        for number in range(OSDS):
            self.make_osd(number)
        servers.wait_for("an OSD", lambda: f"{OSDS} up" in self.run("ceph", "osd", "stat"), 120)
        self.note("OSDs")
        self.key("client.rgw.a", "rgw", "mon", "allow rwx", "osd", "allow rwx")
        self.spawn("rgw", "radosgw", "-n", "client.rgw.a", "--keyring", self.keyring("rgw"))
        servers.wait_for("radosgw", lambda: servers.answers(self.port), 180)
        self.run("radosgw-admin", "user", "create", "--uid=u", "--display-name=u", "--access-key=AK", "--secret-key=SK")
        self.make_bucket()
        self.note("gateway")

    def keyring(self, name):
        return os.path.join(self.folder, name, "keyring")

    def key(self, entity, folder, *capabilities):
        self.run("ceph", "auth", "get-or-create", entity, *capabilities, "-o", self.keyring(folder))

    def make_osd(self, number):
        ident, name = str(uuid.uuid4()), f"osd{number}"
        os.makedirs(os.path.join(self.folder, name))
        self.run("ceph", "osd", "new", ident)
        self.key(f"osd.{number}", name, "mon", "allow profile osd", "mgr", "allow profile osd", "osd", "allow *")
        self.run("ceph-osd", "-i", str(number), "--mkfs", "--osd-uuid", ident, "--keyring", self.keyring(name))
        self.start_osd(number)

    def start_osd(self, number):
        self.spawn(f"osd.{number}", "ceph-osd", "-i", str(number), "--keyring", self.keyring(f"osd{number}"))

    def kill_osd(self, number):
        self.daemons[f"osd.{number}"].kill()
        self.daemons[f"osd.{number}"].wait(30)

    def close(self):
        for name in reversed(self.daemons):
            daemon = self.daemons[name]
            if daemon.poll() is None:
                daemon.send_signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    daemon.wait(5)
            if daemon.poll() is None:
                daemon.kill()
                daemon.wait(30)
