//! The text of `.h5dir/metrics`: measurements in the text format of Prometheus (version 0.0.4).

use crate::base::metrics::{self, BOUNDS_NS, Sample};
use nix::errno::Errno;
use std::fmt::Write;
use std::sync::atomic::Ordering;

/// Counters of `.h5dir/status` that can fall.
const GAUGES: [&str; 9] = [
    "open_containers",
    "cache_budget_bytes",
    "cache_bytes",
    "spill_bytes",
    "remote_cache_bytes",
    "layout_bytes_done",
    "layout_bytes_total",
    "inodes",
    "open_files",
];

/// All measurements with `counters`. `labels` (`name="value"`): labels of each of them.
pub fn page(counters: &[(&'static str, u64)], labels: &str) -> String {
    let mut out = Page { text: String::new(), labels };
    out.single("build_info", "gauge", "Version of the program.", &format!("version=\"{}\"", env!("CARGO_PKG_VERSION")), 1);
    for (name, value) in counters {
        let kind = if GAUGES.contains(name) { "gauge" } else { "counter" };
        // Names of counters, and of no other kind, end in "_total".
        let name = if kind == "counter" { format!("{name}_total") } else { name.trim_end_matches("_total").to_owned() };
        out.single(&name, kind, "See .h5dir/status.", "", *value);
    }
    out.single("read_bytes_total", "counter", "Bytes that reads returned.", "", metrics::READ_BYTES.load(Ordering::Relaxed));
    out.single("written_bytes_total", "counter", "Bytes that writes took.", "", metrics::WRITTEN_BYTES.load(Ordering::Relaxed));
    out.histograms("operation", "Requests of the kernel.", "operation", &metrics::OPERATIONS.samples());
    out.histograms("decode", "Chunks decoded by each filter.", "filter", &metrics::DECODED.samples());
    out.histograms("commit", "Commits.", "result", &metrics::COMMITS.samples());
    out.head("operation_errors_total", "counter", "Requests of the kernel that failed.");
    for (operation, errno, count) in metrics::ERRORS.values() {
        let labels = format!("operation=\"{operation}\",error=\"{:?}\"", Errno::from_raw(errno));
        out.line("operation_errors_total", &labels, &count.to_string());
    }
    out.text
}

/// A label and its value.
pub fn label(name: &str, value: &str) -> String {
    format!("{name}=\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

/// Text of metrics.
struct Page<'a> {
    text: String,
    labels: &'a str,
}

impl Page<'_> {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "# HELP h5dir_{name} {help}\n# TYPE h5dir_{name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &str, value: &str) {
        let comma = if labels.is_empty() || self.labels.is_empty() { "" } else { "," };
        let _ = match (labels, self.labels) {
            ("", "") => writeln!(self.text, "h5dir_{name} {value}"),
            (own, all) => writeln!(self.text, "h5dir_{name}{{{all}{comma}{own}}} {value}"),
        };
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, labels: &str, value: u64) {
        self.head(name, kind, help);
        self.line(name, labels, &value.to_string());
    }

    fn histograms(&mut self, name: &str, help: &str, label: &str, all: &[(&'static str, Sample)]) {
        let name = format!("{name}_seconds");
        self.head(&name, "histogram", help);
        for (value, Sample { up_to, nanoseconds }) in all {
            let bounds = BOUNDS_NS.iter().map(|ns| seconds(*ns)).chain(["+Inf".to_owned()]);
            for (bound, count) in bounds.zip(up_to) {
                self.line(&format!("{name}_bucket"), &format!("{label}=\"{value}\",le=\"{bound}\""), &count.to_string());
            }
            self.line(&format!("{name}_sum"), &format!("{label}=\"{value}\""), &seconds(*nanoseconds));
            self.line(&format!("{name}_count"), &format!("{label}=\"{value}\""), &up_to.last().unwrap_or(&0).to_string());
        }
    }
}

/// Nanoseconds as a decimal number of seconds.
fn seconds(ns: u64) -> String {
    let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_lines_have_the_labels() {
        let text = page(&[("inodes", 5)], &label("mountpoint", "/a \"b\"\\c"));
        assert!(text.contains("h5dir_inodes{mountpoint=\"/a \\\"b\\\"\\\\c\"} 5\n"), "{text}");
        assert!(text.lines().filter(|line| !line.starts_with('#')).all(|line| line.contains("{mountpoint=\"/a")), "{text}");
        assert!(page(&[("inodes", 5)], "").contains("\nh5dir_inodes 5\n"));
        assert!(page(&[("layout_bytes_total", 5)], "").contains("\nh5dir_layout_bytes 5\n"), "a gauge");
    }

    #[test]
    fn seconds_are_decimal_numbers() {
        assert_eq!([10_000, 1_000_000_000, 0, 12_345_678_901].map(seconds), ["0.00001", "1", "0", "12.345678901"]);
    }
}
