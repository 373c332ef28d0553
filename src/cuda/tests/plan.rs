//! What the report says of GPUs, and what the engine has.

use super::super::dtypes;
use model_diagnostics::capability::cuda_dtypes;
use std::collections::BTreeSet;

#[test]
fn the_matrix_of_gpus_has_the_dtypes_that_have_kernels() {
    let [told, built]: [BTreeSet<_>; 2] = [cuda_dtypes().collect(), dtypes().collect()];
    assert_eq!(told, built);
}
