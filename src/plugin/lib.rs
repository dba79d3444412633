//! HDF5 filter plugin: lets libhdf5 read and write sparse datasets of profile "filter".
//!
//! libhdf5 loads the library from a directory of `HDF5_PLUGIN_PATH`, asks for
//! [`H5PLget_plugin_info`] and calls [`filter`] for each chunk. Names and layouts are those of
//! H5Zdevelop.h and H5PLextern.h, unchanged since libhdf5 1.8.11.

use libc::{c_char, c_int, c_uint, c_void, size_t};
use std::panic::catch_unwind;

/// Version of [`Class`] (H5Z_CLASS_T_VERS).
const CLASS_VERSION: c_int = 1;
/// Flag of a call that decodes (H5Z_FLAG_REVERSE).
const REVERSE: c_uint = 0x0100;
/// Kind of plugin: a filter (H5PL_TYPE_FILTER).
const TYPE_FILTER: c_int = 0;
/// Most client data values.
const VALUES_MAX: size_t = 4096;

type Filter = unsafe extern "C" fn(c_uint, size_t, *const c_uint, size_t, *mut size_t, *mut *mut c_void) -> size_t;

/// What libhdf5 knows of a filter (H5Z_class2_t).
#[repr(C)]
pub struct Class {
    version: c_int,
    id: c_int,
    encoder_present: c_uint,
    decoder_present: c_uint,
    name: *const c_char,
    can_apply: Option<unsafe extern "C" fn()>,
    set_local: Option<unsafe extern "C" fn()>,
    filter: Filter,
}

// SAFETY: the only pointer is that of a static string, which is never changed.
unsafe impl Sync for Class {}

static CLASS: Class = Class {
    version: CLASS_VERSION,
    id: h5dir::dataset::SPARSE_FILTER_ID as c_int,
    encoder_present: 1,
    decoder_present: 1,
    name: c"h5dir sparse chunk".as_ptr(),
    can_apply: None,
    set_local: None,
    filter,
};

/// Kind of plugin.
// SAFETY: no other symbol of the process has this name; libhdf5 looks it up in this library.
#[unsafe(no_mangle)]
pub extern "C" fn H5PLget_plugin_type() -> c_int {
    TYPE_FILTER
}

/// The filter.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn H5PLget_plugin_info() -> *const c_void {
    (&raw const CLASS).cast()
}

/// Encodes or decodes the chunk in `*buf`; returns the bytes of the result, 0 for a failure.
///
/// # Safety
/// `values` has `count` numbers, and `*buf` is a block of malloc(3) with `bytes` bytes of data, as
/// H5Z_func_t requires.
unsafe extern "C" fn filter(
    flags: c_uint,
    count: size_t,
    values: *const c_uint,
    bytes: size_t,
    buf_size: *mut size_t,
    buf: *mut *mut c_void,
) -> size_t {
    if values.is_null() || count > VALUES_MAX || buf.is_null() || buf_size.is_null() {
        return 0;
    }
    // SAFETY: libhdf5 passes `count` values, and a block with at least `bytes` bytes.
    let (values, block) = unsafe {
        if (*buf).is_null() {
            return 0;
        }
        (std::slice::from_raw_parts(values, count), std::slice::from_raw_parts((*buf).cast::<u8>(), bytes))
    };
    // A panic must not reach C.
    let result = catch_unwind(|| match flags & REVERSE {
        0 => h5dir::dataset::sparse_filter_encode(values, block),
        _ => h5dir::dataset::sparse_filter_decode(values, block),
    });
    let Ok(Some(result)) = result else { return 0 };
    // SAFETY: the new block has room for the result; the old one is libhdf5's, of malloc(3), and
    // not used any more.
    unsafe {
        let new = libc::malloc(result.len().max(1));
        if new.is_null() {
            return 0;
        }
        std::ptr::copy_nonoverlapping(result.as_ptr(), new.cast::<u8>(), result.len());
        libc::free(*buf);
        *buf = new;
        *buf_size = result.len();
    }
    result.len()
}
