//! A text, ids or messages -> a generation on a session.

use crate::cancel::CancellationToken;
#[cfg(not(feature = "images"))]
use crate::chat::RenderedChat;
use crate::chat::{ChatOptions, ChatTemplate, Message};
#[cfg(not(feature = "images"))]
use crate::error::ImageError;
use crate::error::{DraftError, EmbedError, Error, Result, SoftTokensError};
use crate::generate::{GenerateOptions, Generation, LogProbsKey, Speculation, State, StopTokens};
use crate::input::{Input, Rows};
use crate::model::Model;
use crate::scheduler::admission::Admitted;
use crate::session::Session;
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Weak};

/// What a generation continues. Functions that take a prompt also take a `&str`, `&[u32]` or `&[Message]` directly.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Prompt<'a> {
    /// A text, with BOS in front where the tokenizer puts it there. Special tokens spelled in it become their ids, as in
    /// transformers.
    Text(&'a str),
    /// Like `Text`, but untrusted: special tokens spelled in it are letters like any others
    /// ([`Tokenizer::encode_ordinary`](crate::tokenizer::Tokenizer::encode_ordinary)).
    OrdinaryText(&'a str),
    /// The text before a place and the text after it: what is generated is the text between, by a model that was trained for it (fill
    /// in the middle). Both are untrusted, as `OrdinaryText` is. The tokens around them also end the generation.
    Infill {
        /// The text before the place.
        prefix: &'a str,
        /// The text after it.
        suffix: &'a str,
    },
    /// Ids as they are.
    Ids(&'a [u32]),
    /// Ids as they are, and images.
    Input(&'a Input),
    /// A conversation, written by the model's own chat template. The vision tower computes its images before the generation begins. Only the template itself writes special tokens: spelled
    /// in a message, a tool or a variable they are letters like any others, unless
    /// [`ChatOptions::trust_special_tokens`] says otherwise. BOS stands in front once, whether the template or the tokenizer
    /// puts it there.
    Messages(&'a [Message]),
}

impl Prompt<'_> {
    /// Whether there are images in it.
    pub fn has_images(&self) -> bool {
        match self {
            Prompt::Input(input) => !input.spans().is_empty(),
            Prompt::Messages(messages) => messages.iter().any(|message| !message.images.is_empty()),
            Prompt::Text(_) | Prompt::OrdinaryText(_) | Prompt::Infill { .. } | Prompt::Ids(_) => false,
        }
    }
}

macro_rules! prompts {
    ($($variant:ident: $($(const $length:ident =>)? $given:ty),+;)+) => {
        $($(impl<'a $(, const $length: usize)?> From<&'a $given> for Prompt<'a> {
            fn from(given: &'a $given) -> Prompt<'a> {
                Prompt::$variant(given)
            }
        })+)+
    };
}

prompts! {
    Text: str, String;
    Ids: [u32], Vec<u32>, const N => [u32; N];
    Input: Input;
    Messages: [Message], Vec<Message>, const N => [Message; N];
}

/// What a prompt is computed of.
pub(crate) enum PromptRows<'p> {
    Ids(Cow<'p, [u32]>),
    Input(Cow<'p, Input>),
}

impl PromptRows<'_> {
    pub(crate) fn rows(&self) -> Rows<'_> {
        match self {
            PromptRows::Ids(ids) => Rows::from(&**ids),
            PromptRows::Input(input) => input.rows(),
        }
    }

    /// The same as a prompt.
    pub(crate) fn prompt(&self) -> Prompt<'_> {
        match self {
            PromptRows::Ids(ids) => Prompt::Ids(ids),
            PromptRows::Input(input) => Prompt::Input(input),
        }
    }
}

impl Model {
    /// Continues `prompt`, a text, ids or a conversation, in a session of its own.
    ///
    /// # Errors
    /// The errors of [`Session::generate`].
    pub fn generate<'p>(
        &self,
        prompt: impl Into<Prompt<'p>>,
        options: &GenerateOptions,
    ) -> Result<Generation<Session>> {
        Ok(self.session().into_generation(prompt, options)?)
    }

    /// Answers `messages` in a session of its own, like [`generate`](Self::generate), under the name usual for conversations.
    ///
    /// # Errors
    /// The errors of [`Session::generate`].
    pub fn chat(&self, messages: &[Message], options: &GenerateOptions) -> Result<Generation<Session>> {
        self.generate(messages, options)
    }

    /// The text of `messages` in the model's own template, ready for the answer: what [`chat`](Self::chat) continues.
    ///
    /// Its ids are those of [`prompt_ids`](Self::prompt_ids): tokenized as a text, special tokens in messages would take effect.
    ///
    /// # Errors
    /// The errors of [`ChatTemplate::of`] and [`ChatTemplate::render`].
    pub fn chat_prompt(&self, messages: &[Message], options: &ChatOptions) -> Result<String> {
        Ok(ChatTemplate::of(&self.spec().tokenizer, options)?.render(messages, options, true)?)
    }

    /// The ids of `prompt`, as [`generate`](Self::generate) computes them, with those that hold the places of images; messages are written with `options`.
    ///
    /// # Errors
    /// `Encode`, `Chat`.
    pub fn prompt_ids<'p>(&self, prompt: impl Into<Prompt<'p>>, options: &ChatOptions) -> Result<Vec<u32>> {
        self.prompt_ids_within(prompt.into(), options, usize::MAX).map(Cow::into_owned)
    }

    /// The ids of `prompt` with the rows of its images, as [`generate`](Self::generate) computes them: for a session that is stepped
    /// by hand. An image that the model has seen a moment ago is not computed again.
    ///
    /// # Errors
    /// `Encode`, `Chat`, `Image`, `ContextOverflow`, `OutOfMemory`.
    pub fn prompt_input<'p>(&self, prompt: impl Into<Prompt<'p>>, options: &ChatOptions) -> Result<Input> {
        match self.prompt_rows(prompt.into(), options, self.context_length(), &CancellationToken::new())? {
            PromptRows::Ids(ids) => Ok(ids.into_owned().into()),
            PromptRows::Input(input) => Ok(input.into_owned()),
        }
    }

    /// The ids of `prompt`; of images only their sizes are read.
    ///
    /// # Errors
    /// `Encode`, `Chat`, `Image`; `ContextOverflow` before anything is encoded, where the text has more than `limit` tokens however it
    /// is tokenized.
    pub fn prompt_ids_within<'p>(
        &self,
        prompt: Prompt<'p>,
        options: &ChatOptions,
        limit: usize,
    ) -> Result<Cow<'p, [u32]>> {
        let (text, whole): (&str, Range<usize>) = match prompt {
            Prompt::Ids(ids) => return Ok(ids.into()),
            Prompt::Input(input) => return Ok(input.ids().into()),
            Prompt::Text(text) => (text, 0..text.len()),
            Prompt::OrdinaryText(text) => (text, 0..0),
            Prompt::Infill { prefix, suffix } => {
                let (text, spans) = self.tokenizer().infill_prompt(prefix, suffix)?;
                return self.encoded(&text, &spans, limit).map(Cow::Owned);
            }
            Prompt::Messages(messages) => {
                let template = ChatTemplate::of(&self.spec().tokenizer, options)?;
                let rendered = template.render_with_spans(messages, options, true)?;
                let rendered = self.with_images(rendered, messages, limit)?;
                return self.encoded(rendered.text(), rendered.template_spans(), limit).map(Cow::Owned);
            }
        };
        self.encoded(text, std::slice::from_ref(&whole), limit).map(Cow::Owned)
    }

    /// The ids of `prompt` with its images, which are computed; `limit` as in [`prompt_ids_within`](Self::prompt_ids_within).
    ///
    /// # Errors
    /// Those of [`prompt_ids_within`](Self::prompt_ids_within), and `Cancelled`.
    pub(crate) fn prompt_rows<'p>(
        &self,
        prompt: Prompt<'p>,
        options: &ChatOptions,
        limit: usize,
        cancel: &CancellationToken,
    ) -> Result<PromptRows<'p>> {
        if let Prompt::Input(input) = prompt {
            return Ok(PromptRows::Input(Cow::Borrowed(input)));
        }
        let ids = self.prompt_ids_within(prompt, options, limit)?;
        match prompt {
            Prompt::Messages(messages) if prompt.has_images() => {
                Ok(PromptRows::Input(Cow::Owned(self.with_rows(ids.into_owned(), messages, cancel)?)))
            }
            _ => Ok(PromptRows::Ids(ids)),
        }
    }

    /// A build without the feature `images` refuses them.
    #[cfg(not(feature = "images"))]
    fn with_images(&self, rendered: RenderedChat, messages: &[Message], _: usize) -> Result<RenderedChat> {
        match messages.iter().map(|message| message.images.len()).sum() {
            0 => Ok(rendered),
            images => Err(ImageError::NotBuilt { images }.into()),
        }
    }

    #[cfg(not(feature = "images"))]
    fn with_rows(&self, ids: Vec<u32>, _: &[Message], _: &CancellationToken) -> Result<Input> {
        Ok(ids.into())
    }

    /// The ids of a text to be continued, whose special tokens lie in `spans`.
    fn encoded(&self, text: &str, spans: &[Range<usize>], limit: usize) -> Result<Vec<u32>> {
        let asked = self.tokenizer().least_tokens(text);
        if asked > limit {
            return Err(Error::ContextOverflow { limit, asked });
        }
        Ok(self.tokenizer().encode_prompt_within(text, spans)?)
    }
}

impl Session {
    /// Continues `prompt`: the whole sequence so far as a text or as ids, or the whole conversation so far. The part that the cache
    /// already holds is not computed again; what the cache holds beyond the common part is forgotten.
    ///
    /// # Errors
    /// `EmptyPrompt` when the prompt has no token, `ContextOverflow` when it does not fit, `TokenOutOfVocabulary`, `Encode`,
    /// `Chat` for messages of which the model's template makes no prompt, `Draft` for guesses by a draft model or a prediction head that is not there,
    /// `Adapter` for an adapter of another model, and `Option` or `EmptyStopString` for options out of range; nothing is forgotten
    /// then.
    pub fn generate<'p>(
        &mut self,
        prompt: impl Into<Prompt<'p>>,
        options: &GenerateOptions,
    ) -> Result<Generation<&mut Session>> {
        let state = self.prepare(prompt.into(), options)?;
        Ok(Generation { step: self, state })
    }

    /// Like [`Session::generate`], from ids.
    ///
    /// # Errors
    /// The errors of [`Session::generate`].
    pub fn generate_ids(&mut self, prompt: &[u32], options: &GenerateOptions) -> Result<Generation<&mut Session>> {
        self.generate(prompt, options)
    }

    /// Like [`Session::generate`], but takes the session; [`Generation::into_inner`] gives it back.
    ///
    /// ```
    /// use model_factory::{Error, GenerateOptions, UnifiedModelFactory};
    ///
    /// let model = UnifiedModelFactory::load("fixtures/demo-q4_k_m.gguf")?;
    /// let refused = model.session().into_generation("Once", &GenerateOptions::default().top_p(7.0)).err();
    /// let (error, session) = refused.expect("at most 1").into_parts();
    /// assert!(matches!(error, Error::Option { option: "top_p", .. }));
    /// let text = session.into_generation("Once", &GenerateOptions::default())?.text()?; // `?` drops the session
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Session::generate`], with the session as it was.
    pub fn into_generation<'p>(
        mut self,
        prompt: impl Into<Prompt<'p>>,
        options: &GenerateOptions,
    ) -> Result<Generation<Session>, IntoGenerationError> {
        match self.prepare(prompt.into(), options) {
            Ok(state) => Ok(Generation { step: self, state }),
            Err(error) => Err(IntoGenerationError(Box::new((error, self)))),
        }
    }

    /// Keeps what the cache has in common with `prompt`, and makes all parts of a generation that can fail. Forgets nothing when
    /// one fails.
    fn prepare(&mut self, prompt: Prompt<'_>, options: &GenerateOptions) -> Result<State> {
        let model = self.model();
        if model.spec().weights.head.is_none() {
            return Err(EmbedError::NoHead.into());
        }
        let (limit, cancel) = (model.context_length(), options.cancel.clone().unwrap_or_default());
        let is_infill = matches!(prompt, Prompt::Infill { .. });
        let given = model.prompt_rows(prompt, &options.template_options(), limit, &cancel)?;
        let prompt = given.rows();
        self.check_within(prompt, limit)?;
        match options.speculate {
            Speculation::Draft if model.draft().is_none() => return Err(DraftError::Missing.into()),
            Speculation::Mtp if model.inner.engine.predictor.is_none() => return Err(DraftError::NoPredictor.into()),
            _ => {}
        }
        let adapters = model.adapters(&options.adapters)?;
        if options.prompt_logprobs.is_some() && !prompt.own_spans().is_empty() {
            return Err(SoftTokensError::NotScored.into());
        }
        let common = match options.prompt_logprobs {
            Some(_) => 0, // the logits of all its tokens are wanted
            None => self.input().rows().common(prompt).min(prompt.len() - 1),
        };
        let common = prompt.before_image(common);
        let before = prompt.slice(0..common).ids();
        let mut rest = Input::default();
        rest.extend(prompt.slice(common..prompt.len()))?;
        let (tokenizer, mut stop) = (Arc::clone(model.tokenizer()), StopTokens::from(&model.spec().tokenizer));
        if is_infill {
            stop.extend(tokenizer.infill_stops());
        }
        let sampling = options.sampling.or(&model.spec().sampling);
        let positions = prompt.len().saturating_add(options.max_tokens.saturating_sub(1)).min(limit);
        let mut state = State::new(tokenizer, before, rest, stop, options, &sampling)?;
        let admitted = model.inner.scheduler.admitted(positions);
        let reservation = admitted.as_ref().and_then(Admitted::reservation);
        self.reservation = reservation.map_or_else(Weak::new, Arc::downgrade);
        state.admitted = admitted;
        if let Some(salt) = &options.cache_salt {
            self.set_cache_salt(Some(salt));
        }
        if !adapters.is_empty() {
            self.use_adapters(adapters);
        }
        self.truncate(common);
        let (salt, adapters) = (self.salt().cloned(), self.adapters().keys().collect());
        let rotation = self.model().compute().rotation(prompt.len());
        state.share_logprobs(&self.model().inner.prompt_logprobs, LogProbsKey { salt, adapters, rotation });
        self.follow(options.speculate == Speculation::Mtp);
        if options.prompt_logprobs.is_none() {
            self.fetch(prompt, rotation);
        }
        Ok(state)
    }
}

/// Why a session did not become a generation, with the session as it was. `?` turns it into only the [`Error`].
#[derive(Debug)]
pub struct IntoGenerationError(Box<(Error, Session)>);

impl IntoGenerationError {
    /// The error.
    pub fn error(&self) -> &Error {
        &self.0.0
    }

    /// The session as it was.
    pub fn into_session(self) -> Session {
        self.0.1
    }

    /// The error, and the session as it was.
    pub fn into_parts(self) -> (Error, Session) {
        *self.0
    }
}

impl From<IntoGenerationError> for Error {
    fn from(refused: IntoGenerationError) -> Error {
        refused.0.0
    }
}

impl fmt::Display for IntoGenerationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error().fmt(f)
    }
}

impl std::error::Error for IntoGenerationError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error().source()
    }
}
