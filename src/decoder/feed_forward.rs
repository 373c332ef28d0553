//! The matrices of a feed-forward layer on a device.

use super::Device;
use crate::error::Result;
use crate::weights::Weights;
use model_diagnostics::spec::{Activation, DenseWeights, ExpertMatrices, ExpertsWeights, FeedForwardLayer, Routing};

/// A feed-forward layer behind its norm.
pub(super) enum FeedForwardMatrices<D: Device> {
    /// The same matrices for every row.
    Dense(Dense<D>),
    /// Experts, of which each row is given to a few.
    Experts(Box<Experts<D>>),
}

/// A layer without experts, or one expert.
pub struct Dense<D: Device> {
    /// `[feed_forward, hidden]`.
    pub(crate) up: D::Matrix,
    /// A gate has the shape of `up`.
    pub(crate) activation: Activation<D::Matrix>,
    /// `[hidden, feed_forward]`.
    pub(crate) down: D::Matrix,
}

/// A layer of experts.
pub struct Experts<D: Device> {
    /// `[experts, hidden]`.
    pub(crate) router: D::Matrix,
    /// Which experts a row is given to, and what their outputs are multiplied by.
    pub(crate) routing: Routing,
    /// `[feed_forward, hidden]` each.
    pub(crate) up: ExpertMatrices<D::Matrix>,
    /// Gates have the shape of `up`.
    pub(crate) activation: Activation<ExpertMatrices<D::Matrix>>,
    /// `[hidden, feed_forward]` each.
    pub(crate) down: ExpertMatrices<D::Matrix>,
    /// The expert that every row is given to.
    pub(crate) shared: Option<SharedExpert<D>>,
}

/// The expert that every row is given to.
pub struct SharedExpert<D: Device> {
    /// Its matrices.
    pub(crate) dense: Dense<D>,
    /// `[1, hidden]`: the sigmoid of its output is what the expert's output is multiplied by.
    pub(crate) router: Option<D::Matrix>,
}

impl<D: Device> FeedForwardMatrices<D> {
    pub(super) fn new(device: &D, weights: &Weights, layer: &FeedForwardLayer) -> Result<FeedForwardMatrices<D>> {
        Ok(match layer {
            FeedForwardLayer::Dense(dense) => FeedForwardMatrices::Dense(Dense::new(device, weights, dense)?),
            FeedForwardLayer::Experts(experts) => {
                FeedForwardMatrices::Experts(Box::new(Experts::new(device, weights, experts)?))
            }
        })
    }

    /// All of them, in the order of [`FeedForwardLayer`]'s.
    pub(super) fn matrices(&self) -> impl Iterator<Item = &D::Matrix> {
        let (dense, experts) = match self {
            FeedForwardMatrices::Dense(dense) => (Some(dense.matrices()), None),
            FeedForwardMatrices::Experts(experts) => (None, Some(experts.matrices())),
        };
        dense.into_iter().flatten().chain(experts.into_iter().flatten())
    }
}

impl<D: Device> Dense<D> {
    fn new(device: &D, weights: &Weights, dense: &DenseWeights) -> Result<Dense<D>> {
        let matrix = |linear| device.matrix(weights, linear);
        Ok(Dense {
            up: matrix(&dense.up)?,
            activation: dense.activation.as_ref().try_map(matrix)?,
            down: matrix(&dense.down)?,
        })
    }

    fn matrices(&self) -> impl Iterator<Item = &D::Matrix> {
        self.activation.gate().into_iter().chain([&self.up, &self.down])
    }
}

impl<D: Device> Experts<D> {
    fn new(device: &D, weights: &Weights, experts: &ExpertsWeights) -> Result<Experts<D>> {
        let matrix = |linear: &_| device.matrix(weights, linear);
        let shared = experts.shared.as_ref().map(|shared| {
            let dense = Dense::new(device, weights, &shared.dense)?;
            Ok::<_, crate::Error>(SharedExpert { dense, router: shared.router.as_ref().map(matrix).transpose()? })
        });
        Ok(Experts {
            router: matrix(&experts.router)?,
            routing: experts.routing,
            up: experts.up.try_map(matrix)?,
            activation: experts.activation.as_ref().try_map(|gates| gates.try_map(matrix))?,
            down: experts.down.try_map(matrix)?,
            shared: shared.transpose()?,
        })
    }

    fn matrices(&self) -> impl Iterator<Item = &D::Matrix> {
        let Experts { router, routing: _, up, activation, down, shared } = self;
        let routed = activation.gate().into_iter().chain([up, down]).flat_map(|matrices| &matrices.stored);
        let shared = shared.iter().flat_map(|shared| shared.router.iter().chain(shared.dense.matrices()));
        std::iter::once(router).chain(routed).chain(shared)
    }
}
