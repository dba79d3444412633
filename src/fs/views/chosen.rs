//! Which views a mount has below `.h5dir`.

use super::ALL;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A choice among the views. Its text is a list of names, of `all` and `none`, and of names to
/// leave out: `text,csv` or `all,-images`. The default is all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ViewChoice {
    left_out: BTreeSet<&'static str>,
}

impl ViewChoice {
    /// True for a view that the mount has.
    pub fn has(&self, name: &str) -> bool {
        !self.left_out.contains(name)
    }
}

/// Names of all views, in their order.
fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|view| view.name())
}

fn known(name: &str) -> Result<&'static str, String> {
    let unknown = || format!("there is no view '{name}'; there are all, none, {}", names().collect::<Vec<_>>().join(", "));
    names().find(|known| *known == name).ok_or_else(unknown)
}

impl FromStr for ViewChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A list that begins with a name to leave out has all others.
        let mut left_out: BTreeSet<_> = if text.trim_start().starts_with('-') { BTreeSet::new() } else { names().collect() };
        for word in text.split(',').map(str::trim) {
            match (word, word.strip_prefix('-')) {
                ("all", _) => left_out.clear(),
                ("none", _) => left_out.extend(names()),
                (_, Some(name)) => drop(left_out.insert(known(name)?)),
                (name, None) => drop(left_out.remove(known(name)?)),
            }
        }
        Ok(ViewChoice { left_out })
    }
}

impl fmt::Display for ViewChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<&str> = names().filter(|name| self.has(name)).collect();
        match shown.len() {
            0 => f.write_str("none"),
            few if few < self.left_out.len() => f.write_str(&shown.join(",")),
            _ => {
                f.write_str("all")?;
                self.left_out.iter().try_for_each(|name| write!(f, ",-{name}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_name_views_and_those_to_leave_out() {
        let of = |text: &str| text.parse::<ViewChoice>().unwrap();
        let shown = |text: &str| names().filter(|name| of(text).has(name)).collect::<Vec<_>>();
        assert_eq!(shown("csv, text"), ["csv", "text"]);
        assert_eq!(shown("none"), [""; 0]);
        assert_eq!(shown("all"), names().collect::<Vec<_>>());
        assert_eq!(of("all"), ViewChoice::default());
        assert_eq!(of("-images"), of("all,-images"));
        assert!(!of("-images").has("images") && of("-images").has("csv"));
        for (text, wanted) in [("all", "all"), ("none", "none"), ("text,csv", "csv,text"), ("-zarr,-images", "all,-images,-zarr")] {
            assert_eq!(of(text).to_string(), wanted);
            assert_eq!(of(wanted), of(text));
        }
    }

    #[test]
    fn an_unknown_name_is_an_error_that_lists_the_views() {
        for text in ["", "csv,", "cvs", "all,-cvs", "--csv"] {
            let message = text.parse::<ViewChoice>().unwrap_err();
            assert!(message.starts_with("there is no view '") && names().all(|name| message.contains(name)), "{text}: {message}");
        }
    }
}
