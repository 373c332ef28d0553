//! What came is what the Hub describes, or it is no file of the cache.

use super::faults::{ALWAYS, REPO, WEIGHTS, demo, fault, part, recovers, weights};
use super::fixture;
use super::server::{Kind, etag};
use model_factory::hub::HubError;

/// The server's tags by other programs: `sha256sum` and `git hash-object`.
#[test]
fn the_tags_of_the_server_are_those_of_the_hub() {
    assert_eq!(etag(&weights()), "001396bae7e86999296704c0f9242deb829d275bf1ad6338998047f18f1919cd");
    assert_eq!(etag(&fixture("demo/config.json")), "66c93e2fd0c86475a56a2f017a75530d4427c39a");
}

/// Bytes of the weights with one changed.
fn torn(bytes: usize) -> Vec<u8> {
    let mut torn = std::fs::read(weights()).unwrap();
    torn.truncate(bytes);
    torn[bytes / 2] ^= 1;
    torn
}

#[test]
fn a_part_with_wrong_bytes_is_begun_anew() {
    let size = std::fs::metadata(weights()).unwrap().len();
    // As long as the file; half of it.
    for (bytes, starts) in [(size, vec![0, 0, 0]), (size / 2, vec![0, 0, size / 2, 0])] {
        let place = demo();
        std::fs::create_dir_all(part(&place).parent().unwrap()).unwrap();
        std::fs::write(part(&place), torn(bytes as usize)).unwrap();
        recovers(&place);
        let requests = place.server.take_requests();
        let found: Vec<u64> = requests.iter().filter(|r| r.at_store).filter_map(|r| r.start).collect();
        assert_eq!(found, starts, "the header, the length, and the file, of {bytes} bytes");
        assert!(!part(&place).exists());
    }
}

#[test]
fn one_wrong_answer_is_asked_for_again() {
    let place = demo();
    place.load_until_weights();
    place.server.fault("/store", 1, Kind::Wrong);
    place.load(REPO).unwrap();
    assert_eq!(place.server.faults_left(), 0);
    recovers(&place);
}

const SMALL: &str = "tokenizer_config.json";
const SMALL_AT: &str = "/cached/org/demo/resolve/0123456789abcdef0123456789abcdef01234567/tokenizer_config.json";

#[test]
fn a_server_that_always_sends_other_bytes_is_told_and_nothing_of_it_is_kept() {
    for (name, at) in [(WEIGHTS, "/store"), (SMALL, SMALL_AT)] {
        let place = demo();
        // The diagnosis reads of the weights, and a download asks for their length; a small file comes once.
        place.server.fault(at, if name == WEIGHTS { 2 } else { 0 }, Kind::Short(0));
        place.server.fault(at, ALWAYS, Kind::Wrong);
        let right = etag(&fixture("demo").join(name));
        match fault(&place, REPO) {
            HubError::Digest { file, found, expected } => {
                assert_eq!((file.as_str(), expected), (name, right.clone()));
                assert!(found.len() == right.len() && found != right, "{found}");
            }
            error => panic!("{name}: {error:?}"),
        }
        let blob = place.folder(REPO).join("blobs").join(&right);
        assert!(!place.cached(REPO, name).exists() && !blob.exists() && !blob.with_extension("part").exists());
        recovers(&place);
    }
}

const SHA1: &str = "d4d2b662ea7057a33afba31f997f3a67a4202747";

/// A mirror may have tags that are no digest: the length is all that can be checked then.
#[test]
fn a_tag_that_is_no_digest_is_a_name_alone() {
    let place = demo();
    place.server.fault(SMALL_AT, ALWAYS, Kind::Etag("a-mirror-s-own"));
    place.load(REPO).unwrap();
    assert!(place.folder(REPO).join("blobs/a-mirror-s-own").is_file());
}

/// Or the plain SHA-1, by `sha1sum`, which is as long as git's blob id.
#[test]
fn a_tag_that_is_the_plain_sha1_is_right_too() {
    let place = demo();
    place.server.fault(SMALL_AT, ALWAYS, Kind::Etag(SHA1));
    place.load(REPO).unwrap();
    assert!(place.folder(REPO).join("blobs").join(SHA1).is_file());
}

#[test]
fn a_listing_of_more_files_than_any_model_has_is_an_error() {
    for (count, end, what) in [(100_001, ".txt", "files"), (2_001, ".gguf", "GGUF files")] {
        let place = demo();
        place.server.fault("/api/models", 1, Kind::Listing(count, end));
        match fault(&place, REPO) {
            HubError::TooManyFiles { what: told, found, .. } => assert_eq!((told, found), (what, count)),
            error => panic!("{error:?}"),
        }
    }
    // One fewer is looked at; what grows with the square of their number takes far longer than this bound, which a busy machine keeps.
    let place = demo();
    place.server.fault("/api/models", 1, Kind::Listing(2_000, "-Q4_K_M.gguf"));
    let start = std::time::Instant::now();
    assert_eq!(place.builder().diagnose(REPO).input.candidates.len(), 2_000);
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}
