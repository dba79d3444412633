//! AWS profiles: credentials and settings of `~/.aws/credentials` and `~/.aws/config`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Longest file that is read, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Credentials and settings of a profile, by lower-case key.
pub(super) type Profile = HashMap<String, String>;

/// The profile that the environment selects, from the files that it names.
///
/// `variable`: value of an environment variable. The credentials file has precedence. Error: a
/// profile that `AWS_PROFILE` names is in no file.
pub(super) fn load(variable: &dyn Fn(&str) -> Option<String>) -> Result<Profile, String> {
    let given = variable("AWS_PROFILE").or_else(|| variable("AWS_DEFAULT_PROFILE"));
    let name = given.as_deref().unwrap_or("default");
    let home = variable("HOME").map(PathBuf::from);
    let file = |key: &str, default: &str| variable(key).map(PathBuf::from).or_else(|| Some(home.as_ref()?.join(default)));
    let read = |path: Option<PathBuf>| path.and_then(|path| read(&path)).unwrap_or_default();
    let config = read(file("AWS_CONFIG_FILE", ".aws/config"));
    let credentials = read(file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"));
    let long = format!("profile {name}");
    let found = [section(&config, &long), section(&config, name).filter(|_| name == "default"), section(&credentials, name)];
    if given.is_some() && found.iter().all(Option::is_none) {
        return Err(format!("there is no AWS profile {name}; check AWS_PROFILE"));
    }
    Ok(found.into_iter().flatten().flatten().collect())
}

/// The way to credentials that the profile has instead of keys; `None`: it has keys, or nothing.
pub(super) fn other_method(profile: &Profile) -> Option<&'static str> {
    let has = |key: &str| profile.get(key).is_some_and(|value| !value.is_empty());
    let methods = [
        ("credential_process", "a program (credential_process)"),
        ("sso_session", "single sign-on (sso_*)"),
        ("sso_start_url", "single sign-on (sso_*)"),
        ("sso_account_id", "single sign-on (sso_*)"),
        ("role_arn", "a role (role_arn)"),
    ];
    let found = methods.into_iter().find(|(key, _)| has(key)).map(|(_, method)| method);
    found.filter(|_| !has("aws_access_key_id") || !has("aws_secret_access_key"))
}

fn read(path: &Path) -> Option<String> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::open(path).ok()?.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Keys and values of section `name`; `None` if there is no such section. Indented lines, which
/// are nested settings, do not count.
fn section(text: &str, name: &str) -> Option<Profile> {
    let mut found: Option<Profile> = None;
    let mut inside = false;
    for line in text.lines() {
        if line.starts_with([' ', '\t', '#', ';']) {
            continue;
        }
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[') {
            let title = header.split(']').next().unwrap_or_default();
            inside = title.split_whitespace().eq(name.split_whitespace());
            if inside {
                found.get_or_insert_default();
            }
        } else if let (true, Some((key, value)), Some(keys)) = (inside, line.split_once('='), &mut found) {
            // A comment begins with a space and a sign.
            let value = value.split(" #").next().unwrap_or_default().split(" ;").next().unwrap_or_default();
            keys.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_to_credentials_that_are_missing_are_named() {
        let of = |keys: &[&str]| other_method(&keys.iter().map(|key| ((*key).to_owned(), "x".to_owned())).collect());
        assert_eq!(of(&["credential_process", "region"]), Some("a program (credential_process)"));
        assert_eq!((of(&["sso_session"]), of(&["sso_start_url"])), (Some("single sign-on (sso_*)"), Some("single sign-on (sso_*)")));
        assert_eq!(of(&["role_arn", "source_profile"]), Some("a role (role_arn)"));
        assert_eq!((of(&["role_arn", "aws_access_key_id", "aws_secret_access_key"]), of(&["region"])), (None, None));
    }

    #[test]
    fn a_profile_is_of_both_files() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join(".aws")).unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(".aws").join(name), text).unwrap();
        write(
            "config",
            "[default]\nregion = eu-1\n[profile p]\nregion=eu-2 # comment\ns3 =\n  addressing_style = path\nendpoint_url=http://e\n",
        );
        write("credentials", "; comment\n[default]\naws_access_key_id = a\n[ p ]\nAWS_Access_Key_Id=b\naws_secret_access_key = c=d\n");
        let home = dir.path().to_string_lossy().into_owned();
        let of = |profile: Option<&str>| {
            load(&|key| match key {
                "HOME" => Some(home.clone()),
                "AWS_PROFILE" => profile.map(str::to_owned),
                _ => None,
            })
        };
        let default = of(None).unwrap();
        assert_eq!((default["region"].as_str(), default["aws_access_key_id"].as_str()), ("eu-1", "a"));
        let p = of(Some("p")).unwrap();
        assert_eq!((p["region"].as_str(), p["aws_access_key_id"].as_str(), p["aws_secret_access_key"].as_str()), ("eu-2", "b", "c=d"));
        assert_eq!((p["endpoint_url"].as_str(), p.contains_key("addressing_style")), ("http://e", false));
        assert!(of(Some("none")).unwrap_err().contains("AWS_PROFILE"));
        assert_eq!(load(&|_| None), Ok(Profile::new()));
    }
}
