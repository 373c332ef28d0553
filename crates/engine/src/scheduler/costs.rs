//! Measured times of steps -> how many guessed tokens are worth computing with a known one.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The most guessed tokens of a step.
pub const MOST_GUESSES: usize = 15;

/// Steps after which a time that was not measured again is forgotten: whatever made it long may be over.
const FORGOTTEN: u64 = 1000;

/// The factor that more guesses must gain to be computed: times are not known more exactly.
const GAIN: f64 = 1.01;

/// The times that a model took for steps of a single sequence, by their tokens.
#[derive(Debug, Default)]
pub struct StepCosts(Mutex<Times>);

#[derive(Debug, Default)]
struct Times {
    steps: u64,
    /// Seconds of a step of one token, of two and so on, and the last step in which they were measured.
    measured: [Option<(f64, u64)>; MOST_GUESSES + 1],
}

impl StepCosts {
    /// Records that a step of `tokens` took this long.
    pub fn record(&self, tokens: usize, time: Duration) {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        times.steps += 1;
        let (steps, seconds) = (times.steps, time.as_secs_f64());
        let Some(measured) = tokens.checked_sub(1).and_then(|index| times.measured.get_mut(index)) else { return };
        // Whatever disturbs a step makes it longer: a short one says more.
        let near = |(held, _): (f64, u64)| held + (seconds - held) * if seconds < held { 0.5 } else { 0.125 };
        *measured = Some((measured.map_or(seconds, near), steps));
    }

    /// The seconds of a step of one token; `None` before one was measured.
    pub fn single(&self) -> Option<f64> {
        let times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        times.measured[0].map(|(seconds, _)| seconds)
    }

    /// How many guesses give the most tokens a second: of at most `most`, each right with the probability `likely`
    /// if those before it are, and made in `each` seconds. None before a step of one token was measured.
    pub fn paying_guesses(&self, likely: f64, most: usize, each: f64) -> usize {
        let Some(seconds) = self.0.lock().unwrap_or_else(PoisonError::into_inner).by_tokens() else { return 0 };
        let (mut best, mut best_speed) = (0, 1.0 / seconds[0]);
        let (mut tokens, mut right) = (1.0, 1.0);
        for (guesses, seconds) in seconds.iter().enumerate().take(most + 1).skip(1) {
            right *= likely;
            tokens += right;
            let speed = tokens / (seconds + each * guesses as f64);
            if speed > best_speed * GAIN {
                (best, best_speed) = (guesses, speed);
            }
        }
        best
    }
}

impl Times {
    /// The seconds of every step. Steps of 2, 4, 8 and 16 tokens that were not measured are taken to be as short as
    /// steps of fewer, so that they are tried: kernels share reads among some tokens and not among more. Others are
    /// interpolated.
    fn by_tokens(&self) -> Option<[f64; MOST_GUESSES + 1]> {
        let (first, _) = self.measured[0]?;
        let (mut seconds, mut last) = ([first; MOST_GUESSES + 1], 0);
        for (index, measured) in self.measured.iter().enumerate().skip(1) {
            let from = seconds[last];
            let measured = match measured.filter(|(_, at)| self.steps - at <= FORGOTTEN) {
                Some((measured, _)) => measured,
                None if (index + 1).is_power_of_two() => from,
                None => continue,
            };
            for (after, seconds) in seconds[last + 1..=index].iter_mut().enumerate() {
                *seconds = from + (measured - from) * (after + 1) as f64 / (index - last) as f64;
            }
            seconds[index..].fill(measured);
            last = index;
        }
        Some(seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(milliseconds: &[(usize, u64)]) -> StepCosts {
        let costs = StepCosts::default();
        milliseconds.iter().for_each(|(tokens, time)| costs.record(*tokens, Duration::from_millis(*time)));
        costs
    }

    #[test]
    fn guesses_follow_what_they_cost_and_how_likely_they_are() {
        assert_eq!(StepCosts::default().paying_guesses(1.0, 15, 0.0), 0, "nothing is known");
        // A step of any length takes as long as a step of one token: only what cannot be right does not pay.
        let free = costs(&[(1, 100), (16, 100)]);
        assert_eq!([0.0, 1.0].map(|likely| free.paying_guesses(likely, 15, 0.0)), [0, 15]);
        assert_eq!(free.paying_guesses(1.0, 3, 0.0), 3);
        // Each token costs as much as the first: 1 + p tokens in 2 steps' time gain nothing.
        let dear = costs(&[(1, 100), (2, 200), (4, 400), (8, 800), (16, 1600)]);
        assert_eq!([0.5, 0.9, 1.0].map(|likely| dear.paying_guesses(likely, 15, 0.0)), [0; 3]);
        // Each further token costs half: 1.9 tokens in 1.5 are 1.267, 2.71 in 2 are 1.355, 3.44 in 2.5 are 1.376, 4.095 in 3 1.365.
        let half = costs(&[(1, 100), (2, 150), (4, 250), (8, 450), (16, 850)]);
        assert_eq!(half.paying_guesses(0.9, 15, 0.0), 3);
        assert_eq!(half.paying_guesses(0.5, 15, 0.0), 0, "1.5 tokens in the time of 1.5");
        // A jump after four: 4 tokens in 1.1 against 16 in 4.6.
        let steep = costs(&[(1, 100), (4, 110), (5, 400), (8, 420), (16, 460)]);
        assert_eq!(steep.paying_guesses(1.0, 15, 0.0), 3);
    }

    #[test]
    fn guesses_that_take_time_have_to_pay_for_it() {
        // Steps cost the same, each guess a tenth of one: 1.5 tokens in 1.1 are 1.36, 1.75 in 1.2 are 1.46, 1.875 in
        // 1.3 are 1.44.
        let costs = costs(&[(1, 100), (16, 100)]);
        assert_eq!(costs.single(), Some(0.1));
        assert_eq!(costs.paying_guesses(0.5, 15, 0.01), 2);
        assert_eq!(costs.paying_guesses(0.05, 15, 0.01), 0, "1.05 tokens in the time of 1.1");
        assert_eq!(costs.paying_guesses(1.0, 15, 0.1), 0, "as long as a step of its own");
        assert_eq!(StepCosts::default().single(), None);
    }

    #[test]
    fn lengths_that_were_never_measured_are_tried() {
        let costs = costs(&[(1, 100)]);
        let mut tried = Vec::new();
        // Sixteen tokens share nothing, eight do.
        for _ in 0..6 {
            let tokens = 1 + costs.paying_guesses(0.9, 15, 0.0);
            costs.record(tokens, Duration::from_millis(if tokens <= 8 { 100 + tokens as u64 } else { 900 }));
            tried.push(tokens);
        }
        assert_eq!((tried[0], tried[5]), (16, 8), "{tried:?}");
    }

    #[test]
    fn what_was_not_measured_for_long_is_tried_again() {
        let costs = costs(&[(1, 100), (2, 900), (4, 900), (8, 900), (16, 9000)]);
        assert_eq!(costs.paying_guesses(1.0, 15, 0.0), 0);
        (5..=FORGOTTEN).for_each(|_| costs.record(1, Duration::from_millis(100)));
        assert_eq!(costs.paying_guesses(1.0, 15, 0.0), 0);
        (0..5).for_each(|_| costs.record(1, Duration::from_millis(100)));
        assert_eq!(costs.paying_guesses(1.0, 15, 0.0), 15);
    }

    #[test]
    fn a_disturbed_step_is_soon_made_up_for() {
        let costs = costs(&[(1, 100), (2, 1000), (2, 100), (2, 100), (2, 100), (2, 100)]);
        // 100 + 900 / 16 is less than twice 100.
        assert_eq!(costs.paying_guesses(1.0, 1, 0.0), 1);
    }
}
