//! Records and indexes of log-structured datasets: that of the released log VOL.

pub(crate) mod released;
