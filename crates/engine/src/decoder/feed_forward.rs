//! The matrices of a feed-forward layer on a device.

use super::stored::numbers;
use crate::error::{Error, Result};
use crate::weights::Weights;
use model_factory_spec::spec::{
    Activation, DenseWeights, ExpertGates, ExpertMatrices, ExpertsWeights, FeedForwardLayer, LinearWeights,
    NormWeights, Routing,
};

/// A feed-forward layer behind its norm.
pub(super) enum FeedForwardMatrices<Matrix, Norm> {
    /// The same matrices for every row.
    Dense(Dense<Matrix>),
    /// Experts, of which each row is given to a few.
    Experts(Box<Experts<Matrix, Norm>>),
}

/// A layer without experts, or one expert.
pub struct Dense<Matrix> {
    /// `[feed_forward, hidden]`.
    pub(crate) up: Matrix,
    /// A gate has the shape of `up`.
    pub(crate) activation: Activation<Matrix>,
    /// `[hidden, feed_forward]`.
    pub(crate) down: Matrix,
}

/// A layer of experts.
pub struct Experts<Matrix, Norm> {
    /// `[experts, hidden]`.
    pub(crate) router: Matrix,
    /// Which experts a row is given to, and what their outputs are multiplied by.
    pub(crate) routing: Routing,
    /// Added to the scores of experts where they are chosen; empty for nothing.
    pub(crate) choice_bias: Vec<f32>,
    /// What the weights of experts are multiplied by, each by its own; empty for nothing.
    pub(crate) expert_scales: Vec<f32>,
    /// Of what the router reads, where that is not what the experts read.
    pub(crate) router_norm: Option<Norm>,
    /// `[feed_forward, hidden]` each, twice as many rows where gates take turns with them.
    pub(crate) up: ExpertMatrices<Matrix>,
    /// The activation and its gates.
    pub(crate) activation: Activation<ExpertGates<Matrix>>,
    /// Columns of an expert's down projection.
    pub(crate) feed_forward: usize,
    /// `[hidden, feed_forward]` each.
    pub(crate) down: ExpertMatrices<Matrix>,
    /// The expert that every row is given to.
    pub(crate) shared: Option<SharedExpert<Matrix>>,
}

/// The expert that every row is given to.
pub struct SharedExpert<Matrix> {
    /// Its matrices.
    pub(crate) dense: Dense<Matrix>,
    /// `[1, hidden]`: the sigmoid of its output is what the expert's output is multiplied by.
    pub(crate) router: Option<Matrix>,
}

impl<Matrix, Norm> FeedForwardMatrices<Matrix, Norm> {
    pub(super) fn new(
        weights: &Weights,
        layer: &FeedForwardLayer,
        matrix: impl Fn(&LinearWeights) -> Result<Matrix> + Copy,
        norm: impl Fn(&Option<NormWeights>) -> Result<Option<Norm>>,
    ) -> Result<FeedForwardMatrices<Matrix, Norm>> {
        Ok(match layer {
            FeedForwardLayer::Dense(dense) => FeedForwardMatrices::Dense(Dense::new(dense, matrix)?),
            FeedForwardLayer::Experts(experts) => {
                FeedForwardMatrices::Experts(Box::new(Experts::new(weights, experts, matrix, norm)?))
            }
        })
    }

    /// All of them, in the order of [`FeedForwardLayer`]'s.
    pub(super) fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        let (dense, experts) = match self {
            FeedForwardMatrices::Dense(dense) => (Some(dense.matrices()), None),
            FeedForwardMatrices::Experts(experts) => (None, Some(experts.matrices())),
        };
        dense.into_iter().flatten().chain(experts.into_iter().flatten())
    }
}

impl<Matrix> Dense<Matrix> {
    pub(super) fn new(
        dense: &DenseWeights,
        matrix: impl Fn(&LinearWeights) -> Result<Matrix>,
    ) -> Result<Dense<Matrix>> {
        Ok(Dense {
            up: matrix(&dense.up)?,
            activation: dense.activation.as_ref().try_map(&matrix)?,
            down: matrix(&dense.down)?,
        })
    }

    pub(super) fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        self.activation.gate().into_iter().chain([&self.up, &self.down])
    }
}

impl<Matrix, Norm> Experts<Matrix, Norm> {
    fn new(
        weights: &Weights,
        experts: &ExpertsWeights,
        matrix: impl Fn(&LinearWeights) -> Result<Matrix> + Copy,
        norm: impl Fn(&Option<NormWeights>) -> Result<Option<Norm>>,
    ) -> Result<Experts<Matrix, Norm>> {
        let shared = experts.shared.as_ref().map(|shared| {
            let dense = Dense::new(&shared.dense, matrix)?;
            Ok::<_, Error>(SharedExpert { dense, router: shared.router.as_ref().map(matrix).transpose()? })
        });
        Ok(Experts {
            router: matrix(&experts.router)?,
            routing: experts.routing,
            choice_bias: numbers(weights, experts.choice_bias.as_ref())?,
            expert_scales: numbers(weights, experts.expert_scales.as_ref())?,
            router_norm: norm(&experts.router_norm)?,
            up: experts.up.try_map(matrix)?,
            activation: experts.activation.as_ref().try_map(|gates| gates.try_map(matrix))?,
            feed_forward: experts.feed_forward(),
            down: experts.down.try_map(matrix)?,
            shared: shared.transpose()?,
        })
    }

    fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        let Experts { router, up, activation, down, shared, .. } = self;
        let gates = activation.gate().and_then(ExpertGates::apart);
        let routed = gates.into_iter().chain([up, down]).flat_map(|matrices| &matrices.stored);
        let shared = shared.iter().flat_map(|shared| shared.router.iter().chain(shared.dense.matrices()));
        std::iter::once(router).chain(routed).chain(shared)
    }
}
