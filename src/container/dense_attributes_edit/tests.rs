//! Bad input: nothing is changed.
