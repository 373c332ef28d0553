//! Which models have memory: who waits for it, who goes for whom, and who is loaded when.
//!
//! Memory is promised before it is there: those that wait, are loaded or are being loaded fit together, and those that go have it
//! until their answers have ended. So who waits for one model to go keeps nobody from loading another.

use super::{Listed, Models};
use crate::common::tell;
use std::sync::atomic::Ordering;

/// What memory a model has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Absent,
    /// It is promised some, which others may still have.
    Promised,
    /// It is loaded, or will be when the loads before it are done.
    Loading,
    Loaded,
    /// It goes when its answers have ended.
    Leaving,
}

/// The stages of all models.
#[derive(Debug)]
pub(super) struct Stages {
    of: Vec<Stage>,
    /// Those to which no memory is promised yet, in the order of their requests, and how many others each has let pass.
    waiting: Vec<(usize, usize)>,
}

/// How many models may be promised memory before one that asked earlier and waits for others to be loaded.
const MOST_PASSED: usize = 8;

/// What comes next for a model that is to be loaded.
enum Step {
    Load,
    LetGo(Vec<usize>),
    Wait,
}

impl Stages {
    pub(super) fn new(all: &[Listed]) -> Stages {
        let stage = |listed: &Listed| if listed.is_loaded() { Stage::Loaded } else { Stage::Absent };
        Stages { of: all.iter().map(stage).collect(), waiting: Vec::new() }
    }
}

impl Models {
    /// Waits until `index`, which is not loaded, has the memory that it is loaded into: others are let go for it.
    pub(super) async fn room(&self, index: usize) {
        self.stages.send_modify(|stages| stages.waiting.push((index, 0)));
        let mut changes = self.stages.subscribe();
        loop {
            let mut step = Step::Wait;
            self.stages.send_if_modified(|stages| {
                step = self.step(stages, index);
                !matches!(step, Step::Wait)
            });
            match step {
                Step::Load => return,
                Step::LetGo(victims) => self.let_go(&victims).await,
                // It ends with the sender, which is here.
                Step::Wait => _ = changes.changed().await,
            }
        }
    }

    /// Lets another model go after `index` was refused memory that it should have had, and waits for [`room`](Self::room). Whether there
    /// is one.
    pub(super) async fn more_room(&self, index: usize) -> bool {
        let mut changes = self.stages.subscribe();
        let mut victim = None;
        self.stages.send_modify(|stages| {
            stages.of[index] = Stage::Absent;
            victim = self.in_order(stages, index).first().copied();
            victim.into_iter().for_each(|victim| self.leave(stages, victim, index));
        });
        match victim {
            Some(victim) => self.let_go(&[victim]).await,
            None if !self.is_changing(&changes.borrow_and_update(), index) => return false,
            None => {
                let is_changed =
                    |stages: &Stages| !self.in_order(stages, index).is_empty() || !self.is_changing(stages, index);
                let _ = changes.wait_for(is_changed).await; // it ends with the sender, which is here
            }
        }
        self.room(index).await;
        true
    }

    /// What was to be loaded is loaded, or is not.
    pub(super) fn settle(&self, index: usize, is_loaded: bool) {
        let stage = if is_loaded { Stage::Loaded } else { Stage::Absent };
        self.stages.send_modify(|stages| stages.of[index] = stage);
    }

    /// Waits until nobody computes with these, and frees their memory.
    async fn let_go(&self, victims: &[usize]) {
        for index in victims {
            self.all[*index].let_go(&self.gone).await;
            self.settle(*index, false);
        }
    }

    fn step(&self, stages: &mut Stages, index: usize) -> Step {
        let victims = match stages.of[index] {
            Stage::Absent => {
                let mut before = stages.waiting.iter().take_while(|(other, _)| *other != index);
                if before.any(|(other, passed)| *passed == MOST_PASSED || self.victims(stages, *other).is_some()) {
                    return Step::Wait; // it takes its turn first
                }
                let Some(victims) = self.victims(stages, index) else { return Step::Wait };
                stages.waiting.iter_mut().take_while(|(other, _)| *other != index).for_each(|(_, passed)| *passed += 1);
                stages.waiting.retain(|(other, _)| *other != index);
                stages.of[index] = Stage::Promised;
                victims
            }
            Stage::Promised if self.fits(stages, index) => {
                stages.of[index] = Stage::Loading;
                return Step::Load;
            }
            Stage::Promised if self.is_changing(stages, index) => return Step::Wait,
            // Plans that were made one after the other may differ in what there is.
            Stage::Promised => self.in_order(stages, index).into_iter().take(1).collect(),
            Stage::Leaving | Stage::Loading | Stage::Loaded => return Step::Wait,
        };
        victims.iter().for_each(|victim| self.leave(stages, *victim, index));
        Step::LetGo(victims)
    }

    /// Notes that `victim` goes for `index`.
    fn leave(&self, stages: &mut Stages, victim: usize, index: usize) {
        tell(format_args!("{} makes room for {}", self.all[victim].names()[0], self.all[index].names()[0]));
        stages.of[victim] = Stage::Leaving;
    }

    /// Those that have to go before memory can be promised to `index`, which is not loaded; `None` while it waits for models that are
    /// not loaded yet, or for itself to be gone.
    fn victims(&self, stages: &Stages, index: usize) -> Option<Vec<usize>> {
        let is_coming = |other: &usize| matches!(stages.of[*other], Stage::Promised | Stage::Loading);
        let coming: Vec<usize> = self.beside(index).filter(is_coming).collect();
        let loaded = self.in_order(stages, index);
        let planned = |index: &usize| self.all[*index].planned();
        let mut promised = coming.iter().chain(&loaded).map(planned).fold(planned(&index), u64::saturating_add);
        let mut victims = Vec::new();
        for other in loaded {
            if promised <= self.memory(index) {
                break;
            }
            promised = promised.saturating_sub(planned(&other));
            victims.push(other);
        }
        let is_enough = promised <= self.memory(index) || coming.is_empty();
        (is_enough && stages.of[index] == Stage::Absent).then_some(victims)
    }

    /// Whether `index` fits beside all that have memory now, or is alone.
    fn fits(&self, stages: &Stages, index: usize) -> bool {
        let has_some = |other: &usize| matches!(stages.of[*other], Stage::Loading | Stage::Loaded | Stage::Leaving);
        let planned: Vec<u64> = self.beside(index).filter(has_some).map(|other| self.all[other].planned()).collect();
        let all = planned.iter().copied().fold(self.all[index].planned(), u64::saturating_add);
        planned.is_empty() || all <= self.memory(index)
    }

    /// Whether a model beside `index` goes or is loaded.
    fn is_changing(&self, stages: &Stages, index: usize) -> bool {
        self.beside(index).any(|other| matches!(stages.of[other], Stage::Loading | Stage::Leaving))
    }

    /// The models that are loaded on the device of `index`, in the order in which they go: those that nobody computes with before others,
    /// and of each kind the one that was used longest ago.
    fn in_order(&self, stages: &Stages, index: usize) -> Vec<usize> {
        let mut loaded: Vec<usize> = self.beside(index).filter(|other| stages.of[*other] == Stage::Loaded).collect();
        loaded.sort_by_cached_key(|other| {
            let is_used = self.all[*other].loaded.try_write().is_err();
            (is_used, self.all[*other].last_use.load(Ordering::Relaxed))
        });
        loaded
    }

    /// The other models of the device of `index`.
    fn beside(&self, index: usize) -> impl Iterator<Item = usize> {
        let device = &self.all[index].report.device;
        (0..self.all.len()).filter(move |other| *other != index && self.all[*other].report.device == *device)
    }

    /// The bytes that models on the device of `index` may take together.
    fn memory(&self, index: usize) -> u64 {
        self.memory.unwrap_or_else(|| self.all[index].report.plan.as_ref().map_or(0, |plan| plan.available))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::Source;
    use model_factory::UnifiedModelFactory;

    #[test]
    fn a_model_is_passed_by_so_many_others_and_no_more() {
        let listed = |(index, context)| {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/models/llama-3.1/bf16").into();
            let builder = UnifiedModelFactory::builder().context_length(context);
            Source { names: vec![format!("{index}")], path, builder, adapters: Vec::new() }.waiting().expect("it runs")
        };
        // The first one fits only by itself, the others fit together.
        let all: Vec<Listed> = [100_000, 64, 64].into_iter().enumerate().map(listed).collect();
        let (memory, small) = (all[0].planned(), all[1].planned());
        assert!(2 * small <= memory, "{small} of {memory}");
        let mut stages = Stages::new(&all);
        let models = Models::new(all, Some(memory));
        let ask = |stages: &mut Stages, index| {
            stages.waiting.push((index, 0));
            matches!(models.step(stages, index), Step::LetGo(victims) if victims.is_empty())
        };
        assert!(ask(&mut stages, 1) && matches!(models.step(&mut stages, 1), Step::Load));
        assert!(!ask(&mut stages, 0), "it waits until the other is loaded");
        // Each of the others is asked for while the other one is loaded, and gone when that one is there.
        let (mut last, mut passed) = (1, 0);
        while passed <= MOST_PASSED && ask(&mut stages, 3 - last) {
            assert!(matches!(models.step(&mut stages, 3 - last), Step::Load));
            stages.of[last] = Stage::Absent;
            (last, passed) = (3 - last, passed + 1);
        }
        assert_eq!(passed, MOST_PASSED);
        stages.of[last] = Stage::Loaded;
        assert!(matches!(models.step(&mut stages, 0), Step::LetGo(victims) if victims == [last]), "it is its turn");
    }
}
