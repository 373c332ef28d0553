//! Several generations at once by the plain public API, a thread each, compared with a single one and with a batch stepped by hand.

use crate::measure::{Spread, prompt};
use model_factory::{Error, GenerateOptions, Model, Session};
use serde_json::{Value, json};
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

/// The work of a round.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    /// The number of generations at once.
    pub(crate) concurrency: usize,
    /// The number of tokens of each prompt.
    pub(crate) prompt: usize,
    /// The number of tokens that each generates.
    pub(crate) generated: usize,
}

/// The results of the rounds so far; times in seconds, speeds in generated tokens per second.
#[derive(Default)]
pub(crate) struct Concurrent {
    /// The ids that each prompt generates by itself.
    alone: Vec<Vec<u32>>,
    same_ids: bool,
    /// The speed from the start to the end of all, prompts included.
    throughput: Vec<f64>,
    /// The speed of the same batch stepped by hand.
    by_hand: Vec<f64>,
    /// The speed while all generate: after the first token of the last, before the end of the first.
    together: Vec<f64>,
    /// The speed while one generates.
    one: Vec<f64>,
    /// The times until the first token.
    first: Vec<f64>,
    /// The times between two tokens of a generation.
    gaps: Vec<f64>,
}

/// One generation: when its tokens came, in seconds since the start, and which they were.
struct Generated {
    times: Vec<f64>,
    ids: Vec<u32>,
}

fn generate(model: &Model, ids: &[u32], count: usize, start: Instant) -> Result<Generated, Error> {
    let options = GenerateOptions::default().max_tokens(count).temperature(0.0).ignore_stop(true);
    let (mut session, mut times) = (model.session(), Vec::new());
    let mut generation = session.generate_ids(ids, &options)?;
    for piece in generation.by_ref() {
        if piece?.token.is_some() {
            times.push(start.elapsed().as_secs_f64());
        }
    }
    Ok(Generated { times, ids: generation.ids().to_vec() })
}

impl Load {
    /// The prompts, which all differ.
    fn prompts(self, model: &Model) -> Vec<Vec<u32>> {
        let all = prompt(model, self.concurrency + self.prompt);
        all.windows(self.prompt).take(self.concurrency).map(<[u32]>::to_vec).collect()
    }

    /// Generates from each prompt by itself, for the ids that it must also have in a batch.
    ///
    /// # Errors
    /// The errors of the generations.
    pub(crate) fn begin(self, model: &Model) -> Result<Concurrent, Error> {
        let alone = |ids: &Vec<u32>| Ok(generate(model, ids, self.generated, Instant::now())?.ids);
        let alone = self.prompts(model).iter().map(alone).collect::<Result<_, Error>>()?;
        Ok(Concurrent { alone, same_ids: true, ..Concurrent::default() })
    }

    /// Measures once: one by itself, all at once, and all stepped by hand.
    ///
    /// # Errors
    /// The errors of the generations.
    pub(crate) fn round(self, model: &Model, found: &mut Concurrent) -> Result<(), Error> {
        let prompts = self.prompts(model);
        let total = (self.concurrency * self.generated) as f64;
        let one = generate(model, &prompts[0], self.generated, Instant::now())?;
        found.one.extend(speed(&[one]));

        let (line, start) = (Barrier::new(self.concurrency), Instant::now());
        let all: Vec<Generated> = thread::scope(|scope| {
            let spawn = |ids: &'_ Vec<u32>| {
                let (line, ids) = (&line, ids.clone());
                scope.spawn(move || {
                    line.wait();
                    generate(model, &ids, self.generated, start)
                })
            };
            let threads: Vec<_> = prompts.iter().map(spawn).collect();
            let joined = threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            joined.collect::<Result<_, _>>()
        })?;
        found.throughput.push(total / start.elapsed().as_secs_f64());
        found.same_ids &= all.iter().zip(&found.alone).all(|(generated, alone)| generated.ids == *alone);
        found.together.extend(speed(&all));
        for Generated { times, .. } in &all {
            found.first.extend(times.first());
            found.gaps.extend(times.windows(2).map(|pair| pair[1] - pair[0]));
        }

        let start = Instant::now();
        let mut sessions: Vec<Session> = prompts.iter().map(|_| model.session()).collect();
        let mut next = Vec::new();
        for (session, ids) in sessions.iter_mut().zip(&prompts) {
            next.push(best(&session.next_logits(ids)?));
        }
        for _ in 1..self.generated {
            let mut steps: Vec<_> =
                sessions.iter_mut().zip(&next).map(|(session, next)| (session, std::slice::from_ref(next))).collect();
            next = Session::batch_logits(&mut steps)?.rows().map(best).collect();
        }
        found.by_hand.push(total / start.elapsed().as_secs_f64());
        Ok(())
    }
}

fn best(logits: &[f32]) -> u32 {
    (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]).then(b.cmp(a))).unwrap_or(0) as u32
}

/// Tokens per second while all generate, if there is such a time.
fn speed(all: &[Generated]) -> Option<f64> {
    let first = all.iter().filter_map(|generated| generated.times.first()).copied().fold(0.0, f64::max);
    let last = all.iter().filter_map(|generated| generated.times.last()).copied().fold(f64::INFINITY, f64::min);
    let within = |time: &&f64| **time > first && **time <= last;
    let tokens = all.iter().map(|generated| generated.times.iter().filter(within).count()).sum::<usize>();
    (tokens > 0).then(|| tokens as f64 / (last - first))
}

impl Concurrent {
    /// All results as one JSON object.
    pub(crate) fn json(&self, load: Load) -> Value {
        let median = |figures: &[f64]| Spread::new(figures).median;
        let times =
            |times: &[f64]| json!({ "median": median(times), "p95": part(times, 0.95), "p99": part(times, 0.99) });
        json!({
            "concurrency": load.concurrency,
            "prompt_tokens": load.prompt,
            "generated_tokens": load.generated,
            "throughput_tok_s": median(&self.throughput),
            "by_hand_tok_s": median(&self.by_hand),
            "together_tok_s": median(&self.together),
            "alone_tok_s": median(&self.one),
            "ttft_s": times(&self.first),
            "gap_s": times(&self.gaps),
            "same_ids_as_alone": self.same_ids,
        })
    }

    /// All results as a text.
    pub(crate) fn text(&self, load: Load) -> String {
        let median = |figures: &[f64]| Spread::new(figures).median;
        let ms = |times: &[f64]| {
            let [median, p95, p99] = [median(times), part(times, 0.95), part(times, 0.99)].map(|time| time * 1e3);
            format!("{median:>8.1} {p95:>8.1} {p99:>8.1}")
        };
        let (together, one) = (median(&self.together), median(&self.one));
        [
            format!(
                "{} generations at once, prompts of {} tokens, {} generated each; medians",
                load.concurrency, load.prompt, load.generated
            ),
            format!("throughput       {:>8.1} tokens/s, prompts included", median(&self.throughput)),
            format!("by hand          {:>8.1} tokens/s, as one batch", median(&self.by_hand)),
            match together {
                // The first generation ended before the last one began.
                0.0 => "while all run           -".into(),
                _ => format!(
                    "while all run    {together:>8.1} tokens/s, {:.2} times one alone ({one:.1})",
                    together / one
                ),
            },
            format!("first token      {}  ms, median, p95, p99", ms(&self.first)),
            format!("between tokens   {}  ms", ms(&self.gaps)),
            format!("same ids as alone: {}\n", self.same_ids),
        ]
        .join("\n")
    }
}

/// The smallest figure that `share` of all do not exceed; 0 without figures.
fn part(figures: &[f64], share: f64) -> f64 {
    let mut figures = figures.to_vec();
    figures.sort_by(f64::total_cmp);
    let index = (figures.len() as f64 * share).ceil() as usize;
    figures.get(index.saturating_sub(1)).copied().unwrap_or(0.0)
}
