//! Arguments of `h5dir find`: options as those of find(1), with one dash or two.

use super::view_args::ViewOptions;
use crate::fs::create_rules::NamePattern;
use clap::{ArgAction, Args, Command, ValueHint};
use std::ffi::OsString;
use std::str::FromStr;

/// Suffixes of sizes, and their bytes.
const UNITS: [(char, u64); 6] = [('c', 1), ('k', 1 << 10), ('K', 1 << 10), ('M', 1 << 20), ('G', 1 << 30), ('T', 1 << 40)];

/// Arguments of `h5dir find`.
#[derive(Debug, Args)]
pub(crate) struct FindArgs {
    /// Only objects whose name matches: *, ? and [...] as in a shell
    #[arg(long, value_name = "GLOB", allow_hyphen_values = true)]
    pub(crate) name: Vec<NameTest>,

    /// Only objects of these types: g group, d dataset, l soft or external link, t named datatype,
    /// m map; several with commas
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',')]
    pub(crate) types: Vec<TypeTest>,

    /// Only objects with this attribute, and this value as text: *, ? and [...] in both
    #[arg(long = "attr", value_name = "NAME[=VALUE]", allow_hyphen_values = true)]
    pub(crate) attributes: Vec<AttrTest>,

    /// Only elements of this type: f4, <f4, float32, S5, str, compound and so on
    #[arg(long, value_name = "DTYPE", allow_hyphen_values = true)]
    pub(crate) dtype: Option<String>,

    /// Only datasets whose elements have so many bytes: +1M more, -1M fewer; c, k, M, G, T
    #[arg(long, value_name = "[+-]SIZE", allow_hyphen_values = true)]
    pub(crate) size: Vec<SizeTest>,

    /// Descend at most so many groups below each FILE[:/PATH], which is at depth 0
    #[arg(long, value_name = "N")]
    pub(crate) maxdepth: Option<usize>,

    /// Print only objects at this depth or below
    #[arg(long, value_name = "N")]
    pub(crate) mindepth: Option<usize>,

    /// Print FILE:/PATH on a line each: the default
    #[arg(long, action = ArgAction::SetTrue)]
    pub(crate) print: bool,

    /// Print a zero byte after each instead of a newline, and names as they are, for xargs -0
    #[arg(long, conflicts_with_all = ["json", "print"])]
    pub(crate) print0: bool,

    #[command(flatten)]
    /// Options of commands that read objects. `--json`: an object a line.
    pub(crate) options: ViewOptions,

    /// HDF5 files, containers or directories, and a path in each
    #[arg(value_name = "FILE[:/PATH]", value_hint = ValueHint::FilePath, required = true)]
    pub(crate) targets: Vec<OsString>,
}

/// A pattern of names.
#[derive(Debug, Clone)]
pub(crate) struct NameTest(pub(crate) NamePattern);

impl FromStr for NameTest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains('/') {
            return Err("a name has no slash; give a path as FILE:/PATH".into());
        }
        NamePattern::new(text).map(NameTest)
    }
}

/// A type of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TypeTest {
    /// A group.
    Group,
    /// A dataset.
    Dataset,
    /// A soft, external or user-defined link.
    Link,
    /// A named datatype.
    Datatype,
    /// A map.
    Map,
}

impl FromStr for TypeTest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "g" | "group" => TypeTest::Group,
            "d" | "dataset" => TypeTest::Dataset,
            "l" | "link" => TypeTest::Link,
            "t" | "datatype" => TypeTest::Datatype,
            "m" | "map" => TypeTest::Map,
            _ => return Err("types are g (group), d (dataset), l (link), t (named datatype), m (map)".into()),
        })
    }
}

/// An attribute, and its value.
#[derive(Debug, Clone)]
pub(crate) struct AttrTest {
    /// Its name.
    pub(crate) name: TextTest,
    /// Its value as text; `None`: any.
    pub(crate) value: Option<TextTest>,
}

impl FromStr for AttrTest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        if name.is_empty() {
            return Err("write NAME, or NAME=VALUE".into());
        }
        Ok(AttrTest { name: TextTest::new(name), value: value.map(TextTest::new) })
    }
}

/// A text, which may be a pattern.
#[derive(Debug, Clone)]
pub(crate) struct TextTest {
    text: String,
    pattern: Option<glob::Pattern>,
}

impl TextTest {
    fn new(text: &str) -> TextTest {
        let pattern = text.contains(['*', '?', '[']).then(|| glob::Pattern::new(text).ok()).flatten();
        TextTest { text: text.into(), pattern }
    }

    /// The text if it is no pattern.
    pub(crate) fn exact(&self) -> Option<&str> {
        self.pattern.is_none().then_some(&self.text)
    }

    /// True for the text itself, texts that match it, and the same number.
    pub(crate) fn matches(&self, text: &str) -> bool {
        let number = |text: &str| text.trim().parse::<f64>().ok();
        let is_number = || number(&self.text).zip(number(text)).is_some_and(|(a, b)| a == b);
        text == self.text || self.pattern.as_ref().is_some_and(|pattern| pattern.matches(text)) || is_number()
    }
}

/// A number of bytes, and how a size compares with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SizeTest {
    order: std::cmp::Ordering,
    count: u64,
    unit: u64,
}

impl FromStr for SizeTest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (order, rest) = match text.strip_prefix('+') {
            Some(rest) => (std::cmp::Ordering::Greater, rest),
            None => text.strip_prefix('-').map_or((std::cmp::Ordering::Equal, text), |rest| (std::cmp::Ordering::Less, rest)),
        };
        let unit = UNITS.iter().find(|(suffix, _)| rest.ends_with(*suffix));
        let digits = unit.map_or(rest, |(suffix, _)| rest.trim_end_matches(*suffix));
        let count = digits.parse::<u64>().ok().filter(|_| digits.bytes().all(|b| b.is_ascii_digit()));
        let unit = unit.map_or(1, |(_, bytes)| *bytes);
        let count = count.ok_or("write a number of bytes, or one with c, k, M, G or T: +1M is more, -1M is less")?;
        count.checked_mul(unit).ok_or("so many bytes are not counted")?;
        Ok(SizeTest { order, count, unit })
    }
}

impl SizeTest {
    /// True if `bytes` is more, less, or equal when rounded up to the unit.
    pub(crate) fn matches(self, bytes: u64) -> bool {
        let limit = self.count.saturating_mul(self.unit);
        match self.order {
            std::cmp::Ordering::Equal => bytes.div_ceil(self.unit) == self.count,
            order => bytes.cmp(&limit) == order,
        }
    }
}

/// The arguments of a command line with the options of `find` as clap knows them: `-name` becomes
/// `--name`. `find` is the definition of the command.
pub(crate) fn with_two_dashes(args: Vec<OsString>, find: &Command) -> Vec<OsString> {
    if args.get(1).is_none_or(|command| command != "find") {
        return args;
    }
    let takes_value = |name: &str| {
        let known = find.get_arguments().find(|arg| arg.get_long() == Some(name))?;
        Some(known.get_action().takes_values() && !known.is_require_equals_set())
    };
    let (mut rewritten, mut is_value, mut is_over) = (Vec::new(), false, false);
    for arg in args {
        let text = arg.to_str().unwrap_or_default().to_owned();
        let single = text.strip_prefix('-').filter(|rest| rest.len() > 1 && !is_value && !is_over);
        is_over |= text == "--" && !is_value;
        let Some(rest) = single else {
            is_value = false;
            rewritten.push(arg);
            continue;
        };
        let rest = rest.strip_prefix('-').unwrap_or(rest);
        let takes = takes_value(rest.split('=').next().unwrap_or_default());
        is_value = takes == Some(true) && !rest.contains('=');
        // An unknown option keeps its name in the message.
        let is_word = rest.starts_with(|c: char| c.is_ascii_alphabetic());
        rewritten.push(if is_word { format!("--{rest}").into() } else { arg });
    }
    rewritten
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_one_dash_or_two() {
        let find = &FindArgs::augment_args(Command::new("find"));
        let of = |line: &str| {
            let words = with_two_dashes(line.split(' ').map(OsString::from).collect(), find);
            words.iter().map(|w| w.to_str().unwrap()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of("h5dir find f -name x* -type d"), "h5dir find f --name x* --type d");
        assert_eq!(of("h5dir find f --name -type -size -1M"), "h5dir find f --name -type --size -1M");
        assert_eq!(of("h5dir find f -external -maxdepth=2 -h -typ -- -name"), "h5dir find f --external --maxdepth=2 -h --typ -- -name");
        assert_eq!(of("h5dir ls -name"), "h5dir ls -name");
    }

    #[test]
    fn sizes_compare_as_those_of_find() {
        let is = |test: &str, bytes| test.parse::<SizeTest>().unwrap().matches(bytes);
        assert!(is("+1k", 1025) && !is("+1k", 1024) && is("-1k", 1023) && !is("-1k", 1024));
        assert!(is("2k", 1025) && is("2k", 2048) && !is("2k", 2049) && is("7", 7) && is("7c", 7) && !is("7", 8));
        for wrong in ["", "+", "1x", "k", "--1", "+-1", "1.5M", "99999999999999999999", "99999999999T"] {
            assert!(wrong.parse::<SizeTest>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn values_are_texts_patterns_or_numbers() {
        let is = |test: &str, text: &str| test.parse::<AttrTest>().unwrap().value.is_none_or(|value| value.matches(text));
        assert!(is("a", "x") && is("a=K", "K") && !is("a=K", "k") && is("a=K*", "Kelvin") && is("a=5", "5.0") && is("a=x=y", "x=y"));
        assert!(!is("a=", "x") && is("a=", "") && "=x".parse::<AttrTest>().is_err());
        assert!("a/b".parse::<NameTest>().is_err() && "[".parse::<NameTest>().is_err());
    }
}
