//! Vision towers of GGUF models of the Hub, which are files of their own.

use super::{Place, refused};
use crate::common;
use model_factory::chat::Message;
use model_factory::{Error, GenerateOptions, Model};
use std::path::PathBuf;

const MODEL: &str = "model-F32.gguf";
const TOWER: &str = "mmproj-model-F16.gguf";

fn fixture(name: &str) -> PathBuf {
    common::archives::unpacked_from("vision", "gemma-3").join(name)
}

/// A repository with a model, its tower and a tower in another folder.
fn place() -> Place {
    let place = Place::new();
    let files =
        [(MODEL, "gguf/f32.gguf"), (TOWER, "gguf/mmproj-f16.gguf"), ("old/mmproj.gguf", "gguf/mmproj-f32.gguf")];
    files.iter().for_each(|(name, file)| place.server.offer_as("org/sees", name, Some(&fixture(file))));
    place
}

fn said(model: &Model) -> String {
    let asked = [Message::user("").image(fixture("pictures/0.png")).text("What is this?")];
    let options = GenerateOptions::default().max_tokens(12).temperature(0.0);
    model.chat(&asked, &options).expect("it sees").text().expect("a text")
}

#[test]
fn a_model_sees_by_the_file_in_its_folder() {
    let place = place();
    let expected = common::builder().mmproj(fixture("gguf/mmproj-f16.gguf")).load(fixture("gguf/f32.gguf")).unwrap();
    let blind = place.load("org/sees").unwrap();
    assert_eq!(blind.report().exit_code, 0);
    assert!(!place.cached("org/sees", TOWER).exists(), "what is not wanted is not fetched");
    let report = place.builder().vision(true).diagnose("org/sees");
    assert_eq!(report.exit_code, 0, "{report}");
    assert!(!place.cached("org/sees", TOWER).exists(), "a diagnosis downloads no weights");
    let model = place.builder().vision(true).load("org/sees").unwrap();
    assert_eq!(said(&model), said(&expected));
    assert!(place.cached("org/sees", TOWER).is_file() && !place.cached("org/sees", "old/mmproj.gguf").exists());

    // The same once all is in the cache, and offline.
    place.server.take_requests();
    assert_eq!(said(&place.builder().vision(true).load("org/sees").unwrap()), said(&expected));
    assert_eq!(place.server.take_requests().len(), 1);
    place.server.set_down(true);
    assert_eq!(said(&place.offline().vision(true).load("org/sees").unwrap()), said(&expected));
}

#[test]
fn one_of_several_is_named() {
    let place = place();
    place.server.offer_as("org/sees", "mmproj-model-F32.gguf", Some(&fixture("gguf/mmproj-f32.gguf")));
    let report = refused(place.builder().vision(true).load("org/sees"));
    assert_eq!(report.exit_code, 16, "{report}");
    for says in [TOWER, "mmproj-model-F32.gguf", "--mmproj"] {
        assert!(report.reason.contains(says), "{says}: {}", report.reason);
    }
    for name in [TOWER, "mmproj-model-F32.gguf", "old/mmproj.gguf"] {
        let model = place.builder().mmproj(name).load("org/sees").unwrap();
        assert!(!said(&model).is_empty() && place.cached("org/sees", name).is_file(), "{name}");
    }
    let here = place.builder().mmproj(fixture("gguf/mmproj-f32.gguf")).load("org/sees").unwrap();
    assert!(!said(&here).is_empty());
    match place.builder().mmproj("mmproj-Q8_0.gguf").load("org/sees") {
        Err(Error::Hub(error)) => {
            assert!(error.to_string().contains("org/sees has no \"mmproj-Q8_0.gguf\""), "{error}")
        }
        other => panic!("{:?}", other.map(|_| ())),
    }
}
