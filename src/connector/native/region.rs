//! A serialized selection as JSON, in the form of hdf5-json's region references.

use crate::base::Address;
use crate::base::hyperslab::HyperslabDim;
use crate::format::Reader;
use crate::format::selection::SerializedSelection;
use serde_json::{Value, json};

/// Most numbers shown; a longer selection is told by its count.
const NUMBERS_MAX: usize = 4096;

/// Description of `selection`; `None` when it cannot be decoded.
pub fn json(selection: &[u8]) -> Option<Value> {
    let mut r = Reader::new(selection, "region reference", Address::UNDEF);
    Some(match SerializedSelection::decode(&mut r).ok()? {
        SerializedSelection::None(_) => json!({"select_type": "H5S_SEL_NONE"}),
        SerializedSelection::All(_) => json!({"select_type": "H5S_SEL_ALL"}),
        SerializedSelection::Points { rank, coordinates, .. } => match coordinates.len() {
            n if n > NUMBERS_MAX => json!({"select_type": "H5S_SEL_POINTS", "count": n.checked_div(rank)}),
            _ => json!({"select_type": "H5S_SEL_POINTS", "selection": tuples(&coordinates, rank)}),
        },
        SerializedSelection::Blocks { rank, corners, .. } => match corners.len() {
            n if n > NUMBERS_MAX => json!({"select_type": "H5S_SEL_HYPERSLABS", "count": n.checked_div(rank.saturating_mul(2))}),
            _ => {
                let points = tuples(&corners, rank);
                let blocks: Vec<Value> = points.chunks(2).map(|b| Value::Array(b.to_vec())).collect();
                json!({"select_type": "H5S_SEL_HYPERSLABS", "selection": blocks})
            }
        },
        SerializedSelection::Regular { dims, .. } => {
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
        // Two points of rank 2, version 1, as H5Sencode writes them behind the extent.
        let mut points = vec![];
        for n in [1u32, 1, 0, 24, 2, 2, 0, 1, 2, 3] {
            points.extend_from_slice(&n.to_le_bytes());
        }
        assert_eq!(json(&points).unwrap(), json!({"select_type": "H5S_SEL_POINTS", "selection": [[0, 1], [2, 3]]}));
        let mut block = vec![];
        for n in [2u32, 1, 0, 24, 2, 1, 0, 2, 0, 4] {
            block.extend_from_slice(&n.to_le_bytes());
        }
        assert_eq!(json(&block).unwrap(), json!({"select_type": "H5S_SEL_HYPERSLABS", "selection": [[[0, 2], [0, 4]]]}));
        assert!(json(&block[..20]).is_none());
    }
}
