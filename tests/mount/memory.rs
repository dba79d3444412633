//! Memory of a mount whose files decode to far more than they hold.

use super::defined::run_case;

#[test]
fn long_strings_and_large_chunks_of_containers_take_bounded_memory() {
    run_case("container_memory.py", "", &[]);
}

#[test]
fn logs_that_decode_to_much_take_bounded_memory() {
    run_case("log_memory.py", "", &[]);
}
