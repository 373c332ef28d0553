//! Everything that can go wrong on the way: a typed error or a download that goes on, and never a broken cache.

use super::server::{Kind, etag};
use super::{Place, common, fixture, refused, text};
use model_factory::hub::HubError;
use model_factory::load::Stage;
use model_factory::{CancellationToken, Error};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) const REPO: &str = "org/demo";
pub(crate) const WEIGHTS: &str = "model.safetensors";
pub(crate) const ALWAYS: usize = 1 << 40;

pub(crate) fn demo() -> Place {
    Place::offering(REPO, "demo")
}

pub(crate) fn weights() -> PathBuf {
    fixture("demo").join(WEIGHTS)
}

/// The file in which weights are collected.
pub(crate) fn part(place: &Place) -> PathBuf {
    place.folder(REPO).join("blobs").join(etag(&weights())).with_extension("part")
}

pub(crate) fn fault(place: &Place, id: &str) -> HubError {
    match place.load(id) {
        Err(Error::Hub(error)) => error,
        Err(error) => panic!("{id}: expected an error of the Hub, found {error}"),
        Ok(_) => panic!("{id}: it was loaded"),
    }
}

/// Loads once more without faults, and checks that the result is whole.
pub(crate) fn recovers(place: &Place) {
    place.server.clear_faults();
    let model = place.load(REPO).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(text(&model), text(&common::load(fixture("demo"))));
    whole(place);
}

/// Every file of the cache that goes by its name is the one that was offered.
pub(crate) fn whole(place: &Place) {
    let mut files = 0;
    for entry in std::fs::read_dir(fixture("demo")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let (cached, blob) = (place.cached(REPO, name), place.folder(REPO).join("blobs").join(etag(&path)));
        for file in [cached, blob].into_iter().filter(|file| file.exists()) {
            assert_eq!(std::fs::read(&file).unwrap(), std::fs::read(&path).unwrap(), "{}", file.display());
            files += 1;
        }
    }
    assert!(files >= 2, "only {files} files in the cache");
}

#[test]
fn a_cut_connection_is_continued_where_it_broke() {
    let place = demo();
    let size = std::fs::metadata(weights()).unwrap().len();
    // The headers come first, then each connection brings 700,000 bytes.
    place.server.fault("/store", 1, Kind::Cut(100));
    place.server.fault("/cached", 1, Kind::Cut(5));
    let report = place.builder().diagnose(REPO);
    assert_eq!(report.exit_code, 0, "{}", report.reason);
    assert_eq!(place.server.faults_left(), 0);
    place.server.take_requests();
    place.server.fault("/store", 5, Kind::Cut(700_000));
    let model = place.load(REPO).unwrap();
    assert_eq!(text(&model), text(&common::load(fixture("demo"))));
    let starts: Vec<u64> = place.server.take_requests().iter().filter(|r| r.at_store).filter_map(|r| r.start).collect();
    // The header, the length, and the file in four pieces.
    assert_eq!(starts, [0, 0, 0, 700_000, 1_400_000, 2_100_000], "of {size}");
    whole(&place);
}

#[test]
fn a_cancelled_download_ends_and_is_continued() {
    let place = demo();
    let cancel = CancellationToken::new();
    let canceller = cancel.clone();
    let builder = place.builder().cancel(&cancel).on_progress(move |progress| {
        if progress.stage == Stage::Download && progress.bytes_done > 500_000 {
            canceller.cancel();
        }
    });
    let error = builder.load(REPO).unwrap_err();
    assert!(matches!(error, Error::Cancelled), "{error:?}");
    let part = part(&place);
    assert!(std::fs::metadata(&part).unwrap().len() > 0);
    recovers(&place);
}

#[test]
fn a_callback_that_panics_during_a_download_ends_it_with_its_panic() {
    for after in [0, 500_000] {
        let place = demo();
        let builder = place.builder().on_progress(move |progress| {
            if progress.stage == Stage::Download && progress.bytes_done >= after {
                std::panic::panic_any(after);
            }
        });
        let panic = catch_unwind(AssertUnwindSafe(|| builder.load(REPO).map(drop))).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&after));
        // No lock is left, and what has come is continued.
        recovers(&place);
    }
}

#[test]
fn an_interrupted_download_leaves_nothing_that_looks_whole() {
    let place = demo();
    // After the header and the length nothing comes but a piece.
    place.load_until_weights();
    place.server.fault("/store", 1, Kind::Cut(1_000_000));
    place.server.fault("/store", ALWAYS, Kind::Cut(0));
    let error = fault(&place, REPO);
    assert!(matches!(&error, HubError::Interrupted { file, done: 1_000_000, .. } if file == WEIGHTS), "{error:?}");
    assert_eq!((error.code(), place.cached(REPO, WEIGHTS).exists()), (1, false));
    let part = part(&place);
    assert_eq!(std::fs::metadata(&part).unwrap().len(), 1_000_000);
    whole(&place);
    // Another process, which may not ask the Hub, does not find the model.
    let offline = place.offline().load(REPO);
    assert!(matches!(offline, Err(Error::Hub(HubError::Offline { .. }))), "{:?}", offline.err());
    place.server.take_requests();
    place.server.take_sent();
    recovers(&place);
    let starts: Vec<_> = place.server.take_requests().iter().filter(|r| r.at_store).filter_map(|r| r.start).collect();
    assert_eq!(starts, [0, 0, 1_000_000]);
    assert!(!part.exists());
}

impl Place {
    /// Lets the two requests pass by which a download learns what the weights are.
    pub(crate) fn load_until_weights(&self) {
        self.server.fault("/store", 2, Kind::Short(0));
    }
}

#[test]
fn a_part_that_is_no_part_is_begun_anew() {
    let place = demo();
    let blob = place.folder(REPO).join("blobs").join(etag(&weights()));
    std::fs::create_dir_all(blob.parent().unwrap()).unwrap();
    std::fs::write(blob.with_extension("part"), vec![7; 3_000_000]).unwrap();
    // What another program left half done under the final name.
    std::fs::write(place.folder(REPO).join("blobs").join(etag(&fixture("demo").join("config.json"))), "{").unwrap();
    recovers(&place);
}

#[test]
fn a_server_without_ranges_sends_the_file_from_its_start() {
    let place = demo();
    place.load_until_weights();
    place.server.fault("/store", 1, Kind::Cut(1_000_000));
    place.server.fault("/store", 1, Kind::NoRange);
    recovers_with_faults(&place);
    assert_eq!(place.server.faults_left(), 0);
    whole(&place);
}

#[test]
fn a_range_that_nobody_asked_for_is_no_part_of_a_file() {
    let place = demo();
    place.load_until_weights();
    place.server.fault("/store", 1, Kind::Later(5));
    let error = fault(&place, REPO);
    assert!(matches!(&error, HubError::Answer { what, .. } if what.contains("begins at byte 5")), "{error:?}");
    recovers(&place);
}

fn recovers_with_faults(place: &Place) {
    let model = place.load(REPO).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(text(&model), text(&common::load(fixture("demo"))));
}

#[test]
fn a_wrong_length_is_an_error_or_goes_on() {
    // A body that is shorter than its range is taken for a cut.
    let place = demo();
    place.load_until_weights();
    place.server.fault("/store", 1, Kind::Short(1_000));
    recovers_with_faults(&place);
    whole(&place);
    // A length that changes between two answers is a fault of the server.
    for total in [1_000_000, 9_000_000] {
        let place = demo();
        place.load_until_weights();
        place.server.fault("/store", ALWAYS, Kind::Total(total));
        let error = fault(&place, REPO);
        let told = matches!(&error, HubError::Length { file, .. } if file == WEIGHTS);
        assert!(told || matches!(&error, HubError::Answer { .. }), "{error:?}");
        assert!(!place.cached(REPO, WEIGHTS).exists());
        recovers(&place);
    }
    // One that is wrong from the start contradicts the header.
    let place = demo();
    place.server.fault("/store", ALWAYS, Kind::Total(2_626_143));
    assert_eq!(refused(place.load(REPO)).exit_code, 15);
    recovers(&place);
}

#[test]
fn a_missing_file_is_named() {
    let place = Place::offering("org/sharded", "models/llama-3.1/f32-sharded");
    let shard = "model-00002-of-00003.safetensors";
    place.server.offer_as("org/sharded", shard, None);
    let report = refused(place.load("org/sharded"));
    assert_eq!(report.exit_code, 15);
    assert!(report.reason.contains(shard) && report.reason.contains("org/sharded"), "{}", report.reason);
    assert!(!place.folder("org/sharded").exists());
    // It disappears after the diagnosis.
    let place = demo();
    place.server.fault("/store", 1, Kind::Short(0));
    place.server.fault("/store", 1, Kind::Status(404, None));
    let error = fault(&place, REPO);
    assert!(matches!(&error, HubError::FileMissing { file, .. } if file == WEIGHTS), "{error:?}");
    assert_eq!(Error::from(error).code(), 15);
    recovers(&place);
}

#[test]
fn every_status_is_told() {
    let api = "/api/models";
    let place = demo();
    type Told = fn(&HubError) -> bool;
    let cases: [(u16, Told, &str); 6] = [
        (401, |error| matches!(error, HubError::NoAccess { status: 401, token: false, .. }), "HF_TOKEN"),
        (403, |error| matches!(error, HubError::NoAccess { status: 403, .. }), "licence"),
        (404, |error| matches!(error, HubError::NotFound { .. }), "check the id"),
        (429, |error| matches!(error, HubError::RateLimited { wait: Some(17) }), "in 17 s"),
        (500, |error| matches!(error, HubError::Status { status: 500, .. }), "try again"),
        (410, |error| matches!(error, HubError::Status { status: 410, .. }), "410"),
    ];
    for at in [api, "/resolve/", "/store"] {
        for (status, told, says) in &cases {
            if *status == 404 && at != api {
                continue; // a file that is missing has a test of its own
            }
            place.server.fault(at, ALWAYS, Kind::Status(*status, Some(("Retry-After", "17"))));
            let error = fault(&place, REPO);
            assert!(told(&error) && error.to_string().contains(says), "{at} {status}: {error:?}");
            if *status != 500 {
                let report = place.builder().diagnose(REPO);
                assert_eq!(
                    (report.exit_code, report.input.path.as_str()),
                    (1, REPO),
                    "{at} {status}: {}",
                    report.reason
                );
                assert!(report.reason.contains(says), "{at} {status}: {}", report.reason);
            }
            place.server.clear_faults();
        }
        // A server that is busy for a moment is asked again.
        place.server.fault(at, 2, Kind::Status(503, None));
        assert_eq!(place.builder().diagnose(REPO).exit_code, 0, "{at}");
        assert_eq!(place.server.faults_left(), 0, "{at}");
    }
    assert!(!place.folder(REPO).exists());
    recovers(&place);
}

#[test]
fn a_hub_out_of_reach_is_told_and_offline_answers_from_the_cache() {
    let place = demo();
    place.server.set_down(true);
    let error = fault(&place, REPO);
    assert!(matches!(&error, HubError::Connection { .. }), "{error:?}");
    assert!(error.to_string().contains("HF_HUB_OFFLINE=1"), "{error}");
    let offline = place.offline().load(REPO);
    assert!(matches!(offline, Err(Error::Hub(HubError::Offline { .. }))), "{:?}", offline.err());
    place.server.set_down(false);
    recovers(&place);
    let other = place.offline().load("org/demo:Q4_K_M");
    assert!(matches!(other, Err(Error::Hub(HubError::Offline { .. }))), "{:?}", other.err());
}

#[test]
fn names_of_the_server_cannot_lead_out_of_the_cache() {
    let outside = tempfile::tempdir().unwrap();
    let evil = outside.path().join("evil.json");
    std::fs::write(&evil, "{}").unwrap();
    let place = demo();
    let absolute = outside.path().join("written.safetensors").display().to_string();
    for name in
        ["../evil.json", "a/../../evil.gguf", &absolute, "additional_chat_templates/../../x.jinja", "evil\n.gguf"]
    {
        place.server.offer_as(REPO, name, Some(&evil));
    }
    recovers(&place);
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
    assert!(place.server.take_requests().iter().all(|request| !request.path.contains("evil")));

    // An index may name only files of its own folder.
    let place = Place::offering("org/sharded", "models/llama-3.1/f32-sharded");
    let index = outside.path().join("index.json");
    std::fs::write(&index, r#"{"weight_map":{"lm_head.weight":"../../evil.safetensors"}}"#).unwrap();
    place.server.offer_as("org/sharded", "model.safetensors.index.json", Some(&index));
    assert_eq!(refused(place.load("org/sharded")).exit_code, 10);

    // A tag names the file of the cache.
    for tag in ["../../../evil", "/tmp/evil", "evil.lock", ""] {
        let place = demo();
        place.server.fault("/resolve/", ALWAYS, Kind::Etag(tag));
        let error = fault(&place, REPO);
        assert!(matches!(&error, HubError::Answer { what, .. } if what.contains("ETag")), "{tag:?}: {error:?}");
        assert!(!place.folder(REPO).exists());
    }
}

#[test]
fn redirects_that_lead_nowhere_end() {
    let place = demo();
    for to in ["/org/demo/resolve/main/config.json", "//evil.example/x", "file:///etc/passwd", "evil"] {
        place.server.fault("/resolve/", ALWAYS, Kind::Location(to, Duration::ZERO));
        let error = fault(&place, REPO);
        assert!(matches!(&error, HubError::Answer { .. }), "{to}: {error:?}");
        place.server.clear_faults();
    }
}

#[test]
fn two_at_once_fetch_a_model_once() {
    let place = demo();
    let size = std::fs::metadata(weights()).unwrap().len();
    let expected = text(&common::load(fixture("demo")));
    std::thread::scope(|scope| {
        let loads: Vec<_> = (0..2).map(|_| scope.spawn(|| text(&place.load(REPO).unwrap()))).collect();
        for load in loads {
            assert_eq!(load.join().unwrap(), expected);
        }
    });
    let sent = place.server.take_sent();
    assert!(sent < size + size / 2, "{sent} bytes were sent of weights of {size}");
    whole(&place);
}

#[test]
fn a_dead_link_in_the_cache_is_replaced() {
    let place = demo();
    recovers(&place);
    let blob = place.folder(REPO).join("blobs").join(etag(&weights()));
    std::fs::remove_file(&blob).unwrap();
    assert!(!place.cached(REPO, WEIGHTS).exists() && Path::new(&place.cached(REPO, WEIGHTS)).is_symlink());
    recovers(&place);
}
