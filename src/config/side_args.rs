//! Arguments of `cp`, `cat` and `diff`.

use super::value::{ExternalFiles, LibVer, Version};
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

const CP_HELP: &str = "\
Examples:
  h5dir cp -r data.h5:/run1 DIR            a group becomes a directory of files
  h5dir cp --create a.raw new.h5:/a        a file becomes a dataset of bytes
  h5dir cp -r a.h5 iod:FOLDER              types, filters and attributes are kept

Exit codes:
  0  everything was copied
  1  something was not copied
  2  usage: wrong option or argument
  3  an HDF5 file cannot be opened, is not HDF5, or is in use
  5  no such path inside the file";

const CAT_HELP: &str = "\
Examples:
  h5dir cat data.h5:/notes
  h5dir cat data.h5:/.h5dir/json/run1.json | jq .attributes

Exit codes:
  0  done
  1  general failure
  3  the file cannot be opened or is not HDF5
  5  no such path inside the file";

const DIFF_HELP: &str = "\
Examples:
  h5dir diff a.h5 b.h5
  h5dir diff -r a.h5:/run1 b.h5:/run2
  h5dir diff -q data.h5:/run1/image image.raw

Exit codes:
  0  no differences
  1  differences were found
  2  trouble: a side cannot be read, or wrong usage";

/// Which files that HDF5 files name are read, and which version of containers.
#[derive(Debug, Clone, Args)]
pub(crate) struct ExternalArgs {
    /// Read files that the HDF5 files name, beneath their directories or --external-root; 'all':
    /// hidden ones, too
    #[arg(long, value_name = "on|off|all", default_value = "on", num_args = 0..=1, require_equals = true, default_missing_value = "on")]
    pub(crate) external: ExternalFiles,

    /// Read only files beneath this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) external_root: Option<PathBuf>,

    /// Version of containers in object stores, or revision of files with onion files, that is read
    /// [default: latest]
    #[arg(long, value_name = "VERSION", visible_alias = "revision")]
    pub(crate) version: Option<Version>,
}

/// Arguments of `h5dir cp`.
#[derive(Debug, Args)]
#[command(after_help = CP_HELP, override_usage = "h5dir cp [OPTIONS] <SRC>... <DST>")]
pub(crate) struct CopyArgs {
    /// Copy directories with everything in them
    #[arg(short, long, visible_short_alias = 'R')]
    pub(crate) recursive: bool,

    /// -r, and keep owners, modes as they are, and extended attributes
    #[arg(short, long)]
    pub(crate) archive: bool,

    /// Keep modes as they are, times, and owners where the destination has them
    #[arg(short, long)]
    pub(crate) preserve: bool,

    /// Copy only what is newer than the destination, or missing there
    #[arg(short, long, conflicts_with = "no_clobber")]
    pub(crate) update: bool,

    /// Print the name of each object that is copied
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// Print what would be copied, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Print a JSON object for each object that is copied
    #[arg(long)]
    pub(crate) json: bool,

    /// Keep extended attributes: HDF5 attributes, and the types of datasets
    #[arg(long)]
    pub(crate) xattrs: bool,

    /// Leave existing files as they are
    #[arg(short, long, conflicts_with = "force")]
    pub(crate) no_clobber: bool,

    /// Replace an existing dataset that cannot be overwritten
    #[arg(short, long)]
    pub(crate) force: bool,

    /// Give an existing dataset the number of rows that a local file makes
    #[arg(long)]
    pub(crate) resize: bool,

    /// Create the HDF5 file of DST if it does not exist
    #[arg(long)]
    pub(crate) create: bool,

    /// With --create: oldest libhdf5 that can use the file, as for `h5dir create`
    #[arg(long, value_name = "earliest|v110", default_value = "v110")]
    pub(crate) libver: LibVer,

    /// Copy the elements of virtual datasets, instead of where they are
    #[arg(short = 'L', long, overrides_with = "no_dereference")]
    pub(crate) dereference: bool,

    /// Keep virtual datasets as they are, as without -L
    #[arg(short = 'P', long, overrides_with = "dereference")]
    pub(crate) no_dereference: bool,

    /// Refer to the elements in the HDF5 file instead of copying them: DST is a container
    #[arg(short, long)]
    pub(crate) link: bool,

    /// Store datasets of a log as ordinary ones: contiguous, or in chunks if they can grow
    #[arg(long)]
    pub(crate) no_log: bool,

    /// Datasets are stored as new datasets of the destination are; set by `h5dir log export`.
    #[arg(skip)]
    pub(crate) into_log: bool,

    /// Read rules for new files (`create:`) from a YAML file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    #[command(flatten)]
    /// Which other files are read.
    pub(crate) external: ExternalArgs,

    /// Write raw files and sources of virtual datasets of DST beneath --external-root
    #[arg(long, requires = "external_root")]
    pub(crate) external_write: bool,

    /// What to copy, and last where to: FILE:/PATH, a local file or directory, or - (standard input
    /// or output)
    // One list, because options may stand between its members.
    #[arg(required = true, value_name = "SRC")]
    paths: Vec<OsString>,
}

impl CopyArgs {
    /// What to copy, and where to. `None`: the destination is missing.
    pub(crate) fn sides(&self) -> Option<(&[OsString], &OsString)> {
        self.paths.split_last().map(|(destination, sources)| (sources, destination)).filter(|(sources, _)| !sources.is_empty())
    }

    /// The arguments of a copy of all that `source` has to the new file of `destination`, in which
    /// datasets of a log become ordinary ones.
    pub(crate) fn without_log(source: OsString, destination: OsString, libver: LibVer) -> Self {
        CopyArgs {
            recursive: true,
            archive: false,
            preserve: false,
            update: false,
            verbose: false,
            dry_run: false,
            json: false,
            xattrs: false,
            no_clobber: false,
            force: false,
            resize: false,
            create: true,
            libver,
            dereference: false,
            no_dereference: false,
            link: false,
            no_log: true,
            into_log: false,
            config: None,
            external: ExternalArgs { external: ExternalFiles::Visible, external_root: None, version: None },
            external_write: false,
            paths: vec![source, destination],
        }
    }

    /// The arguments of a copy of all that `source` has to `destination`, a file with a log in
    /// which new datasets are.
    pub(crate) fn into_log(source: OsString, destination: OsString, libver: LibVer) -> Self {
        CopyArgs { create: false, no_log: false, into_log: true, ..CopyArgs::without_log(source, destination, libver) }
    }
}

/// Arguments of `h5dir virtual`.
#[derive(Debug, Args)]
pub(crate) struct VirtualArgs {
    #[command(flatten)]
    /// Which other files are read.
    pub(crate) external: ExternalArgs,

    /// Axis along which the sources follow one another, from 0; with --stack the new one
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) axis: usize,

    /// Give the dataset a new axis, with a coordinate for each source
    #[arg(long)]
    pub(crate) stack: bool,

    /// The new dataset; its file is created if it does not exist
    #[arg(value_name = "NEW.h5:/PATH")]
    pub(crate) dataset: OsString,

    /// Datasets of the same type and shape; a pattern in the name of a file stands for its matches,
    /// in the order in which people count
    #[arg(required = true, value_name = "FILE:/PATH")]
    pub(crate) sources: Vec<OsString>,
}

/// Arguments of `h5dir cat`.
#[derive(Debug, Args)]
#[command(after_help = CAT_HELP)]
pub(crate) struct CatArgs {
    #[command(flatten)]
    /// Which other files are read.
    pub(crate) external: ExternalArgs,

    /// Values as text: one a line, or the elements of a row; the default on a terminal
    #[arg(long, group = "form")]
    pub(crate) text: bool,

    /// Values between commas (RFC 4180); members of compounds are columns with a header line
    #[arg(long, group = "form")]
    pub(crate) csv: bool,

    /// Values between tabs, as --csv
    #[arg(long, group = "form")]
    pub(crate) tsv: bool,

    /// All values as one JSON value
    #[arg(long, group = "form")]
    pub(crate) json: bool,

    /// A JSON value a line: objects for compounds, lists for rows
    #[arg(long, group = "form")]
    pub(crate) jsonl: bool,

    /// A numpy file
    #[arg(long, group = "form")]
    pub(crate) npy: bool,

    /// Print an Arrow file (IPC file format), for pandas, polars and DuckDB
    #[arg(long, group = "form")]
    pub(crate) arrow: bool,

    /// Print a PNG image; of three dimensions the first image, or that of --select; a plot of one
    #[arg(long, group = "form")]
    pub(crate) png: bool,

    /// Print a TIFF image with the numbers as they are; of three dimensions as --png
    #[arg(long, group = "form")]
    pub(crate) tif: bool,

    /// The bytes of the file of a mount; the default but on a terminal
    #[arg(long, group = "form")]
    pub(crate) raw: bool,

    /// Only these elements: blocks as in numpy, such as 2:7,0 + 9,::2 - 3, or @POINTS.npy
    #[arg(short, long, value_name = "SELECTION", allow_hyphen_values = true)]
    pub(crate) select: Option<String>,

    /// Only so many rows from the first one on
    #[arg(short = 'n', long, value_name = "ROWS", conflicts_with = "tail")]
    pub(crate) head: Option<u64>,

    /// Only so many rows up to the last one
    #[arg(long, value_name = "ROWS")]
    pub(crate) tail: Option<u64>,

    /// The datasets, or other files of the view: *, ? and [...] stand for names
    #[arg(required = true, value_name = "FILE:/PATH")]
    pub(crate) targets: Vec<OsString>,
}

/// Arguments of `h5dir diff`.
#[derive(Debug, Args)]
#[command(after_help = DIFF_HELP)]
pub(crate) struct DiffArgs {
    /// Compare the subdirectories of directories, too; implied for whole files and directories
    #[arg(short, long)]
    pub(crate) recursive: bool,

    /// Print nothing; stop at the first difference
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) quiet: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Compare largest shapes, chunks, filters, fill values, layouts and defined elements, too
    #[arg(long)]
    pub(crate) storage: bool,

    /// Compare extended attributes with those of local files, too
    #[arg(long)]
    pub(crate) xattrs: bool,

    #[command(flatten)]
    /// Which other files are read.
    pub(crate) external: ExternalArgs,

    /// One side: an HDF5 file, a directory of them, FILE:/PATH, or a local file
    #[arg(value_name = "A")]
    pub(crate) left: OsString,

    /// The other side
    #[arg(value_name = "B")]
    pub(crate) right: OsString,
}
