//! Callback of a listing of links.

use crate::base::Result;
use crate::format::message::link::Link;
use std::ops::ControlFlow;

/// Called with each link and the position after it; `Break` ends the listing.
pub type Visit<'a> = dyn FnMut(Link, u64) -> Result<ControlFlow<()>> + 'a;
