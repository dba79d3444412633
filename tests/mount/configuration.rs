//! Mounts of configuration files: `h5dir mount NAME`, `--all`, `h5dir config`.

use super::namespace::in_own_namespace;
use super::python;
use super::support::{h5dir, is_mounted, run};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A folder whose subfolders are unmounted before it is removed.
pub struct Folder(TempDir);

impl Folder {
    /// With HDF5 files `NAME.h5` and mountpoints `NAME`.
    pub fn new(names: &[&str]) -> Self {
        let folder = Folder(tempfile::Builder::new().prefix("h5dir-test-").tempdir().unwrap());
        for name in names {
            std::fs::create_dir(folder.path(name)).unwrap();
            assert_eq!(run(h5dir(&["create"]).arg(folder.path(&format!("{name}.h5")))).0, 0);
        }
        folder
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(name)
    }

    /// Writes a file.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    /// Content of a file.
    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// Runs h5dir in the folder: exit code, standard output, standard error.
    pub fn h5dir(&self, args: &[&str]) -> (i32, String, String) {
        let output = h5dir(args).current_dir(self.0.path()).env("XDG_CONFIG_HOME", self.path("none")).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        for entry in std::fs::read_dir(self.0.path()).unwrap() {
            while h5dir::fuse::unmount::unmount(&entry.as_ref().unwrap().path(), true).is_ok() {}
        }
    }
}

#[test]
fn several_mounts_of_a_file() {
    let folder = Folder::new(&["a", "b", "c"]);
    let text = "defaults:
  cache-size: 64M
mounts:
  a: {source: a.h5, at: a, read-write: true, create: [{pattern: '*.f8', dtype: f8}]}
  absent: {source: none.h5, at: none}
  wrong: {source: c.h5, at: c, treads: 5}
  b: {source: ./b.h5:/, at: b, cache-size: 32M}
create: [{pattern: '*.f4', dtype: f4}]
";
    folder.write("c.yaml", text);
    let all = ["mount", "--all", "--config", "c.yaml"];
    let (code, _, errors) = folder.h5dir(&all);
    let lines: Vec<&str> = errors.lines().collect();
    assert_eq!((code, lines.len()), (3, 2), "{errors}");
    assert!(lines[0].starts_with("h5dir: absent: cannot mount ") && lines[0].contains("none.h5: No such file"), "{errors}");
    assert!(lines[1].starts_with("h5dir: wrong: ") && lines[1].contains("did you mean 'threads'? at line 6 column 32"), "{errors}");
    assert!(is_mounted(&folder.path("a")) && is_mounted(&folder.path("b")) && !is_mounted(&folder.path("c")));
    // What is mounted stays as it is.
    folder.write("c.yaml", &text.replace("  absent: {source: none.h5, at: none}\n", "").replace("treads", "threads"));
    assert_eq!(folder.h5dir(&all), (0, String::new(), String::new()));
    assert!(is_mounted(&folder.path("c")));
    let budget = |name: &str| {
        folder.read(&format!("{name}/.h5dir/status")).lines().find_map(|l| l.strip_prefix("cache_budget_bytes ").map(str::to_owned))
    };
    assert_eq!(["a", "b", "c"].map(budget), ["67108864", "33554432", "67108864"].map(|n| Some(n.to_owned())));
    // Rules of the mount, then those of the file.
    for (name, dtype) in [("x.f8", "<f8"), ("x.f4", "<f4")] {
        std::fs::write(folder.path("a").join(name), [0u8; 16]).unwrap();
        let value = super::mounted::getxattr(&folder.path("a").join(name), "user.h5dir.dtype").unwrap();
        assert_eq!(String::from_utf8(value).unwrap(), dtype);
    }
    for name in ["a", "b", "c"] {
        let name = if name == "c" { "wrong" } else { name };
        assert_eq!(folder.h5dir(&["umount", "--name", name, "--config", "c.yaml"]).0, 0);
    }
    assert!(["a", "b", "c"].iter().all(|name| !is_mounted(&folder.path(name))));
}

#[test]
fn a_mount_by_its_name() {
    let folder = Folder::new(&["a", "b"]);
    folder.write("c.yaml", "mounts:\n  one: {source: a.h5, at: a, read-only: true, uid: 5}\n  b.h5: {source: b.h5, at: b}\n");
    let mount = |args: &[&str]| folder.h5dir(&[&["mount", "--config", "c.yaml"], args].concat());
    // The command line takes precedence, also over options that contradict it.
    assert_eq!(mount(&["one", "--read-write"]).0, 0);
    std::fs::write(folder.path("a/x"), "x").unwrap();
    let (code, _, error) = mount(&["one"]);
    assert!(code == 4 && error.contains("one: cannot mount") && error.contains("already mounted"), "{error}");
    // A file of that name exists.
    let (code, _, error) = mount(&["b.h5"]);
    assert!(code == 2 && error.contains("b.h5 needs a MOUNTPOINT") && error.contains("--name"), "{error}");
    assert_eq!(mount(&["--name", "b.h5"]).0, 0);
    assert!(is_mounted(&folder.path("b")));
    let (code, _, error) = mount(&["ona"]);
    assert!(code == 2 && error.contains("no mount 'ona' in c.yaml") && error.contains("did you mean 'one'?"), "{error}");
    for wrong in [&["mount"][..], &["mount", "--all", "x"], &["mount", "--all", "-f"], &["umount"], &["mount", "--name", "x", "y", "z"]] {
        assert_eq!(folder.h5dir(wrong).0, 2, "{wrong:?}");
    }
}

#[test]
fn a_mountpoint_that_shows_another_file_is_a_failure() {
    let folder = Folder::new(&["a", "b"]);
    folder.write("c.yaml", "mounts: {one: {source: b.h5, at: a}}\n");
    assert_eq!(folder.h5dir(&["mount", "a.h5", "a"]).0, 0);
    let (code, _, error) = folder.h5dir(&["mount", "--all", "--config", "c.yaml"]);
    assert!(code == 4 && error.starts_with("h5dir: one: cannot mount ") && error.contains("a.h5") && error.lines().count() == 1, "{error}");
}

#[test]
fn check_lists_all_problems_with_their_lines() {
    let folder = Folder::new(&[]);
    let path = folder.write("bad.yaml", "defaults:\n  chache-size: 1G\nmounts:\n  a:\n    source: a.h5\n    at: a\n    log-level: inof\n    umask: 9\n  b: {source: b.h5, at: b, umask: 022, file-mode: 0644}\n");
    folder.write("good.yaml", "mounts:\n  b: {source: b.h5, at: b}\n");
    let (code, out, error) = folder.h5dir(&["config", "check", "bad.yaml", "good.yaml"]);
    let at = path.display();
    let wanted = format!(
        "{at}:2:3: unknown key 'chache-size'; did you mean 'cache-size'?
    2 |   chache-size: 1G
      |   ^^^^^^^^^^^
{at}:7:16: invalid value 'inof' for 'log-level': expected off, error, warn, info, debug or trace; did you mean 'info'?
    7 |     log-level: inof
      |                ^^^^
{at}:8:12: invalid value '9' for 'umask': expected an octal mode from 0 to 777, e.g. 0444
    8 |     umask: 9
      |            ^
{}: 1 mount, no problems
",
        folder.path("good.yaml").display()
    );
    assert_eq!((code, out.as_str(), error.as_str()), (1, wanted.as_str(), "h5dir: the configuration has 3 problems\n"));
    // Without the problem of the whole file, contradicting options are found.
    folder.write("bad.yaml", "mounts:\n  b: {source: b.h5, at: b, umask: 022, file-mode: 0644}\n");
    let (code, out, _) = folder.h5dir(&["config", "check", "bad.yaml"]);
    assert!(code == 1 && out.contains("bad.yaml:2:3: --umask and --file-mode or --dir-mode exclude each other"), "{out}");
    assert_eq!(folder.h5dir(&["config", "check", "good.yaml"]).0, 0);
    let (code, out, _) = folder.h5dir(&["config", "check", "none.yaml"]);
    assert!(code == 1 && out.contains("none.yaml: No such file or directory"), "{out}");
}

#[test]
fn show_names_the_origin_of_each_value() {
    let folder = Folder::new(&["a"]);
    let path = folder.write("c.yaml", "defaults:\n  cache-size: 1536M\nmounts:\n  a:\n    source: a.h5\n    at: a\n    uid: 7\n    umask: 022\n    create: [{pattern: '*.f8', dtype: f8}]\n");
    let show = |args: &[&str]| {
        let (code, out, error) = folder.h5dir(&[&["config", "show", "--config", "c.yaml", "--threads=3", "-o", "gid=9"], args].concat());
        assert_eq!((code, error.as_str()), (0, ""));
        out
    };
    let json: Value = serde_json::from_str(&show(&["--json", "a"])).unwrap();
    let file = path.to_str().unwrap();
    for (name, value, from, line) in [
        ("cache-size", Value::from(1536u64 << 20), "file", Some(2)),
        ("uid", 7.into(), "file", Some(7)),
        ("source", folder.path("a.h5").to_str().into(), "file", Some(5)),
        ("umask", "0022".into(), "file", Some(8)),
        ("file-mode", "0644".into(), "default", None),
        ("threads", 3.into(), "command line", None),
        ("gid", 9.into(), "command line", None),
        ("log-file", Value::Null, "default", None),
        ("commit-interval", 0.into(), "default", None),
    ] {
        let entry = &json["a"][name];
        assert_eq!((&entry["value"], entry["from"].as_str(), entry["line"].as_i64()), (&value, Some(from), line), "{name}");
        assert_eq!(entry["file"].as_str(), line.map(|_| file), "{name}");
    }
    let text = show(&[]);
    assert!(text.starts_with("a\n") && text.contains(&format!("cache-size          1536M                           {file}:2\n")), "{text}");
    // As a configuration file it has the same effect.
    folder.write("again.yaml", &show(&["--yaml"]));
    let (code, again, error) = folder.h5dir(&["config", "show", "--config", "again.yaml", "--json"]);
    assert_eq!((code, error.as_str()), (0, ""));
    let values = |json: &Value| {
        json["a"].as_object().unwrap().iter().map(|(name, entry)| (name.clone(), entry["value"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(values(&serde_json::from_str(&again).unwrap()), values(&json));
}

/// The schema accepts what h5dir accepts, and refuses what it refuses.
const VALIDATE: &str = "
import json, sys, jsonschema, yaml
schema = json.load(open(sys.argv[1]))
jsonschema.Draft7Validator.check_schema(schema)
validator = jsonschema.Draft7Validator(schema)
for path in sys.argv[2:]:
    problems = list(validator.iter_errors(yaml.safe_load(open(path))))
    print('good' if not problems else 'bad')
";

#[test]
fn the_schema_agrees_with_the_program() {
    let folder = Folder::new(&[]);
    let (code, schema, _) = folder.h5dir(&["config", "schema"]);
    assert_eq!(code, 0);
    let schema = folder.write("schema.json", &schema);
    let mut texts: Vec<String> = [
        "# yaml-language-server: $schema=h5dir.schema.json\n",
        "mount: {cache-size: 512M, allow-other: true, file-mode: 0440, dir-mode: '0550', attr-timeout: 1.5, uid: root}\n",
        "defaults: {threads: 4, readahead: 1.5M, external: off, vds-missing: fill}\nmounts:\n",
        "mounts: {run-7.x: {source: '/a:/g', at: /m, read-write: yes, log-level: debug, create: [{pattern: x, chunks: auto}]}}\n",
        "create: [{pattern: '*.f8', dtype: '<f8', shape: [null, 100], chunks: [64, 100], filters: [shuffle, {deflate: 4}], fillvalue: -1}]\n",
        "mounts: {a: {source: x}}\n",
        "mounts: {a: {source: x, at: y, threads: 0}}\n",
        "mounts: {a b: {source: x, at: y}}\n",
        "mont: {}\n",
        "mount: {cache-sise: 5}\n",
        "mount: {cache-size: big}\n",
        "mount: {log-level: inof}\n",
        "mount: {umask: 999}\n",
        "create: [{dtype: f8}]\n",
        "create: [{pattern: a, chunks: some}]\n",
        "defaults: [1]\n",
    ]
    .map(str::to_owned)
    .to_vec();
    // The examples of the documentation.
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/CONFIGURATION.md")).unwrap();
    let examples: Vec<&str> = text.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(examples.len() >= 3);
    texts.extend(examples.iter().map(|text| text.to_string()));
    let paths: Vec<PathBuf> = texts.iter().enumerate().map(|(i, text)| folder.write(&format!("{i}.yaml"), text)).collect();
    let output = Command::new(python::with_h5py()).args(["-c", VALIDATE]).arg(&schema).args(&paths).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let verdicts = String::from_utf8(output.stdout).unwrap();
    let verdicts: Vec<&str> = verdicts.lines().collect();
    assert_eq!(verdicts.len(), texts.len());
    for ((text, path), verdict) in texts.iter().zip(&paths).zip(verdicts) {
        let (code, out, _) = folder.h5dir(&["config", "check", path.to_str().unwrap()]);
        assert_eq!(verdict, if code == 0 { "good" } else { "bad" }, "{text}\n{out}");
    }
    assert!(examples.iter().all(|example| texts.iter().any(|text| text == example)));
}

/// Runs `script` as root in a mount namespace with an /etc of its own, and with the folder as `$1`.
fn with_own_etc(folder: &Folder, script: &str) -> String {
    let prepare =
        "set -eu; cp -a /etc \"$1/etc\"; rm -rf \"$1/etc/h5dir\"; mkdir \"$1/etc/h5dir\"; mount --bind \"$1/etc\" /etc; h5dir=$2\n";
    let mut command = in_own_namespace("bash", &format!("{prepare}{script}"));
    command.arg(folder.path("")).arg(env!("CARGO_BIN_EXE_h5dir"));
    let output = command.output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}");
    text
}

/// As root: /etc/h5dir only, and only files that root alone can write.
#[test]
fn root_reads_trusted_files_of_the_machine() {
    if !nix::unistd::geteuid().is_root() {
        // Another user cannot change /etc; see the next test.
        return;
    }
    let folder = Folder::new(&["a"]);
    folder
        .write("one.yaml", &format!("mounts:\n  one: {{source: {}, at: {}}}\n", folder.path("a.h5").display(), folder.path("a").display()));
    let script = "
        mkdir -p $1/home/h5dir; sed 's/one:/mine:/' $1/one.yaml >$1/home/h5dir/mine.yaml
        export XDG_CONFIG_HOME=$1/home
        $h5dir config check; cp $1/one.yaml /etc/h5dir; $h5dir config check
        $h5dir mount one; [ -f $1/a/.h5dir/status ]; $h5dir mount --all; $h5dir umount --name one
        $h5dir mount mine && exit 1; chmod g+w /etc/h5dir/one.yaml
        $h5dir mount one && exit 1; chmod 644 /etc/h5dir/one.yaml; chown nobody /etc/h5dir/one.yaml
        $h5dir mount one && exit 1; $h5dir mount --all && exit 1; $h5dir config check && exit 1
        chown root /etc/h5dir/one.yaml; mkfifo /etc/h5dir/pipe.yaml
        $h5dir mount one; $h5dir umount --name one; $h5dir mount --all && exit 1; $h5dir umount --name one
    ";
    let text = with_own_etc(&folder, script);
    assert!(text.contains("no configuration files") && text.contains("/etc/h5dir/one.yaml: 1 mount, no problems"), "{text}");
    assert!(text.contains("no mount 'mine' in /etc/h5dir, and"), "{text}");
    assert!(
        text.contains("one.yaml: other users can write it; use 'chmod go-w'") && text.contains("one.yaml: it belongs to user 65534"),
        "{text}"
    );
    assert!(text.contains("pipe.yaml: it is not a regular file"), "{text}");
}

/// Another user: their own files take precedence over those of the machine.
#[test]
fn users_have_files_of_their_own() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let folder = Folder::new(&["a", "b", "c"]);
    let mount =
        |name: &str, to: &str| format!("  {name}: {{source: {}, at: {}}}\n", folder.path("a.h5").display(), folder.path(to).display());
    folder.write("machine.yaml", &format!("mounts:\n{}{}", mount("one", "a"), mount("two", "b")));
    folder.write("own.yaml", &format!("mounts:\n{}", mount("one", "c")));
    let script = "
        cp $1/machine.yaml /etc/h5dir; mkdir -p $1/config/h5dir; cp $1/own.yaml $1/config/h5dir; cp $h5dir $1/h5dir
        chmod -R a+rX $1; chown -R nobody $1/config $1/?; rm $1/etc/shadow
        as_user() { XDG_CONFIG_HOME=$1/config setpriv --reuid=nobody --clear-groups --inh-caps=-all $1/h5dir \"${@:2}\"; }
        as_user $1 config show --json
        chmod o+w $1/config/h5dir/own.yaml; as_user $1 config show one
        chmod o-w $1/config/h5dir/own.yaml; chmod g+w $1/config/h5dir/own.yaml; as_user $1 config show one
    ";
    let text = with_own_etc(&folder, script);
    assert_eq!(text.matches("own.yaml: other users can write it").count(), 1, "{text}");
    // The machine's, then their own again.
    let shown: Vec<&str> = text.split("\none\n").skip(1).collect();
    assert!(shown.len() == 2 && shown[0].contains("machine.yaml:2") && shown[1].contains("own.yaml:2"), "{text}");
    let json: Value = serde_json::Deserializer::from_str(&text).into_iter().next().unwrap().unwrap();
    let at = |name: &str| json[name]["at"]["value"].as_str().map(|at| Path::new(at).to_owned());
    assert_eq!((at("one"), at("two")), (Some(folder.path("c")), Some(folder.path("b"))));
}
