//! Files that are renamed over datasets.

use super::mounted::Mount;
use super::python;
use super::support::{Place, h5dir, run};
use super::writing::{h5py, shell};

const MAKE: &str = "import numpy; f['s'] = 'ADDME'; f['s'].attrs['k'] = 'v'; f['s'].attrs['n'] = [1, 2]; f['fixed'] = numpy.bytes_(b'ADDME'); f['v'] = ['a', 'b'];
    f.create_dataset('rows', data=['a', 'b'], maxshape=(None,)); f.create_dataset('n', data=numpy.arange(4, dtype='i2'), maxshape=(None,), \
    chunks=(2,), compression='gzip'); f['m'] = numpy.arange(4.); f['m'].attrs['unit'] = 'm'; f['one'] = 3.5";

fn made() -> (Mount, std::path::PathBuf) {
    let place = Place::new();
    let file = place.dir().join("a.h5");
    h5py(&file, "w", MAKE);
    (Mount::start(place, &file, &["--read-write"]), file)
}

fn shown(file: &std::path::Path, name: &str) -> String {
    let value = "(lambda d: (d.dtype.kind, d.shape, d.maxshape, sorted(d.attrs), d.compression, d.asstr()[()].tolist() if d.dtype.kind == 'O' and d.shape \
        else d.asstr()[()] if d.dtype.kind == 'O' else d[()].tolist()))";
    h5py(file, "r", &format!("print({value}(f['{name}']))")).trim_end().to_owned()
}

#[test]
fn a_file_of_bytes_takes_the_type_of_the_dataset_that_it_replaces() {
    let (mount, file) = made();
    shell(
        &mount,
        "sed -i s/ADDME/text/ s; printf longer >t; mv t v2; sed -i s/ADDME/new/ fixed; sed -i s/a/x/ v; printf 'a\nb\nc\n' >t; mv t rows
        head -c 12 n >t; cat n >>t; mv t n; head -c 24 m >t; head -c 8 m >>t; mv t m; head -c 8 m >t; mv t one; cat s fixed",
    );
    assert_eq!(shell(&mount, "cat s v rows; stat -c %s n m one"), "text\nx\nb\na\nb\nc\n16\n32\n8\n");
    assert_eq!(run(h5dir(&["umount"]).arg(mount.place.mnt())), (0, String::new()));
    assert_eq!(shown(&file, "s"), "('O', (), (), ['k', 'n'], None, 'text')");
    assert_eq!(shown(&file, "fixed"), "('S', (), (), [], None, b'new')");
    assert_eq!(shown(&file, "v"), "('O', (2,), (2,), [], None, ['x', 'b'])");
    assert_eq!(shown(&file, "rows"), "('O', (3,), (None,), [], None, ['a', 'b', 'c'])");
    assert_eq!(shown(&file, "n"), "('i', (8,), (None,), [], 'gzip', [0, 1, 2, 3, 0, 1, 2, 3])");
    assert_eq!(shown(&file, "m"), "('f', (4,), (4,), ['unit'], None, [0.0, 1.0, 2.0, 0.0])");
    assert_eq!(shown(&file, "one"), "('f', (), (), [], None, 0.0)");
    assert_eq!(shown(&file, "v2"), "('u', (6,), (None,), [], None, [108, 111, 110, 103, 101, 114])");
}

#[test]
fn other_files_replace_the_dataset_with_its_type() {
    let (mount, file) = made();
    shell(
        &mount,
        "printf 'a\nb\n' >t; mv t s; printf 'too long' >t; mv t fixed; printf 'a\nb\nc\n' >t; mv t v; printf abc >t; mv t n
        printf 01234567 >t; setfattr -n user.own -v x t; mv t one; printf 01 >t; setfattr -n user.h5dir.dtype -v '<i2' t; mv t rows",
    );
    assert_eq!(shell(&mount, "cat s fixed v n one; echo hi >s; cat s"), "a\nb\ntoo longa\nb\nc\nabc01234567hi\n");
    assert_eq!(run(h5dir(&["umount"]).arg(mount.place.mnt())), (0, String::new()));
    for (name, kind) in [("s", "u"), ("fixed", "u"), ("v", "u"), ("n", "u"), ("one", "u"), ("rows", "i")] {
        assert!(shown(&file, name).starts_with(&format!("('{kind}', ")), "{name}: {}", shown(&file, name));
    }
    assert!(shown(&file, "one").contains("['own']"));
}

#[test]
fn bytes_that_would_read_back_as_others_stay_bytes() {
    let place = Place::new();
    let file = place.dir().join("a.h5");
    let make = "import numpy as np
    f.create_dataset('scaled', data=np.arange(8, dtype='f4'), maxshape=(None,), chunks=(8,), scaleoffset=1)
    f.create_dataset('lines', data=['a', 'b'], maxshape=(None,))
    t = h5py.h5t.STD_I16LE.copy(); t.set_precision(9); p = h5py.h5p.create(h5py.h5p.DATASET_CREATE); p.set_chunk((8,)); p.set_filter(5, 0, ())
    h5py.h5d.create(f.id, b'bits', t, h5py.h5s.create_simple((8,), (h5py.h5s.UNLIMITED,)), p)
    t = h5py.h5t.C_S1.copy(); t.set_size(2**32 - 2); h5py.h5d.create(f.id, b'huge', t, h5py.h5s.create(h5py.h5s.SCALAR))";
    h5py(&file, "w", make);
    let mount = Mount::start(place, &file, &["--read-write"]);
    shell(
        &mount,
        "head -c 32 /dev/urandom >../r; cp ../r t; mv t scaled; head -c 16 ../r >t; mv t bits; printf 'a\\0b\\nc\\n' >../z; cp ../z t; mv t lines
        echo text >t; mv t huge; cmp ../r scaled; cmp -n 16 ../r bits; cmp ../z lines; cat huge",
    );
    assert_eq!(run(h5dir(&["umount"]).arg(mount.place.mnt())), (0, String::new()));
    for name in ["scaled", "bits", "lines", "huge"] {
        assert!(shown(&file, name).starts_with("('u', "), "{name}");
    }
    assert!(std::fs::metadata(&file).unwrap().len() < 1 << 20);
}

#[test]
fn the_times_of_the_new_file_stay() {
    let (mount, _) = made();
    let script =
        "printf 01 >t; touch -d @1000000000 t; mv t n; stat -c %Y n; printf text >t; touch -d @1000000000 t; mv t fixed; stat -c %Y fixed";
    assert_eq!(shell(&mount, script), "1000000000\n1000000000\n");
    let source = mount.place.dir().join("source");
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("m"), [1; 32]).unwrap();
    shell(&mount, &format!("touch -d @1000000000 {}/m", source.display()));
    let rsync = format!("rsync -ai --no-o --no-g --no-p {}/m .", source.display());
    assert!(shell(&mount, &rsync).starts_with(">f"));
    assert_eq!(shell(&mount, &rsync), "");
}

#[test]
fn the_fill_value_keeps_its_bytes() {
    let place = Place::new();
    let file = place.dir().join("a.h5");
    h5py(
        &file,
        "w",
        "import numpy as np; v = np.array([0xffc12345], 'u4').view('f4')[0]; f.create_dataset('n', data=np.zeros(4, 'f4'), fillvalue=v)",
    );
    let mount = Mount::start(place, &file, &["--read-write"]);
    shell(&mount, "head -c 16 n >t; mv t n");
    assert_eq!(run(h5dir(&["umount"]).arg(mount.place.mnt())), (0, String::new()));
    let program = "import numpy as np; print(f['n'].dtype, hex(np.array(f['n'].fillvalue).view('u4')))";
    assert_eq!(h5py(&file, "r", program), "float32 0xffc12345\n");
}

#[test]
fn a_long_file_takes_the_type() {
    let place = Place::new();
    let file = place.dir().join("a.h5");
    h5py(&file, "w", "f.create_dataset('n', data=[1, 2], dtype='i2', maxshape=(None,), chunks=(1 << 20,), shuffle=True)");
    let mount = Mount::start(place, &file, &["--read-write"]);
    let bytes: Vec<u8> = (0..9_000_000u32).flat_map(|n| (n as u16).to_le_bytes()).collect();
    std::fs::write(mount.place.dir().join("long"), &bytes).unwrap();
    shell(&mount, "cp ../long t; mv t n; cmp ../long n");
    assert_eq!(run(h5dir(&["umount"]).arg(mount.place.mnt())), (0, String::new()));
    let program = "import numpy as np; print(f['n'].dtype, f['n'].shuffle, (f['n'][:] == np.arange(9000000).astype('i2')).all(), len(f))";
    assert_eq!(h5py(&file, "r", program), "int16 True True 1\n");
}

#[test]
fn a_descriptor_on_the_new_file_stays_valid() {
    let (mount, file) = made();
    let program = "import os; f = open('t', 'wb'); f.write(bytes(8)); f.flush(); os.rename('t', 'n'); f.write(b'\\x07\\x00'); f.close()";
    shell(&mount, &format!("{} -c \"{program}\"", python::with_h5py().display()));
    assert_eq!(run(h5dir(&["umount"]).arg(mount.place.mnt())), (0, String::new()));
    assert_eq!(shown(&file, "n"), "('i', (5,), (None,), [], 'gzip', [0, 0, 0, 0, 7])");
}

#[test]
fn without_the_option_it_stays_a_file_of_bytes() {
    let place = Place::new();
    let file = place.dir().join("a.h5");
    h5py(&file, "w", MAKE);
    let mount = Mount::start(place, &file, &["--read-write", "--keep-types=off"]);
    shell(&mount, "sed -i s/ADDME/text/ s");
    assert_eq!(run(h5dir(&["umount"]).arg(mount.place.mnt())), (0, String::new()));
    assert!(shown(&file, "s").starts_with("('u', (5,)"));
}
