//! Tests of chunk indexes.
