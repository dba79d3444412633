//! Several readers at once; an unmount while some read; signals.

use super::mounted::{Mount, copy_fixture};
use super::support::{Place, eventually, h5dir, is_mounted, run};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn many_readers_see_the_same_and_each_chunk_is_decoded_once() {
    let mount = Mount::fixture("layouts_new");
    let want = {
        let other = Mount::fixture("layouts_new");
        other.read("sparse_long")
    };
    let start = Barrier::new(8);
    std::thread::scope(|s| {
        for i in 0..8 {
            let (mount, want, start) = (&mount, &want, &start);
            s.spawn(move || {
                start.wait();
                let file = File::open(mount.path("sparse_long")).unwrap();
                let mut buffer = vec![0; 10_000];
                for k in 0..want.len() / 10_000 {
                    let at = (k * 7919 + i * 101) % (want.len() / 10_000) * 10_000;
                    file.read_exact_at(&mut buffer, at as u64).unwrap();
                    assert!(buffer == want[at..at + 10_000], "at {at}");
                }
            });
        }
    });
    assert_eq!(mount.counter("chunks_decoded"), 2, "two chunks are allocated");
}

#[test]
fn readers_of_different_files_do_not_disturb_each_other() {
    let mount = Mount::fixture("layouts_new");
    let names = ["deflated", "lzf", "fixed", "two_unlimited", "fill_chunks", "compact", "contiguous"];
    let want = names.map(|n| mount.read(n));
    let again = Mount::fixture("layouts_new");
    std::thread::scope(|s| {
        let again = &again;
        for (name, want) in names.iter().zip(&want) {
            for _ in 0..2 {
                s.spawn(move || (0..20).for_each(|_| assert!(again.read(name) == *want, "{name}")));
            }
            s.spawn(move || (0..20).for_each(|_| assert_eq!(again.xattr(name, "h5dir.kind"), "dataset")));
        }
        s.spawn(|| (0..20).for_each(|_| assert!(again.names("").len() > 20)));
    });
    assert_eq!(again.log(), "");
}

#[test]
fn unmount_while_reading_is_refused_unless_lazy() {
    let mut mount = Mount::fixture("layouts_new");
    let at = mount.place.mnt();
    let stop = AtomicBool::new(false);
    let path = mount.path("sparse_long");
    let file = File::open(&path).unwrap();
    std::thread::scope(|s| {
        let reader = s.spawn(|| {
            let mut buffer = vec![0; 65_536];
            let mut reads = 0u64;
            while !stop.load(Ordering::Relaxed) {
                file.read_exact_at(&mut buffer, reads % 64 * 65_536).unwrap();
                reads += 1;
            }
            reads
        });
        std::thread::sleep(Duration::from_millis(50));
        let (code, message) = run(h5dir(&["umount"]).arg(&at));
        assert_eq!(code, 4, "{message}");
        assert!(message.contains("in use") && message.contains("--lazy"), "{message}");
        assert!(is_mounted(&at));
        let (code, message) = run(h5dir(&["umount", "--lazy"]).arg(&at));
        assert_eq!((code, message.as_str()), (0, ""));
        assert!(!is_mounted(&at));
        std::thread::sleep(Duration::from_millis(50));
        stop.store(true, Ordering::Relaxed);
        assert!(reader.join().unwrap() > 0, "who reads goes on reading");
    });
    drop(file);
    eventually("the daemon ends once the file is closed", || mount.daemon().try_wait().unwrap().is_some());
}

#[test]
fn a_signal_unmounts_though_files_are_open() {
    let mut mount = Mount::fixture("layouts_new");
    let file = File::open(mount.path("deflated")).unwrap();
    let pid = nix::unistd::Pid::from_raw(mount.daemon().id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    eventually("the daemon ends", || mount.daemon().try_wait().unwrap().is_some());
    assert!(!is_mounted(&mount.place.mnt()));
    assert!(file.read_at(&mut [0; 8], 0).is_err());
}

#[test]
fn one_file_can_be_mounted_twice() {
    let first = Mount::fixture("links");
    let place = Place::new();
    let file = copy_fixture("links", place.dir());
    let second = Mount::start(place, &file, &[]);
    let third = Mount::start(Place::new(), &file, &[]);
    for mount in [&first, &second, &third] {
        assert_eq!(mount.read("data"), b"hello links\n");
    }
}

/// Other descriptors see the bytes as soon as they are written, also those that have pages of the file, and while they bring in new
/// ones.
#[test]
fn readers_and_maps_see_what_a_writer_wrote_past_their_pages() {
    let place = Place::new();
    let file = place.dir().join("new.h5");
    assert_eq!(run(&mut h5dir(&["create", file.to_str().unwrap()])).0, 0);
    let mount = Mount::start(place, &file, &["--read-write"]);
    let program = "
import mmap, os, sys, threading
path, n = sys.argv[1], 1 << 18
with open(path, 'wb') as f: f.write(bytes([0]) * n)
r = os.open(path, os.O_RDONLY)
m = mmap.mmap(r, n, mmap.MAP_SHARED, mmap.PROT_READ)
w = os.open(path, os.O_WRONLY)
both = os.open(path, os.O_RDWR)
changing = mmap.mmap(both, n)
done = threading.Event()
def look():
    while not done.is_set(): os.pread(r, n, 0)
busy = threading.Thread(target=look)
busy.start()
for turn in range(1, 200):
    at = turn * 977 % (n - 5000)
    assert os.pwrite(w, bytes([turn]) * 5000, at) == 5000
    changing[at + 2500] = 255 - turn
    want = bytes([turn]) * 2500 + bytes([255 - turn]) + bytes([turn]) * 2499
    for tries in range(100):
        seen = [os.pread(r, 5000, at), m[at:at + 5000], os.pread(both, 5000, at)]
        if all(s == want for s in seen): break
    else: sys.exit(f'turn {turn}: {[s == want for s in seen]}')
done.set()
busy.join()
";
    let output = Command::new("python3").args(["-c", program]).arg(mount.path("x")).output().unwrap();
    assert!(output.status.success(), "{}; log: {}", String::from_utf8_lossy(&output.stderr), mount.log());
}

/// Programs that save a file make another one and rename it.
#[test]
fn a_file_that_is_replaced_again_and_again_is_always_there_and_whole() {
    const TIMES: u32 = 4000;
    const LEN: usize = 20_000;
    let place = Place::new();
    let file = place.dir().join("new.h5");
    assert_eq!(run(&mut h5dir(&["create", file.to_str().unwrap()])).0, 0);
    let mount = Mount::start(place, &file, &["--read-write"]);
    let (name, other) = (mount.path("name"), mount.path("other"));
    std::fs::write(&name, [1; LEN]).unwrap();
    let ended = AtomicBool::new(false);
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    let bytes = std::fs::read(&name).unwrap();
                    assert!(bytes.len() == LEN && bytes.iter().all(|b| *b == bytes[0]), "{} bytes", bytes.len());
                    assert_eq!(std::fs::metadata(&name).unwrap().len(), LEN as u64);
                }
            });
        }
        s.spawn(|| {
            for i in 0..TIMES {
                std::fs::write(&other, [i as u8; LEN]).unwrap();
                std::fs::rename(&other, &name).unwrap();
            }
            ended.store(true, Ordering::Relaxed);
        });
    });
    assert_eq!(mount.log(), "");
    assert_eq!(run(h5dir(&["umount"]).arg(mount.place.mnt())), (0, String::new()));
    let len = std::fs::metadata(&file).unwrap().len();
    assert!(len < 8 << 20, "what was replaced is used again: {len} bytes");
}

/// Regression: an open(2) by another process had the kernel drop the pages of a file while a write
/// to one of them was under way. The page was read again, without the bytes of that write: the
/// writer itself no longer read them, and a store to the page lost them.
#[test]
fn opens_by_others_hide_no_write() {
    const PAGE: u64 = 4096;
    let (mount, _) = super::facts::empty("v110");
    let path = mount.path("d");
    std::fs::write(&path, vec![0u8; 8 * PAGE as usize]).unwrap();
    let ended = AtomicBool::new(false);
    let stale = std::thread::scope(|scope| {
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let reader = || {
            let other = File::open(&path).unwrap();
            for n in (0..).take_while(|_| !ended.load(Ordering::Relaxed)) {
                drop(File::open(&path).unwrap());
                other.read_exact_at(&mut [0; 8], n % 8 * PAGE).unwrap();
            }
        };
        (0..2).for_each(|_| drop(scope.spawn(reader)));
        let mut stale = 0;
        for n in 1..20_000u64 {
            let (at, mut there) = (n % 8 * PAGE, [0; 8]);
            file.write_all_at(&n.to_le_bytes(), at).unwrap();
            file.read_exact_at(&mut there, at).unwrap();
            stale += u64::from(u64::from_le_bytes(there) != n);
        }
        ended.store(true, Ordering::Relaxed);
        stale
    });
    assert_eq!(stale, 0, "reads without the bytes written before");
}

/// What others change shows when a file is opened, though it is open for reading and writing.
#[test]
fn opens_show_what_others_changed_of_a_file_that_is_written() {
    let place = Place::new();
    let tree = place.dir().join("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("plain"), [b'a'; 5000]).unwrap();
    let mount = Mount::start(place, &tree, &["--read-write"]);
    let written = File::options().read(true).write(true).open(mount.path("plain")).unwrap();
    for (own, other) in [(b'b', b'c'), (b'd', b'e')] {
        written.write_all_at(&[own; 100], 0).unwrap();
        assert_eq!(mount.read("plain")[..100], [own; 100]);
        // Times of files have ticks of a few milliseconds.
        std::thread::sleep(Duration::from_millis(30));
        std::fs::write(tree.join("plain"), [other; 5000]).unwrap();
        assert_eq!(mount.read("plain"), [other; 5000]);
    }
    let place = Place::new();
    let container = format!("iod:{}", place.dir().join("container").display());
    assert_eq!(run(&mut h5dir(&["create", &container])), (0, String::new()));
    let options = ["--read-write", "--commit-interval=1"];
    let first = Mount::start(place, container.as_ref(), &options);
    std::fs::write(first.path("d"), [b'a'; 5000]).unwrap();
    let written = File::options().read(true).write(true).open(first.path("d")).unwrap();
    written.sync_all().unwrap();
    let second = Mount::start(Place::new(), container.as_ref(), &options);
    let other = File::options().write(true).open(second.path("d")).unwrap();
    other.write_all_at(&[b'b'; 5000], 0).unwrap();
    other.sync_all().unwrap();
    eventually("the first mount shows it", || first.read("d") == [b'b'; 5000]);
}
