//! What the library traces, told to a test.

use std::cell::RefCell;
use std::fmt::Debug;
use std::sync::Once;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Subscriber, subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};

/// A span that begins.
pub(crate) struct Begun {
    pub(crate) name: &'static str,
    /// The span around it.
    pub(crate) parent: Option<&'static str>,
    numbers: Vec<(&'static str, u64)>,
}

impl Begun {
    /// The field of this name, where it is a count.
    pub(crate) fn number(&self, field: &str) -> Option<u64> {
        self.numbers.iter().find(|(name, _)| *name == field).map(|(_, number)| *number)
    }
}

/// Calls a function for every span, in the thread that begins it.
struct Watch<F>(F);

impl<S: Subscriber + for<'a> LookupSpan<'a>, F: Fn(&Begun) + 'static> Layer<S> for Watch<F> {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut numbers = Numbers(Vec::new());
        attributes.record(&mut numbers);
        let parent = context.span(id).and_then(|span| span.parent()).map(|parent| parent.name());
        (self.0)(&Begun { name: attributes.metadata().name(), parent, numbers: numbers.0 });
    }
}

struct Numbers(Vec<(&'static str, u64)>);

impl Visit for Numbers {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.push((field.name(), value));
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}

/// From now on `watch` sees the spans of every thread. Once in a process.
pub(crate) fn watch_process(watch: impl Fn(&Begun) + Send + Sync + 'static) {
    subscriber::set_global_default(Registry::default().with(Watch(watch))).expect("nobody else watches");
    // A span that another test traced for the first time meanwhile is remembered as one that nobody sees.
    tracing::callsite::rebuild_interest_cache();
}

type Watcher = Box<dyn Fn(&Begun)>;

thread_local! {
    /// Who sees the spans of this thread.
    static WATCHES: RefCell<Option<Watcher>> = const { RefCell::new(None) };
}

/// Makes [`watch_thread`] possible.
pub(crate) fn watch_threads() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        watch_process(|span| WATCHES.with_borrow(|watch| watch.iter().for_each(|watch| watch(span))));
    });
}

/// Runs `body`; `watch` sees the spans of this thread meanwhile.
pub(crate) fn watch_thread<R>(watch: impl Fn(&Begun) + 'static, body: impl FnOnce() -> R) -> R {
    WATCHES.set(Some(Box::new(watch)));
    let result = body();
    WATCHES.take();
    result
}
