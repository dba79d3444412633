//! Mount options in the form of fstab(5): `-o key=value[,...]`.
//!
//! A key is the name of a long option, with `-` or `_`. A backslash escapes the next character.
//! Keys of mount(8) and systemd are ignored. Of `ro` and `rw` the last is used.

use super::UsageError;
use super::options::{LongOptions, MountOptions};
use super::problem::suggestion;
use clap::{CommandFactory, Parser};

/// Keys of mount(8) and systemd, and keys that are always in effect.
const IGNORED_KEYS: [&str; 24] = [
    "_netdev",
    "nofail",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "group",
    "owner",
    "defaults",
    "nosuid",
    "nodev",
    "noatime",
    "nodiratime",
    "relatime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "lazytime",
    "nolazytime",
    "async",
    "exec",
    "default-permissions",
    "noiversion",
];
/// Prefixes of keys of mount(8) and systemd.
const IGNORED_PREFIXES: [&str; 4] = ["x-", "X-", "comment=", "helper="];

/// Parses lists of options. If a key is repeated, the last value is used.
pub(crate) fn parse(lists: &[String]) -> Result<MountOptions, UsageError> {
    let command = LongOptions::command();
    let mut given: Vec<(String, String)> = Vec::new();
    for item in lists.iter().flat_map(|list| split(list)) {
        let (raw, value) = item.split_once('=').map_or((item.as_str(), None), |(key, value)| (key, Some(value)));
        let key = raw.replace('_', "-");
        let ignored = IGNORED_KEYS.contains(&raw) || IGNORED_KEYS.contains(&key.as_str());
        if item.is_empty() || ignored || IGNORED_PREFIXES.iter().any(|p| item.starts_with(p)) {
            continue;
        }
        match key.as_str() {
            "ro" | "rw" if value.is_none() => {
                let long = if key == "ro" { "read-only" } else { "read-write" };
                given.retain(|(other, _)| !matches!(other.as_str(), "read-only" | "read-write"));
                given.push((long.into(), format!("--{long}")));
                continue;
            }
            "remount" => return Err(UsageError("the options of a mount cannot be changed: unmount it and mount it again".into())),
            "fsname" | "subtype" => {
                return Err(UsageError(format!(
                    "the mount option '{raw}' is not supported: the source of a mount is its file, the type fuse.h5dir; leave it out"
                )));
            }
            "auto-unmount" => {
                let reason = "h5dir unmounts when it ends, and 'h5dir umount' removes the mount of a daemon that was killed";
                return Err(UsageError(format!("the mount option '{raw}' is not needed: {reason}; leave it out")));
            }
            "suid" | "dev" => {
                return Err(UsageError(format!(
                    "the mount option '{raw}' is not supported: h5dir mounts are nosuid and nodev; leave it out"
                )));
            }
            _ => {}
        }
        if !command.get_arguments().any(|a| a.get_long() == Some(key.as_str())) {
            let known = suggestion(&key, command.get_arguments().filter_map(clap::Arg::get_long));
            let end = if known.is_empty() { ";" } else { "" };
            return Err(UsageError(format!("unknown mount option '{raw}' in -o{known}{end} 'h5dir mount --help' lists the options")));
        }
        let long = value.map_or_else(|| format!("--{key}"), |value| format!("--{key}={value}"));
        given.retain(|(other, _)| *other != key);
        given.push((key, long));
    }
    LongOptions::try_parse_from(given.into_iter().map(|(_, long)| long)).map(|parsed| parsed.options).map_err(|e| {
        let text = e.to_string();
        let first = text.lines().next().unwrap_or_default();
        UsageError(format!("{} in -o", first.strip_prefix("error: ").unwrap_or(first)))
    })
}

/// Splits a list at commas and removes backslashes, like `mount-scripts/mount.h5dir`.
pub fn split(list: &str) -> Vec<String> {
    let mut items = vec![String::new()];
    let mut chars = list.chars();
    while let Some(c) = chars.next() {
        match (c, items.last_mut()) {
            (',', _) => items.push(String::new()),
            ('\\', Some(item)) => item.extend(chars.next()),
            (c, Some(item)) => item.push(c),
            (_, None) => {}
        }
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::value::{ExternalFiles, Mode, Size, Switch};

    fn one(list: &str) -> Result<MountOptions, UsageError> {
        parse(&[list.to_owned()])
    }

    #[test]
    fn every_spelling_of_a_key() {
        let options = one("ro,cache_size=1G,allow_other,file-mode=0400,external=off").unwrap();
        assert_eq!(options.cache_size, Some(Size(1 << 30)));
        assert_eq!(options.allow_other, Some(Switch(true)));
        assert_eq!(options.file_mode, Some(Mode(0o400)));
        assert_eq!(options.external, Some(ExternalFiles::Off));
        assert_eq!(parse(&["threads=2".into(), "threads=3".into()]).unwrap().threads.map(|t| t.0), Some(3));
        assert_eq!(one("external-root=/a\\,b").unwrap().external_root.unwrap().to_str(), Some("/a,b"));
        assert_eq!(one("foreground").unwrap().foreground, Some(Switch(true)));
    }

    #[test]
    fn keys_of_mount_and_systemd_are_ignored() {
        let list = "ro,_netdev,nofail,auto,noauto,user,nouser,users,defaults,x-systemd.automount,x-systemd.idle-timeout=5,default_permissions,,nosuid";
        assert_eq!(one(list).unwrap(), MountOptions { read_only: Some(Switch(true)), ..MountOptions::default() });
        assert_eq!(one("").unwrap(), MountOptions::default());
    }

    #[test]
    fn wrong_ones_are_named() {
        let text = |list| one(list).unwrap_err().0;
        assert!(text("rw=1").contains("'rw'"));
        let access = |list| one(list).map(|o| (o.read_only.is_some(), o.read_write.is_some()));
        assert_eq!((access("ro,rw"), access("read_write,ro")), (Ok((false, true)), Ok((true, false))));
        assert!(text("ro,colour=red").contains("'colour'"));
        assert_eq!(
            text("cache-size=big"),
            "invalid value 'big' for '--cache-size <SIZE>': expected a number of bytes such as 64K, 512M or 1.5G in -o"
        );
        assert!(text("cache-size").contains("cache-size"));
        // A value cannot inject another option.
        assert!(text("help").contains("'help'"));
    }
}
