//! One decoder: its number, client data and expected size from the first bytes, the rest is its input.
#![no_main]

use h5dir::filter::{FilterSpec, Params};
use h5dir::filter::pipeline::Pipeline;
use h5dir::filter::registry::decoder;
use libfuzzer_sys::fuzz_target;

const FILTERS: [u16; 16] = [1, 2, 3, 4, 5, 6, 307, 32000, 32001, 32003, 32004, 32008, 32013, 32015, 32026, 305];

fuzz_target!(|data: &[u8]| {
    let [which, second, values, size, rest @ ..] = data else { return };
    let (n, size) = (usize::from(values % 24), usize::from(*size) * 64 + 1);
    let (client, input) = rest.split_at(rest.len().min(n * 4));
    let cd_values: Vec<u32> = client.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect();
    let id = |n: u8| FILTERS[usize::from(n) % FILTERS.len()];
    let limit = size * 2 + 65_536;
    if let Some(decode) = decoder(id(*which))
        && let Ok(out) = decode(input, &Params { cd_values: &cd_values, expected: size, limit })
    {
        assert!(out.len() <= limit);
    }
    let spec = |id| FilterSpec { id, flags: 0, name: Vec::new(), cd_values: cd_values.clone() };
    let pipeline = Pipeline { filters: vec![spec(id(*second)), spec(id(*which))] };
    if let Ok(out) = pipeline.decode(input, 0, size) {
        assert_eq!(out.len(), size);
    }
});
