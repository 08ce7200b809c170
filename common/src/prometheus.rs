//! Prometheus' text format, as both services write it. Must never know: which metrics there are.

use std::fmt::{Display, Write};

/// Begins a metric: its help and its kind (`counter`, `gauge`).
pub fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    line(text, format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
}

/// A value of the metric begun last, with these labels; their values may hold anything.
pub fn sample<L: Display>(text: &mut String, name: &str, labels: &[(&str, L)], value: f64) {
    text.push_str(name);
    for (at, (label, labelled)) in labels.iter().enumerate() {
        let before = if at == 0 { '{' } else { ',' };
        let labelled = labelled.to_string().replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        line(text, format_args!("{before}{label}=\"{labelled}\""));
    }
    line(text, format_args!("{} {value}\n", if labels.is_empty() { "" } else { "}" }));
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    text.write_fmt(line).expect("a String grows");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut text = String::new();
        head(&mut text, "a_total", "counter", "What it is.");
        sample::<&str>(&mut text, "a_total", &[], 2.0);
        sample(&mut text, "a_total", &[("job", "a\"b\\c\nd"), ("subtask", "0")], 0.5);
        let expected =
            "# HELP a_total What it is.\n# TYPE a_total counter\na_total 2\na_total{job=\"a\\\"b\\\\c\\nd\",subtask=\"0\"} 0.5\n";
        assert_eq!(text, expected);
    }
}
