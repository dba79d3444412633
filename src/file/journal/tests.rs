//! Journals as they are written, torn and found.

use super::*;
use crate::file::memory::GrowingFile;

const OWNER: Identity = Identity { device: 3, inode: 4 };

fn journal() -> Journal {
    let records = vec![(0, vec![3; 512]), (1024, vec![4; 1024])];
    Journal { owner: OWNER, nonce: 77, root: 512, marked: vec![1; 512], settled: vec![2; 512], records, free_record: None }
}

/// The journal in `bytes` for a file of `end` bytes, or why it is ignored.
fn verified(bytes: Vec<u8>, end: u64) -> Result<StoredJournal, Reason> {
    let mut found = StoredJournal::open(Arc::new(GrowingFile::new(bytes))).unwrap()?;
    found.verify(end).unwrap()?;
    Ok(found)
}

#[test]
fn round_trip_and_damage() {
    let bytes = journal().encode();
    let found = verified(bytes.clone(), 2048).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((found.root(), found.nonce(), &found.marked, &found.settled), (512, Some(77), &vec![1; 512], &vec![2; 512]));
    assert_eq!(kind(&GrowingFile::new(bytes.clone())).unwrap(), JournalKind::Armed(Some(OWNER)));
    // The place of a record of free space has a checksum of its own.
    for i in 0..bytes.len() - PLACE_LEN {
        assert!(verified(bytes[..i].to_vec(), 2048).is_err(), "cut to {i}");
        let mut bad = bytes.clone();
        bad[i] ^= 0x10;
        assert!(verified(bad, 2048).is_err(), "byte {i}");
    }
    // Bytes of a longer journal after it are ignored.
    let mut longer = bytes.clone();
    longer.extend([9; 100]);
    assert!(verified(longer, 2048).is_ok());
}

#[test]
fn records_are_whole_sectors_in_order_within_the_file() {
    let with = |records: Vec<(u64, Vec<u8>)>| verified(Journal { records, ..journal() }.encode(), 4096).err();
    let sector = || vec![7; 512];
    assert_eq!(with(vec![(1024, sector()), (3584, sector())]), None);
    assert_eq!(with(Vec::new()), None);
    for (records, reason) in [
        (vec![(4096, sector())], "a record lies past the end of the file"),
        (vec![(u64::MAX - 511, sector())], "a record lies past the end of the file"),
        (vec![(1025, sector())], "a record is not a number of whole sectors"),
        (vec![(1024, vec![7; 100])], "a record is not a number of whole sectors"),
        (vec![(1024, Vec::new())], "a record is not a number of whole sectors"),
        (vec![(0, vec![7; 1024])], "a record lies over the root sector"),
        (vec![(2048, sector()), (1024, sector())], "its records are not in order"),
        (vec![(1024, vec![7; 1024]), (1536, sector())], "its records are not in order"),
    ] {
        assert_eq!(with(records), Some(reason));
    }
}

/// Record heads that span two pieces.
#[test]
fn a_long_journal_is_read_in_pieces() {
    let records: Vec<_> = (0..9000u64).map(|i| (1024 + i * 1024, vec![i as u8; 512])).collect();
    let long = Journal { records: records.clone(), ..journal() };
    let found = verified(long.encode(), 1 << 40).unwrap_or_else(|e| panic!("{e}"));
    let file = GrowingFile::new(vec![0; 512]);
    found.apply(&file).unwrap();
    assert!(records.iter().all(|(at, bytes)| file.bytes()[*at as usize..][..512] == bytes[..]));
    assert_eq!(file.bytes()[512..1024], [2; 512]);
}

#[test]
fn a_file_is_read_as_after_its_commit() {
    let read = |journal: StoredJournal, from: u64, len: usize| {
        let file = CommittedFile::new(Arc::new(GrowingFile::new(vec![0; 3000])), journal);
        let mut bytes = vec![9; len];
        let n = file.read_at(&mut bytes, from).unwrap();
        bytes.truncate(n);
        bytes
    };
    let mut whole = [vec![3; 512], vec![2; 512], vec![4; 1024]].concat();
    whole.resize(3000, 0);
    for (from, len) in [(0, 5000), (100, 700), (600, 20), (1000, 100), (1500, 1400), (2048, 100)] {
        let found = verified(journal().encode(), 2048).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(read(found, from, len), whole[from as usize..][..len.min(3000 - from as usize)], "{from} {len}");
    }
}

#[test]
fn a_journal_that_is_used_again_is_noticed() {
    let long = Journal { records: vec![(0, vec![3; 512]), (1024, vec![4; 17 << 20])], ..journal() };
    let source = Arc::new(GrowingFile::new(long.encode()));
    let mut found = StoredJournal::open(source.clone()).unwrap().unwrap_or_else(|e| panic!("{e}"));
    found.verify(1 << 30).unwrap().unwrap();
    let file = CommittedFile::new(Arc::new(GrowingFile::new(vec![0; 3000])), found);
    make_void(&*source).unwrap();
    assert!(file.read_at(&mut [0; 600], 0).is_ok());
    source.write_at(&Journal { nonce: 78, ..journal() }.encode(), 0).unwrap();
    assert_eq!(file.read_at(&mut [0; 600], 0).err().and_then(|e| e.raw_os_error()), Some(libc::ESTALE));
    assert!(file.read_at(&mut [0; 100], 18 << 20).is_ok());
}

#[test]
fn what_a_file_at_its_name_is() {
    let kind = |bytes: Vec<u8>| kind(&GrowingFile::new(bytes)).unwrap();
    let armed = journal().encode();
    assert_eq!(kind(void_head(OWNER)), JournalKind::Void);
    assert_eq!([kind(Vec::new()), kind(vec![0; 4096]), kind(armed[..20].to_vec())], [JournalKind::Void; 3]);
    // Storage was reserved, and neither the head nor the length of the journal was durable.
    assert_eq!([kind(vec![0; 512 << 10]), kind(vec![0; (3 << 20) + 7])], [JournalKind::Void; 2]);
    assert_eq!(kind([vec![0; 3 << 20], vec![1]].concat()), JournalKind::Other);
    assert_eq!([kind(b"text of the user".to_vec()), kind([vec![0; 99], vec![1]].concat())], [JournalKind::Other; 2]);
    assert_eq!(kind([MAGIC.as_slice(), &4u32.to_le_bytes(), &[0; 100]].concat()), JournalKind::Other);
    let old = [MAGIC.as_slice(), &1u32.to_le_bytes(), &[0; 100]].concat();
    assert_eq!((kind(old), kind(armed)), (JournalKind::Armed(None), JournalKind::Armed(Some(OWNER))));
}

#[test]
fn a_journal_names_the_record_of_free_space() {
    let place = Some(RecordPlace { offset: 4096, nonce: 99 });
    let named = |bytes: &[u8], owner| free_record(&GrowingFile::new(bytes), owner).unwrap();
    let armed = Journal { free_record: place, ..journal() }.encode();
    assert_eq!([named(&armed, OWNER), named(&journal().encode(), OWNER)], [place, None]);
    assert_eq!(named(&armed, Identity { inode: OWNER.inode + 1, ..OWNER }), None);
    for i in armed.len() - PLACE_LEN..armed.len() {
        let mut bad = armed.clone();
        bad[i] ^= 0x10;
        assert_eq!([named(&bad, OWNER), named(&armed[..i], OWNER)], [None, None], "byte {i}");
    }
    let file = GrowingFile::new(armed);
    make_void(&file).unwrap();
    assert_eq!(named(&file.bytes(), OWNER), place);
    let file = GrowingFile::new(void_head(OWNER));
    set_free_record(&file, place).unwrap();
    assert_eq!((named(&file.bytes(), OWNER), kind(&file).unwrap()), (place, JournalKind::Void));
    set_free_record(&file, None).unwrap();
    assert_eq!(named(&file.bytes(), OWNER), None);
}
