//! Servers that let us wait: how long, and what ends it.

use super::faults::{ALWAYS, REPO, demo, part, recovers, weights, whole};
use super::server::{Kind, etag};
use super::{Place, common, fixture, text};
use model_factory::hub::HubError;
use model_factory::{CancellationToken, Error, ModelBuilder};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

/// Asks for so many bytes a second in each 300 ms.
fn with_speed(place: &Place, bytes_per_second: u64) -> ModelBuilder {
    place.builder().hub(place.options().minimum_speed(bytes_per_second, 300 * MS))
}

#[test]
fn a_server_that_sends_too_little_is_given_up_and_continued_later() {
    let place = demo();
    place.load_until_weights();
    // The fourth connection in a row that brings less than a window's bytes is the last.
    place.server.fault("/store", 1, Kind::Cut(1_000_000));
    place.server.fault("/store", ALWAYS, Kind::Slow(1, 50 * MS));
    match with_speed(&place, 20_000).load(REPO).map(|_| ()) {
        Err(Error::Hub(HubError::Slow { url, found, least: 20_000, window })) => {
            assert!(url.contains("model.safetensors") && found < 20 && window == 300 * MS, "{url} {found}");
        }
        other => panic!("{other:?}"),
    }
    let starts: Vec<u64> = place.server.take_requests().iter().filter(|r| r.at_store).filter_map(|r| r.start).collect();
    assert_eq!(starts.len(), 3 + 4, "the header, the length, what was cut, and four tries: {starts:?}");
    let kept = std::fs::metadata(part(&place)).unwrap().len();
    assert!((1_000_000..1_000_100).contains(&kept), "{kept}");
    whole(&place);
    recovers(&place);
}

#[test]
fn headers_that_come_too_slowly_are_given_up() {
    let place = demo();
    place.server.fault("/store", ALWAYS, Kind::Slow(1, 50 * MS));
    let report = with_speed(&place, 20_000).diagnose(REPO);
    let slow = report.reason.contains("comes too slowly") && report.reason.contains("minimum_speed");
    assert!(slow && report.exit_code == 1, "{}", report.reason);
}

/// No total limits a download: it takes many windows, each of them with enough bytes.
#[test]
fn a_slow_server_is_waited_for_as_long_as_it_brings_enough() {
    let place = demo();
    place.load_until_weights();
    place.server.fault("/store", 1, Kind::Slow(64 << 10, 50 * MS));
    // A window in which a busy machine lets the server send, too.
    let window = 400 * MS;
    let builder = place.builder().hub(place.options().minimum_speed(20_000, window));
    let start = Instant::now();
    let model = builder.load(REPO).unwrap();
    let pieces = std::fs::metadata(weights()).unwrap().len().div_ceil(64 << 10) as u32;
    assert!(start.elapsed() >= pieces * 50 * MS && pieces * 50 * MS > 4 * window, "{:?}", start.elapsed());
    assert_eq!(text(&model), text(&common::load(fixture("demo"))));
    let connections = place.server.take_requests().iter().filter(|request| request.at_store).count();
    assert_eq!(connections, 3, "the header, the length, and the file at once");
}

/// Waits of 10 to 30 s by time limits; cancelled they end in a moment. The limit is for a busy machine.
const MOMENT: Duration = Duration::from_secs(3);

/// Cancels `builder`'s load while it waits, which is so once `waits`, and measures how long the load goes on.
fn cancelled(builder: ModelBuilder, waits: impl Fn() -> bool) -> Duration {
    let cancel = CancellationToken::new();
    let builder = builder.cancel(&cancel);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| builder.load(REPO).map(|_| ()));
        std::thread::sleep(300 * MS);
        (0..1000).take_while(|_| !waits()).for_each(|_| std::thread::sleep(10 * MS));
        assert!(!load.is_finished(), "nothing was waited for");
        let start = Instant::now();
        cancel.cancel();
        let result = load.join().unwrap();
        assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
        start.elapsed()
    })
}

#[test]
fn waiting_for_a_server_ends_in_a_moment_when_it_is_cancelled() {
    // A listing, a small file, a header of weights: no answer, then half of one. Last the weights themselves.
    for (at, stall, download) in [
        ("/api/models", None, false),
        ("/cached", None, false),
        ("/cached", Some(10), false),
        ("/store", None, false),
        ("/store", Some(1_000), false),
        ("/store", None, true),
        ("/store", Some(1_000_000), true),
    ] {
        let place = demo();
        if download {
            place.load_until_weights();
        }
        place.server.fault(at, ALWAYS, Kind::Stall(stall));
        let kept = || std::fs::metadata(part(&place)).map_or(0, |file| file.len());
        let all = if stall == Some(1_000_000) { 1_000_000 } else { 0 };
        let time = cancelled(place.builder(), || kept() >= all);
        assert!(time < MOMENT, "{at} {stall:?}: {time:?}");
        assert!(all == 0 || kept() == all, "what has come is kept");
        recovers(&place);
    }
}

/// The thread that reads does not go on where nobody waits for it.
#[test]
fn no_redirect_is_followed_when_it_is_cancelled() {
    let place = demo();
    place.server.fault("/api/models", 1, Kind::Location("/elsewhere", 1000 * MS));
    let cancel = CancellationToken::new();
    let builder = place.builder().cancel(&cancel);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| builder.load(REPO).map(|_| ()));
        while place.server.faults_left() > 0 {
            std::thread::sleep(10 * MS);
        }
        cancel.cancel();
        let result = load.join().unwrap();
        assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
    });
    std::thread::sleep(1500 * MS);
    let paths: Vec<String> = place.server.take_requests().into_iter().map(|request| request.path).collect();
    assert!(paths.len() == 1 && paths[0].starts_with("/api/models"), "{paths:?}");
}

/// Tries again after 0.2, 0.4 and 0.8 s: what is cancelled meanwhile does not.
#[test]
fn waiting_to_try_again_ends_when_it_is_cancelled() {
    let place = demo();
    place.server.fault("/api/models", ALWAYS, Kind::Status(503, None));
    let time = cancelled(place.builder(), || true);
    assert!(time < MOMENT, "{time:?}");
    assert!(place.server.take_requests().len() <= 3);
}

#[test]
fn waiting_for_another_process_ends_when_it_is_cancelled() {
    let place = demo();
    let lock = place.folder(REPO).join("blobs").join(etag(&weights())).with_extension("lock");
    std::fs::create_dir_all(lock.parent().unwrap()).unwrap();
    let held = std::fs::File::create(&lock).unwrap();
    held.lock().unwrap();
    let time = cancelled(place.builder(), || true);
    assert!(time < MOMENT, "{time:?}");
    drop(held);
    recovers(&place);
}

#[test]
fn a_diagnosis_that_is_cancelled_says_so() {
    let place = demo();
    let cancel = CancellationToken::new();
    cancel.cancel();
    let report = place.builder().cancel(&cancel).diagnose(REPO);
    assert!(report.exit_code == 1 && report.reason.contains("cancelled"), "{}", report.reason);
    assert!(place.server.take_requests().is_empty());
}
