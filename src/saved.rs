//! A session -> a file, and a file -> a session that goes on with the same bits.
//!
//! The file: eight bytes that name the format, its version and the length of the header, u32 each; the header, which is
//! JSON; the ids, u32 each; the vectors of each image, F32; the pages of the cache as they lie in memory (of the last one the used positions), each followed by
//! that of layers with a window where the next position sees one; the state of
//! layers without attention. Header with preamble, ids, each image, each page and the state each end with the CRC-32 of all bytes
//! up to there. All numbers outside of the JSON are little-endian, except
//! ids and pages, which have the byte order of the machine; the header names its architecture.

mod adapters;
pub(crate) mod file;
mod header;
mod images;

use crate::adapter::Adapter;
use crate::cpu::CpuDevice;
use crate::decoder::{Compute, Decoder, KvCache, PageKind, PageMemory, Parts};
use crate::error::{Error, Result, SessionFileProblem};
use crate::fingerprint::{FileDigest, Fingerprint, WeightsDigest};
use crate::memory;
use crate::model::Model;
use crate::session::Session;
use file::{CHECKSUM, Reader, Writer, problem};
use header::{Header, Identity, shown};
use model_factory_diagnostics::plan::{self, KV_PAGE, KvSize};
use model_factory_diagnostics::spec::ModelSpec;
use sha2::{Digest, Sha256};
use std::env::consts::{ARCH, OS};
use std::fmt;
use std::ops::Range;
use std::path::Path;
use tracing::{Span, field, info_span};

/// The first bytes of a file: they are not text, and not those of another known format.
const MAGIC: [u8; 8] = *b"\x8cMFSESS\n";
/// The version of the format that is written, and the only one that is read.
const VERSION: u32 = 3;
/// Bytes before the header.
const PREAMBLE: usize = 16;
/// The longest header: that of a model in a thousand files takes a quarter.
const LONGEST_HEADER: u32 = 1 << 20;

impl Session {
    /// Writes the ids and the KV cache into a file, from which [`Model::restore`] makes a session that continues with the same
    /// bits in any process. `digest` says how weights are recognized. The file takes `ids * (4 + cache bytes of a token)` and 2 KB,
    /// and the vectors of its images.
    ///
    /// A file at `path` is replaced atomically, when all is on the disk: after an error, or when the process ends, the old one is
    /// still there. If the process ends meanwhile, a file `.session-*.tmp` may stay next to it.
    ///
    /// ```
    /// use model_factory::UnifiedModelFactory;
    /// use model_factory::session::WeightsDigest;
    ///
    /// let model = UnifiedModelFactory::load("fixtures/demo-q4_k_m.gguf")?;
    /// let mut session = model.session();
    /// session.next_logits(&model.tokenizer().encode("Once upon a time", true)?)?;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("once.session");
    /// session.save(&path, WeightsDigest::Sampled)?;
    /// let mut restored = model.restore(&path)?;
    /// assert_eq!(restored.ids(), session.ids());
    /// assert_eq!(*restored.next_logits(&[100])?, *session.next_logits(&[100])?);
    /// # Ok::<(), model_factory::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Io`; `SessionFile` for a model on a GPU.
    pub fn save(&self, path: impl AsRef<Path>, digest: WeightsDigest) -> Result<()> {
        self.save_to(path.as_ref(), digest)
    }

    fn save_to(&self, path: &Path, digest: WeightsDigest) -> Result<()> {
        let model = self.model();
        let span = info_span!("save", path = %path.display(), tokens = self.len(), bytes = field::Empty).entered();
        let (decoder, fingerprint) = on_processor(model, path)?;
        let (cache, rotation) = self.cache();
        // What other adapters made is computed again.
        let cache = cache.filter(|cache| cache.adapters() == self.adapters());
        let cached = cache.map_or(0, |cache| cache.len().min(self.len())); // guesses follow and are left out
        let (pages, state) = cache.map_or((&[][..], None), KvCache::held);
        let kv = KvSize::of_cpu(model.spec(), decoder.device().kv_dtype());
        let identity = identity(model.spec(), decoder.device(), digest, fingerprint.digests(digest));
        let (images, adapters) = (images::described(self.input()), adapters::described(self.adapters()));
        let header = Header { identity, rotation, ids: self.len() as u64, images, adapters, cached: cached as u64 };
        file::replace(path, |out| {
            let io = |error| Error::io(path, error);
            write_header(out, &header).map_err(io)?;
            out.write(bytemuck::cast_slice(self.ids())).and_then(|()| out.end()).map_err(io)?;
            images::write(out, self.input()).map_err(io)?;
            for (index, kind, slots) in used(kv, cached) {
                let page = pages[index].of(kind).map(PageMemory::words);
                let page = page.ok_or_else(|| Error::Internal("a page is not there".into()))?;
                let device = decoder.device();
                device
                    .each_used((kind, slots), |used| out.write(&bytemuck::cast_slice(page)[used]))
                    .and_then(|()| out.end())
                    .map_err(io)?;
            }
            if let Some(state) = state.filter(|_| cached > 0) {
                state.bytes().try_for_each(|bytes| out.write(bytes)).and_then(|()| out.end()).map_err(io)?;
            }
            span.record("bytes", out.bytes);
            Ok(())
        })
    }
}

impl Model {
    /// The session that [`Session::save`] wrote at `path`. It gives the same bits as the saved one would have: its
    /// next logits, and those of all appended tokens. A page of the file is read at a time, into its place in the cache. It
    /// is not shared with other sessions that begin alike, whatever [`prefix_caching`](crate::ModelBuilder::prefix_caching)
    /// says; [`fork`](Session::fork) shares it.
    ///
    /// # Errors
    /// `SessionFile` when the file is damaged, or was saved with another model, another dtype of the KV cache, another
    /// level of instruction sets or by another version of the library; `CacheBudget` as for a prompt of that length;
    /// `OutOfMemory`; `Io`. What a file claims takes no more memory than its bytes.
    pub fn restore(&self, path: impl AsRef<Path>) -> Result<Session> {
        self.restore_with(path, &[])
    }

    /// Like [`restore`](Self::restore), for a session that was saved with adapters: those of the file are found among `adapters`, and
    /// their factors are the file's.
    ///
    /// # Errors
    /// The errors of [`restore`](Self::restore), and `SessionFile` for an adapter of the file that is not given; `Adapter` for one of
    /// another model.
    pub fn restore_with(&self, path: impl AsRef<Path>, adapters: &[Adapter]) -> Result<Session> {
        self.restore_from(path.as_ref(), adapters)
    }

    fn restore_from(&self, path: &Path, adapters: &[Adapter]) -> Result<Session> {
        let _span =
            info_span!("restore", path = %path.display(), tokens = field::Empty, bytes = field::Empty).entered();
        let (decoder, fingerprint) = on_processor(self, path)?;
        let mut file = Reader::open(path)?;
        let header = read_header(&mut file)?;
        let digest = header.identity.digest;
        let expected = identity(self.spec(), decoder.device(), digest, fingerprint.digests(digest));
        if let Some(difference) = header.identity.difference(&expected) {
            return Err(file.problem(difference));
        }
        let adapters = adapters::found(&file, &header.adapters, adapters, self)?;
        let (ids, cached) = self.counts(&header, &file)?;
        let kv = KvSize::of_cpu(self.spec(), decoder.device().kv_dtype());
        let bytes = file.position + body_bytes(decoder.device(), kv, ids, cached) + state_bytes(self.spec(), cached);
        let bytes = bytes.saturating_add(images::bytes(&header.images, self.spec().hidden));
        if file.bytes != bytes {
            return Err(file.length(bytes));
        }
        Span::current().record("tokens", ids).record("bytes", bytes);
        let ids = self.read_ids(&mut file, ids)?;
        let input = images::read(&mut file, &header.images, ids, self)?;
        let mut cache = decoder.cache();
        cache.set_adapters(&adapters);
        cache.reserve(cached)?;
        let Parts { pages, state, .. } = cache.restoring(cached)?;
        for (index, kind, slots) in used(kv, cached) {
            let page = bytemuck::cast_slice_mut(pages[index].of_mut(kind)?.words_mut());
            decoder.device().each_used((kind, slots), |used| file.read(&mut page[used]))?;
            file.end("page of the KV cache")?;
        }
        if let Some(state) = state.filter(|_| cached > 0) {
            state.bytes_mut(cached).try_for_each(|bytes| file.read(bytes))?;
            file.end("state of the sequence")?;
        }
        cache.restored(cached);
        Ok(Session::from_parts(self.clone(), input, Some(cache), header.rotation))
    }

    /// The number of ids and of cached positions of a file, checked against what a session can have.
    fn counts(&self, header: &Header, file: &Reader<'_>) -> Result<(usize, usize)> {
        let limit = self.context_length();
        if header.ids > limit as u64 {
            return Err(file.problem(SessionFileProblem::Context { found: header.ids, limit }));
        }
        if header.cached > header.ids {
            let expected = format_args!("at most {}, its ids", header.ids);
            return Err(file.malformed("number of cached positions", header.cached, expected));
        }
        Ok((header.ids as usize, header.cached as usize))
    }

    fn read_ids(&self, file: &mut Reader<'_>, count: usize) -> Result<Vec<u32>> {
        let mut ids: Vec<u32> = memory::zeros(count, "the ids of a session")?;
        file.read(bytemuck::cast_slice_mut(&mut ids))?;
        file.end("list of ids")?;
        let vocab = self.spec().vocab;
        match ids.iter().find(|id| **id as usize >= vocab) {
            None => Ok(ids),
            Some(id) => {
                let expected = format_args!("an id below {vocab}, the size of the vocabulary");
                Err(file.malformed("token", id, expected))
            }
        }
    }
}

/// The decoder of `model` on the processor, and the fingerprint of its weights.
fn on_processor<'m>(model: &'m Model, path: &Path) -> Result<(&'m Decoder<CpuDevice>, &'m Fingerprint)> {
    let both = model.decoder().zip(model.inner.engine.fingerprint.as_deref());
    both.ok_or_else(|| problem(path, SessionFileProblem::Device))
}

impl Model {
    /// A short text that is another one where the bits of an answer may be others: with another version, other weights, instructions
    /// of the processor or dtypes. Reads up to 1 MiB of each file of weights when it is first asked for. `None` on a GPU.
    #[doc(hidden)]
    pub fn system_fingerprint(&self) -> Option<&str> {
        let (decoder, fingerprint) = self.decoder().zip(self.inner.engine.fingerprint.as_deref())?;
        let make = || {
            let digest = WeightsDigest::Sampled;
            let identity = identity(self.spec(), decoder.device(), digest, fingerprint.digests(digest));
            let described = serde_json::to_vec(&identity).unwrap_or_default(); // texts and numbers: they can be written
            let digest = Sha256::digest(described);
            digest[..8].iter().fold(String::from("b"), |text, byte| format!("{text}{byte:02x}"))
        };
        Some(fingerprint.system.get_or_init(make))
    }
}

/// Everything that the bits of a session of `model` depend on.
pub(crate) fn identity(
    spec: &ModelSpec,
    device: &CpuDevice,
    digest: WeightsDigest,
    weights: &[FileDigest],
) -> Identity {
    let decoded = (spec.family, spec.heads, spec.feed_forward, &spec.ropes, spec.multipliers, &spec.weights);
    Identity {
        library: concat!(env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION")).into(),
        model: spec.variant.clone(),
        architecture: spec.architecture.clone(),
        quantization: spec.quantization.clone(),
        layers: spec.layers() as u64,
        hidden: spec.hidden as u64,
        kv_heads: spec.kv_heads as u64,
        head_dim: spec.head_dim as u64,
        vocab: spec.vocab as u64,
        spec: sum_of(&decoded),
        instructions: format!("{ARCH}-{OS} {}", device.isa()),
        kv_cache: device.kv_dtype().to_string(),
        activations: device.activations().to_string(),
        digest,
        weights: weights.to_vec(),
    }
}

/// A sum of what `Debug` writes of `value`, which is exact for numbers. It may change with the library's version, which is compared first.
fn sum_of(value: &dyn fmt::Debug) -> u32 {
    struct Sum(crc32fast::Hasher);

    impl fmt::Write for Sum {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.update(text.as_bytes());
            Ok(())
        }
    }

    let mut sum = Sum(crc32fast::Hasher::new());
    // The sum takes every text.
    let _ = fmt::write(&mut sum, format_args!("{value:?}"));
    sum.0.finalize()
}

/// The pages of `cached` positions, in their order: the index of each, its kind, and how many of its positions are used.
fn used(kv: KvSize, cached: usize) -> impl Iterator<Item = (usize, PageKind, usize)> {
    let seen = kv.first_seen(cached) / KV_PAGE;
    (0..cached.div_ceil(KV_PAGE)).flat_map(move |index| {
        let windowed = (kv.window_page > 0 && index >= seen).then_some(PageKind::Window);
        let slots = (cached - index * KV_PAGE).min(KV_PAGE);
        [Some(PageKind::Full), windowed].into_iter().flatten().map(move |kind| (index, kind, slots))
    })
}

/// Bytes of the state, which comes after the pages in a model that has states.
fn state_bytes(spec: &ModelSpec, cached: usize) -> u64 {
    match plan::state_bytes(spec) {
        bytes @ 1.. if cached > 0 => bytes + CHECKSUM,
        _ => 0,
    }
}

/// Bytes after the header up to the last page.
fn body_bytes(device: &CpuDevice, kv: KvSize, ids: usize, cached: usize) -> u64 {
    let page = |(_, kind, slots)| {
        let mut bytes = CHECKSUM;
        let _ = device.each_used((kind, slots), |used: Range<usize>| {
            bytes += used.len() as u64;
            Ok::<(), std::convert::Infallible>(())
        });
        bytes
    };
    4 * ids as u64 + CHECKSUM + used(kv, cached).map(page).sum::<u64>()
}

fn write_header(out: &mut Writer, header: &Header) -> std::io::Result<()> {
    let header = serde_json::to_vec(header)?;
    out.write(&MAGIC)?;
    out.write(&VERSION.to_le_bytes())?;
    out.write(&(header.len() as u32).to_le_bytes())?;
    out.write(&header)?;
    out.end()
}

fn read_header(file: &mut Reader<'_>) -> Result<Header> {
    let mut preamble = [0; PREAMBLE];
    let there = preamble.len().min(file.bytes as usize);
    file.read(&mut preamble[..there])?;
    let (magic, numbers) = preamble.split_at(MAGIC.len());
    if magic != MAGIC {
        let found = preamble[..there.min(MAGIC.len())].to_vec();
        return Err(file.problem(SessionFileProblem::NotASession { found, expected: MAGIC }));
    }
    if there < PREAMBLE {
        return Err(file.length(PREAMBLE as u64));
    }
    let [version, length] = [0, 4].map(|at| u32::from_le_bytes(std::array::from_fn(|byte| numbers[at + byte])));
    if version != VERSION {
        return Err(file.problem(SessionFileProblem::Version { found: version, expected: VERSION }));
    }
    if length > LONGEST_HEADER {
        return Err(file.malformed("length of the header", length, format_args!("at most {LONGEST_HEADER}")));
    }
    let end = PREAMBLE as u64 + u64::from(length) + CHECKSUM;
    if file.bytes < end {
        return Err(file.length(end));
    }
    let mut header: Vec<u8> = memory::zeros(length as usize, "the header of a session")?;
    file.read(&mut header)?;
    file.end("header")?;
    serde_json::from_slice(&header)
        .map_err(|error| file.malformed("header", shown(&error.to_string()), "what a session is saved with"))
}
