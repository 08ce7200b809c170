//! Reads a figure off a service's `/metrics`.

use std::net::SocketAddr;

use anyhow::Context;

use crate::http;

/// The sum of all samples of this name.
///
/// Errors: the service does not answer, or has no such figure.
pub async fn read(address: SocketAddr, name: &str) -> anyhow::Result<f64> {
    let text = http::request(address, "GET", "/metrics", "").await?;
    sum(&text, name).with_context(|| format!("no figure \"{name}\" at http://{address}/metrics"))
}

fn sum(text: &str, name: &str) -> Option<f64> {
    let samples = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let (_, value) = rest.rsplit_once(' ').filter(|_| rest.starts_with(['{', ' ']))?;
        value.parse::<f64>().ok()
    });
    samples.fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_added_up_by_name() {
        let text = "# TYPE a gauge\na{x=\"1 2\"} 3\na 4\nab 5\n";
        assert_eq!((sum(text, "a"), sum(text, "ab"), sum(text, "b")), (Some(7.0), Some(5.0), None));
    }
}
