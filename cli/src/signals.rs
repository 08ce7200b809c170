//! SIGINT and SIGTERM: the first one ends what runs in order, the second at once.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that say stop. While this lives they do not end the process by themselves.
pub struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    /// From now on.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// The name of the next signal.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }

    /// What `running` comes to, or the name of the signal that came before that.
    pub async fn before<T>(&mut self, running: impl Future<Output = T>) -> Result<T, &'static str> {
        tokio::select! {
            done = running => Ok(done),
            name = self.next() => Err(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::process::Command;

    use super::*;

    fn send(name: &str) {
        let sent = Command::new("kill").args(["-s", name, &std::process::id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// The signals are sent to this process, which lives on.
    #[tokio::test]
    async fn either_signal_ends_the_waiting_and_so_does_the_next() {
        let mut signals = StopSignals::new().unwrap();
        assert_eq!(signals.before(async { 7 }).await, Ok(7));
        for (name, caught) in [("TERM", "SIGTERM"), ("INT", "SIGINT"), ("TERM", "SIGTERM")] {
            send(name);
            assert_eq!(signals.before(pending::<()>()).await, Err(caught));
        }
    }
}
