//! Why a JobManager does not start or does not go on.

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum JobManagerError {
    /// A port cannot be had.
    #[error("listening on {address} for {what} failed")]
    Listen {
        /// gRPC or HTTP.
        what: &'static str,
        /// The address that was tried.
        address: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The reflection service could not be built from the descriptors.
    #[error("the descriptors of the gRPC services cannot be read")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// A control loop ended that never should.
    #[error("the {what} ended by itself; this is a defect of Levada")]
    LoopEnded {
        /// Which loop.
        what: &'static str,
    },
}
