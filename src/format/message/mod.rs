//! Object header messages, one file each (H5.format.4.0, "Data Object Header Messages").

pub mod attribute;
pub mod attribute_info;
pub(crate) mod btree_k;
pub mod comment;
pub mod data_layout;
pub mod dataspace;
pub mod datatype;
pub mod external_files;
pub mod file_space_info;
pub mod fill_value;
pub mod filter_pipeline;
pub mod group_info;
pub mod link;
pub mod link_info;
pub mod section_filters;
pub mod shared_message_table;
pub mod symbol_table;
pub mod times;
