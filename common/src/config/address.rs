//! `host:port`, where the host is a name, an IPv4 address or an IPv6 address in brackets.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// A host and a port, as written: names are looked up at each connect.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// A name, an IPv4 address, or an IPv6 address without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// The text is not `host:port`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not host:port; write levada-jm:6123, 10.0.0.1:6123 or [fd00::10]:6123")]
pub struct BadAddress(pub String);

impl HostPort {
    /// A host (an IPv6 address with or without brackets) and a port.
    pub fn new(host: &str, port: u16) -> Self {
        Self { host: host.trim_start_matches('[').trim_end_matches(']').into(), port }
    }
}

impl FromStr for HostPort {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let bad = || BadAddress(text.into());
        let (host, port) = text.trim().rsplit_once(':').ok_or_else(bad)?;
        let port = port.parse().map_err(|_| bad())?;
        let host = match host.strip_prefix('[') {
            Some(inner) => {
                let inner = inner.strip_suffix(']').ok_or_else(bad)?;
                inner.parse::<Ipv6Addr>().map_err(|_| bad())?;
                inner
            }
            None => host,
        };
        let plain = host.contains(':') || !host.chars().any(|c| c.is_whitespace() || matches!(c, '/' | '[' | ']'));
        if host.is_empty() || !plain || (host.contains(':') && !text.trim().starts_with('[')) {
            return Err(bad());
        }
        Ok(Self { host: host.into(), port })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_colon_parts_host_and_port() {
        for text in ["[fd00::10]:6123", "10.0.0.1:6123", "levada_jm-1:6123", "localhost:0"] {
            assert_eq!(text.parse::<HostPort>().map(|address| address.to_string()), Ok(text.into()));
        }
        for text in ["", "host", "host:", ":6123", "fd00::10:6123", "[fd00::10]", "[host]:1", "a b:1", "http://x:1", "host:70000"]
        {
            assert!(text.parse::<HostPort>().is_err(), "{text}");
        }
        assert_eq!(HostPort::new("[::1]", 1).to_string(), "[::1]:1");
    }
}
