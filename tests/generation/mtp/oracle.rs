//! A prediction head in double precision, written from the formulas: no code of the engine.

use super::made::Tensors;
use candle_core::{DType, Tensor};

const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const HEAD_DIM: usize = 16;
/// Elements of a head that rotate, and the base.
const ROTATED: usize = 8;
const THETA: f64 = 1e7;
const EPS: f64 = 1e-6;

type Matrix = Vec<Vec<f64>>;

fn matrix(tensor: &Tensor) -> Matrix {
    tensor.to_dtype(DType::F64).unwrap().to_vec2().unwrap()
}

fn times(matrix: &Matrix, x: &[f64]) -> Vec<f64> {
    matrix.iter().map(|row| row.iter().zip(x).map(|(a, b)| a * b).sum()).collect()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn add(x: &mut [f64], y: &[f64]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}

/// Gate, up and down projection.
struct Dense([Matrix; 3]);

impl Dense {
    fn of(&self, x: &[f64]) -> Vec<f64> {
        let [gate, up, down] = &self.0;
        let activated: Vec<f64> =
            times(gate, x).into_iter().zip(times(up, x)).map(|(gate, up)| gate * sigmoid(gate) * up).collect();
        times(down, &activated)
    }
}

/// Two of several experts, and one for every token.
struct Experts {
    router: Matrix,
    experts: Vec<Dense>,
    shared_gate: Matrix,
    shared: Dense,
}

impl Experts {
    fn of(&self, x: &[f64]) -> Vec<f64> {
        let scores = times(&self.router, x);
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
        let weights: Vec<f64> = order[..2].iter().map(|expert| scores[*expert].exp()).collect();
        let mut sum = self.shared.of(x);
        let gate = sigmoid(times(&self.shared_gate, x)[0]);
        sum.iter_mut().for_each(|x| *x *= gate);
        for (expert, weight) in order.iter().zip(&weights) {
            let share = weight / weights.iter().sum::<f64>();
            let put_out: Vec<f64> = self.experts[*expert].of(x).iter().map(|x| x * share).collect();
            add(&mut sum, &put_out);
        }
        sum
    }
}

enum FeedForward {
    Dense(Dense),
    Experts(Experts),
}

/// The head of `tensors`, named as in safetensors.
pub(crate) struct Oracle {
    embedding: Matrix,
    head: Matrix,
    fc: Matrix,
    /// By their names, each the offset from one.
    norms: Vec<(&'static str, Vec<f64>)>,
    /// q, k, v, o.
    attention: [Matrix; 4],
    feed_forward: FeedForward,
    /// Of each position that was read: its keys and values.
    cached: Vec<(Vec<f64>, Vec<f64>)>,
}

impl Oracle {
    pub(crate) fn new(tensors: &Tensors, embedding: &Tensor, head: &Tensor) -> Oracle {
        let of = |name: &str| matrix(&tensors[&format!("mtp.layers.0.{name}.weight")]);
        let dense = |name: &str| Dense(["gate", "up", "down"].map(|part| of(&format!("{name}{part}_proj"))));
        let gates_ups = tensors.get("mtp.layers.0.mlp.experts.gate_up_proj");
        let has_experts = tensors.contains_key("mtp.layers.0.mlp.gate.weight");
        let feed_forward = if has_experts {
            let experts = (0..of("mlp.gate").len()).map(|expert| match gates_ups {
                None => dense(&format!("mlp.experts.{expert}.")),
                Some(both) => {
                    let both = matrix(&both.get(expert).unwrap());
                    let (gate, up) = both.split_at(both.len() / 2);
                    let down = &tensors["mtp.layers.0.mlp.experts.down_proj"];
                    Dense([gate.to_vec(), up.to_vec(), matrix(&down.get(expert).unwrap())])
                }
            });
            FeedForward::Experts(Experts {
                router: of("mlp.gate"),
                experts: experts.collect(),
                shared_gate: of("mlp.shared_expert_gate"),
                shared: dense("mlp.shared_expert."),
            })
        } else {
            FeedForward::Dense(dense("mlp."))
        };
        let norms = [
            "pre_fc_norm_embedding",
            "pre_fc_norm_hidden",
            "norm",
            "layers.0.input_layernorm",
            "layers.0.post_attention_layernorm",
            "layers.0.self_attn.q_norm",
            "layers.0.self_attn.k_norm",
        ];
        let vector =
            |name: &str| tensors[&format!("mtp.{name}.weight")].to_dtype(DType::F64).unwrap().to_vec1().unwrap();
        Oracle {
            embedding: matrix(embedding),
            head: matrix(head),
            fc: matrix(&tensors["mtp.fc.weight"]),
            norms: norms.map(|name| (name, vector(name))).to_vec(),
            attention: ["q", "k", "v", "o"].map(|part| of(&format!("self_attn.{part}_proj"))),
            feed_forward,
            cached: Vec::new(),
        }
    }

    fn norm(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let weight = &self.norms.iter().find(|(known, _)| *known == name).unwrap().1;
        let root = (x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64 + EPS).sqrt();
        x.iter().zip(weight).map(|(x, weight)| x / root * (1.0 + weight)).collect()
    }

    /// A head of queries or keys, normed and rotated.
    fn rotated(&self, name: &str, head: &[f64], position: usize) -> Vec<f64> {
        let mut head = self.norm(name, head);
        for pair in 0..ROTATED / 2 {
            let angle = position as f64 * THETA.powf(-2.0 * pair as f64 / ROTATED as f64);
            let (a, b) = (head[pair], head[pair + ROTATED / 2]);
            head[pair] = a * angle.cos() - b * angle.sin();
            head[pair + ROTATED / 2] = a * angle.sin() + b * angle.cos();
        }
        head
    }

    /// Reads `token` and the hidden state before it: its own hidden state, and the logits of the next token.
    pub(crate) fn read(&mut self, token: u32, hidden: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let embedded = self.norm("pre_fc_norm_embedding", &self.embedding[token as usize]);
        let both = [embedded, self.norm("pre_fc_norm_hidden", hidden)].concat();
        let mut x = times(&self.fc, &both);
        let position = self.cached.len();
        let normed = self.norm("layers.0.input_layernorm", &x);
        let [queries, keys, values] = [0, 1, 2].map(|part| times(&self.attention[part], &normed));
        let keys = keys.chunks(HEAD_DIM).flat_map(|key| self.rotated("layers.0.self_attn.k_norm", key, position));
        self.cached.push((keys.collect(), values));
        let mut attended = Vec::new();
        // Of every head its query, then its gate.
        for (head, query) in queries.chunks(2 * HEAD_DIM).enumerate() {
            let (query, gate) = query.split_at(HEAD_DIM);
            let query = self.rotated("layers.0.self_attn.q_norm", query, position);
            let of_head = head / (HEADS / KV_HEADS) * HEAD_DIM;
            let scores: Vec<f64> = self
                .cached
                .iter()
                .map(|(keys, _)| {
                    let score: f64 = query.iter().zip(&keys[of_head..]).map(|(a, b)| a * b).sum();
                    (score / (HEAD_DIM as f64).sqrt()).exp()
                })
                .collect();
            let total: f64 = scores.iter().sum();
            for (element, gate) in gate.iter().enumerate() {
                let values = self.cached.iter().map(|(_, values)| values[of_head + element]);
                let mixed: f64 = scores.iter().zip(values).map(|(score, value)| score / total * value).sum();
                attended.push(mixed * sigmoid(*gate));
            }
        }
        add(&mut x, &times(&self.attention[3], &attended));
        let normed = self.norm("layers.0.post_attention_layernorm", &x);
        let put_out = match &self.feed_forward {
            FeedForward::Dense(dense) => dense.of(&normed),
            FeedForward::Experts(experts) => experts.of(&normed),
        };
        add(&mut x, &put_out);
        let state = self.norm("norm", &x);
        let logits = times(&self.head, &state);
        (state, logits)
    }
}
