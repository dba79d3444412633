//! Many small changes by several programs: the event loops that stay away meanwhile come when they are needed, and end.

use super::mounted::Mount;
use super::python;
use super::support::{Place, eventually, h5dir, is_mounted, run};
use super::writing::{h5py, shell};

fn created() -> (Mount, std::path::PathBuf) {
    let place = Place::new();
    let file = place.dir().join("new.h5");
    assert_eq!(run(&mut h5dir(&["create", file.to_str().unwrap()])).0, 0);
    (Mount::start(place, &file, &["--read-write", "--threads=4"]), file)
}

/// Four programs make 300 files each, which three others read meanwhile; the last of all is a change.
const WORK: &str = "mkdir a b c d
    for w in a b c d; do (i=0; while [ $i -lt 300 ]; do echo $w$i >$w/$i; i=$((i + 1)); done) & made=\"$made $!\"; done
    for r in 1 2 3; do (while ! test -e end; do cat a/* b/1* 2>/dev/null; ls -l c; getfattr -d d/* 2>/dev/null; done >../read$r) & done
    wait $made; : >end; wait
    i=0; while [ $i -lt 100 ]; do echo $i >end; i=$((i + 1)); done";

const CHECK: &str = "print(all(f[w][str(i)][()].tobytes() == f'{w}{i}\\n'.encode() for w in 'abcd' for i in range(300)), \
     f['end'][()].tobytes(), len(f))";

#[test]
fn loops_that_stay_away_end_with_the_mount() {
    for end in ["umount", "lazy", "signal"] {
        let (mut mount, file) = created();
        shell(&mount, WORK);
        match end {
            "signal" => assert_eq!(mount.terminate(), Some(0)),
            "lazy" => assert_eq!(run(h5dir(&["umount", "--lazy"]).arg(mount.place.mnt())), (0, String::new())),
            _ => assert_eq!(run(h5dir(&["umount"]).arg(mount.place.mnt())), (0, String::new())),
        }
        eventually("it is unmounted, and the daemon ends", || {
            !is_mounted(&mount.place.mnt()) && mount.daemon().try_wait().unwrap().is_some_and(|status| status.success())
        });
        assert_eq!(h5py(&file, "r", CHECK), "True b'99\\n' 5\n", "{}", mount.log());
    }
}

#[test]
fn programs_that_change_and_sync_at_once_lose_nothing() {
    let (mount, file) = created();
    shell(&mount, WORK);
    // Each program's changes are made durable over and over, which takes long; a change and a look come in between.
    let script = "for w in a b c d; do (i=0; while [ $i -lt 30 ]; do echo new >$w/n; sync $w/n; i=$((i + 1)); done) & done
        i=0; while [ $i -lt 200 ]; do echo $i >e$i; cat e$i >/dev/null; rm e$i; i=$((i + 1)); done; wait; ls | wc -l";
    assert_eq!(shell(&mount, script), "5\n");
    assert_eq!(run(h5dir(&["umount"]).arg(mount.place.mnt())), (0, String::new()));
    eventually("it is unmounted", || !is_mounted(&mount.place.mnt()));
    assert_eq!(h5py(&file, "r", CHECK), "True b'99\\n' 5\n", "{}", mount.log());
}

/// More programs than there are event loops change layouts and sync what they write; others do not wait for these.
#[test]
fn short_requests_do_not_wait_for_long_ones_of_all_loops() {
    let place = Place::new();
    let file = place.dir().join("new.h5");
    assert_eq!(run(&mut h5dir(&["create", file.to_str().unwrap()])).0, 0);
    let mut mount =
        Mount::start(place, &file, &["--read-write", "--threads=2", "--cache-size=16M", "--attr-timeout=0", "--entry-timeout=0"]);
    let program = r#"
import os, threading, numpy as np
values = np.random.default_rng(1).integers(0, 99, 2_000_000).astype('f8')
layout = b'{"dtype":"<f8","shape":[2000000],"chunks":[50000],"filters":["deflate 9"]}'
os.mkdir('names')
for i in range(10): open(f'names/{i}', 'w').write('x')
for i in range(4): values.tofile(f'big{i}')
ended, served = [], 0
def change(i):
    os.setxattr(f'big{i}', 'user.h5dir.dataset', layout)
    ended.append(served)
def sync(i):
    with open(f'big{i}', 'r+b') as f:
        while not ended:
            f.write(b'1' * 100_000)
            os.fsync(f.fileno())
threads = [threading.Thread(target=change, args=(i,)) for i in range(3)] + [threading.Thread(target=sync, args=(3,))]
for t in threads: t.start()
while not ended:
    assert len(os.listdir('names')) == 10 and os.stat('names/3').st_size == 1 and not os.path.exists('names/none')
    served += 1
for t in threads: t.join()
# If requests waited for a change of layout, few would be served before the first change ends.
print(ended[0] > 20 or ended, all((np.fromfile(f'big{i}') == values).all() for i in range(3)))"#;
    let output = std::process::Command::new(python::with_h5py()).args(["-c", program]).current_dir(mount.place.mnt()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(text, "True True\n", "{}", mount.log());
    assert_eq!(mount.terminate(), Some(0));
    let check = "print([f[f'big{i}'].chunks for i in range(3)], all((f[f'big{i}'][()] == f['big0'][()]).all() for i in range(3)))";
    assert_eq!(h5py(&file, "r", check), "[(50000,), (50000,), (50000,)] True\n");
}
