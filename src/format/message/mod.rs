//! Object header messages, one file each (H5.format.4.0, "Data Object Header Messages").

pub mod data_layout;
pub mod shared_message_table;
