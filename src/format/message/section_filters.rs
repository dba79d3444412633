//! Section filters message, type 0x0019: the filters of each section of structured chunks
//! (H5Ostc_pline.c of HDF5's sparse data branch; no release has it).
//!
//! ```text
//! version 1 | sections with filters u8 | for each, ascending:
//!     section u8 | count u8 | bytes of the filters u16 | filters as in a filter pipeline message
//!     of version 2
//! ```

use super::filter_pipeline::FilterDescription;
use crate::base::{Address, Error, Result, limits};
use crate::format::chunk_record::SECTIONS_MAX;
use crate::format::{Reader, Writer};

/// Standard name, used in errors.
pub const NAME: &str = "section filters message";
/// Version of the message.
const VERSION: u8 = 1;
/// Version of the filter pipeline message whose filters have the same form.
const PIPELINE_VERSION: u8 = 2;

/// A decoded section filters message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SectionFilters {
    /// Sections that have filters, ascending: number, filters in the order of writing.
    pub sections: Vec<(u8, Vec<FilterDescription>)>,
}

impl SectionFilters {
    /// Decodes a message body, which may be followed by padding. `address` is the message's, for
    /// errors.
    pub fn decode(body: &[u8], address: Address) -> Result<Self> {
        let mut r = Reader::new(body, NAME, address);
        r.version(VERSION..=VERSION)?;
        let count = r.u8()?;
        let mut sections: Vec<(u8, Vec<FilterDescription>)> = Vec::new();
        for _ in 0..count {
            let (section, filters, bytes) = (r.u8()?, r.u8()?, r.u16()?);
            let is_next = sections.last().is_none_or(|(last, _)| *last < section);
            if !is_next || usize::from(section) >= SECTIONS_MAX {
                return Err(r.corrupt(format!("filters of section {section} after those of {} sections", sections.len())));
            }
            if usize::from(filters) > limits::FILTERS_MAX {
                return Err(r.corrupt(format!("{filters} filters of section {section}")));
            }
            let mut list = r.sub(usize::from(bytes))?;
            let all = (0..filters).map(|_| FilterDescription::decode(&mut list, PIPELINE_VERSION)).collect::<Result<_>>()?;
            if list.remaining() > 0 {
                return Err(r.corrupt(format!("{} bytes after the filters of section {section}", list.remaining())));
            }
            sections.push((section, all));
        }
        Ok(SectionFilters { sections })
    }

    /// Encodes the message body. Errors: more filters or longer ones than the fields can count.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let unencodable = |_| Error::unsupported(NAME, Address::UNDEF, "too many filters, or too long ones");
        let mut w = Writer::new();
        w.u8(VERSION).u8(u8::try_from(self.sections.len()).map_err(unencodable)?);
        for (section, filters) in &self.sections {
            let mut list = Writer::new();
            filters.iter().for_each(|f| f.encode(&mut list, PIPELINE_VERSION));
            let list = list.into_bytes();
            w.u8(*section).u8(u8::try_from(filters.len()).map_err(unencodable)?);
            w.u16(u16::try_from(list.len()).map_err(unencodable)?).bytes(&list);
        }
        Ok(w.into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by hand from the table of the proposal: deflate on section 0; shuffle, zstd on section
    /// 1.
    const GOLDEN: [u8; 47] = [
        1, 2, // version, sections
        0, 1, 10, 0, // section 0: one filter of 10 bytes
        1, 0, 1, 0, 1, 0, 6, 0, 0, 0, // deflate, optional, one value: 6
        1, 2, 27, 0, // section 1: two filters of 27 bytes
        2, 0, 1, 0, 1, 0, 4, 0, 0, 0, // shuffle, optional, one value: 4
        0x0f, 0x7d, 5, 0, 0, 0, 1, 0, b'z', b's', b't', b'd', 0, 3, 0, 0, 0, // 32015, name of 5 bytes, one value: 3
    ];

    fn filter(id: u16, flags: u16, name: &str, value: u32) -> FilterDescription {
        FilterDescription { id, flags, name: name.into(), cd_values: vec![value], config: None }
    }

    #[test]
    fn the_message_is_that_of_the_proposal() {
        let first = vec![filter(1, 1, "", 6)];
        let second = vec![filter(2, 1, "", 4), filter(32015, 0, "zstd", 3)];
        let message = SectionFilters { sections: vec![(0, first), (1, second)] };
        assert_eq!(message.encode().unwrap(), GOLDEN);
        assert_eq!(SectionFilters::decode(&GOLDEN, Address(0)).unwrap(), message);
        let padded = [&GOLDEN[..], &[0; 5]].concat();
        assert_eq!(SectionFilters::decode(&padded, Address(0)).unwrap(), message);
    }

    #[test]
    fn damage_is_an_error_or_another_message() {
        for n in 0..GOLDEN.len() {
            assert!(SectionFilters::decode(&GOLDEN[..n], Address(0)).is_err());
            for bit in 0..8 {
                let mut bad = GOLDEN;
                bad[n] ^= 1 << bit;
                if let Ok(message) = SectionFilters::decode(&bad, Address(0)) {
                    assert_eq!(SectionFilters::decode(&message.encode().unwrap(), Address(0)).unwrap(), message);
                }
            }
        }
        // Version, section out of order or past the last, filter count, length of the list.
        for (at, to) in [(0, 3), (2, 1), (16, 0), (16, 3), (3, 33), (4, 9), (4, 11)] {
            let mut bad = GOLDEN;
            bad[at] = to;
            assert!(SectionFilters::decode(&bad, Address(0)).is_err(), "byte {at}");
        }
    }
}
