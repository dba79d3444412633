//! Writes files and prints the seconds it took, opening and closing included. Built by `benches/run` with rustc.
//!
//! ```text
//! writer seq FROM FILE BLOCK             FROM's bytes, read before, in order, BLOCK bytes at a time, into FILE, which is there
//! writer random FROM FILE BLOCK COUNT    COUNT blocks of FROM's bytes over aligned pseudo-random places of FILE
//! writer files FROM DIRECTORY BLOCK COUNT   COUNT new files of BLOCK bytes in DIRECTORY, each closed
//! ```

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::time::Instant;

fn main() -> std::io::Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let [_, mode, from, to, block, rest @ ..] = args.as_slice() else { panic!("writer MODE FROM TO BLOCK [COUNT]") };
    let block: usize = block.parse().expect("BLOCK is a number");
    let count: u64 = rest.first().map_or(0, |c| c.parse().expect("COUNT is a number"));
    let bytes = std::fs::read(from)?;
    let source = |n: u64| {
        let at = (n as usize * block) % (bytes.len() - block + 1);
        &bytes[at..at + block]
    };
    // Knuth's MMIX generator: the same places in every run.
    let mut state = 42u64;
    let mut below = |n: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 11) % n
    };
    let start = Instant::now();
    match mode.as_str() {
        "seq" => {
            let file = OpenOptions::new().write(true).open(to)?;
            let mut at = 0;
            for part in bytes.chunks(block) {
                file.write_all_at(part, at)?;
                at += part.len() as u64;
            }
        }
        "random" => {
            let file = OpenOptions::new().write(true).open(to)?;
            let places = file.metadata()?.len() / block as u64;
            for i in 0..count {
                file.write_all_at(source(i), below(places) * block as u64)?;
            }
        }
        "files" => {
            for i in 0..count {
                // As `cp` and `tar` open what they write.
                let new = OpenOptions::new().write(true).create_new(true).open(format!("{to}/d{i:06}"))?;
                (&new).write_all(source(i))?;
            }
        }
        _ => panic!("MODE is seq, random or files"),
    }
    println!("{}", start.elapsed().as_secs_f64());
    Ok(())
}
