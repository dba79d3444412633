//! Why /dev/fuse cannot be opened: the kernel, the device file, or the rights of the process.

use nix::errno::Errno;
use std::io;

/// File systems of the kernel, one a line.
const FILE_SYSTEMS: &str = "/proc/filesystems";

/// What keeps /dev/fuse from being opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceDefect {
    /// The kernel has no FUSE, or its module is not loaded.
    NoKernelSupport,
    /// The kernel has FUSE; the device file is missing.
    NoFile,
    /// The mode of the device file excludes the user.
    Mode,
    /// A control group excludes the device.
    ControlGroup,
    /// Any other reason.
    Other,
}

impl DeviceDefect {
    /// Finds the defect behind an error of open(2).
    pub(super) fn of(error: &io::Error) -> Self {
        let listed = std::fs::read_to_string(FILE_SYSTEMS).map_or(true, |text| lists_fuse(&text));
        Self::from_errno(Errno::from_raw(error.raw_os_error().unwrap_or_default()), listed)
    }

    fn from_errno(errno: Errno, kernel_lists_fuse: bool) -> Self {
        match errno {
            Errno::ENODEV | Errno::ENXIO => DeviceDefect::NoKernelSupport,
            Errno::ENOENT if !kernel_lists_fuse => DeviceDefect::NoKernelSupport,
            Errno::ENOENT => DeviceDefect::NoFile,
            Errno::EACCES => DeviceDefect::Mode,
            Errno::EPERM => DeviceDefect::ControlGroup,
            _ => DeviceDefect::Other,
        }
    }
}

/// True if the text of /proc/filesystems has the type `fuse`.
fn lists_fuse(text: &str) -> bool {
    text.lines().any(|line| line.split_whitespace().last() == Some("fuse"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_and_the_device_file_are_distinguished() {
        assert!(lists_fuse("nodev\tsysfs\n\text4\nnodev\tfuse\n") && !lists_fuse("nodev\tfusectl\n\tfuseblk\n"));
        assert_eq!(DeviceDefect::from_errno(Errno::ENOENT, true), DeviceDefect::NoFile);
        assert_eq!(DeviceDefect::from_errno(Errno::ENOENT, false), DeviceDefect::NoKernelSupport);
        assert_eq!(DeviceDefect::from_errno(Errno::ENODEV, true), DeviceDefect::NoKernelSupport);
        assert_eq!(DeviceDefect::from_errno(Errno::EMFILE, true), DeviceDefect::Other);
    }
}
