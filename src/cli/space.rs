//! `h5dir stat --space`: live, free and dead bytes of a file.

use super::failure::{Exit, Failure};
use super::output::{self, Documents};
use super::targets::{self, Asked, Manner};
use super::text;
use crate::base::escape::escaped;
use crate::config::args::StatArgs;
use crate::fs::open::{self, SpaceUse};
use crate::fs::{ExternalPolicy, MountSpec};
use serde_json::{Value, json};
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;

/// Part of a file above which dead bytes are explained, percent.
const DEAD_PERCENT: u64 = 10;

/// Runs `h5dir stat --space`.
pub(crate) fn space(args: &StatArgs) -> Result<(), Failure> {
    let asked = Asked::of_views(&args.view.targets, &args.view.options).into_iter().map(|asked| {
        let Asked { text, found } = asked.whole("stat --space");
        // Only the file itself is read.
        Asked { text, found: found.map(|(spec, path)| (MountSpec { external: ExternalPolicy::Off, ..spec }, path)) }
    });
    let mut out = BufWriter::new(io::stdout().lock());
    let (mut documents, mut first) = (Documents::default(), true);
    let counted = targets::each_container(asked.collect(), Manner::new("read"), &mut |spec, located, several| {
        let used = open::space(located, &mut |damage| super::print_error(&damage.to_string())).map_err(|e| Failure::open("read", &e))?;
        let printed = if args.view.options.json {
            documents.add(&json(spec, &used), several, &mut out)
        } else {
            let gap = if std::mem::take(&mut first) { "" } else { "\n" };
            write!(out, "{gap}").and_then(|()| print(spec, &used, &mut out))
        };
        if output::printed(printed.and_then(|()| out.flush()))?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        if used.unreadable > 0 {
            let message = format!("{} cannot be read as a whole: bytes of damaged objects count as dead", escaped(&spec.file));
            return Err(Failure::new(Exit::General, message));
        }
        Ok(ControlFlow::Continue(()))
    });
    output::ended(counted, documents.end(&mut out).and_then(|()| out.flush()))
}

/// Tenths of a percent that `part` is of `total`.
fn permille(part: u64, total: u64) -> u64 {
    let permille = u128::from(part).saturating_mul(1000).checked_div(u128::from(total)).unwrap_or(0);
    u64::try_from(permille).unwrap_or(u64::MAX)
}

fn print(spec: &MountSpec, used: &SpaceUse, out: &mut dyn Write) -> io::Result<()> {
    let share = |part: u64| {
        let permille = permille(part, used.total);
        format!("{part} bytes ({}.{} %)", permille / 10, permille % 10)
    };
    let mut line = |key: &str, value: String| writeln!(out, "{key:>11}: {value}");
    line("File", text::name(spec.file.as_os_str().as_encoded_bytes()))?;
    line("Live", share(used.live()))?;
    line("Metadata", format!("  {} bytes", used.metadata))?;
    if used.user_block > 0 {
        line("User block", format!("  {} bytes", used.user_block))?;
    }
    line("Raw data", format!("  {} bytes", used.raw))?;
    line("Global heap", format!("  {} bytes", used.heap))?;
    line("Free", share(used.free))?;
    line("Dead", share(used.dead()))?;
    line("Total", format!("{} bytes", used.total))?;
    for (count, what) in [
        (used.unreadable, "objects or structures cannot be read: their bytes count as dead"),
        (used.claimed_twice, "bytes are claimed twice: the file is damaged"),
        (used.past_end, "bytes of structures are past the end of the file"),
    ] {
        if count > 0 {
            writeln!(out, "{count} {what}.")?;
        }
    }
    if let Some(note) = used.user_block_note() {
        writeln!(out, "{note}")?;
    }
    if !used.overlaps_checked {
        writeln!(out, "The file has too many extents to find all bytes that are claimed twice.")?;
    }
    if permille(used.dead(), used.total) > DEAD_PERCENT * 10 {
        let advice = "h5dir reuses free space by itself but cannot find dead space: 'h5repack FILE NEW' makes a copy without both.";
        writeln!(out, "{advice}")?;
    }
    Ok(())
}

fn json(spec: &MountSpec, used: &SpaceUse) -> Value {
    json!({
        "file": text::json(spec.file.as_os_str().as_encoded_bytes()),
        "live": used.live(),
        "metadata": used.metadata,
        "user_block": used.user_block,
        "recorded_user_block": used.recorded_user_block,
        "raw": used.raw,
        "global_heap": used.heap,
        "free": used.free,
        "dead": used.dead(),
        "total": used.total,
        "unreadable": used.unreadable,
        "claimed_twice": used.claimed_twice,
        "past_end": used.past_end,
        "overlaps_checked": used.overlaps_checked,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(used: &SpaceUse) -> String {
        let mut out = Vec::new();
        print(&MountSpec::new("/f.h5"), used, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn much_dead_space_and_overlaps_are_explained() {
        let used = SpaceUse { total: 1000, metadata: 100, raw: 700, free: 100, overlaps_checked: true, ..SpaceUse::default() };
        let text = printed(&used);
        assert!(text.contains("Live: 800 bytes (80.0 %)\n") && text.contains("Dead: 100 bytes (10.0 %)\n"), "{text}");
        assert!(!text.contains("h5repack") && !text.contains("twice") && !text.contains("cannot be read"), "{text}");
        let text = printed(&SpaceUse { raw: 699, claimed_twice: 3, unreadable: 2, past_end: 4, overlaps_checked: false, ..used });
        for part in
            ["Dead: 101 bytes (10.1 %)", "h5repack", "3 bytes are claimed twice", "2 objects or", "4 bytes of structures", "too many"]
        {
            assert!(text.contains(part), "{part:?} in {text}");
        }
        assert_eq!(permille(1, 0), 0);
    }
}
