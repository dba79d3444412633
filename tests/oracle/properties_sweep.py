"""Creation properties of objects: `user.h5dir.object_create_plist` of mounts against H5Pencode2 of libhdf5, in HDF5 files, in
containers in a folder, and in files copied back from them."""
import ctypes
import errno
import glob
import os
import shutil
import subprocess

import h5py
import numpy as np
from h5py import h5d, h5f, h5g, h5p, h5s, h5t

import harness
import property_lists as lists

LIST = "user.h5dir.object_create_plist"
PAD = "user.h5dir.scratch_pad"
FIXTURES = os.path.join(harness.TOP, "tests", "fixtures")


def run(options, *arguments):
    return subprocess.run([options.bin, *arguments], capture_output=True, text=True, timeout=300)


def make(path):
    """A file with an object for each list of the oracle, and groups with all their properties."""
    with h5py.File(path, "w", libver="latest") as f:
        space, kind = h5s.create_simple((8, 10), (8, 10)), h5t.STD_I32LE
        for name, plist in lists.lists().items():
            if name in ("group", "tracked", "all of a group"):
                h5g.create(f.id, name.encode(), gcpl=plist)
            elif name == "named datatype":
                f[name] = np.dtype("<i4")
            elif name != "external":
                plist = plist.copy()
                h5d.create(f.id, name.encode(), kind, space, plist)
        plist = h5p.create(h5p.GROUP_CREATE)
        assert lists.LIB.H5Pset_link_phase_change(plist.id, 3, 2) >= 0
        h5g.create(f.id, b"soon dense", gcpl=plist)
        # Tracked, and not indexed: it keeps that beside the order of its links.
        h5g.create(f.id, b"ordered", gcpl=lists.group(order=1))
        f["ordered"].create_group("b")
        f["ordered"].create_group("a")
        for i in range(5):
            f["soon dense"].create_group(f"g{i}")
        compound = np.dtype([("a", "<i4"), ("b", "S3"), ("c", "<f8", (2,))])
        f.create_dataset("compound", (4,), compound, fillvalue=np.array((7, b"xy", (1.0, 2.0)), compound)[()])
        f.create_dataset("strings", (3,), h5py.string_dtype())
        f.create_dataset("gzip", data=np.arange(1000), chunks=(100,), compression="gzip", shuffle=True, track_times=True)


def objects(f):
    yield "/", f["/"]
    found = []
    f.visititems(lambda name, thing: found.append((name, thing)))
    for name, thing in found:
        yield name, thing


def wanted(f):
    """By path: the canonical lists of libhdf5."""
    result = {}
    for name, thing in objects(f):
        plist = lists.of_object(thing)
        if plist < 0:
            continue
        try:
            result[name] = lists.canonical(plist)
        except AssertionError:
            pass  # libhdf5 does not encode what it opened.
        finally:
            lists.LIB.H5Pclose(plist)
    return result


def same(tally, got, want, what):
    """Both are lists that libhdf5 finds equal."""
    try:
        ours, theirs = lists.decode(got), lists.decode(want)
        tally.check(lists.LIB.H5Pequal(ours, theirs) > 0, f"{what}: {got} is not {want}")
        lists.LIB.H5Pclose(ours)
        lists.LIB.H5Pclose(theirs)
    except AssertionError:
        tally.check(False, f"{what} does not decode: {got}")


# Objects whose lists are equal and have other bytes: another version of the datatype message, a filter with its registered name.
OTHER_BYTES = ("compound", "unknown filter")


def compare(tally, mount, want, what):
    for name, encoded in want.items():
        got = os.getxattr(os.path.join(mount, name.lstrip("/")), LIST)
        same(tally, got, encoded, f"{what}: {name}")
        if name not in OTHER_BYTES:
            tally.equal(got, encoded, f"{what}: bytes of {name}")


def fixtures(options, tally):
    """Lists of objects of fixtures made by libhdf5."""
    seen = 0
    for path in sorted(glob.glob(os.path.join(FIXTURES, "**", "*.h5"), recursive=True)):
        try:
            with h5py.File(path, "r") as f:
                want = wanted(f)
        except (OSError, RuntimeError, ValueError, KeyError, TypeError, UnicodeDecodeError):
            continue
        if run(options, "check", path).returncode != 0:
            continue
        with harness.mounted(options.bin, path) as mount:
            for name, encoded in want.items():
                try:
                    got = os.getxattr(os.path.join(mount, name.lstrip("/")), LIST)
                except OSError as e:
                    # Virtual datasets, and names that the mount shows in another way.
                    tally.check(e.errno in (errno.EOPNOTSUPP, errno.ENOENT, errno.ENODATA, errno.EACCES), f"{path}: {name}: {e}")
                    continue
                same(tally, got, encoded, f"{os.path.relpath(path, FIXTURES)}: {name}")
                seen += 1
    tally.check(seen > 200, f"only {seen} objects of fixtures were compared")


def containers(options, tally, folder):
    """A container keeps the lists of a copied file, after mounting again, beside another writer, and back in a file."""
    source, container, back = (os.path.join(folder, name) for name in ("source.h5", "container", "back.h5"))
    make(source)
    known, ordered = lists.lists(), lists.group(order=3)
    with h5py.File(source, "r") as f:
        want = wanted(f)
    with harness.mounted(options.bin, source) as mount:
        compare(tally, mount, want, "the file")
    assert run(options, "create", "iod:" + container).returncode == 0
    done = run(options, "cp", "-r", source + ":/", "iod:" + container + ":/")
    tally.equal(done.returncode, 0, f"cp into the container: {done.stderr}")
    for options_of_mount in ((), ("--read-write",)):
        with harness.mounted(options.bin, "iod:" + container, *options_of_mount) as mount:
            compare(tally, mount, want, "the container")
            pads = {name: os.getxattr(os.path.join(mount, name.lstrip("/")), PAD).decode().split() for name in want}
            tally.equal(len({pad[0] for pad in pads.values()}), len(pads), "ids of metadata")
            for name, pad in pads.items():
                what = f"the scratch pad of {name}: {pad}"
                tally.equal(pad[2:], ["f" * 16] * 2, what)
                tally.check(len(pad) == 4 and pad[0][:2] == "48" and pad[1] == "41" + pad[0][2:], what)
            tally.equal(pads["/"][:2], ["48" + "0" * 14, "41" + "0" * 14], "the scratch pad of the root group")
            if options_of_mount:
                # A group that is made here has what libhdf5 gives it; one that orders its links tracks them.
                os.mkdir(os.path.join(mount, "made"))
                same(tally, os.getxattr(os.path.join(mount, "made"), LIST), lists.canonical(known["group"].id), "a new group")
                os.mkdir(os.path.join(mount, "made", "a"))
                os.setxattr(os.path.join(mount, "made"), "user.h5dir.links", b'["a"]')
                same(tally, os.getxattr(os.path.join(mount, "made"), LIST), lists.canonical(ordered.id), "a group with ordered links")
                try:
                    os.setxattr(os.path.join(mount, "made"), LIST, b"\0")
                    tally.check(False, "a list was set")
                except OSError as e:
                    tally.check(e.errno in (errno.EPERM, errno.EINVAL, errno.EOPNOTSUPP), f"setting a list: {e}")
    tally.equal(run(options, "check", "iod:" + container).returncode, 0, "check of the container")
    merged(options, tally, container, source)
    beside_a_killed_writer(options, tally, container, source, want)
    assert run(options, "create", back).returncode == 0
    done = run(options, "cp", "-r", "iod:" + container + ":/", back + ":/")
    tally.equal(done.returncode, 0, f"cp out of the container: {done.stderr}")
    with h5py.File(back, "r") as f:
        for name in ("all of a group", "soon dense"):
            plist = lists.of_object(f[name])
            tally.equal(link_properties(plist), link_properties(lists.decode(want[name])), f"links of {name} in the file copied back")
            lists.LIB.H5Pclose(plist)
        tally.equal(len(f["soon dense"]), 5, "links of a group that is dense soon")
    tally.equal(run(options, "check", back).returncode, 0, "check of the file copied back")


def merged(options, tally, container, source):
    """Regression: a copy into a group that is there keeps that it tracks the order of its links."""
    copy, plain = container + "-merged", source + ".plain.h5"
    shutil.copytree(container, copy)
    with h5py.File(plain, "w", libver="latest") as f:
        f.create_group("ordered").create_group("c")
    done = run(options, "cp", "-r", plain + ":/", f"iod:{copy}:/")
    tally.equal(done.returncode, 0, f"cp into a group that is there: {done.stderr}")
    with harness.mounted(options.bin, "iod:" + copy) as mount:
        tally.equal(sorted(os.listdir(os.path.join(mount, "ordered"))), ["a", "b", "c"], "names of a merged group")
        got = lists.decode(os.getxattr(os.path.join(mount, "ordered"), LIST))
        flags = ctypes.c_uint()
        assert lists.LIB.H5Pget_link_creation_order(got, ctypes.byref(flags)) >= 0
        tally.equal(flags.value, 1, "a merged group tracks the order of its links")


def link_properties(plist):
    """Phase change and estimates."""
    numbers = [ctypes.c_uint() for _ in range(4)]
    assert lists.LIB.H5Pget_link_phase_change(plist, *map(ctypes.byref, numbers[:2])) >= 0
    assert lists.LIB.H5Pget_est_link_info(plist, *map(ctypes.byref, numbers[2:])) >= 0
    return [n.value for n in numbers]


def beside_a_killed_writer(options, tally, container, source, want):
    """A copy beside a mount that writes, which is killed then: both are there."""
    copy = container + "-killed"
    shutil.copytree(container, copy)
    point = copy + "-mount"
    os.mkdir(point)
    daemon = subprocess.Popen([options.bin, "mount", "-f", "--read-write", "iod:" + copy, point], stderr=subprocess.DEVNULL)
    while not os.path.ismount(point) and daemon.poll() is None:
        pass
    for i in range(20):
        with open(os.path.join(point, f"synced{i}"), "wb") as f:
            f.write(b"x")
            os.fsync(f.fileno())
        if i == 10:
            done = run(options, "cp", "-r", source + ":/all of a group", f"iod:{copy}:/again")
            tally.equal(done.returncode, 0, f"cp beside a writer: {done.stderr}")
    daemon.kill()
    daemon.wait()
    run(options, "umount", "--lazy", point)
    with harness.mounted(options.bin, "iod:" + copy) as mount:
        compare(tally, mount, want, "the container after a kill")
        got = os.getxattr(os.path.join(mount, "again"), LIST)
        tally.equal(got, want["all of a group"], "the copy beside a writer")
        tally.equal(len([name for name in os.listdir(mount) if name.startswith("synced")]), 20, "files of the killed writer")
    tally.equal(run(options, "check", "iod:" + copy).returncode, 0, "check after a kill")


def main():
    options = harness.arguments(__doc__)
    tally = harness.Tally()
    with harness.folder(options.keep) as folder:
        containers(options, tally, folder)
        fixtures(options, tally)
    tally.finish()


if __name__ == "__main__":
    main()
