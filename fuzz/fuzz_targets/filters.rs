//! One filter: its number, client data and expected size from the first bytes, the rest is its input. The high bit of the
//! first byte encodes the input, and the filters without loss must decode it again.
//!
//! A decoder has `limit` bytes for its output, 97 KiB at most.
#![no_main]

use h5dir::filter::pipeline::Pipeline;
use h5dir::filter::registry::{decoder, is_lossless};
use h5dir::filter::{FilterSpec, Params};
use libfuzzer_sys::fuzz_target;

const FILTERS: [u16; 16] = [1, 2, 3, 4, 5, 6, 307, 32000, 32001, 32003, 32004, 32008, 32013, 32015, 32026, 305];
/// Encodes in place of decoding.
const ENCODES: u8 = 1 << 7;

fuzz_target!(|data: &[u8]| {
    let [which, second, values, size, rest @ ..] = data else { return };
    let (n, size) = (usize::from(values % 24), usize::from(*size) * 64 + usize::from(values / 24));
    let (client, input) = rest.split_at(rest.len().min(n * 4));
    let cd_values: Vec<u32> = client.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect();
    let id = |n: u8| FILTERS[usize::from(n) % FILTERS.len()];
    let spec = |id| FilterSpec { id, flags: 0, name: Vec::new(), cd_values: cd_values.clone() };
    if which & ENCODES != 0 {
        return encode(Pipeline { filters: vec![spec(id(*which))] }, input);
    }
    let limit = size * 2 + 65_536;
    if let Some(decode) = decoder(id(*which))
        && let Ok(out) = decode(input, &Params { cd_values: &cd_values, expected: size, limit })
    {
        assert!(out.len() <= limit);
    }
    let pipeline = Pipeline { filters: vec![spec(id(*second)), spec(id(*which))] };
    if let Ok(out) = pipeline.decode(input, 0, size) {
        assert_eq!(out.len(), size);
    }
});

/// Encodes a chunk, which has a byte at least.
fn encode(pipeline: Pipeline, input: &[u8]) {
    if input.is_empty() {
        return;
    }
    let Ok((stored, mask)) = pipeline.encode(input.to_vec()) else { return };
    let decoded = pipeline.decode(&stored, mask, input.len());
    if pipeline.filters.iter().all(|filter| is_lossless(filter.id)) {
        assert!(decoded.is_ok_and(|decoded| decoded == input));
    }
}
