//! Logs of datasets: records, runs of them and index entries; entries of the released log VOL.

pub(crate) mod record;
pub(crate) mod released;
pub(crate) mod run;
pub(crate) mod writer;
