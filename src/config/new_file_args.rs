//! Options of new HDF5 files: of `h5dir create`, and of rules `create:` in a configuration file.

use super::value::{Size, Switch};
use crate::fs::create_rules::NamePattern;
use crate::fs::{NewFile, SHARED_MESSAGES, Strategy};
use clap::{Args, CommandFactory, Parser};
use std::error::Error;
use std::str::FromStr;

/// A strategy of libhdf5 for file space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpaceStrategy(Strategy);

/// Types of messages, a bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SharedMessages(u16);

/// Properties of new files of some names.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FileRule {
    /// The names.
    pub(crate) pattern: NamePattern,
    /// The properties.
    pub(crate) properties: NewFileArgs,
}

impl FromStr for SpaceStrategy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "fsm" => Ok(SpaceStrategy(Strategy::Fsm)),
            "page" => Ok(SpaceStrategy(Strategy::Page)),
            "aggr" => Ok(SpaceStrategy(Strategy::Aggregate)),
            "none" => Ok(SpaceStrategy(Strategy::None)),
            _ => Err("expected fsm, page, aggr or none".to_owned()),
        }
    }
}

impl FromStr for SharedMessages {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = || SHARED_MESSAGES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        let bit = |name: &str| match name.trim() {
            "all" => Ok(SHARED_MESSAGES.iter().fold(0, |bits, (_, bit)| bits | bit)),
            name => {
                let known = SHARED_MESSAGES.iter().find(|(known, _)| *known == name).map(|(_, bit)| *bit);
                known.ok_or_else(|| format!("expected all, or a list of {}", names()))
            }
        };
        text.split(',').try_fold(0, |bits, name| Ok(bits | bit(name)?)).map(SharedMessages)
    }
}

/// Properties of a new HDF5 file.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub(crate) struct NewFileArgs {
    /// How libhdf5 finds space in the file: free-space managers (fsm), these in pages (page),
    /// aggregators only (aggr), only at the end of the file (none)
    #[arg(long, value_name = "fsm|page|aggr|none")]
    pub(crate) strategy: Option<SpaceStrategy>,

    /// With --strategy=page: bytes of a page, 512 to 1G [default: 4K]
    #[arg(long, value_name = "SIZE")]
    pub(crate) page_size: Option<Size>,

    /// Record free space when the file is closed, so that libhdf5 reuses it later
    #[arg(long, value_name = "on|off", num_args = 0..=1, default_missing_value = "on", require_equals = true)]
    pub(crate) persist_free_space: Option<Switch>,

    /// Smallest free section that libhdf5 tracks [default: 1]
    #[arg(long, value_name = "SIZE")]
    pub(crate) free_space_threshold: Option<Size>,

    /// Bytes before the HDF5 data for other programs: 0, 512 or a larger power of two [default: 0]
    #[arg(long, value_name = "SIZE")]
    pub(crate) user_block: Option<Size>,

    /// K of version 1 B-trees of chunks: half of a node's children (H5Pset_istore_k) [default: 32]
    #[arg(long, value_name = "K")]
    pub(crate) btree_k: Option<u16>,

    /// K of version 1 B-trees of groups (H5Pset_sym_k) [default: 16]
    #[arg(long, value_name = "K")]
    pub(crate) sym_k: Option<u16>,

    /// K of symbol table nodes: half their links (H5Pset_sym_k) [default: 4]
    #[arg(long, value_name = "K")]
    pub(crate) sym_leaf_k: Option<u16>,

    /// Messages that libhdf5 stores once for all objects that have the same: a list of dataspace,
    /// datatype, fillvalue, filters and attribute, or all. h5dir reads shared messages, and stores
    /// those of new objects in each object
    #[arg(long, value_name = "LIST")]
    pub(crate) shared_messages: Option<SharedMessages>,
}

/// The options alone, to parse those of a rule.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
pub(crate) struct NewFileOptions {
    /// The options.
    #[command(flatten)]
    pub(crate) options: NewFileArgs,
}

impl NewFileArgs {
    /// These options, with those of `rule` where none is given.
    pub(crate) fn or(&self, rule: &NewFileArgs) -> NewFileArgs {
        NewFileArgs {
            strategy: self.strategy.or(rule.strategy),
            page_size: self.page_size.or(rule.page_size),
            persist_free_space: self.persist_free_space.or(rule.persist_free_space),
            free_space_threshold: self.free_space_threshold.or(rule.free_space_threshold),
            user_block: self.user_block.or(rule.user_block),
            btree_k: self.btree_k.or(rule.btree_k),
            sym_k: self.sym_k.or(rule.sym_k),
            sym_leaf_k: self.sym_leaf_k.or(rule.sym_leaf_k),
            shared_messages: self.shared_messages.or(rule.shared_messages),
        }
    }

    /// The properties; `earliest`: for every release of libhdf5.
    pub(crate) fn new_file(&self, earliest: bool) -> NewFile {
        let bytes = |size: Option<Size>| size.map(|size| size.0);
        NewFile {
            earliest,
            user_block: bytes(self.user_block).unwrap_or_default(),
            strategy: self.strategy.map_or(Strategy::default(), |given| given.0),
            page_size: bytes(self.page_size),
            persist: self.persist_free_space.is_some_and(|switch| switch.0),
            threshold: bytes(self.free_space_threshold),
            chunk_k: self.btree_k,
            group_k: self.sym_k,
            leaf_k: self.sym_leaf_k,
            shared_messages: self.shared_messages.map_or(0, |types| types.0),
        }
    }
}

/// Names of the properties, as keys of a rule.
pub(crate) fn property_names() -> Vec<String> {
    NewFileOptions::command().get_arguments().filter_map(|arg| arg.get_long().map(str::to_owned)).collect()
}

/// The property `name` with the value `text`. Error: a sentence.
pub(crate) fn property(name: &str, text: &str) -> Result<NewFileArgs, String> {
    let parsed = NewFileOptions::try_parse_from([format!("--{name}={text}")]);
    parsed.map(|given| given.options).map_err(|e| {
        let why = e.source().map_or_else(|| "it is not allowed".to_owned(), ToString::to_string);
        format!("invalid value '{text}' for '{name}': {why}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_are_parsed() {
        assert_eq!(property("shared-messages", "dataspace,datatype").unwrap().new_file(false).shared_messages, 0b1010);
        let (page, block) = (property("strategy", "page").unwrap(), property("user-block", "1K").unwrap());
        let both = block.or(&page).new_file(false);
        assert_eq!((both.strategy, both.user_block), (Strategy::Page, 1024));
        assert!(property("strategy", "best").unwrap_err().contains("fsm, page"));
        assert!(property("shared-messages", "links").unwrap_err().contains("dataspace"));
        assert!(property_names().contains(&"persist-free-space".to_owned()));
    }
}
