//! Generation -> Stream: one thread computes all streams of a model, and wakes whoever polls for each piece. It needs no
//! particular runtime.

use crate::cancel::CancellationToken;
use crate::error::{Error, Result};
use crate::generate::{FinishReason, GenerateOptions, Generation, Piece, State, Step, StepInput, Timings};
use crate::logits::Logits;
use crate::model::Model;
use crate::prompt::Prompt;
use crate::scheduler::Run;
use crate::scheduler::streams::{Ended, Streaming};
use crate::session::{Begun, Session, guessed_wrong};
use futures_channel::mpsc::{self, Receiver, Sender};
use futures_core::Stream;
use std::any::Any;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker, ready};
use std::thread::{self, Thread};
use tracing::Span;

/// The most pieces that are computed before they are asked for.
const AHEAD: usize = 16;

/// A running generation as a [`Stream`]: the pieces of [`Generation`], for tasks of any runtime.
///
/// One thread computes all streams of a model together, as long as there are any: a stream that waits takes memory, not a
/// thread. Each is up to 16 pieces ahead and then waits to be polled. Dropping a stream cancels it, in the middle of the prompt
/// too, after at most one more step, and the drop does not wait for that. A [`Step`] of your own gets a thread of its own.
#[must_use = "dropping a stream cancels it"]
pub struct GenerationStream<S = Session> {
    events: Receiver<Event>,
    /// The generation's own token, a child of that of its options.
    cancel: CancellationToken,
    ended: Option<Box<Generation<S>>>,
    /// The error to return when the thread ended without giving the generation back.
    lost: Option<Error>,
}

#[allow(clippy::large_enum_variant)] // nearly all are pieces
enum Event {
    Piece(Result<Piece>),
    /// The generation, whose type the stream knows.
    End(Box<dyn Any + Send>),
}

impl<S: Step + Send + 'static> Generation<S> {
    /// This generation as a [`Stream`]; it starts computing now.
    ///
    /// ```
    /// use futures::{StreamExt, executor::block_on};
    /// use model_factory::{GenerateOptions, UnifiedModelFactory};
    ///
    /// let model = UnifiedModelFactory::load("fixtures/demo-q4_k_m.gguf")?;
    /// let mut stream = model.generate("Once upon a time", &GenerateOptions::default())?.into_stream();
    /// block_on(async {
    ///     while let Some(piece) = stream.next().await {
    ///         print!("{}", piece?.text);
    ///     }
    ///     Ok::<(), model_factory::Error>(())
    /// })?;
    /// # Ok::<(), model_factory::Error>(())
    /// ```
    pub fn into_stream(mut self) -> GenerationStream<S> {
        // Cancelling the stream must not cancel other generations.
        let cancel = self.state.cancel.child();
        self.state.cancel = cancel.clone();
        let (sender, events) = mpsc::channel(AHEAD - 1); // one more: each sender may always send one
        let generation: Box<dyn Any + Send> = Box::new(self);
        let started = match generation.downcast::<Generation<Session>>() {
            Ok(generation) => {
                let model = generation.step.model().clone();
                let span = Span::current();
                let streamed = Streamed { generation: Some(generation), events: sender, span, computing: false };
                let is_first = model.inner.streams.add(Box::new(streamed), &model.inner.scheduler);
                let driven = model.clone();
                let thread = is_first
                    .then(|| spawn(move || driven.inner.streams.drive(&driven.inner.scheduler, driven.compute())));
                thread.unwrap_or(Ok(())).inspect_err(|_| model.inner.streams.give_up())
            }
            Err(other) => other.downcast::<Generation<S>>().map_or(Ok(()), |own| {
                let span = Span::current();
                spawn(move || span.in_scope(|| compute(own, sender)))
            }),
        };
        let lost = match started {
            Ok(()) => "the thread of a generation panicked".into(),
            Err(error) => format!("no thread could be started for a generation: {error}"),
        };
        GenerationStream { events, cancel, ended: None, lost: Some(Error::Internal(lost)) }
    }
}

fn spawn(run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name("model-factory-stream".into()).spawn(run).map(drop)
}

impl<S: Step + 'static> GenerationStream<S> {
    /// Why the generation ended (`None` while it runs, or after an error) and how long it took. It is known once the stream
    /// has returned `None`.
    pub fn finish(&self) -> (Option<FinishReason>, Timings) {
        self.ended.as_deref().map(Generation::finish).unwrap_or_default()
    }

    /// The generation, once the stream has returned `None`: its ids, and its session for the next turn of a conversation.
    pub fn into_generation(mut self) -> Option<Generation<S>> {
        self.ended.take().map(|ended| *ended)
    }

    /// Generates to the end and returns the rest of the text.
    ///
    /// # Errors
    /// The first error of any step.
    pub async fn text(&mut self) -> Result<String> {
        let mut text = String::new();
        while let Some(piece) = poll_fn(|context| self.poll_piece(context)).await {
            text.push_str(&piece?.text);
        }
        Ok(text)
    }

    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Piece>>> {
        if self.ended.is_some() {
            return Poll::Ready(None);
        }
        Poll::Ready(match ready!(Pin::new(&mut self.events).poll_next(context)) {
            Some(Event::Piece(piece)) => Some(piece),
            Some(Event::End(generation)) => {
                self.ended = generation.downcast().ok();
                None
            }
            None => self.lost.take().map(Err),
        })
    }
}

impl<S: Step + 'static> Stream for GenerationStream<S> {
    type Item = Result<Piece>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_piece(context)
    }
}

impl<S> fmt::Debug for GenerationStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GenerationStream").field("ended", &self.ended.is_some()).finish_non_exhaustive()
    }
}

impl<S> Drop for GenerationStream<S> {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl Model {
    /// Continues `prompt` by at most `max_tokens` tokens and returns the new text without the prompt. Dropping the
    /// future cancels it.
    ///
    /// # Errors
    /// The errors of [`Model::generate`], and the first error of any step.
    pub async fn generate_text<'p>(&self, prompt: impl Into<Prompt<'p>>, max_tokens: usize) -> Result<String> {
        let options = GenerateOptions::default().max_tokens(max_tokens);
        self.generate(prompt, &options)?.into_stream().text().await
    }
}

/// A generation on a session, and the channel for its pieces.
struct Streamed {
    /// The generation; `None` once it was given back.
    generation: Option<Box<Generation<Session>>>,
    events: Sender<Event>,
    span: Span,
    computing: bool,
}

impl Streamed {
    fn parts(&mut self) -> Option<(&mut Session, &mut State)> {
        self.generation.as_deref_mut().map(|Generation { step, state }| (step, state))
    }

    fn choose(&mut self, logits: Result<Logits>) {
        let span = self.span.clone();
        let Some((session, state)) = self.parts() else { return };
        let _inside = span.enter();
        let (room, reused) = (session.room(), session.reused());
        state.note_reused(reused);
        if catch_unwind(AssertUnwindSafe(|| state.complete(logits, room))).is_err() {
            state.complete(Err(Error::Internal("choosing a token panicked".into())), room);
        }
    }
}

impl Streaming for Streamed {
    fn next(&mut self, waker: &Waker) -> Result<Option<Run>, Ended> {
        while !self.computing {
            match self.events.poll_ready(&mut Context::from_waker(waker)) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Err(Ended),
                Poll::Pending => return Ok(None),
            }
            let span = self.span.clone();
            let Some((session, state)) = self.parts() else { return Err(Ended) };
            let begun = span.in_scope(|| {
                let input = state.input(session)?;
                let begin = |StepInput { rows, to, cancel }: StepInput<'_>| match to {
                    Some(to) => session.begin_each(rows, &to, cancel).map(Begun::Run),
                    None => session.begin_step(rows, cancel),
                };
                input.map(begin).transpose()
            });
            let event = match begun {
                Ok(Some(Begun::Ahead(logits))) => {
                    self.choose(Ok(logits));
                    continue;
                }
                Ok(Some(Begun::Run(run))) => {
                    self.computing = true;
                    return Ok(Some(run));
                }
                Ok(None) => match state.pop() {
                    Some(piece) => Event::Piece(piece),
                    None => Event::End(self.generation.take().ok_or(Ended)?),
                },
                Err(error) => {
                    state.complete(Err(error), 0);
                    continue;
                }
            };
            if self.events.start_send(event).is_err() {
                return Err(Ended);
            }
        }
        Ok(None)
    }

    fn complete(&mut self, run: Run) {
        self.computing = false;
        let guesses = run.guesses;
        let Some((session, _)) = self.parts() else { return };
        match session.end(run) {
            Err(error) if guessed_wrong(guesses, &error) => {}
            logits => self.choose(logits),
        }
    }
}

/// Computes to the end, or until nobody receives the pieces.
fn compute<S: Step + Send + 'static>(mut generation: Box<Generation<S>>, mut events: Sender<Event>) {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    for piece in generation.by_ref() {
        if !send(&mut events, Event::Piece(piece), &waker) {
            return;
        }
    }
    send(&mut events, Event::End(generation), &waker);
}

/// Waits for room and sends; returns whether anybody listens.
fn send<E>(events: &mut Sender<E>, event: E, waker: &Waker) -> bool {
    loop {
        match events.poll_ready(&mut Context::from_waker(waker)) {
            Poll::Ready(Ok(())) => return events.start_send(event).is_ok(),
            Poll::Ready(Err(_)) => return false,
            Poll::Pending => thread::park(),
        }
    }
}

/// Wakes the thread that computes.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
