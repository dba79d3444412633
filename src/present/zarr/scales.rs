//! Which datasets are dimension scales, and have some.

use super::attributes::text;
use crate::base::Result;
use crate::connector::{Connector, ObjectId};

/// The name of a scale that is a dimension alone begins so.
const DIMENSION_ONLY: &[u8] = b"This is a netCDF dimension but not a netCDF variable";

/// True if `id` is a dimension scale.
pub(super) fn is_scale(connector: &dyn Connector, id: ObjectId) -> Result<bool> {
    Ok(text(connector, id, b"CLASS")?.is_some_and(|class| class == b"DIMENSION_SCALE"))
}

/// True for a dataset that netCDF keeps for a dimension without coordinates.
pub fn is_dimension_only(connector: &dyn Connector, id: ObjectId) -> Result<bool> {
    Ok(is_scale(connector, id)? && text(connector, id, b"NAME")?.is_some_and(|name| name.starts_with(DIMENSION_ONLY)))
}

/// True if the dataset has a dimension scale, or is one.
pub(super) fn has_scales(connector: &dyn Connector, id: ObjectId) -> Result<bool> {
    Ok(connector.attributes(id)?.iter().any(|name| matches!(name.as_slice(), b"DIMENSION_LIST" | b"CLASS" | b"_Netcdf4Dimid")))
}

/// True if the dataset has a list of the scales of its dimensions.
pub(super) fn has_list(connector: &dyn Connector, id: ObjectId) -> Result<bool> {
    Ok(connector.attributes(id)?.iter().any(|name| name == b"DIMENSION_LIST"))
}
