//! Files that netCDF made, and what may be done to them so that netCDF still takes them.
//!
//! It refuses a file whose dimensions are gone or lie elsewhere, and one with a link that leads nowhere, whoever made it so:
//! sequences leave these out. `tests/oracle/netcdf_check.py` says what netCDF must find at the end.

use super::operations::Op;

/// Dimensions: they stay under their names.
const DIMENSIONS: [&str; 4] = ["time", "lev", "x", "y"];
/// Variables and groups. They can be removed, but a variable that is moved may be out of reach of its dimensions.
const OTHERS: [&str; 9] = ["temp", "place", "once", "flux", "rain", "whole", "letters", "g", "below"];
/// Attributes by which netCDF finds dimensions.
const KEPT: [&str; 6] = ["CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "_Netcdf4Dimid", "_Netcdf4Coordinates"];

/// Whether the start is a file of netCDF.
pub fn is(start: &str) -> bool {
    start.starts_with("netcdf")
}

/// Attributes that point to datasets are shown as paths, so that their text follows what is renamed; the model's do not.
pub fn tells_names(attribute: &[u8]) -> bool {
    matches!(attribute, b"user.DIMENSION_LIST" | b"user.REFERENCE_LIST")
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether `op` may be done to a file that began as `start`.
pub fn allows(start: &str, op: &Op) -> bool {
    let dimension = |path: &str| DIMENSIONS.contains(&last(path));
    let own = |path: &str| dimension(path) || OTHERS.contains(&last(path));
    let has_own = |path: &str| path.is_empty() || own(path);
    !is(start)
        || match op {
            Op::Symlink(..) => false,
            // New files hold bytes without a sign, a type that the classic model lacks.
            Op::Create { .. } | Op::Mknod(_) | Op::Many(..) => start != "netcdf3",
            Op::Unlink(path) | Op::Rmdir(path) => !dimension(path),
            Op::Link(from, to) | Op::Rename(from, to, _) => !own(from) && !own(to),
            Op::Thin(path) => !has_own(path),
            Op::RemoveXattr(_, name) => !KEPT.iter().any(|kept| name.strip_prefix("user.") == Some(kept)),
            _ => true,
        }
}
