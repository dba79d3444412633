//! `h5dir man`: the manual pages.
//!
//! ```text
//! h5dir(1), h5dir-COMMAND(1)   from the definitions of the command line
//! h5dir.yaml(5)                keys from there, the rest from docs/CONFIGURATION.md
//! mount.h5dir(8)               from docs/CONFIGURATION.md
//! h5dir(7)                     from docs/OVERVIEW.md, views from their registry
//! ```

mod markdown;

use super::failure::{Exit, Failure, reason};
use crate::base::escape::{self, escaped};
use crate::config::args::ManArgs;
use crate::config::help;
use crate::config::options::MountOptions;
use crate::fs::about_views;
use crate::fs::open::host_path;
use clap::{Arg, Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, italic, roman};
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use std::io::{self, Write};
use std::path::Path;

/// The document that describes the configuration.
const CONFIGURATION: &str = include_str!("../../../docs/CONFIGURATION.md");
/// Its section about configuration files; the beginning of the title.
const FILE_SECTION: &str = "Configuration file";
/// Its section about mount(8).
const HELPER_SECTION: &str = "fstab";
/// The document that describes a mount.
const OVERVIEW: &str = include_str!("../../../docs/OVERVIEW.md");
/// Its section about views, whose table is that of the registry.
const VIEWS_SECTION: &str = "Views";
/// Source of all pages, at their foot.
const SOURCE: &str = concat!("h5dir ", env!("CARGO_PKG_VERSION"));

/// Section of h5dir(7).
const MOUNT_SECTION: u8 = 7;

/// A manual page.
struct Page {
    /// `h5dir-mount` of h5dir-mount(1).
    name: String,
    section: u8,
    text: Vec<u8>,
}

impl Page {
    /// `mount` of h5dir-mount(1), and `7` of h5dir(7): h5dir is that of section 1.
    fn short(&self) -> &str {
        if self.section == MOUNT_SECTION { "7" } else { self.name.strip_prefix("h5dir-").unwrap_or(&self.name) }
    }

    /// True if `wanted` names the page: `mount`, `h5dir-mount`, `h5dir-mount.1`, `h5dir-mount(1)`.
    fn is(&self, wanted: &str) -> bool {
        let (name, section) = (&self.name, self.section);
        let plain = wanted == self.short() || (*name == wanted && section != MOUNT_SECTION);
        plain || wanted == format!("{name}.{section}") || wanted == format!("{name}({section})")
    }
}

/// Runs `h5dir man`.
pub(crate) fn man(args: &ManArgs) -> Result<(), Failure> {
    let pages = pages().map_err(|e| Failure::new(Exit::General, format!("cannot make the manual pages: {}", reason(&e))))?;
    if let Some(dir) = &args.dir {
        return write(dir, &pages);
    }
    match pages.iter().find(|page| page.is(&args.page)) {
        Some(page) => print(&page.text),
        None => {
            let names: Vec<&str> = pages.iter().map(Page::short).collect();
            let page = escape::line(&args.page);
            Err(Failure::new(Exit::Usage, format!("there is no manual page '{page}'; give one of {}", names.join(", "))))
        }
    }
}

/// Prints `text` to standard output.
pub(super) fn print(text: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(e) => Err(Failure::new(Exit::General, format!("cannot write the output: {}; check standard output", reason(&e)))),
        Ok(()) => Ok(()),
    }
}

fn write(dir: &Path, pages: &[Page]) -> Result<(), Failure> {
    let failed = |path: &Path, e: &io::Error| {
        Failure::new(Exit::General, format!("cannot write {}: {}; choose another directory", escaped(path), reason(e)))
    };
    let directory = host_path::directory_or_create_all(dir).map_err(|e| failed(dir, &e))?;
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_TRUNC;
    for page in pages {
        let name = format!("{}.{}", page.name, page.section);
        let opened = directory.open_file(name.as_ref(), flags, Mode::from_bits_truncate(0o666));
        let written = opened.and_then(|mut file| file.write_all(&page.text));
        written.map_err(|e| failed(&dir.join(name), &e))?;
    }
    Ok(())
}

/// All pages.
fn pages() -> io::Result<Vec<Page>> {
    let mut root = help::command().disable_help_subcommand(true);
    root.build();
    let names: Vec<String> = subcommands(&root).map(|command| format!("{}(1)", name(command))).collect();
    let mut pages = vec![command_page(&root, &names)?];
    subcommands(&root).try_for_each(|command| add_pages(command, &mut pages))?;
    pages.push(file_page()?);
    pages.push(helper_page()?);
    pages.push(mount_page()?);
    Ok(pages)
}

/// Adds the page of `command` and those of its commands.
fn add_pages(command: &Command, pages: &mut Vec<Page>) -> io::Result<()> {
    pages.push(command_page(command, &["h5dir(1)".into(), "h5dir.yaml(5)".into(), "h5dir(7)".into(), "mount.h5dir(8)".into()])?);
    subcommands(command).try_for_each(|command| add_pages(command, pages))
}

/// The commands of `command` that have a page.
fn subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|c| c.get_name() != "help" && (help::is_documented(c) || c.get_name() == "man"))
}

/// `h5dir-mount` of the command `h5dir mount`.
fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or(command.get_name())
}

/// The page of `h5dir` or of one of its commands.
fn command_page(command: &Command, see_also: &[String]) -> io::Result<Page> {
    let name = name(command).to_owned();
    let man = Man::new(command.clone()).title(&name).source(SOURCE).manual("h5dir");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    let usage = command.clone().render_usage().to_string();
    roff.text([roman(usage.strip_prefix("Usage: ").unwrap_or(&usage))]);
    roff.to_writer(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut text)?;
    }
    let mut roff = Roff::new();
    after_help(&command.get_after_help().map(ToString::to_string).unwrap_or_default(), &mut roff);
    list("SEE ALSO", see_also, &mut roff);
    roff.to_writer(&mut text)?;
    Ok(Page { name, section: 1, text })
}

/// Appends the text after the options: a line without indentation is a heading, `TERM  TEXT`
/// below it is a term, other lines are kept as they are.
fn after_help(text: &str, roff: &mut Roff) {
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        match line.strip_prefix("  ").map(|line| line.split_once("  ").ok_or(line)) {
            Some(Ok((term, text))) => {
                roff.control("TP", []);
                roff.text([bold(term)]).text([roman(text.trim_start())]);
            }
            Some(Err(line)) => {
                roff.control("nf", []);
                roff.text([roman(line)]).control("fi", []);
            }
            None => {
                let title = line.trim_end_matches(':').to_uppercase().replace("EXIT CODES", "EXIT STATUS");
                roff.control("SH", [title.as_str()]);
            }
        }
    }
}

fn list(title: &str, names: &[String], roff: &mut Roff) {
    roff.control("SH", [title]);
    roff.text([roman(names.join(", "))]);
}

/// h5dir.yaml(5).
fn file_page() -> io::Result<Page> {
    let mut roff = title("h5dir.yaml", 5, "configuration file of h5dir mount");
    synopsis("h5dir mount --config", "FILE", &mut roff);
    let text = document_section(FILE_SECTION)?;
    let (begin, rest) = text.split_once("\n### ").map_or((text, String::new()), |(begin, rest)| (begin, format!("### {rest}")));
    roff.control("SH", ["DESCRIPTION"]);
    markdown::render(begin, &mut roff);
    let keys = MountOptions::augment_args(Command::new("mount"));
    let mut headings: Vec<&str> = Vec::new();
    for heading in keys.get_arguments().filter_map(Arg::get_help_heading) {
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    roff.control("SH", ["KEYS OF MOUNT"]);
    for heading in headings {
        roff.control("SS", [heading]);
        keys.get_arguments().filter(|key| key.get_help_heading() == Some(heading)).for_each(|key| option_key(key, &mut roff));
    }
    markdown::render(&rest, &mut roff);
    list("SEE ALSO", &["h5dir-mount(1)".into(), "mount.h5dir(8)".into()], &mut roff);
    finish("h5dir.yaml", 5, &roff)
}

/// Appends a key of `mount:` with its value and help.
fn option_key(key: &Arg, roff: &mut Roff) {
    let value = key.get_value_names().unwrap_or_default().join(" ");
    roff.control("TP", []);
    roff.text([bold(key.get_long().unwrap_or_default()), roman(": "), italic(value)]);
    roff.text([roman(key.get_help().map(ToString::to_string).unwrap_or_default())]);
}

/// mount.h5dir(8).
fn helper_page() -> io::Result<Page> {
    let mut roff = title("mount.h5dir", 8, "mount an HDF5 file by mount(8) and fstab(5)");
    synopsis("mount -t h5dir", "FILE[:/GROUP] MOUNTPOINT [-o OPTIONS]", &mut roff);
    roff.control("br", []);
    roff.text([bold("mount.h5dir"), roman(" "), italic("FILE[:/GROUP] MOUNTPOINT [-sfnv] [-N NAMESPACE] [-t TYPE] [-o OPTIONS]")]);
    roff.control("SH", ["DESCRIPTION"]);
    markdown::render(document_section(HELPER_SECTION)?, &mut roff);
    list("SEE ALSO", &["h5dir-mount(1)".into(), "h5dir.yaml(5)".into(), "mount(8)".into(), "fstab(5)".into()], &mut roff);
    finish("mount.h5dir", 8, &roff)
}

/// h5dir(7).
fn mount_page() -> io::Result<Page> {
    let mut roff = title("h5dir", MOUNT_SECTION, "what a mounted HDF5 file shows");
    roff.control("SH", ["DESCRIPTION"]);
    let mut parts = OVERVIEW.split("\n## ");
    let begin = parts.next().and_then(|part| part.split_once("\n\n")).map_or("", |(_, text)| text);
    // The rest of the paragraph names the sections.
    markdown::render(begin.split(" Sections:").next().unwrap_or(begin), &mut roff);
    for part in parts {
        if !part.starts_with(VIEWS_SECTION) {
            markdown::render(&format!("## {part}"), &mut roff);
            continue;
        }
        roff.control("SH", ["VIEWS"]);
        markdown::render(part.split_once("\n\n").map_or("", |(_, text)| text).split("\n|").next().unwrap_or_default(), &mut roff);
        for (files, about) in about_views() {
            roff.control("TP", []);
            roff.text([bold(format!(".h5dir/{files}"))]).text([roman(about)]);
        }
    }
    list("SEE ALSO", &["h5dir-mount(1)".into(), "h5dir.yaml(5)".into(), "getfattr(1)".into(), "xattr(7)".into()], &mut roff);
    finish("h5dir", MOUNT_SECTION, &roff)
}

fn title(name: &str, section: u8, about: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("TH", [name, section.to_string().as_str(), "", SOURCE, "h5dir"]);
    roff.control("SH", ["NAME"]);
    roff.text([roman(format!("{name} - {about}"))]);
    roff
}

fn synopsis(command: &str, arguments: &str, roff: &mut Roff) {
    roff.control("SH", ["SYNOPSIS"]);
    roff.text([bold(command), roman(" "), italic(arguments)]);
}

fn document_section(title: &str) -> io::Result<&'static str> {
    let missing = || io::Error::other(format!("docs/CONFIGURATION.md has no section '{title}'"));
    markdown::section(CONFIGURATION, title).ok_or_else(missing)
}

fn finish(name: &str, section: u8, roff: &Roff) -> io::Result<Page> {
    let mut text = Vec::new();
    roff.to_writer(&mut text)?;
    Ok(Page { name: name.to_owned(), section, text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn page(short: &str) -> String {
        let page = pages().unwrap().into_iter().find(|page| page.short() == short).unwrap();
        // Hyphens are escaped, so that they are copied as such.
        String::from_utf8(page.text).unwrap().replace("\\-", "-")
    }

    #[test]
    fn each_command_has_a_page_with_its_options() {
        for command in help::command().get_subcommands().filter(|c| c.get_name() != "bench-memory-fs") {
            let text = page(command.get_name());
            for option in command.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(Arg::get_long) {
                assert!(text.contains(&format!("--{option}")), "{}: {option}", command.get_name());
            }
            for section in ["NAME", "SYNOPSIS", "OPTIONS", "\"EXIT STATUS\"", "EXAMPLES", "\"SEE ALSO\""] {
                assert!(text.contains(&format!("\n.SH {section}\n")), "{}: {section}\n{text}", command.get_name());
            }
            assert!(!help::is_documented(command) || page("h5dir").contains(&format!("h5dir-{}(1)", command.get_name())));
        }
    }

    #[test]
    fn the_file_page_has_the_keys_of_mount_and_of_rules() {
        let text = page("h5dir.yaml");
        for key in MountOptions::augment_args(Command::new("mount")).get_arguments().filter_map(Arg::get_long) {
            assert!(text.contains(&format!("\\fB{key}\\fR: ")), "{key}");
        }
        for key in crate::config::create::KEYS {
            assert!(text.contains(&format!("\\fB{key}\\fR")), "{key}");
        }
        assert!(page("mount.h5dir").contains("fstab"));
    }

    #[test]
    fn the_page_of_a_mount_has_the_sections_of_the_overview_and_all_views() {
        let text = page("7");
        for heading in OVERVIEW.lines().filter_map(|line| line.strip_prefix("## ")) {
            let heading = heading.to_uppercase();
            assert!(text.lines().any(|line| line.replace('"', "") == format!(".SH {heading}")), "{heading}\n{text}");
        }
        for (files, about) in about_views() {
            assert!(text.contains(&format!(".h5dir/{files}")) && text.contains(about), "{files}");
        }
        assert!(text.contains("user.h5dir.NAME") && !text.contains("Sections:"), "{text}");
        let (all, wanted) = (pages().unwrap(), |all: &[Page], name: &str| all.iter().filter(|page| page.is(name)).count());
        for name in ["h5dir", "h5dir.1", "h5dir(7)", "h5dir.7", "7", "mount", "h5dir-mount.1"] {
            assert_eq!(wanted(&all, name), 1, "{name}");
        }
    }

    #[test]
    fn commands_of_commands_have_pages() {
        let mut root = Command::new("h5dir").subcommand(Command::new("a").subcommand(Command::new("b")).subcommand(Command::new("c")));
        root.build();
        let a: Vec<&Command> = subcommands(&root).filter(|command| command.get_name() == "a").collect();
        assert_eq!(subcommands(a[0]).map(name).collect::<Vec<_>>(), ["h5dir-a-b", "h5dir-a-c"]);
    }

    #[test]
    fn the_configuration_document_lists_the_options_of_a_mount() {
        let text = markdown::section(CONFIGURATION, "Options of `h5dir mount`").unwrap();
        let first_cells = text.lines().filter(|line| line.starts_with("| `-")).filter_map(|line| line.split('|').nth(1));
        let listed: BTreeSet<&str> = first_cells.flat_map(|cell| cell.split('`')).filter_map(|word| word.strip_prefix("--")).collect();
        let (options, command) = (MountOptions::augment_args(Command::new("mount")), help::command());
        let mount = command.find_subcommand("mount").unwrap();
        let missing: Vec<&str> = options.get_arguments().filter_map(Arg::get_long).filter(|name| !listed.contains(name)).collect();
        let unknown: Vec<&&str> = listed.iter().filter(|name| !mount.get_arguments().any(|a| a.get_long() == Some(name))).collect();
        assert!(missing.is_empty() && unknown.is_empty(), "not in docs/CONFIGURATION.md: {missing:?}, no options: {unknown:?}");
    }

    #[test]
    fn pages_are_written_and_unknown_ones_refused() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("a/b");
        man(&ManArgs { dir: Some(at.clone()), page: "h5dir".into() }).unwrap();
        for name in ["h5dir.1", "h5dir-mount.1", "h5dir-completions.1", "h5dir-man.1", "h5dir.yaml.5", "h5dir.7", "mount.h5dir.8"] {
            assert!(at.join(name).metadata().unwrap().len() > 200, "{name}");
        }
        assert!(!at.join("h5dir-bench-memory-fs.1").exists());
        let failure = man(&ManArgs { dir: None, page: "munt".into() }).unwrap_err();
        assert!(failure.exit == Exit::Usage && failure.message.contains("'munt'; give one of h5dir, mount, "), "{}", failure.message);
        std::fs::write(dir.path().join("file"), "").unwrap();
        let failure = man(&ManArgs { dir: Some(dir.path().join("file")), page: "h5dir".into() }).unwrap_err();
        assert!(failure.message.contains("choose another directory"), "{}", failure.message);
    }
}
