//! The weights of a feed-forward layer of experts, and how tokens are given to them.

use super::weights::{mapped, weights};
use super::{Activation, DenseWeights, LinearWeights, MapWeights, Stored, WeightTypes};
use crate::block::RouterScore;

weights! {
    /// A feed-forward layer of experts, of which each token is given to a few.
    pub struct ExpertsWeights<W> {
        /// The router, `[experts, hidden]`: a number for each expert.
        pub router: W::Matrix = matrix,
        /// Of what the router reads, `[hidden]`, where that is not what the experts read but what their norm reads.
        pub router_norm: Option<W::Norm> = optional norm,
        /// Which experts a token is given to, and what their outputs are multiplied by.
        pub routing: Routing,
        /// What is added to the scores where experts are chosen, and not where they are weighed, `[experts]`.
        pub choice_bias: Option<W::Numbers> = optional numbers,
        /// What the weights are multiplied by too, each expert's by its own, `[experts]`.
        pub expert_scales: Option<W::Numbers> = optional numbers,
        /// The activation and its gate projections.
        pub activation: Activation<ExpertGates<W::Matrix>> = gates,
        /// The up projections, `[expert_feed_forward, hidden]` each; twice as many rows where gates take turns with them.
        pub up: ExpertMatrices<W::Matrix> = matrices,
        /// The down projections, `[hidden, expert_feed_forward]` each.
        pub down: ExpertMatrices<W::Matrix> = matrices,
        /// The expert that every token is given to.
        pub shared: Option<SharedExpert<W>> = optional part,
    }

    /// The expert that every token is given to.
    pub struct SharedExpert<W> {
        /// `[1, hidden]`: the sigmoid of its output is what the expert's output is multiplied by.
        pub router: Option<W::Matrix> = optional matrix,
        /// It is a feed-forward layer of its own.
        pub dense: DenseWeights<W> = part,
    }
}

/// Which experts a token is given to, and what their outputs are multiplied by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Routing {
    /// Experts of the layer.
    pub experts: usize,
    /// Experts that a token is given to, at most all.
    pub chosen: usize,
    /// What the router's outputs become.
    pub score: RouterScore,
    /// What is added to the sum of the chosen experts' weights, by which they are divided; `None` where they are not.
    pub normalized: Option<f32>,
    /// What the weights are multiplied by in the end.
    pub scale: f32,
    /// What the router's outputs are multiplied by at first.
    pub router_scale: f32,
}

/// One projection of every expert: a matrix for each, or one matrix with the rows of all, expert after expert.
#[derive(Clone, Debug)]
pub struct ExpertMatrices<Matrix = LinearWeights> {
    /// One, or one for each expert.
    pub stored: Vec<Matrix>,
    /// Rows of an expert.
    pub outputs: usize,
}

/// The gate projections of experts. Complete.
#[derive(Clone, Debug)]
pub enum ExpertGates<Matrix = LinearWeights> {
    /// Matrices of their own, of the shape of the up projections.
    Apart(ExpertMatrices<Matrix>),
    /// Rows of the up projections: the even ones are the gate's, the odd ones up's.
    InTurns,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ExpertSizes {
    pub(super) count: usize,
    pub(super) chosen: usize,
    pub(super) feed_forward: usize,
    pub(super) shared_feed_forward: usize,
}

impl<W: WeightTypes> ExpertsWeights<W> {
    /// The experts' own matrices: what a token reads only a part of.
    pub fn routed(&self) -> impl Iterator<Item = &W::Matrix> {
        let gates = self.activation.gate().and_then(ExpertGates::apart);
        let matrices = gates.into_iter().chain([&self.up, &self.down]);
        matrices.flat_map(|matrices| &matrices.stored)
    }

    /// Columns of an expert's down projection.
    pub fn feed_forward(&self) -> usize {
        let in_turns = matches!(self.activation.gate(), Some(ExpertGates::InTurns));
        if in_turns { self.up.outputs / 2 } else { self.up.outputs }
    }
}

impl<Matrix> ExpertGates<Matrix> {
    /// Those that are matrices of their own.
    pub fn apart(&self) -> Option<&ExpertMatrices<Matrix>> {
        if let ExpertGates::Apart(gates) = self { Some(gates) } else { None }
    }

    fn try_map<'w, M, E>(&'w self, make: impl FnMut(&'w Matrix) -> Result<M, E>) -> Result<ExpertGates<M>, E> {
        Ok(match self {
            ExpertGates::Apart(gates) => ExpertGates::Apart(gates.try_map(make)?),
            ExpertGates::InTurns => ExpertGates::InTurns,
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

    fn try_map<'w, M, E>(&'w self, make: impl FnMut(&'w Matrix) -> Result<M, E>) -> Result<ExpertMatrices<M>, E> {
        Ok(ExpertMatrices { stored: self.stored.iter().map(make).collect::<Result<_, E>>()?, outputs: self.outputs })
    }
}
