//! Stops a load or a generation from another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Stops everything that was given this token or a clone of it: a load, a download, a generation, a computation.
///
/// It is checked between the operations of every layer, also in the middle of a prompt, at no measurable cost; a
/// sequence in a batch leaves after the current pass. On a GPU, launched kernels still finish. A generation ends with
/// the finish reason `Cancelled`, everything else with an error of that name. The session stays usable: it holds the
/// tokens whose computation was complete.
///
/// ```
/// use model_factory_format::CancellationToken;
///
/// let server = CancellationToken::new();
/// let request = server.child();
/// server.cancel(); // from any thread
/// assert!(request.check().is_err());
/// ```
#[derive(Clone, Debug, Default)]
pub struct CancellationToken(Arc<Node>);

#[derive(Debug, Default)]
struct Node {
    cancelled: AtomicBool,
    parent: Option<CancellationToken>,
}

impl CancellationToken {
    /// A token that is not cancelled.
    pub fn new() -> CancellationToken {
        CancellationToken::default()
    }

    /// A token that is cancelled with this one, or by itself: for example one for a request, below one for the whole server.
    #[must_use]
    pub fn child(&self) -> CancellationToken {
        CancellationToken(Arc::new(Node { cancelled: AtomicBool::new(false), parent: Some(self.clone()) }))
    }

    /// Stops everything that has a clone or a child of this token, now and later. It cannot be undone.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether this token, or one that it is a child of, was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Relaxed) || self.0.parent.as_ref().is_some_and(CancellationToken::is_cancelled)
    }

    /// # Errors
    /// [`Cancelled`] if the token is cancelled.
    pub fn check(&self) -> Result<(), Cancelled> {
        if self.is_cancelled() { Err(Cancelled) } else { Ok(()) }
    }
}

/// The caller's [`CancellationToken`] was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cancelled by the caller")]
pub struct Cancelled;

/// Clones are equal; all other tokens differ.
impl PartialEq for CancellationToken {
    fn eq(&self, other: &CancellationToken) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for CancellationToken {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_are_cancelled_together_and_children_with_their_parent() {
        let (server, other) = (CancellationToken::new(), CancellationToken::new());
        let (request, neighbour) = (server.child(), server.child());
        let clone = request.clone();
        assert!(clone == request && clone != neighbour && request != server);
        request.cancel();
        let cancelled = |tokens: [&CancellationToken; 5]| tokens.map(CancellationToken::is_cancelled);
        let all = [&server, &request, &clone, &neighbour, &other];
        assert_eq!(cancelled(all), [false, true, true, false, false]);
        server.cancel();
        assert_eq!(cancelled(all), [true, true, true, true, false]);
        assert!(server.child().check() == Err(Cancelled) && other.check().is_ok());
    }
}
