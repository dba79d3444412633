//! A selection of a dataset as JSON, in the form of hdf5-json's region references.

use crate::base::hyperslab::HyperslabDim;
use crate::base::parts::Region;
use serde_json::{Value, json};

/// Most numbers shown; a longer selection is shown by its count.
const NUMBERS_MAX: usize = 4096;

/// Description of `region`; its bytes when they could not be decoded.
pub fn json(region: &Region) -> Result<Value, &[u8]> {
    Ok(match region {
        Region::Opaque(bytes) => return Err(bytes),
        Region::None => json!({"select_type": "H5S_SEL_NONE"}),
        Region::All => json!({"select_type": "H5S_SEL_ALL"}),
        Region::Points { rank, coordinates } => match coordinates.len() {
            n if n > NUMBERS_MAX => json!({"select_type": "H5S_SEL_POINTS", "count": n.checked_div(*rank)}),
            _ => json!({"select_type": "H5S_SEL_POINTS", "selection": tuples(coordinates, *rank)}),
        },
        Region::Blocks { rank, corners } => match corners.len() {
            n if n > NUMBERS_MAX => json!({"select_type": "H5S_SEL_HYPERSLABS", "count": n.checked_div(rank.saturating_mul(2))}),
            _ => {
                let points = tuples(corners, *rank);
                let blocks: Vec<Value> = points.chunks(2).map(|b| Value::Array(b.to_vec())).collect();
                json!({"select_type": "H5S_SEL_HYPERSLABS", "selection": blocks})
            }
        },
        Region::Regular(dims) => {
            let each = |f: fn(&HyperslabDim) -> u64| dims.iter().map(f).collect::<Vec<_>>();
            json!({
                "select_type": "H5S_SEL_HYPERSLABS",
                "start": each(|d| d.start), "stride": each(|d| d.stride), "count": each(|d| d.count), "block": each(|d| d.block),
            })
        }
    })
}

fn tuples(numbers: &[u64], rank: usize) -> Vec<Value> {
    numbers.chunks(rank.max(1)).map(|c| json!(c)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_and_blocks() {
        let points = Region::Points { rank: 2, coordinates: vec![0, 1, 2, 3] };
        assert_eq!(json(&points), Ok(json!({"select_type": "H5S_SEL_POINTS", "selection": [[0, 1], [2, 3]]})));
        let block = Region::Blocks { rank: 2, corners: vec![0, 2, 0, 4] };
        assert_eq!(json(&block), Ok(json!({"select_type": "H5S_SEL_HYPERSLABS", "selection": [[[0, 2], [0, 4]]]})));
        assert_eq!(json(&Region::Opaque(vec![7])), Err(&[7][..]));
    }
}
