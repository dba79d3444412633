//! Datasets and attributes from JSON.

use super::tests::{description, errno, types};
use super::*;
use crate::base::Result;
use crate::base::filter_spec::FilterSpec;
use crate::base::shape::Shape;
use crate::connector::{ChunksSpec, DatasetSpec, FillSpec, NewAttribute};

fn spec(text: &str) -> DatasetSpec {
    parsed(text).without_fill()
}

fn parsed(text: &str) -> ParsedDataset {
    parse_dataset_json(text.as_bytes(), 8).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn parse_attributes_json(text: &[u8]) -> Result<Vec<NewAttribute>> {
    AttributeList::parse(text, 8)?.values().collect()
}

fn filter(id: u16, flags: u16, name: &str, values: &[u32]) -> FilterSpec {
    FilterSpec { id, flags, name: name.as_bytes().to_vec(), cd_values: values.to_vec() }
}

#[test]
fn a_whole_dataset() {
    let got = parsed(
        r#"{"dtype": "<f4", "shape": [3, 4], "maxshape": [null, 4], "chunks": [2, 4], "filters": ["shuffle", "deflate 6"],
            "fillvalue": 1.5, "layout": "chunked"}"#,
    );
    let want = DatasetSpec {
        dtype: Some(parse_datatype("f4").unwrap()),
        shape: Some(vec![3, 4]),
        null_space: false,
        maxshape: Some(vec![None, Some(4)]),
        chunks: Some(ChunksSpec::Dims(vec![2, 4])),
        filters: Some(vec![filter(2, 1, "", &[]), filter(1, 1, "", &[6])]),
        fillvalue: Some(FillSpec::Value(parse_value(&parse_datatype("f4").unwrap(), &Shape::Scalar, b"1.5").unwrap())),
        fill_time: None,
        allocation_time: None,
        layout: Some("chunked".to_owned()),
        profile: None,
        only_blank: false,
        elsewhere: None,
        undefine_fill: false,
        converts_layout: false,
        newlines: None,
    };
    assert_eq!(got.spec(|| panic!("the type is stated")).unwrap(), want);
    assert_eq!(spec("{}"), DatasetSpec::default());
    for (_, t) in types().into_iter().filter(|(_, t)| !t.contains_vlen() && t.version < 3) {
        let as_object = spec(&format!(r#"{{"dtype": {}}}"#, description(&t)));
        let mut quoted = Vec::new();
        super::super::json::write_string(description(&t).as_bytes(), &mut quoted);
        let as_text = spec(&format!(r#"{{"dtype": {}}}"#, String::from_utf8(quoted).unwrap()));
        assert_eq!((as_object.dtype.as_ref(), &as_object), (Some(&t), &as_text));
    }
}

#[test]
fn forms_of_every_key() {
    assert_eq!(spec(r#"{"shape": 5, "maxshape": ["unlimited"]}"#).shape, Some(vec![5]));
    assert_eq!(spec(r#"{"shape": []}"#).shape, Some(vec![]));
    assert!(spec(r#"{"shape": null, "maxshape": null}"#).null_space);
    for (text, want) in
        [("\"auto\"", ChunksSpec::Auto), ("true", ChunksSpec::Auto), ("null", ChunksSpec::None), ("7", ChunksSpec::Dims(vec![7]))]
    {
        assert_eq!(spec(&format!(r#"{{"chunks": {text}}}"#)).chunks, Some(want));
    }
    let fills = [
        ("null", Ok(FillSpec::Default)),
        ("\"undefined\"", Ok(FillSpec::Undefined)),
        ("\" x\"", Err(&b" x"[..])),
        (r#"{"a": [1, "b", null, true]}"#, Err(br#"{"a":[1,"b",null,true]}"#)),
    ];
    for (text, want) in fills {
        let got = parsed(&format!(r#"{{"fillvalue": {text}}}"#));
        match want {
            Ok(fill) => assert_eq!((got.spec.fillvalue, got.fill), (Some(fill), None)),
            Err(text) => assert_eq!((got.spec.fillvalue, got.fill.as_deref()), (None, Some(text))),
        }
    }
    let filters = [
        ("[]", vec![]),
        (r#"[{"name": "deflate", "level": 9}]"#, vec![filter(1, 1, "", &[9])]),
        (r#""shuffle, gzip, fletcher32""#, vec![filter(2, 1, "", &[]), filter(1, 1, "", &[4]), filter(3, 0, "", &[])]),
        (r#"[32015, "ZSTD 5", "lzf"]"#, vec![filter(32015, 1, "zstd", &[]), filter(32015, 1, "zstd", &[5]), filter(32000, 1, "lzf", &[])]),
        (
            r#"[{"id":32001,"name":"blosc","flags":1,"values":[2,2,4],"known":true}, {"id":40000,"name":"private","flags":0,"values":[],"known":false}]"#,
            vec![filter(32001, 1, "blosc", &[2, 2, 4]), filter(40000, 0, "", &[])],
        ),
        (r#"[{"id":40001,"name":"mine"}]"#, vec![filter(40001, 0, "mine", &[])]),
    ];
    for (text, want) in filters {
        assert_eq!(spec(&format!(r#"{{"filters": {text}}}"#)).filters, Some(want), "{text}");
    }
}

#[test]
fn bad_datasets_are_refused() {
    let bad = [
        "",
        "[]",
        "{",
        r#"{"shape": [1], "shape": [1]}"#,
        r#"{"shape": [-1]}"#,
        r#"{"shape": [1.5]}"#,
        r#"{"shape": "3"}"#,
        r#"{"shape": [18446744073709551616]}"#,
        r#"{"shape": [2], "maxshape": [1]}"#,
        r#"{"shape": [2], "maxshape": [2, 2]}"#,
        r#"{"shape": null, "maxshape": [1]}"#,
        r#"{"chunks": [0]}"#,
        r#"{"chunks": []}"#,
        r#"{"chunks": "some"}"#,
        r#"{"chunks": [1, 1], "shape": [1]}"#,
        r#"{"shape": [], "chunks": "auto"}"#,
        r#"{"filters": ["nothing"]}"#,
        r#"{"filters": ["deflate 10"]}"#,
        r#"{"filters": ["deflate x"]}"#,
        r#"{"filters": [{"level": 1}]}"#,
        r#"{"filters": [{"name": "deflate", "size": 1}]}"#,
        r#"{"filters": [0]}"#,
        r#"{"filters": 5}"#,
        r#"{"filters": [{"id": 1, "values": [1], "level": 1}]}"#,
        r#"{"dtype": "f3"}"#,
        r#"{"dtype": 8}"#,
    ];
    for text in bad {
        assert_eq!(errno(parse_dataset_json(text.as_bytes(), 8)), libc::EINVAL, "{text}");
    }
    let Err(error) = parse_dataset_json(br#"{"shap": [1]}"#, 8) else { panic!() };
    assert!(error.to_string().contains("\"shap\""), "{error}");
    let many = format!(r#"{{"shape": [{}1]}}"#, "1,".repeat(32));
    assert_eq!(errno(parse_dataset_json(many.as_bytes(), 8)), libc::EINVAL);
}

#[test]
fn single_facts() {
    let fact = |name: &str, text: &str| parse_fact(name, text.as_bytes(), 8);
    assert_eq!(fact("dtype", "<f8\n").unwrap(), parsed(r#"{"dtype": "<f8"}"#));
    assert_eq!(fact("dtype", "[('a', '<i4')]").unwrap(), parsed(r#"{"dtype": [["a", "<i4"]]}"#));
    assert_eq!(fact("layout", "chunked").unwrap().spec.layout, Some("chunked".to_owned()));
    assert_eq!(fact("filters", "shuffle, deflate 6").unwrap(), fact("filters", r#"["shuffle","deflate 6"]"#).unwrap());
    assert_eq!(fact("filters", "null").unwrap().spec.filters, Some(vec![]));
    assert_eq!(fact("chunks", "auto").unwrap().spec.chunks, Some(ChunksSpec::Auto));
    assert_eq!(fact("chunks", "100").unwrap().spec.chunks, Some(ChunksSpec::Dims(vec![100])));
    assert_eq!(fact("fillvalue", "[1,2]").unwrap().fill, Some(b"[1,2]".to_vec()));
    assert_eq!(fact("dataset", r#"{"shape":[1]}"#).unwrap().spec.shape, Some(vec![1]));
    assert_eq!(errno(fact("storage", "5")), libc::EPERM);
    assert_eq!(errno(fact("shape", "x")), libc::EINVAL);
}

#[test]
fn attributes_in_short_and_long_forms() {
    let got = parse_attributes_json(
        br#"[{"name":"a","type":"<i2","value":5},
             {"name":"b","type":{"class":"H5T_FLOAT","base":"H5T_IEEE_F32BE"},"shape":{"class":"H5S_SIMPLE","dims":[2],"maxdims":["H5S_UNLIMITED"]},"value":[1.5,"NaN"]},
             {"name":"\udcff","type":"S3","shape":[2],"value":["x","y"]},
             {"name":"n","type":"u1","shape":{"class":"H5S_NULL"},"value":null},
             {"name":"e","type":"u1","shape":[0],"value":[]},
             {"name":"c","type":[["x","u1"],["y","u1"]],"shape":[2],"value":[[1,2],{"y":4,"x":3}]}]"#,
    )
    .unwrap();
    let bytes: Vec<&[u8]> = got.iter().map(|a| a.value.form.as_slice()).collect();
    assert_eq!(bytes, [&[5, 0][..], &[0x3f, 0xc0, 0, 0, 0x7f, 0xc0, 0, 0], b"x\0\0y\0\0", b"", b"", &[1, 2, 3, 4]]);
    assert_eq!(got[1].value.shape, Shape::Simple { dims: vec![2], max: Some(vec![u64::MAX]) });
    assert_eq!((got[2].name.as_slice(), &got[3].value.shape), (&b"\xff"[..], &Shape::Null));
    let bad = [
        "{}",
        r#"[{"name":"","type":"u1","value":1}]"#,
        r#"[{"name":"a","type":"u1"}]"#,
        r#"[{"name":"a","value":1}]"#,
        r#"[{"type":"u1","value":1}]"#,
        r#"[{"name":"a","type":"u1","value":1},{"name":"a","type":"u1","value":1}]"#,
        r#"[{"name":"a","type":"u1","value":[1]}]"#,
        r#"[{"name":"a","type":"u1","shape":[2],"value":[1]}]"#,
        r#"[{"name":"a","type":"u1","value":1,"x":2}]"#,
        r#"[{"name":"a","type":"u1","shape":{"class":"H5S_SIMPLE","dims":[2],"maxdims":[1]},"value":[1,2]}]"#,
    ];
    for text in bad {
        assert_eq!(errno(parse_attributes_json(text.as_bytes())), libc::EINVAL, "{text}");
    }
    assert_eq!(errno(parse_attributes_json(br#"[{"name":"a","type":"u1","value":256}]"#)), libc::ERANGE);
    assert_eq!(errno(parse_attributes_json(br#"[{"name":"a","type":"u1","error":"gone"}]"#)), libc::EOPNOTSUPP);
    assert_eq!(errno(parse_attributes_json(br#"[{"name":"a","type":"u1","shape":[1000000000000],"value":[]}]"#)), libc::E2BIG);
}

/// Every truncation and many flips of good text end, and end in an error or another reading.
#[test]
fn damaged_text_ends() {
    let dataset = br#"{"dtype":[["a","<i4"],["s","S3",[2]]],"shape":[3],"maxshape":[null],"chunks":[2],"filters":[{"id":1,"level":4},"shuffle"],"fillvalue":{"a":1}}"#;
    let attributes = br#"[{"name":"b","type":{"class":"H5T_ENUM","base":"i1","members":{"A":1}},"shape":{"class":"H5S_SIMPLE","dims":[2]},"value":["A",-1.5e3]}]"#;
    for text in [&dataset[..], &attributes[..]] {
        for at in 0..text.len() {
            assert_eq!(errno(parse_dataset_json(&text[..at], 8)), libc::EINVAL);
            assert_eq!(errno(parse_attributes_json(&text[..at])), libc::EINVAL);
            for with in *b"{}[]\",:09eNx\\\x00\xff" {
                let mut bad = text.to_vec();
                bad[at] = with;
                let _ = (parse_dataset_json(&bad, 8), parse_attributes_json(&bad));
            }
        }
    }
}
