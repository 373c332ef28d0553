use super::*;
use model_factory_diagnostics::spec::GREEDY_BELOW;

fn greedy() -> SamplingOptions {
    SamplingOptions::default()
}

fn drawing(temperature: f64, seed: u64) -> SamplingOptions {
    SamplingOptions { temperature: Some(temperature), seed: Some(seed), ..SamplingOptions::default() }
}

fn sampler(options: SamplingOptions, vocab: usize) -> Sampler {
    Sampler::new(&options, vocab).unwrap()
}

#[test]
fn greedy_takes_the_largest_and_the_lowest_id_among_equals() {
    assert_eq!(sampler(greedy(), 4).sample(&[-1.0, 3.0, 2.0, 3.0]).unwrap(), 1);
    assert_eq!(sampler(greedy(), 2).sample(&[-0.0, 0.0]).unwrap(), 0);
}

#[test]
fn rows_beyond_the_vocabulary_are_never_chosen() {
    assert_eq!(sampler(greedy(), 2).sample(&[1.0, 2.0, 9.0]).unwrap(), 1);
    let mut hot = sampler(drawing(100.0, 1), 2);
    assert!((0..200).all(|_| hot.sample(&[1.0, 2.0, 900.0]).unwrap() < 2));
    // They are also not the most likely token that min-p compares with.
    let mut relative = sampler(SamplingOptions { min_p: Some(0.5), ..drawing(1.0, 1) }, 2);
    assert!((0..50).any(|_| relative.sample(&[1.0, 1.0, 900.0]).unwrap() == 0));
}

#[test]
fn tokens_that_fill_the_vocabulary_up_are_never_chosen() {
    let values = [1.0, 90.0, 2.0, 900.0];
    assert_eq!(sampler(greedy(), 4).without(&[1, 3]).unwrap().sample(&values).unwrap(), 2);
    let mut hot = sampler(drawing(5.0, 3), 4).without(&[1, 3]).unwrap();
    let drawn: Vec<u32> = (0..100).map(|_| hot.sample(&values).unwrap()).collect();
    assert!(drawn.contains(&0) && drawn.contains(&2) && !drawn.contains(&1) && !drawn.contains(&3), "{drawn:?}");
    // The penalty finds its token although ids differ from indices.
    let mut penalized = sampler(SamplingOptions { presence_penalty: 1.5, ..greedy() }, 4).without(&[1, 3]).unwrap();
    assert_eq!([(); 2].map(|()| penalized.sample(&values).unwrap()), [2, 0]);
}

#[test]
fn a_seed_repeats_its_draws_and_a_drawn_one_is_reported() {
    let even = [0.0; 64];
    let draws = |seed| {
        let mut sampler = sampler(SamplingOptions { seed, ..drawing(1.0, 0) }, 64);
        ((0..20).map(|_| sampler.sample(&even).unwrap()).collect::<Vec<u32>>(), sampler.seed())
    };
    let (first, seed) = draws(None);
    assert_eq!(draws(Some(seed)), (first.clone(), seed));
    assert_ne!(draws(None).0, first);
    assert!(seed < 1 << 53);
}

/// Pearson's statistic of `counts` against `probabilities`.
fn chi_square(counts: &[u32], probabilities: &[f64]) -> f64 {
    let draws = f64::from(counts.iter().sum::<u32>());
    let term = |(count, p): (&u32, &f64)| (f64::from(*count) - draws * p).powi(2) / (draws * p);
    counts.iter().zip(probabilities).map(term).sum()
}

fn histogram(options: SamplingOptions, values: &[f32], draws: usize) -> Vec<u32> {
    let mut sampler = sampler(options, values.len());
    let (values, mut counts) = (values, vec![0; values.len()]);
    for _ in 0..draws {
        counts[sampler.sample(values).unwrap() as usize] += 1;
    }
    counts
}

#[test]
fn draws_follow_the_probabilities_of_what_the_steps_left() {
    // Probabilities 0.1, 0.4, 0.05, 0.15, 0.3. The bounds are the chi-square values that one seed in 10,000
    // exceeds (23.5 at 4 degrees of freedom, 18.4 at 2, 15.1 at 1); the seed is fixed, so the test cannot flicker.
    let known = [0.1f32, 0.4, 0.05, 0.15, 0.3].map(f32::ln);
    let all = histogram(drawing(1.0, 7), &known, 4000);
    assert!(chi_square(&all, &[0.1, 0.4, 0.05, 0.15, 0.3]) < 23.5, "{all:?}");

    // At temperature 1/2 probabilities are squared, 0.01, 0.16, 0.0025, 0.0225, 0.09, and divided by their sum 0.285.
    let cold = histogram(drawing(0.5, 7), &known, 4000);
    let squared = [0.01, 0.16, 0.0025, 0.0225, 0.09].map(|p| p / 0.285);
    assert!(chi_square(&cold, &squared) < 23.5, "{cold:?}");

    // The three most likely are 1, 4 and 3: 0.4, 0.3 and 0.15 of 0.85.
    let top_k = histogram(SamplingOptions { top_k: Some(3), ..drawing(1.0, 7) }, &known, 4000);
    assert_eq!((top_k[0], top_k[2]), (0, 0));
    assert!(chi_square(&[top_k[1], top_k[3], top_k[4]], &[8.0 / 17.0, 3.0 / 17.0, 6.0 / 17.0]) < 18.4, "{top_k:?}");

    // 0.4 + 0.3 reach 0.6; then 4 to 3. At least half of 0.4 has only 0.3, so min-p keeps the same two.
    for options in [
        SamplingOptions { top_p: Some(0.6), ..drawing(1.0, 7) },
        SamplingOptions { min_p: Some(0.5), ..drawing(1.0, 7) },
    ] {
        let two = histogram(options, &known, 4000);
        assert_eq!((two[0], two[2], two[3]), (0, 0, 0));
        assert!(chi_square(&[two[1], two[4]], &[4.0 / 7.0, 3.0 / 7.0]) < 15.1, "{two:?}");
    }
}

#[test]
fn steps_apply_in_the_documented_order() {
    // Temperature comes before top-p: probabilities 0.6, 0.3, 0.1 squared are 0.783, 0.196, 0.022, so that 0.7 is
    // reached by the first one. In the other order 0.6 would not reach it and two would be left.
    let values = [0.6f32, 0.3, 0.1].map(f32::ln);
    let before = histogram(SamplingOptions { top_p: Some(0.7), ..drawing(0.5, 3) }, &values, 300);
    assert_eq!(before, [300, 0, 0]);
    // Temperature comes before min-p too: flattened by 4 every share exceeds 0.5 (the third's is 6^(-1/4), 0.64).
    let flat = histogram(SamplingOptions { min_p: Some(0.5), ..drawing(4.0, 3) }, &values, 300);
    assert!(flat.iter().all(|count| *count > 0), "{flat:?}");
    // Penalties come before top-k: the largest logit is seen, and 4 / 2 is no longer the largest.
    let mut penalized =
        sampler(SamplingOptions { top_k: Some(1), repetition_penalty: Some(2.0), ..drawing(1.0, 3) }, 2);
    penalized.prompt(&[0]).unwrap();
    assert_eq!(penalized.sample(&[4.0, 3.0]).unwrap(), 1);
    // Repetition comes before presence: 4 / 2 - 1 = 1 loses to 1.25. In the other order (4 - 1) / 2 = 1.5 would win.
    let options = SamplingOptions { repetition_penalty: Some(2.0), presence_penalty: 1.0, ..greedy() };
    let mut both = sampler(options, 2);
    assert_eq!(both.sample(&[4.0, 1.25]).unwrap(), 0);
    assert_eq!(both.sample(&[4.0, 1.25]).unwrap(), 1);
}

#[test]
fn greedy_heeds_penalties_and_nothing_else() {
    let narrowing = SamplingOptions { top_k: Some(1), top_p: Some(0.1), min_p: Some(1.0), ..greedy() };
    assert_eq!(sampler(narrowing, 2).sample(&[1.0, 2.0]).unwrap(), 1);
    let values = [2.0, 1.75, 1.0];
    let greedily = |options| {
        let mut sampler = sampler(options, 3);
        (0..6).map(|_| sampler.sample(&values).unwrap()).collect::<Vec<u32>>()
    };
    // 2 - 0.5 = 1.5 after the first, so 1; then 1.75 - 0.5 = 1.25, and both keep their places for good.
    assert_eq!(greedily(SamplingOptions { presence_penalty: 0.5, ..greedy() }), [0, 1, 0, 0, 0, 0]);
    // Scores before each choice: 2, 1.75, 1 | 1.5, 1.75, 1 | 1.5, 1.25, 1 | 1, 1.25, 1 | 1, 0.75, 1 | 0.5, 0.75, 1.
    assert_eq!(greedily(SamplingOptions { frequency_penalty: 0.5, ..greedy() }), [0, 1, 0, 1, 0, 2]);
    // 2 / 4, then 1.75 / 4, then 1 / 4: the first leads again, as the penalty counts a token once.
    assert_eq!(greedily(SamplingOptions { repetition_penalty: Some(4.0), ..greedy() }), [0, 1, 2, 0, 0, 0]);
}

#[test]
fn one_candidate_is_the_greedy_choice_at_any_temperature() {
    let values: Vec<f32> = (0..500).map(|id| ((id * 7919) % 499) as f32 / 50.0).collect();
    let best = sampler(greedy(), 500).sample(&values).unwrap();
    for options in [
        SamplingOptions { top_k: Some(1), ..drawing(5.0, 1) },
        SamplingOptions { top_p: Some(0.0), ..drawing(5.0, 1) },
        SamplingOptions { min_p: Some(1.0), ..drawing(5.0, 1) },
        drawing(GREEDY_BELOW, 1),
        drawing(f64::MIN_POSITIVE, 1),
    ] {
        assert_eq!(sampler(options.clone(), 500).sample(&values).unwrap(), best, "{options:?}");
    }
}

#[test]
fn refuses_logits_that_are_no_numbers() {
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for options in
            [greedy(), drawing(1.0, 0), SamplingOptions { top_k: Some(1), min_p: Some(0.1), ..drawing(1.0, 0) }]
        {
            for values in [[0.0, 1.0, value], [value, 0.0, 1.0]] {
                let error = sampler(options.clone(), 2).sample(&values).unwrap_err();
                assert!(matches!(error, Error::NonFiniteLogits { id: 0 | 2, .. }), "{error}");
            }
        }
    }
}

#[test]
fn a_vocabulary_without_a_token_to_choose_is_an_error() {
    for options in [greedy(), drawing(1.0, 0)] {
        let error = sampler(options, 2).without(&[0, 1]).unwrap().sample(&[0.0, 1.0]).unwrap_err();
        assert!(matches!(error, Error::NothingToChoose { vocab: 2 }), "{error}");
    }
}

#[test]
fn biases_come_before_all_else_and_bar_or_force_a_token() {
    let values = [1.0, 3.0, 2.0, 0.0];
    let biased = |bias: &[(u32, f64)]| SamplingOptions { logit_bias: bias.iter().copied().collect(), ..greedy() };
    assert_eq!(sampler(biased(&[(1, -100.0)]), 4).sample(&values).unwrap(), 2);
    assert_eq!(sampler(biased(&[(3, 100.0)]), 4).sample(&values).unwrap(), 3);
    // 3 - 1.5 - 1 is below 2, once 1 was chosen.
    let both = SamplingOptions { presence_penalty: 1.0, ..biased(&[(1, -0.5)]) };
    let mut both = sampler(both, 4);
    assert_eq!([(); 2].map(|()| both.sample(&values).unwrap()), [1, 2]);
    let refused = Sampler::new(&biased(&[(0, 101.0)]), 4).err();
    let outside = Sampler::new(&biased(&[(4, 1.0)]), 4).err();
    assert!(matches!(refused, Some(Error::Option { option: "logit_bias", .. })));
    assert!(matches!(outside, Some(Error::TokenOutOfVocabulary { id: 4, .. })));
}

#[test]
fn stop_tokens_wait_for_the_least_number_of_tokens() {
    let values = [1.0, 3.0, 2.0, 0.0];
    let late = SamplingOptions { min_tokens: 2, ..greedy() };
    let stop = StopTokens::from_iter([1]);
    let mut late = sampler(late, 4).with_stop(&stop);
    assert_eq!([(); 3].map(|()| late.sample(&values).unwrap()), [2, 2, 1]);
    // If no other token is possible, it is chosen.
    late = sampler(SamplingOptions { min_tokens: 2, ..greedy() }, 4).with_stop(&StopTokens::from_iter(0..4));
    assert_eq!(late.sample(&values).unwrap(), 1);
}

#[test]
fn the_most_likely_are_excluded_with_the_probability_asked_for() {
    // 0.4, 0.3, 0.2, 0.1: of those from 0.15 up only the least probable one stays, and all below.
    let values = [0.4_f32, 0.3, 0.2, 0.1].map(f32::ln);
    let xtc = |probability| {
        let xtc = Some(Xtc { probability, threshold: 0.15 });
        histogram(SamplingOptions { xtc, ..drawing(1.0, 5) }, &values, 6000)
    };
    // 10.8 and 16.3 are exceeded once in a thousand seeds, and this is one seed.
    let (always, half) = (xtc(1.0), xtc(0.5));
    assert!(always[..2] == [0, 0] && chi_square(&always[2..], &[2.0 / 3.0, 1.0 / 3.0]) < 10.8, "{always:?}");
    assert!(chi_square(&half, &[0.2, 0.15, 0.1 + 1.0 / 3.0, 0.05 + 1.0 / 6.0]) < 16.3, "{half:?}");
    assert_eq!(xtc(0.0), histogram(drawing(1.0, 5), &values, 6000));
    // With fewer than two such tokens nothing happens.
    let alone = SamplingOptions { xtc: Some(Xtc { probability: 1.0, threshold: 0.35 }), ..drawing(1.0, 5) };
    assert!(histogram(alone, &values, 1000)[0] > 300);
}

#[test]
fn refuses_values_out_of_range_by_name() {
    type Set = fn(&mut SamplingOptions, f64);
    let table: [(&str, Set, &[f64], &[f64]); 6] = [
        ("temperature", |options, value| options.temperature = Some(value), &[-0.1], &[0.0, 5.0]),
        ("top_p", |options, value| options.top_p = Some(value), &[-0.1, 1.1], &[0.0, 1.0]),
        ("min_p", |options, value| options.min_p = Some(value), &[-0.1, 1.1], &[0.0, 1.0]),
        ("repetition_penalty", |options, value| options.repetition_penalty = Some(value), &[0.0, -1.0], &[0.5, 2.0]),
        ("presence_penalty", |options, value| options.presence_penalty = value, &[-2.1, 2.1], &[-2.0, 2.0]),
        ("frequency_penalty", |options, value| options.frequency_penalty = value, &[-2.1, 2.1], &[-2.0, 2.0]),
    ];
    for (name, set, wrong, right) in table {
        for value in wrong.iter().copied().chain([f64::NAN, f64::INFINITY, f64::NEG_INFINITY]) {
            let mut options = greedy();
            set(&mut options, value);
            let error = Sampler::new(&options, 2).err();
            assert!(matches!(error, Some(Error::Option { option, .. }) if option == name), "{name} {value}");
        }
        for value in right {
            let mut options = greedy();
            set(&mut options, *value);
            assert!(Sampler::new(&options, 2).is_ok(), "{name} {value}");
        }
    }
}
