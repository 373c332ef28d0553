//! A prompt -> several generations or answers, computed together.

use crate::error::{Error, Result};
use crate::generate::{Answer, GenerateOptions, Generation, in_ranges};
use crate::model::Model;
use crate::prompt::Prompt;
use crate::session::Session;
use std::thread;

/// The most answers of one prompt.
pub const MAX_ANSWERS: usize = 128;

impl Model {
    /// `n` answers to `prompt`, from 1 to 128. The prompt is computed once, and the tokens of all answers together. The seeds are
    /// the options' seed and the ones after it, so an answer is the one that its seed gives without the others.
    ///
    /// ```
    /// use model_factory::{GenerateOptions, UnifiedModelFactory};
    ///
    /// let model = UnifiedModelFactory::load("fixtures/demo-q4_k_m.gguf")?;
    /// let options = GenerateOptions::default().temperature(0.8).seed(7).max_tokens(20);
    /// let answers = model.answers("Once upon a time", 3, &options)?;
    /// let third = model.generate("Once upon a time", &options.seed(9))?.answer()?;
    /// assert_eq!(answers[2].text, third.text);
    /// # Ok::<(), model_factory::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Option` for another number, the errors of [`generate`](Self::generate), and the first error of any answer.
    pub fn answers<'p>(
        &self,
        prompt: impl Into<Prompt<'p>>,
        n: usize,
        options: &GenerateOptions,
    ) -> Result<Vec<Answer>> {
        let generations = self.generations(prompt, n, options)?;
        thread::scope(|scope| {
            let run = |mut generation: Generation<Session>| move || generation.answer();
            let spawn = |generation| thread::Builder::new().spawn_scoped(scope, run(generation));
            let threads: Vec<_> = generations.into_iter().map(spawn).collect();
            let answer = |thread: std::io::Result<thread::ScopedJoinHandle<'_, Result<Answer>>>| {
                let thread = thread.map_err(|error| Error::Internal(format!("no thread could be started: {error}")))?;
                thread.join().unwrap_or_else(|_| Err(Error::Internal("the thread of an answer panicked".into())))
            };
            threads.into_iter().map(answer).collect()
        })
    }

    /// The generations of [`answers`](Self::answers), for callers that take pieces as they come: they are computed together if they
    /// are iterated on threads of their own, or are streams.
    ///
    /// # Errors
    /// `Option` for another number, and the errors of [`generate`](Self::generate).
    pub fn generations<'p>(
        &self,
        prompt: impl Into<Prompt<'p>>,
        n: usize,
        options: &GenerateOptions,
    ) -> Result<Vec<Generation<Session>>> {
        in_ranges([("n", Some(n as f64), 1.0..=MAX_ANSWERS as f64, "a whole number from 1 to 128")])?;
        let prompt = prompt.into();
        let ids = self.prompt_ids_within(prompt, &options.template_options(), self.context_length())?;
        let prompt = if let Prompt::Input(_) = prompt { prompt } else { Prompt::Ids(&ids) };
        // One answer needs no copy of options, whose tools may be large.
        let mut generations = vec![self.generate(prompt, options)?];
        if n > 1 {
            let (mut seeded, seed) = (options.clone(), generations[0].finish().1.seed);
            for index in 1..n as u64 {
                seeded.sampling.seed = Some(seed.wrapping_add(index));
                generations.push(self.generate(prompt, &seeded)?);
            }
        }
        Ok(generations)
    }

    /// The most likely of `n` answers: the one whose tokens have the greatest mean log-probability. This sets the options'
    /// `logprobs`.
    ///
    /// # Errors
    /// The errors of [`answers`](Self::answers).
    pub fn best_of<'p>(&self, prompt: impl Into<Prompt<'p>>, n: usize, options: &GenerateOptions) -> Result<Answer> {
        let options = options.clone().logprobs(options.logprobs.unwrap_or_default());
        let answers = self.answers(prompt, n, &options)?;
        // The first answer wins a tie. An answer without tokens counts as the least likely.
        let best = answers.into_iter().rev().max_by(|a, b| a.mean_logprob().total_cmp(&b.mean_logprob()));
        best.ok_or(Error::EmptyPrompt)
    }
}
