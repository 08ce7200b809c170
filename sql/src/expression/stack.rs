//! A deep stack for what recurses over a user's text: the parser, DataFusion's rewriters, and dropping their trees.
//!
//! Invariant: with `TOKENS_MAX` of `parse` no tree is deeper than this stack can hold, in any build profile.

/// Bytes of stack; only what is touched is ever backed by memory.
const STACK_BYTES: usize = 256 << 20;

/// Runs `work` on a thread with a deep stack. A panic in it, which is a defect of the SQL engine, becomes an error.
pub(crate) fn on_deep_stack<T: Send>(work: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("sql-compile".into())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, work)
            .map_err(|error| format!("no thread to compile the expression on: {error}"))?
            .join()
            .unwrap_or_else(|_| Err("the SQL engine failed on this expression; write it in another way".into()))
    })
}
