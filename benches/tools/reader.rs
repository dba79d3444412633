//! Reads a file and prints the seconds it took, the open included. Built by `benches/run` with rustc.
//!
//! ```text
//! reader seq FILE BLOCK             from the start to the end, BLOCK bytes at a time into the same buffer
//! reader fill FILE BLOCK            the same into one buffer of the file's size, used before
//! reader random FILE BLOCK COUNT    COUNT reads of BLOCK bytes at aligned pseudo-random offsets
//! reader spread FILE BLOCK COUNT    one read in each of COUNT equal parts of the file, in random order
//! reader loop FILE BLOCK            such reads past the page cache, until it is killed
//! ```

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::Instant;

/// Of open(2), on x86-64.
const O_DIRECT: i32 = 0x4000;

/// Knuth's MMIX generator: enough to scatter offsets, and the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 11) % n
    }
}

fn main() -> std::io::Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let [_, mode, path, block, rest @ ..] = args.as_slice() else { panic!("reader MODE FILE BLOCK [COUNT]") };
    let block: usize = block.parse().expect("BLOCK is a number");
    let count: u64 = rest.first().map_or(0, |c| c.parse().expect("COUNT is a number"));
    let mut random = Random(42);
    let size = std::fs::metadata(path)?.len();
    let mut buffer = vec![1u8; if mode == "fill" { size as usize } else { block }];
    if mode == "loop" {
        let file = OpenOptions::new().read(true).custom_flags(O_DIRECT).open(path)?;
        loop {
            file.read_at(&mut buffer, random.below(size / block as u64) * block as u64)?;
        }
    }
    let offsets: Vec<u64> = match mode.as_str() {
        "seq" | "fill" => Vec::new(),
        "random" => (0..count).map(|_| random.below(size / block as u64) * block as u64).collect(),
        "spread" => {
            let part = size / count;
            let mut all: Vec<u64> = (0..count).map(|i| i * part + random.below(part / block as u64) * block as u64).collect();
            for i in (1..all.len()).rev() {
                all.swap(i, random.below(i as u64 + 1) as usize);
            }
            all
        }
        _ => panic!("MODE is seq, fill, random, spread or loop"),
    };
    let start = Instant::now();
    let file = File::open(path)?;
    let mut bytes = 0u64;
    if mode == "fill" {
        for part in buffer.chunks_mut(block) {
            bytes += file.read_at(part, bytes)? as u64;
        }
    } else if mode == "seq" {
        loop {
            let n = file.read_at(&mut buffer, bytes)?;
            bytes += n as u64;
            if n == 0 {
                break;
            }
        }
    } else {
        for offset in offsets {
            bytes += file.read_at(&mut buffer, offset)? as u64;
        }
    }
    drop(file);
    println!("{} {bytes}", start.elapsed().as_secs_f64());
    Ok(())
}
