//! What the kernels' tests share.
