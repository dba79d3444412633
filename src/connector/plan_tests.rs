//! Tests of the layout that is planned.

use super::*;
use crate::base::filter_spec::FilterSpec;

fn errno(spec: DatasetSpec) -> Option<i32> {
    match check_new_dataset(&spec) {
        Ok(()) => None,
        Err(Error::Refused { errno, .. }) => Some(errno),
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn layouts_that_contradict_other_properties_are_refused() {
    let layout = |name: &str| DatasetSpec { layout: Some(name.to_owned()), ..DatasetSpec::default() };
    let shuffle = FilterSpec { id: 2, flags: 0, name: Vec::new(), cd_values: Vec::new() };
    for spec in [
        DatasetSpec { chunks: Some(ChunksSpec::Dims(vec![1])), ..layout("contiguous") },
        DatasetSpec { filters: Some(vec![shuffle]), ..layout("compact") },
        DatasetSpec { chunks: Some(ChunksSpec::None), ..layout("chunked") },
        DatasetSpec { shape: Some(vec![]), ..layout("chunked") },
        DatasetSpec { null_space: true, ..layout("chunked") },
        layout("odd"),
    ] {
        assert_eq!(errno(spec.clone()), Some(libc::EINVAL), "{spec:?}");
    }
    assert_eq!(errno(layout("virtual")), Some(libc::EINVAL), "without sources");
    assert_eq!(errno(DatasetSpec { shape: Some(vec![4]), ..layout("compact") }), None);
    assert_eq!(errno(layout("chunked")), None);
}
