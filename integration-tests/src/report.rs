//! What a benchmark program prints.

use serde_json::Value;

/// Prints a report, an object: as it is, or as a table.
pub fn print(report: &Value, json: bool) {
    if json {
        println!("{report}");
    } else {
        for (key, value) in report.as_object().expect("a report is an object") {
            println!("{key:26} {value}");
        }
    }
}
