//! The weights of a feed-forward layer of experts, and the routing of tokens.

use super::weights::{mapped, weights};
use super::{Activation, DenseWeights, LinearWeights, MapWeights, Stored, WeightTypes};
use crate::block::{ExpertInput, RouterScore};

weights! {
    /// A feed-forward layer of experts, of which each token uses a few.
    pub struct ExpertsWeights<W> {
        /// The router, `[experts, hidden]`: a number for each expert.
        pub router: W::Matrix = matrix,
        /// The norm of the router's input, `[hidden]`, if that is not the experts' input but the input of their norm.
        pub router_norm: Option<W::Norm> = optional norm,
        /// What experts and router read of the block.
        pub input: ExpertInput,
        /// Which experts a token uses, and how their outputs are weighted.
        pub routing: Routing,
        /// The bias that is added to the scores to choose experts, but not to weight them, `[experts]`.
        pub choice_bias: Option<W::Numbers> = optional numbers,
        /// Factors of the experts' weights, `[experts]`.
        pub expert_scales: Option<W::Numbers> = optional numbers,
        /// The activation and its gate projections.
        pub activation: Activation<ExpertGates<W::Matrix>> = gates,
        /// The up projections, `[expert_feed_forward, hidden]` each; twice as many rows if gates are among them.
        pub up: ExpertMatrices<W::Matrix> = matrices,
        /// The down projections, `[hidden, expert_feed_forward]` each.
        pub down: ExpertMatrices<W::Matrix> = matrices,
        /// The shared expert, which every token uses.
        pub shared: Option<SharedExpert<W>> = optional part,
        /// The factor of the sum of all experts' outputs.
        pub scale: f32,
    }

    /// The shared expert, which every token uses.
    pub struct SharedExpert<W> {
        /// The gate of the shared expert, `[1, hidden]`: the expert's output is multiplied by the sigmoid of its product.
        pub router: Option<W::Matrix> = optional matrix,
        /// The feed-forward layer of the shared expert.
        pub dense: DenseWeights<W> = part,
    }
}

/// Which experts a token uses, and how their outputs are weighted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Routing {
    /// Number of experts of the layer.
    pub experts: usize,
    /// Number of experts that a token uses, at most all.
    pub chosen: usize,
    /// How the router's outputs become weights.
    pub score: RouterScore,
    /// The groups of neighboring experts of which the best are chosen first.
    pub groups: Option<ExpertGroups>,
    /// By what the chosen weights are divided; `None` if they are not divided.
    pub normalized: Option<Normalization>,
    /// The last factor of the weights.
    pub scale: f32,
    /// The factor of the router's outputs.
    pub router_scale: f32,
}

/// The chosen weights are divided by their sum and the number `added`, or by the `least` number if that is more.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)] // of names that say it
pub struct Normalization {
    pub added: f32,
    pub least: f32,
}

/// Groups of neighboring experts, all of one size: experts are chosen of the groups with the best scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertGroups {
    /// Number of groups; divides that of experts.
    pub count: usize,
    /// Number of groups whose experts may be chosen, which have enough of them.
    pub chosen: usize,
    /// Experts whose scores, with the bias that chooses, are summed up to that of a group: its best.
    pub best: usize,
}

/// One projection of every expert, or of every head: a matrix for each, or one matrix with the rows of all experts in order.
#[derive(Clone, Debug)]
pub struct ExpertMatrices<Matrix = LinearWeights> {
    /// One matrix, or one for each expert.
    pub stored: Vec<Matrix>,
    /// Rows of an expert.
    pub outputs: usize,
}

/// The gate projections of experts. Complete.
#[derive(Clone, Debug)]
pub enum ExpertGates<Matrix = LinearWeights> {
    /// Separate matrices, of the shape of the up projections.
    Apart(ExpertMatrices<Matrix>),
    /// Rows of the up projections: even rows belong to the gate, odd rows to up.
    InTurns,
    /// Rows of the up projections: the first half belongs to the gate.
    InFront,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ExpertSizes {
    pub(super) count: usize,
    pub(super) chosen: usize,
    pub(super) feed_forward: usize,
    pub(super) shared_feed_forward: usize,
}

impl<W: WeightTypes> ExpertsWeights<W> {
    /// The matrices of the routed experts, of which a token reads only a part.
    pub fn routed(&self) -> impl Iterator<Item = &W::Matrix> {
        let gates = self.activation.gate().and_then(ExpertGates::apart);
        let matrices = gates.into_iter().chain([&self.up, &self.down]);
        matrices.flat_map(|matrices| &matrices.stored)
    }

    /// Columns of an expert's down projection.
    pub fn feed_forward(&self) -> usize {
        let within = matches!(self.activation.gate(), Some(ExpertGates::InTurns | ExpertGates::InFront));
        if within { self.up.outputs / 2 } else { self.up.outputs }
    }
}

impl<Matrix> ExpertGates<Matrix> {
    /// The gate projections that are separate matrices.
    pub fn apart(&self) -> Option<&ExpertMatrices<Matrix>> {
        if let ExpertGates::Apart(gates) = self { Some(gates) } else { None }
    }

    fn try_map<'w, M, E>(&'w self, make: impl FnMut(&'w Matrix) -> Result<M, E>) -> Result<ExpertGates<M>, E> {
        Ok(match self {
            ExpertGates::Apart(gates) => ExpertGates::Apart(gates.try_map(make)?),
            ExpertGates::InTurns => ExpertGates::InTurns,
            ExpertGates::InFront => ExpertGates::InFront,
        })
    }
}

impl<Matrix> ExpertMatrices<Matrix> {
    /// The matrix that has the rows of expert `index`, and the first of them.
    pub fn of(&self, index: usize) -> (&Matrix, usize) {
        match self.stored.as_slice() {
            [all] => (all, index * self.outputs),
            each => (&each[index], 0),
        }
    }

    pub(super) fn try_map<'w, M, E>(
        &'w self,
        make: impl FnMut(&'w Matrix) -> Result<M, E>,
    ) -> Result<ExpertMatrices<M>, E> {
        Ok(ExpertMatrices { stored: self.stored.iter().map(make).collect::<Result<_, E>>()?, outputs: self.outputs })
    }
}
