//! Tests of the data layout message. All messages were written by libhdf5 2.0.0 (h5py 3.16).

use super::*;

fn hex(s: &str) -> Vec<u8> {
    let s: Vec<u8> = s.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    s.chunks(2).map(|p| u8::from_str_radix(std::str::from_utf8(p).unwrap(), 16).unwrap()).collect()
}

fn decode(s: &str) -> DataLayout {
    DataLayout::decode(&hex(s), &Context::DEFAULT, Address(96)).unwrap()
}
