#!/usr/bin/env python3
"""Datasets as images: `h5dir cat --png`, `--tif` and the view images, as Pillow and tifffile read
them, against h5py.

    images_sweep.py [--bin H5DIR] [--seed N] [--keep FOLDER]
"""
import io
import os
import subprocess
import sys
import zlib

import h5py
import numpy as np
import tifffile
from PIL import Image

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import harness  # noqa: E402

# Not pictures.
NONE = {"words", "table", "scalar", "null", "none", "five", "reference"}
# Numbers of one dimension.
PLOTS = {"line", "long line", "nothing"}


def image(dataset, **attributes):
    """Makes `dataset` an image of the HDF5 Image specification."""
    dataset.attrs["CLASS"], dataset.attrs["IMAGE_VERSION"] = np.bytes_("IMAGE"), np.bytes_("1.2")
    for name, value in attributes.items():
        dataset.attrs[name] = np.bytes_(value) if isinstance(value, str) else value
    return dataset


def make(path, rng):
    with h5py.File(path, "w") as f:
        f["gray8"] = rng.integers(0, 256, (60, 90), "u1")
        f.create_dataset("gray16", data=rng.integers(0, 65536, (50, 70), "u2"), chunks=(16, 16), compression="gzip")
        f["gray16 big"] = f["gray16"][()].astype(">u2")
        f["tall"] = rng.integers(0, 256, (3000, 40), "u1")
        f.create_dataset("large", data=rng.integers(0, 256, (2500, 3100), "u1"), chunks=(500, 500))
        image(f.create_dataset("white", data=f["gray8"][()]), IMAGE_SUBCLASS="IMAGE_GRAYSCALE", IMAGE_WHITE_IS_ZERO=np.uint8(1))
        image(f.create_dataset("lower right", data=f["gray8"][()]), IMAGE_SUBCLASS="IMAGE_GRAYSCALE", DISPLAY_ORIGIN="LR")
        colours = rng.integers(0, 256, (40, 30, 3), "u1")
        f["rgb"], f["rgba"] = colours, rng.integers(0, 256, (40, 30, 4), "u1")
        kinds = {"pixel": ("INTERLACE_PIXEL", colours), "line": ("INTERLACE_LINE", colours.transpose(0, 2, 1)),
                 "plane": ("INTERLACE_PLANE", colours.transpose(2, 0, 1))}
        for name, (mode, data) in kinds.items():
            image(f.create_dataset(f"true {name}", data=data), IMAGE_SUBCLASS="IMAGE_TRUECOLOR", INTERLACE_MODE=mode)
        palette = f.create_dataset("palette", data=rng.integers(0, 256, (200, 3), "u1"))
        palette.attrs["CLASS"], palette.attrs["PAL_COLORMODEL"] = np.bytes_("PALETTE"), np.bytes_("RGB")
        indexed = image(f.create_dataset("indexed", data=rng.integers(0, 200, (20, 25), "u1")), IMAGE_SUBCLASS="IMAGE_INDEXED")
        indexed.attrs["PALETTE"] = np.array([palette.ref], h5py.ref_dtype)
        f["stack"] = rng.integers(0, 256, (12, 20, 30), "u1")
        f["colour stack"] = rng.integers(0, 256, (3, 20, 30, 3), "u1")
        f["float"] = rng.random((40, 50))
        f["float"][0, 0] = np.nan
        ranged = image(f.create_dataset("ranged", data=rng.random((40, 50)).astype(">f4") * 10), IMAGE_SUBCLASS="IMAGE_GRAYSCALE")
        ranged.attrs["IMAGE_MINMAXRANGE"] = np.array([2.0, 7.0])
        ranged[3, 3] = np.nan
        f["signed"], f["flags"] = rng.integers(-100, 100, (30, 30), "i2"), rng.integers(0, 2, (30, 30)).astype(bool)
        f["same"], f["extreme"] = np.full((5, 5), 3.5), np.array([[-1.7e308, 1.7e308], [np.inf, -np.inf]])
        f["line"], f["nothing"] = np.sin(np.arange(300) / 20), np.full(10, np.nan)
        f.create_dataset("long line", data=rng.random(3_000_000), chunks=(10_000,))
        f["group/a.png"], f["group/a"] = f["gray8"][()], f["gray8"][()]
        f["group/a.png.d/x"] = f["gray8"][()]
        for order in "<>":
            for kind in ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8"):
                limits = np.iinfo(kind)
                f[f"{order}{kind}"] = rng.integers(limits.min, limits.max, (7, 11), kind, endpoint=True).astype(order + kind)
            for kind in ("f2", "f4", "f8"):
                f[f"{order}{kind}"] = np.array([[np.nan, np.inf, -np.inf, -0.0, np.finfo(kind).max, np.finfo(kind).tiny]]).astype(order + kind)
        # An integer that fills half of its bytes.
        half = h5py.h5t.STD_I32LE.copy()
        half.set_precision(16)
        data = rng.integers(-30000, 30000, (6, 8), "i4")
        h5py.h5d.create(f.id, b"other", half, h5py.h5s.create_simple((6, 8))).write(h5py.h5s.ALL, h5py.h5s.ALL, data)
        f["words"], f["scalar"], f["null"], f["none"] = ["a", "b"], 1.5, h5py.Empty("f4"), np.zeros((0, 5))
        f["five"], f["table"] = np.zeros((2, 2, 2, 2, 3)), np.zeros(3, "i4,f8")
        f["reference"] = np.array([palette.ref], h5py.ref_dtype)


def opened(data):
    picture = Image.open(io.BytesIO(data))
    picture.load()
    return picture


def cat(options, *args, code=0):
    done = subprocess.run([options.bin, "cat", "--png", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    assert done.returncode == code, (args, done.stderr)
    return opened(done.stdout) if code == 0 else done.stderr.decode()


def scaled(data, low=None, high=None):
    """Numbers as docs/SEMANTICS.md says."""
    data = data.astype("f8")
    if low is None:
        ranked = np.sort(data[np.isfinite(data)])
        low, high = (ranked[int(np.floor((len(ranked) - 1) * part + 0.5))] for part in (0.01, 0.99))
    with np.errstate(all="ignore"):
        part = np.clip((data - low) / (high - low), 0, 1)
        return np.where(np.isnan(data), 0, np.floor(part * 255 + 0.5)).astype("u1")


def forms(t, options, path):
    def of(name, *more):
        return cat(options, *more, f"{path}:/{name}")

    with h5py.File(path) as f:
        for name, mode in (("gray8", "L"), ("gray16", "I;16"), ("gray16 big", "I;16"), ("tall", "L"), ("large", "L"), ("rgb", "RGB"), ("rgba", "RGBA")):
            picture = of(name)
            t.check(picture.mode == mode and np.array_equal(np.array(picture), f[name][()]), f"{name}: {picture.mode}")
        t.check(np.array_equal(np.array(of("white")), 255 - f["white"][()]), "zero is white")
        t.check(np.array_equal(np.array(of("lower right")), f["gray8"][()][::-1, ::-1]), "origin at the lower right")
        for name in ("pixel", "line", "plane"):
            t.check(np.array_equal(np.array(of(f"true {name}")), f["rgb"][()]), f"interlace {name}")
        picture = of("indexed")
        t.check(picture.mode == "P" and np.array_equal(np.array(picture), f["indexed"][()]), "indexes")
        t.check(np.array_equal(np.array(picture.convert("RGB")), f["palette"][()][f["indexed"][()]]), "colours of a palette")
        t.check(np.array_equal(np.array(of("stack")), f["stack"][0]), "the first image")
        t.check(np.array_equal(np.array(of("stack", "-s", "7,2:12,:5")), f["stack"][7, 2:12, :5]), "a part of the eighth image")
        t.check(np.array_equal(np.array(of("colour stack", "-s", "2")), f["colour stack"][2]), "an image in colours")
        t.check(np.array_equal(np.array(of("float")), scaled(f["float"][()])), "floating-point numbers")
        t.check(np.array_equal(np.array(of("ranged")), scaled(f["ranged"][()], 2, 7)), "a range")
        t.check(np.array_equal(np.array(of("signed")), scaled(f["signed"][()])), "signed integers")
        t.check(np.array_equal(np.array(of("flags")), f["flags"][()] * np.uint8(255)), "booleans")
        t.check(not np.array(of("same")).any(), "one number")
        t.equal(np.array(of("extreme")).tolist(), [[0, 255], [255, 0]], "the range of doubles")
        for name in sorted(PLOTS):
            picture = of(name).convert("RGB")
            blue = (np.array(picture) == [31, 119, 180]).all(2)
            t.equal(picture.size, (1024, 512), f"{name}: size of a plot")
            t.equal(bool(blue.any()), name != "nothing", f"{name}: a curve")
        blue = (np.array(of("line").convert("RGB")) == [31, 119, 180]).all(2)
        tops = np.array([column.nonzero()[0].mean() for column in blue.T[8:-8]])
        want = np.interp(np.linspace(0, 299, len(tops)), np.arange(300), f["line"][()])
        t.check(np.corrcoef(tops, -want)[0, 1] > 0.999, "the curve is that of the numbers")
        for name in sorted(NONE):
            said = cat(options, f"{path}:/{name}", code=1)
            t.check("no picture" in said and said.count("\n") == 1, f"{name}: {said}")
    t.check("colours" in cat(options, "-s", ":,:,1", f"{path}:/rgb", code=1), "a part of the colours")
    t.check("--select" in cat(options, "-n", "3", f"{path}:/gray8", code=2), "-n")


def tiff(options, path, name, *more):
    args = [options.bin, "cat", "--tif", *more, f"{path}:/{name}"]
    done = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    return done.stdout, done.stderr.decode()


def same(a, b):
    return a.dtype.newbyteorder("=") == b.dtype.newbyteorder("=") and a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def exact(t, options, path):
    """TIFF images have the numbers themselves."""
    kinds = [f"{order}{kind}" for order in "<>" for kind in ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8")]
    names = ["gray8", "gray16", "gray16 big", "tall", "large", "white", "rgb", "rgba", "indexed", "float", "ranged", "signed", "extreme", *kinds]
    with h5py.File(path) as f:
        for name in names:
            t.check(same(tifffile.imread(io.BytesIO(tiff(options, path, name)[0])), f[name][()]), f"{name}: numbers of a TIFF image")
        for name in ("gray8", "gray16", "rgb", "rgba", "<f4", ">f4", "<i4"):
            t.check(np.array_equal(np.array(opened(tiff(options, path, name)[0])), f[name][()], equal_nan=name.endswith("f4")), f"{name}: Pillow")
        t.check(same(tifffile.imread(io.BytesIO(tiff(options, path, "flags")[0])), f["flags"][()].astype("u1")), "booleans")
        t.check(same(tifffile.imread(io.BytesIO(tiff(options, path, "lower right")[0])), f["gray8"][()][::-1, ::-1]), "turned")
        for name in ("pixel", "line", "plane"):
            t.check(same(tifffile.imread(io.BytesIO(tiff(options, path, f"true {name}")[0])), f["rgb"][()]), f"interlace {name}")
        t.check(same(tifffile.imread(io.BytesIO(tiff(options, path, "stack", "-s", "7,2:12,:5")[0])), f["stack"][7, 2:12, :5]), "a part")
        wide = tifffile.imread(io.BytesIO(tiff(options, path, "other")[0]))
        t.check(same(wide, f["other"][()].astype("f8")), f"numbers that TIFF has no samples for: {wide.dtype}")
        with tifffile.TiffFile(io.BytesIO(tiff(options, path, "white")[0])) as file:
            t.equal(file.pages[0].photometric.name, "MINISWHITE", "zero is white")
        with tifffile.TiffFile(io.BytesIO(tiff(options, path, "indexed")[0])) as file:
            colours = (np.asarray(file.pages[0].colormap) // 257).T.astype("u1")
            t.check(np.array_equal(colours[:200], f["palette"][()]), "a palette")
        with tifffile.TiffFile(io.BytesIO(tiff(options, path, "rgba")[0])) as file:
            t.equal([x.name for x in file.pages[0].extrasamples], ["UNASSALPHA"], "alpha")
    for name in sorted(NONE):
        t.check("no picture" in tiff(options, path, name)[1], f"{name}: no TIFF image")
    t.check("--png" in tiff(options, path, "line")[1], "a plot is no TIFF image")


def tree(folder):
    return sorted(os.path.relpath(os.path.join(at, name), folder) for at, _, names in os.walk(folder) for name in names)


def views(t, options, path, target):
    with harness.mounted(options.bin, target) as mount, h5py.File(path) as f:
        folder = os.path.join(mount, ".h5dir", "images")
        frames = {"stack": 12, "colour stack": 3}
        want = []
        for name in [name for name in f if isinstance(f[name], h5py.Dataset) and name not in NONE] + ["group/a", "group/a.png", "group/a.png.d/x"]:
            want.append(f"{name}.png")
            directory = {"group/a.png": "group/%61.png"}.get(name, name)
            count = 0 if name in PLOTS else frames.get(name, 1)
            want += [f"{directory}/{i + 1:06}.{suffix}" for i in range(count) for suffix in ("png", "tif")]
        t.equal(tree(folder), sorted(want), f"{target}: names")
        for name in want:
            file = os.path.join(folder, name)
            size = os.stat(file).st_size
            data = harness.read(file)
            t.equal(len(data), size, f"{target}: {name}: the size before it was made")
            if name.endswith(".tif"):
                t.equal(tifffile.TiffFile(io.BytesIO(data)).filehandle.size, size, name)
                continue
            picture = opened(data)
            t.check(max(picture.size) <= 1024 or "/0" in name, f"{name}: {picture.size}")
        for i in range(12):
            t.check(np.array_equal(np.array(Image.open(f"{folder}/stack/{i + 1:06}.png")), f["stack"][i]), f"image {i}")
            t.check(same(tifffile.imread(f"{folder}/stack/{i + 1:06}.tif"), f["stack"][i]), f"TIFF image {i}")
        for name in ("gray8", "gray16", "large", "rgb"):
            t.check(np.array_equal(np.array(Image.open(f"{folder}/{name}/000001.png")), f[name][()]), f"{name}: in full size")
        t.check(np.array_equal(np.array(Image.open(f"{folder}/gray8.png")), f["gray8"][()]), "a preview of a small image")
        t.check(np.array_equal(np.array(Image.open(f"{folder}/gray16.png")), scaled(f["gray16"][()])), "a preview of 16 bits")
        preview, (rows, columns) = np.array(Image.open(f"{folder}/large.png")), f["large"].shape
        at = [np.arange(n) * size // n for n, size in zip(preview.shape, (rows, columns))]
        t.check(np.array_equal(preview, f["large"][()][np.ix_(*at)]), f"a preview of a large image: {preview.shape}")
        for name in ("stack/000000.png", "stack/1.png", "stack/000013.png", "stack/0000001.png", "words.png", "line/000001.png", "gray8", "gray8.tif", "stack/000000.tif", "stack/000013.tif",
                     "stack/1.tif", "stack/000001.tiff"):
            t.equal(os.path.isfile(f"{folder}/{name}"), False, f"there is no {name}")
        for suffix in ("png", "tif"):
            with open(f"{folder}/large/000001.{suffix}", "rb") as file:
                data = file.read()
                for start in (0, 1_000_000, len(data) - 5):
                    file.seek(start)
                    t.check(file.read(4096) == data[start:start + 4096], f"at {start}")


def huge(t, options, path):
    """Claimed sizes that no memory holds: previews cost little."""
    with h5py.File(path, "w") as f:
        f.create_dataset("square", (1 << 25, 1 << 25), "<f8", chunks=(1 << 10, 1 << 10))[0, 0] = 1
        f.create_dataset("row", (3, 1 << 50), "<u2", chunks=(1, 1 << 20))
        f.create_dataset("frames", (1 << 40, 64, 64), "u1", chunks=(1, 64, 64))
        f.create_dataset("line", (1 << 57,), "<f8", chunks=(1 << 16,))
        f.create_dataset("colours", (1 << 20, 1 << 20, 3), "u1", chunks=(64, 64, 3))
        f.create_dataset("contiguous", (1 << 14, 1 << 14), "<f4")
        # Chunks of which single elements are read.
        for name, shape in (("chunk", (4, 1 << 26)), ("chunk line", (1 << 28,))):
            d = f.create_dataset(name, shape, "u1", chunks=shape, compression="gzip")
            d.id.write_direct_chunk((0,) * len(shape), zlib.compress(np.repeat(np.arange(4, dtype="u1") * 60, 1 << 26).tobytes(), 1))
    with harness.mounted(options.bin, path) as mount:
        folder = f"{mount}/.h5dir/images"
        t.equal(sorted(os.listdir(folder)), sorted([f"{name}.png" for name in ("chunk", "chunk line", "colours", "contiguous", "frames", "line", "row", "square")] + ["frames"]),
                "images that are too large have previews alone")
        for name in ("square", "row", "frames", "line", "colours", "contiguous", "chunk", "chunk line"):
            data = harness.read(f"{folder}/{name}.png")
            t.equal(len(data), os.stat(f"{folder}/{name}.png").st_size, f"{name}: size")
            t.check(max(opened(data).size) <= 1024, f"{name}: {opened(data).size}")
        picture = np.asarray(opened(harness.read(f"{folder}/chunk.png")))
        t.equal(picture.tolist(), [[row * 60] * picture.shape[1] for row in range(4)], f"elements of a large chunk: {picture.shape}")
        t.equal(opened(harness.read(f"{folder}/frames/999999.png")).size, (64, 64), "the last image that is a file")
        t.equal(cat(options, f"{path}:/frames", "-s", "1000000000000").size, (64, 64), "an image of 2^40")
        with os.scandir(f"{folder}/frames") as entries:
            t.equal([next(entries).name for _ in range(3)], ["000001.png", "000001.tif", "000002.png"], "the first names of 2^40")
        peak = harness.peak_memory(mount)
        t.check(peak < 500, f"memory of the mount: {peak} MiB")
    t.check("too large" in cat(options, f"{path}:/square", code=1), "an image that is too large")


def main():
    options = harness.arguments(__doc__)
    t = harness.Tally()
    with harness.folder(options.keep) as place:
        path, container = os.path.join(place, "images.h5"), f"iod:{place}/container"
        make(path, np.random.default_rng(options.seed))
        subprocess.run([options.bin, "cp", "-r", path, container], check=True, stdin=subprocess.DEVNULL)
        forms(t, options, path)
        exact(t, options, path)
        views(t, options, path, path)
        views(t, options, path, container)
        huge(t, options, os.path.join(place, "huge.h5"))
    t.finish()


if __name__ == "__main__":
    main()
