//! What else may lie where the cache has its own files: it is refused by name, at once and untouched.

use super::faults::{REPO, demo, recovers, weights};
use super::server::{COMMIT, etag};
use super::{Place, refused};
use model_factory::Error;
use model_factory::hub::HubError;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::Duration;

/// The path of the error, after `load`, which must not hang, said what it found.
fn strange(result: Result<(), Error>, found: &str) -> PathBuf {
    match result {
        Err(Error::Hub(error @ HubError::NotAFile { .. })) => {
            let text = error.to_string();
            let HubError::NotAFile { path, found: was } = error else { unreachable!() };
            assert!(was.contains(found), "{was}, expected {found}");
            assert!(text.contains(path.to_str().unwrap()) && text.contains("move it away"), "{text}");
            assert_eq!(Error::from(HubError::NotAFile { path: path.clone(), found: was }).code(), 1);
            path
        }
        other => panic!("expected {found}, found {other:?}"),
    }
}

/// What `load` gives, within half a minute.
fn in_time<T: Send + 'static>(load: impl FnOnce() -> T + Send + 'static) -> T {
    let (out, result) = channel();
    std::thread::spawn(move || out.send(load()));
    result.recv_timeout(Duration::from_secs(30)).expect("it hangs")
}

/// Loads the demo from `place`.
fn load(place: &Place) -> Result<(), Error> {
    let builder = place.builder();
    in_time(move || builder.load(REPO).map(drop))
}

fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// What is put in the place of one of the cache's own files.
struct Stranger {
    kind: &'static str,
    put: fn(&Path, &Path),
}

const STRANGERS: [Stranger; 4] = [
    Stranger { kind: "a link", put: |at, outside| symlink(outside, at).unwrap() },
    Stranger { kind: "a link", put: |at, outside| symlink(outside.with_extension("absent"), at).unwrap() },
    Stranger { kind: "a pipe", put: |at, _| pipe(at) },
    Stranger { kind: "a folder", put: |at, _| fs::create_dir(at).unwrap() },
];

/// A place with `stranger` as the file `name`, and a file outside of the cache, which a link names.
fn with_stranger(name: &Path, stranger: &Stranger) -> (Place, PathBuf, tempfile::TempDir, PathBuf) {
    let (place, outside) = (demo(), tempfile::tempdir().unwrap());
    let (at, target) = (place.folder(REPO).join(name), outside.path().join("mine.txt"));
    fs::create_dir_all(at.parent().unwrap()).unwrap();
    fs::write(&target, "mine").unwrap();
    (stranger.put)(&at, &target);
    (place, at, outside, target)
}

/// The name of the weights' file in the cache that ends with `extension`.
fn blob(extension: &str) -> PathBuf {
    Path::new("blobs").join(etag(&weights())).with_extension(extension)
}

#[test]
fn nothing_but_a_file_is_a_lock_or_a_part() {
    for extension in ["lock", "part"] {
        for stranger in &STRANGERS {
            let (place, at, outside, target) = with_stranger(&blob(extension), stranger);
            assert_eq!(strange(load(&place), stranger.kind), at, "{extension}, {}", stranger.kind);
            assert_eq!(fs::read(&target).unwrap(), b"mine", "{extension}, {}", stranger.kind);
            assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1, "{extension}, {}", stranger.kind);
            if at.is_dir() && !at.is_symlink() {
                fs::remove_dir(&at).unwrap()
            } else {
                fs::remove_file(&at).unwrap()
            }
            recovers(&place);
        }
    }
}

#[test]
fn a_part_that_is_another_file_too_is_not_written() {
    let hard = Stranger { kind: "another name", put: |at, outside| fs::hard_link(outside, at).unwrap() };
    let (place, at, _outside, target) = with_stranger(&blob("part"), &hard);
    assert_eq!(strange(load(&place), hard.kind), at);
    assert_eq!(fs::read(&target).unwrap(), b"mine");
    fs::remove_file(&at).unwrap();
    recovers(&place);
}

#[test]
fn a_lock_keeps_what_another_program_wrote_into_it() {
    let place = demo();
    let lock = place.folder(REPO).join(blob("lock"));
    fs::create_dir_all(lock.parent().unwrap()).unwrap();
    fs::write(&lock, "pid 7").unwrap();
    load(&place).unwrap();
    assert_eq!(fs::read(&lock).unwrap(), b"pid 7");
}

#[test]
fn nothing_but_a_file_is_a_reference() {
    for stranger in STRANGERS.iter().filter(|stranger| stranger.kind != "a link") {
        let (place, at, outside, _) = with_stranger(Path::new("refs/main"), stranger);
        // When it is written, and when it is read.
        assert_eq!(strange(load(&place), stranger.kind), at, "{}", stranger.kind);
        let offline = place.offline();
        assert_eq!(strange(in_time(move || offline.load(REPO).map(drop)), stranger.kind), at, "{}", stranger.kind);
        let offline = place.offline();
        let report = in_time(move || offline.diagnose(REPO));
        assert!(report.exit_code == 1 && report.reason.contains("move it away"), "{}", report.reason);
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1, "{}", stranger.kind);
    }
}

/// A cache that a tool made of links is read; what is written takes the place of the link and not of its target.
#[test]
fn a_reference_that_is_a_link_is_read_and_never_written_through() {
    for stranger in STRANGERS.iter().filter(|stranger| stranger.kind == "a link") {
        let (place, at, outside, target) = with_stranger(Path::new("refs/main"), stranger);
        load(&place).unwrap();
        assert!(!at.is_symlink() && fs::read_to_string(&at).unwrap() == COMMIT);
        assert_eq!((fs::read(&target).unwrap(), fs::read_dir(outside.path()).unwrap().count()), (b"mine".into(), 1));
        fs::write(&target, COMMIT).unwrap();
        fs::remove_file(&at).unwrap();
        symlink(&target, &at).unwrap();
        let offline = place.offline();
        in_time(move || offline.load(REPO).map(drop)).unwrap();
        // A pipe that a link leads to is none.
        fs::remove_file(&target).unwrap();
        pipe(&target);
        let offline = place.offline();
        assert_eq!(strange(in_time(move || offline.load(REPO).map(drop)), "a link"), at);
    }
}

#[test]
fn a_cache_folder_with_a_pipe_for_a_reference_is_diagnosed() {
    let place = demo();
    load(&place).unwrap();
    let main = place.folder(REPO).join("refs/main");
    fs::remove_file(&main).unwrap();
    pipe(&main);
    let (builder, folder) = (place.builder(), place.folder(REPO));
    let report = in_time(move || builder.diagnose(folder));
    assert_eq!(report.exit_code, 0, "the only snapshot: {}", report.reason);
    assert!(report.input.files[0].name.contains("model") && place.cached(REPO, "config.json").exists());
    // Of two snapshots none is chosen.
    fs::create_dir(place.folder(REPO).join("snapshots").join(COMMIT.replace(|_| true, "0"))).unwrap();
    let (builder, folder) = (place.builder(), place.folder(REPO));
    assert_eq!(refused(in_time(move || builder.load(folder))).exit_code, 16);
}
