//! Transactions of several writers that become one version of a container.

use super::{Connector, Error, Result};
use std::sync::Arc;

/// The version that the peers of a new transaction see.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Base {
    /// The newest one.
    #[default]
    Last,
    /// The one that is committed next.
    Next,
    /// This one.
    Exact(u64),
}

/// What a new transaction is to be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TransactionSpec {
    /// Its name.
    pub name: String,
    /// Number of peers; `None`: one, or as many as there are if it was begun.
    pub peers: Option<u32>,
    /// The version that the peers see.
    pub base: Option<Base>,
    /// Names of transactions that end before it.
    pub after: Vec<String>,
}

/// How an open container takes part in transactions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransactionUse {
    /// All its changes are the part of one peer of a transaction, which is begun if there is none
    /// of its name.
    Peer {
        /// The transaction.
        spec: TransactionSpec,
        /// Number of the peer, from 1 on; `None`: the first that is free.
        peer: Option<u32>,
    },
    /// It begins, ends and shows transactions, and changes nothing else.
    Manage,
}

/// How a transaction is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The part of this peer is complete; that of the last peer publishes all of them.
    Finish,
    /// No part is ever published.
    Abort,
    /// Nothing is changed, and other transactions that wait for it go on.
    Skip,
}

/// How the tree of a transaction is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeUse {
    /// It is read, or not open.
    Read,
    /// The mount is a peer by it.
    Joined,
    /// The transaction has ended.
    Ended,
}

/// The transactions of a container. Errors: `ECANCELED` for one that is aborted.
pub trait Transactions: Send + Sync {
    /// Their names, in order.
    fn names(&self) -> Result<Vec<String>>;

    /// State of a transaction as lines of a name and a value; `None`: there is none of this name.
    fn status(&self, name: &str) -> Result<Option<String>>;

    /// True if there is a transaction of this name.
    fn contains(&self, name: &str) -> Result<bool>;

    /// True if a transaction has a tree: it can be opened here, and the transaction has not ended.
    fn has_tree(&self, _name: &str) -> Result<bool> {
        Ok(false)
    }

    /// How the tree of a transaction is used here, as far as that is known.
    fn tree_use(&self, _name: &str) -> TreeUse {
        TreeUse::Read
    }

    /// [`Transactions::tree_use`], after a look at the transaction. Nothing more is changed in the
    /// tree of one that has ended.
    fn look_at_tree(&self, name: &str) -> Result<TreeUse> {
        Ok(self.tree_use(name))
    }

    /// Opens the tree of a transaction: what its peers see, as a container whose changes are the
    /// part of one peer. It joins with its first change (`EBUSY` if there is no place for a peer),
    /// or is finished here. Errors: `ENOENT`; `EALREADY`, `ECANCELED` if the transaction ended;
    /// `EAGAIN` if what the peers see is not committed yet.
    fn tree(&self, _name: &str) -> Result<Arc<dyn Connector>> {
        Err(Error::refused(libc::EOPNOTSUPP, "transactions have no trees here"))
    }

    /// Begins a transaction. Errors: `EEXIST` if there is one of this name.
    fn begin(&self, spec: &TransactionSpec) -> Result<()>;

    /// Ends a transaction, or the part of this peer. Errors: `EAGAIN` if other peers, or others
    /// that it waits for, have not finished, and nothing was done; `EALREADY` if it ended.
    fn end(&self, name: &str, ending: Ending) -> Result<()>;
}
