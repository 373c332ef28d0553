//! Nothing but a dependency on `model-factory` with all of its features. Cargo brings the features together that the packages
//! of a command ask for, so tests, lints and documentation of the workspace are of one library.
