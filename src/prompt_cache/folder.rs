//! The folder of a prompt cache: a file for each entry, written under a temporary name and renamed, checked before it is used, and
//! removed when the folder is full, the least recently used first. Several processes share it by a lock, which who writes holds.
//!
//! An entry: eight bytes that name the format, its version and its part, u32 each, the key, the bytes, and the CRC-32 of all. Numbers are little-endian.

use crate::decoder::{Entry, Key, Part};
use crate::error::{Error, Result, SessionFileProblem};
use crate::saved::file::{CHECKSUM, Kept, Reader, Writer, problem, replace_as};
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// The first bytes of an entry.
const MAGIC: [u8; 8] = *b"\x8cMFPAGE\n";
const VERSION: u32 = 1;
/// Bytes before those of the page.
const HEAD: usize = MAGIC.len() + 8 + size_of::<Key>();
/// The file that who writes has locked.
const LOCK: &str = ".lock";
/// For so long another process is waited for, which writes one entry.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
const PARTS: [(Part, &str); 3] = [(Part::Page, "page"), (Part::Window, "window"), (Part::State, "state")];

#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// The most bytes of all entries.
    limit: u64,
    lock: File,
    /// Who has made it and all entries that are read.
    owner: Option<u32>,
    known: Mutex<Known>,
    /// Bytes of all entries when they were asked for last.
    last_bytes: AtomicU64,
}

/// What is known of the entries.
#[derive(Debug, Default)]
struct Known {
    bytes: u64,
    /// When the folder had these.
    modified: Option<SystemTime>,
}

/// A file of the folder that is an entry.
struct Found {
    used: SystemTime,
    bytes: u64,
    path: PathBuf,
}

impl Folder {
    /// Opens the folder at `path`, and makes it where there is none.
    pub(crate) fn open(path: &Path, limit: u64) -> Result<Folder> {
        let of = |error| Error::io(path, error);
        let refused = |kind, text: String| Err(of(io::Error::new(kind, text)));
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.recursive(true).create(path).map_err(of)?;
        let path = &fs::canonicalize(path).map_err(of)?;
        let metadata = fs::metadata(path).map_err(of)?;
        #[cfg(unix)]
        {
            let mode = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o777;
            if mode & 0o077 != 0 {
                let text = format!(
                    "prompts would be kept where others may read or write (mode {mode:o}, expected 700); `chmod 700` it, or name a \
                     folder that is not there"
                );
                return refused(ErrorKind::PermissionDenied, text);
            }
        }
        let lock_path = path.join(LOCK);
        if fs::symlink_metadata(&lock_path).is_ok_and(|lock| !lock.is_file()) {
            let text = format!("{LOCK} in it is no regular file; remove that, or name another folder");
            return refused(ErrorKind::InvalidInput, text);
        }
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let lock = options.open(&lock_path).map_err(of)?;
        let owner = owner(&metadata);
        if owner != own_owner(path).map_err(of)? {
            let text = "the folder is another user's; name one of your own".to_owned();
            return refused(ErrorKind::PermissionDenied, text);
        }
        let folder =
            Folder { path: path.clone(), limit, lock, owner, known: Mutex::default(), last_bytes: AtomicU64::new(0) };
        let known = folder.locked(|known| {
            folder.trim(known, 0);
            Ok(true)
        });
        known.map_err(of)?;
        Ok(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes of all entries, as far as they are known.
    /// While one is written or read, as they were before it: nobody waits for the disk here.
    pub(crate) fn bytes(&self) -> u64 {
        if let Ok(known) = self.known.try_lock() {
            self.last_bytes.store(known.bytes, Ordering::Relaxed);
        }
        self.last_bytes.load(Ordering::Relaxed)
    }

    /// Whether there is a file for `entry`.
    pub(crate) fn has(&self, entry: &Entry) -> bool {
        fs::symlink_metadata(self.place(entry)).is_ok_and(|file| file.is_file())
    }

    /// Notes that what there is of the pages `keys`, in their order from a beginning, was used: the first ones last, so that they stay
    /// longest.
    pub(crate) fn used(&self, keys: &[Key]) {
        let now = SystemTime::now();
        for (index, key) in keys.iter().enumerate() {
            for (part, _) in PARTS {
                let file = self.opened(&self.place(&Entry { key: *key, part, index }));
                let used = now.checked_sub(Duration::from_millis(index as u64)).unwrap_or(now);
                let _ = file.and_then(|(file, _)| file.set_modified(used)); // then it is removed sooner
            }
        }
        self.recount();
    }

    /// Counts the bytes of all entries anew, if other processes have written or removed some.
    fn recount(&self) {
        let modified = self.modified();
        let known = &mut *self.known();
        if known.modified != modified {
            known.bytes = self.entries().iter().map(|found| found.bytes).sum();
            known.modified = modified;
        }
    }

    /// Reads `entry` into `parts`. What is not as it was written is removed.
    pub(crate) fn read(&self, entry: &Entry, parts: &mut [&mut [u8]]) -> Result<()> {
        let path = self.place(entry);
        let (file, bytes) = self.opened(&path).map_err(|error| Error::io(&path, error))?;
        let read = || -> Result<()> {
            let mut file = Reader::of(&path, file, bytes);
            let payload: usize = parts.iter().map(|part| part.len()).sum();
            let expected = (HEAD + payload) as u64 + CHECKSUM;
            if bytes != expected {
                return Err(file.length(expected));
            }
            let mut head = [0; HEAD];
            file.read(&mut head)?;
            if head != self::head(entry) {
                let found = head[..MAGIC.len()].to_vec();
                return Err(problem(&path, SessionFileProblem::NotASession { found, expected: MAGIC }));
            }
            parts.iter_mut().try_for_each(|part| file.read(part))?;
            file.end("page of the prompt cache")
        };
        let read = read();
        if matches!(read, Err(Error::SessionFile(_))) {
            let _ = fs::remove_file(&path);
            let known = &mut *self.known();
            known.bytes = known.bytes.saturating_sub(bytes);
        }
        read
    }

    /// Writes `entry` of `bytes`, which `fill` writes, unless it says that it cannot. Whether it was written.
    pub(crate) fn write(
        &self,
        entry: &Entry,
        bytes: u64,
        fill: impl FnOnce(&mut Writer) -> io::Result<bool>,
    ) -> Result<bool> {
        let (path, bytes) = (self.place(entry), HEAD as u64 + bytes + CHECKSUM);
        if bytes > self.limit {
            return Ok(false);
        }
        let io = |error| Error::io(&path, error);
        let mut written = Ok(false);
        let locked = self.locked(|known| {
            self.trim(known, bytes);
            let mut is_whole = true;
            written = replace_as(Kept::Privately, &path, |out| {
                out.write(&head(entry)).map_err(io)?;
                is_whole = fill(out).map_err(io)?;
                out.end().map_err(io)?;
                if is_whole { Ok(()) } else { Err(Error::Cancelled) }
            })
            .map(|()| true);
            if !is_whole {
                written = Ok(false);
            }
            known.bytes += if matches!(written, Ok(true)) { bytes } else { 0 };
            Ok(true)
        });
        if locked.map_err(io)? { written } else { Ok(false) }
    }

    /// Runs `work` while no other process writes; not if one does so for too long.
    fn locked(&self, work: impl FnOnce(&mut Known) -> io::Result<bool>) -> io::Result<bool> {
        let begun = Instant::now();
        while let Err(error) = self.lock.try_lock() {
            match error {
                fs::TryLockError::Error(error) => return Err(error),
                fs::TryLockError::WouldBlock if begun.elapsed() > LONGEST_WAIT => return Ok(false),
                fs::TryLockError::WouldBlock => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        let known = &mut *self.known();
        let done = work(known);
        known.modified = self.modified();
        let unlocked = self.lock.unlock();
        done.and_then(|done| unlocked.map(|()| done))
    }

    /// Makes room for `more` bytes, while nobody else writes: removes what was not used for longest, and a tenth of the bound besides,
    /// so that not every entry looks for room.
    fn trim(&self, known: &mut Known, more: u64) {
        if known.modified.is_some() && known.modified == self.modified() && known.bytes + more <= self.limit {
            return;
        }
        let mut found = self.found();
        known.bytes = found.iter().map(|found| found.bytes).sum();
        if known.bytes.saturating_add(more) <= self.limit {
            return;
        }
        found.sort_by(|a, b| (a.used, &a.path).cmp(&(b.used, &b.path)));
        for Found { bytes, path, .. } in found {
            if known.bytes.saturating_add(more) <= self.limit - self.limit / 10 {
                return;
            }
            if fs::remove_file(path).is_ok() {
                known.bytes -= bytes;
            }
        }
    }

    /// The entries that are there, while nobody else writes. What a process that was killed has left is removed; other files are left as
    /// they are.
    fn found(&self) -> Vec<Found> {
        for file in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let is_left = |name: &str| name.starts_with(Kept::Privately.temporary()) && name.ends_with(".tmp");
            if file.file_name().to_str().is_some_and(is_left) && file.file_type().is_ok_and(|kind| kind.is_file()) {
                let _ = fs::remove_file(file.path());
            }
        }
        self.entries()
    }

    fn entries(&self) -> Vec<Found> {
        let Ok(files) = fs::read_dir(&self.path) else { return Vec::new() };
        let found = |file: fs::DirEntry| {
            let (name, metadata) = (file.file_name().into_string().ok()?, file.metadata().ok()?);
            if !metadata.is_file() {
                return None;
            }
            let (key, part) = name.split_once('.')?;
            let is_key = key.len() == 2 * size_of::<Key>() && key.bytes().all(|byte| byte.is_ascii_hexdigit());
            let is_entry = is_key && PARTS.iter().any(|(_, name)| *name == part);
            let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            is_entry.then(|| Found { used, bytes: metadata.len(), path: file.path() })
        };
        files.filter_map(|file| found(file.ok()?)).collect()
    }

    /// A file of this user in the folder, which is no link to another place.
    fn opened(&self, path: &Path) -> io::Result<(File, u64)> {
        let named = fs::symlink_metadata(path)?;
        if !named.is_file() || owner(&named) != self.owner {
            return Err(io::Error::new(ErrorKind::InvalidInput, "no file of this user"));
        }
        let file = File::open(path)?;
        let opened = file.metadata()?;
        if !is_same(&named, &opened) {
            return Err(io::Error::new(ErrorKind::InvalidInput, "another file than a moment before"));
        }
        Ok((file, opened.len()))
    }

    fn modified(&self) -> Option<SystemTime> {
        fs::metadata(&self.path).and_then(|folder| folder.modified()).ok()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, entry: &Entry) -> PathBuf {
        use std::fmt::Write;
        let mut name = String::new();
        entry.key.iter().for_each(|byte| _ = write!(name, "{byte:02x}")); // writing to a String cannot fail
        name.push('.');
        name.push_str(PARTS[entry.part as usize].1);
        self.path.join(name)
    }
}

/// What an entry begins with.
fn head(entry: &Entry) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    let parts = [&MAGIC[..], &VERSION.to_le_bytes(), &(entry.part as u32).to_le_bytes(), &entry.key];
    head.iter_mut().zip(parts.concat()).for_each(|(to, from)| *to = from);
    head
}

/// Who owns what this process makes in the folder `path`.
fn own_owner(path: &Path) -> io::Result<Option<u32>> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let probe = path.join(format!("{}{}-probe-{number}.tmp", Kept::Privately.temporary(), std::process::id()));
    let _ = fs::remove_file(&probe);
    let made = File::create_new(&probe).and_then(|file| file.metadata());
    let _ = fs::remove_file(&probe);
    made.map(|made| owner(&made))
}

#[cfg(unix)]
fn owner(metadata: &Metadata) -> Option<u32> {
    Some(std::os::unix::fs::MetadataExt::uid(metadata))
}

#[cfg(not(unix))]
fn owner(_: &Metadata) -> Option<u32> {
    None
}

#[cfg(unix)]
fn is_same(one: &Metadata, other: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(not(unix))]
fn is_same(one: &Metadata, other: &Metadata) -> bool {
    other.is_file() && one.len() == other.len()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on says why
mod tests {
    use super::*;

    fn entry(key: u8, part: Part) -> Entry {
        Entry { key: [key; 32], part, index: 0 }
    }

    fn put(folder: &Folder, entry: &Entry, bytes: &[u8]) -> bool {
        folder.write(entry, bytes.len() as u64, |out| out.write(bytes).map(|()| true)).unwrap()
    }

    fn names(folder: &Folder) -> Vec<String> {
        let names = fs::read_dir(&folder.path).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name != LOCK).collect()
    }

    #[test]
    fn every_changed_byte_and_every_length_is_found_and_removed() {
        let outer = tempfile::tempdir().unwrap();
        let folder = Folder::open(&outer.path().join("made/here"), 1000).unwrap();
        let (own, bytes) = (entry(7, Part::Window), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert!(!folder.has(&own) && put(&folder, &own, &bytes) && folder.has(&own));
        let (path, read) = (folder.place(&own), |entry: &Entry| {
            let (mut first, mut second) = ([0; 4], [0; 5]);
            folder.read(entry, &mut [&mut first, &mut second]).map(|()| [&first[..], &second].concat())
        });
        let whole = fs::read(&path).unwrap();
        assert_eq!(read(&own).unwrap(), bytes);
        let flips = (0..whole.len() * 8).map(|bit| {
            let mut changed = whole.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            changed
        });
        let cuts = (0..whole.len()).map(|len| whole[..len].to_vec());
        let more = (1..9).map(|more| [&whole[..], &vec![0; more]].concat());
        for (index, changed) in flips.chain(cuts).chain(more).enumerate() {
            fs::write(&path, changed).unwrap();
            assert!(matches!(read(&own), Err(Error::SessionFile(_))), "{index}");
            assert!(!folder.has(&own), "{index}: it is removed");
        }
        // A sound entry by the name of another one.
        for other in [entry(8, Part::Window), entry(7, Part::Page), entry(7, Part::State)] {
            fs::write(folder.place(&other), &whole).unwrap();
            assert!(matches!(read(&other), Err(Error::SessionFile(_))));
            assert!(!folder.has(&other));
        }
    }

    #[test]
    fn what_is_not_written_to_its_end_leaves_nothing() {
        let outer = tempfile::tempdir().unwrap();
        let folder = Folder::open(&outer.path().join("prompts"), 1000).unwrap();
        let own = entry(1, Part::State);
        let given_up = folder.write(&own, 10, |out| out.write(&[1, 2]).map(|()| false));
        assert!(matches!(given_up, Ok(false)) && names(&folder).is_empty());
        let full = folder.write(&own, 10, |_| Err(ErrorKind::StorageFull.into()));
        assert!(matches!(full, Err(Error::Io { .. })) && names(&folder).is_empty() && folder.bytes() == 0);
        // What a process that was killed has left goes, and what is nobody's entry stays.
        let files = [".prompt-1-2.tmp", "other", "ff.page", ".session-1-2.tmp"];
        files.iter().for_each(|name| fs::write(folder.path.join(name), "left").unwrap());
        let anew = Folder::open(&folder.path, 1000).unwrap();
        let mut left = names(&anew);
        left.sort();
        assert_eq!((left, anew.bytes()), (vec![".session-1-2.tmp".into(), "ff.page".into(), "other".into()], 0));
    }

    #[test]
    fn what_was_used_before_goes_first_and_ends_before_beginnings() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("prompts");
        let (one, two) = (Folder::open(&path, 1000).unwrap(), Folder::open(&path, 1000).unwrap());
        // 152 bytes each, so that six fit, and four in nine tenths beside another.
        let bytes = [0; 100];
        (1..=6).for_each(|key| assert!(put(if key % 2 == 0 { &one } else { &two }, &entry(key, Part::Page), &bytes)));
        let used = |folder: &Folder, keys: &[u8]| folder.used(&keys.iter().map(|key| [*key; 32]).collect::<Vec<_>>());
        used(&two, &[4]);
        std::thread::sleep(Duration::from_millis(50));
        used(&one, &[1, 2, 3]);
        std::thread::sleep(Duration::from_millis(50));
        used(&two, &[5, 6]);
        let held = |folder: &Folder| (1..=9).filter(|key| folder.has(&entry(*key, Part::Page))).collect::<Vec<u8>>();
        for (key, expected) in [(7, &[1, 2, 5, 6, 7][..]), (8, &[1, 2, 5, 6, 7, 8]), (9, &[5, 6, 7, 8, 9])] {
            assert!(put(&one, &entry(key, Part::Page), &bytes));
            assert_eq!(held(&two), expected);
        }
        assert!(one.bytes() <= 1000);
        // What the other one has written and removed is counted when a prompt is used.
        assert_ne!(two.bytes(), one.bytes());
        used(&two, &[]);
        assert_eq!(two.bytes(), one.bytes());
        let other = Folder::open(&path, 300).unwrap();
        assert!(other.bytes() <= 300 && held(&other).len() == 1);
        assert!(!put(&other, &entry(9, Part::Page), &[0; 300]) && held(&other).len() == 1);
    }
}
