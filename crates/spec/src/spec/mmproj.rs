//! The file of its own that has the vision tower of a GGUF model -> its table, its tensors, its image processor and its tokens.

use super::reader::Reader;
use crate::block::Activation;
use crate::error::{ArchitectureErrorKind, Error, Result};
use crate::header::gguf::GgufMetadata;
use crate::header::{Fields, Projector, TensorTable};
use crate::quantization::refuse_other_layouts;
use crate::vision::processor::ImageProcessor;
use crate::vision::processor::gguf::Sides;
use crate::vision::{MmprojTable, Step, TOWERS, Tower};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// The prefix of the keys.
pub(super) const CLIP: &str = "clip";
/// What the names of tensors begin with that are for sound, and the row of the language model's embeddings that is stored again.
const ASIDE: &[&str] = &["a.", "mm.a.", "v.token_embd.img_break"];

/// The table of the tower in the file, whose language model `text` reads; what is missing where there is none.
pub(super) fn known<'a>(text: &Reader<'a>) -> Result<Result<(&'static Tower, &'a Projector), String>> {
    let Some(projector) = &text.header.projector else {
        let folder = text.header.source.folder.display();
        return Ok(Err(format!(
            "GGUF has it in a file of its own, and no mmproj*.gguf lies in {folder}; download it from the model's repository \
             into this folder, or name one by .mmproj(path)"
        )));
    };
    let keys = &projector.metadata;
    refuse_other_layouts(&projector.tensors, keys)?;
    if keys.boolean("clip.has_vision_encoder")? == Some(false) {
        return Ok(Err(format!("{} has none: clip.has_vision_encoder is false", keys.file().display())));
    }
    // Files with several towers have a key for each.
    let mut kind = None;
    for key in ["clip.projector_type", "clip.vision.projector_type"] {
        kind = kind.or(keys.text(key)?.map(|kind| (key, kind)));
    }
    let Some((key, kind)) = kind else {
        let why = "it names the kind of tower in this file";
        return Err(Error::key_missing(keys.file(), "clip.projector_type", why));
    };
    let of_kind: Vec<(&'static Tower, &MmprojTable)> = TOWERS
        .iter()
        .filter_map(|tower| Some((*tower, table(tower).filter(|table| table.projector_type == kind)?)))
        .collect();
    if of_kind.is_empty() {
        let kind: String = kind.chars().take(80).collect();
        return Ok(Err(format!("the {key} of {} is {kind}, which is not known", keys.file().display())));
    }
    let of_model = |(_, table): &&(_, &MmprojTable)| table.architectures.contains(&text.architecture.as_str());
    if let Some((tower, _)) = of_kind.iter().find(of_model) {
        return Ok(Ok((*tower, projector)));
    }
    let models: Vec<&str> = of_kind.iter().flat_map(|(_, table)| table.architectures).copied().collect();
    let one = format!("{key} is {kind}, for language models of {}", models.join(" or "));
    let other = format!("general.architecture of {} is {}", text.fields().file().display(), text.architecture);
    Err(Error::contradiction(keys.file(), one, format!("{other}: these files do not belong together")))
}

fn table(tower: &Tower) -> Option<&MmprojTable> {
    tower.mmproj.as_ref()
}

/// Refuses a tower that makes another number of lists of rows than the language model adds after its first layers.
pub(super) fn check_deepstack(text: &Reader<'_>, tower: &Tower, lists: usize) -> Result<()> {
    let (key, found) = text.gguf_number(".n_deepstack_layers")?;
    match found.filter(|found| *found != lists as u64) {
        Some(found) => {
            let other = format!("{} makes rows of {lists} blocks: these files do not belong together", tower.name);
            Err(text.contradiction(format!("{key} is {found}"), other))
        }
        None => Ok(()),
    }
}

/// The blocks of whose outputs rows are made that are added after layers of the language model, of `blocks`, and the key.
pub(super) fn deepstack(reader: &Reader<'_>, tower: &Tower, blocks: usize) -> Result<(String, Vec<usize>)> {
    let key = reader.gguf_key(table(tower).map_or("", |table| table.deepstack));
    let Some(keys) = reader.gguf().filter(|_| !key.is_empty()) else { return Ok((key, Vec::new())) };
    const WHY: &str = "it says of which blocks rows are added after layers of the language model";
    let listed = keys.booleans(&key)?.ok_or_else(|| Error::key_missing(keys.file(), &key, WHY))?;
    if listed.len() != blocks {
        let one = format!("the tower has {blocks} blocks");
        return Err(reader.contradiction(one, format!("{key} has {} entries", listed.len())));
    }
    let found: Vec<usize> = (0..blocks).filter(|block| listed[*block]).collect();
    match (found.first(), tower.deepstack) {
        (Some(_), None) => {
            Err(reader.feature("rows of blocks that are added after layers", &key, "false for each block"))
        }
        _ => Ok((key, found)),
    }
}

/// Refuses the tower of a language model of another width than `hidden`.
pub(super) fn check_width(reader: &Reader<'_>, hidden: usize) -> Result<()> {
    let (key, found) = reader.gguf_number(".vision.projection_dim")?;
    match found.filter(|found| *found != hidden as u64) {
        Some(found) => {
            let other = format!("the language model is {hidden} wide: these files do not belong together");
            Err(reader.contradiction(format!("{key} is {found}"), other))
        }
        None => Ok(()),
    }
}

/// The activation of the blocks, by the flag that is true.
pub(super) fn activation(reader: &Reader<'_>, tower: &Tower) -> Result<Activation> {
    let known = table(tower).map_or(&[][..], |table| table.activations);
    let mut found = Vec::new();
    for flag in [".use_gelu", ".use_silu"] {
        let key = reader.gguf_key(flag);
        if reader.fields().boolean(&key)? == Some(true) {
            found.push((flag, key));
        }
    }
    let expected = known.iter().map(|(flag, _)| match *flag {
        "" => "none of the flags of activations".to_owned(),
        flag => format!("{} true", reader.gguf_key(flag)),
    });
    let expected = expected.collect::<Vec<_>>().join(" or ");
    match found.as_slice() {
        // llama.cpp's own activation where neither is true.
        [] => match known.iter().find(|(flag, _)| flag.is_empty()) {
            Some((_, activation)) => Ok(*activation),
            None => Err(reader.feature("the activation quick GELU", &reader.gguf_key(".use_gelu"), &expected)),
        },
        [(flag, key)] => match known.iter().find(|(known, _)| known == flag) {
            Some((_, activation)) => Ok(*activation),
            None => Err(reader.feature(&format!("the activation of {key}"), key, &expected)),
        },
        [(_, one), (_, other), ..] => Err(reader.contradiction(format!("{one} is true"), format!("{other} is so too"))),
    }
}

/// The side in patches of the squares that become one row, by a key with its default.
pub(super) fn merge(reader: &Reader<'_>, (key, default, why): (&'static str, usize, &str)) -> Result<usize> {
    let (key, stored) = reader.gguf_number(key)?;
    let stored = stored.map(|side| reader.bounded(&key, side)).transpose()?;
    Ok(reader.or_default(stored, &key, (default, why)))
}

/// How its images are prepared.
pub(super) fn processor(reader: &Reader<'_>, keys: &GgufMetadata, tower: &Tower) -> Result<ImageProcessor> {
    let image = reader.size_if_any(tower.patches.image_size)?.unwrap_or_default();
    let patch = reader.size_or_table(tower.patches.patch_size)?;
    let joined =
        tower.projector.iter().find_map(|step| if let Step::Merge { gguf, .. } = step { Some(*gguf) } else { None });
    let merge = match joined {
        // Its default is noted where the projector is read.
        Some((key, default, _)) if !keys.has(&reader.gguf_key(key)) => (key, default),
        Some(gguf) => (gguf.0, merge(reader, gguf)?),
        None => (tower.patches.squares.gguf, reader.squares(tower)?.unwrap_or(1)),
    };
    let class = tower.processors.first().copied().unwrap_or_default();
    let (frames, pixels) = table(tower).map_or((1, None), |table| (table.frames, table.pixels));
    ImageProcessor::of_mmproj(keys, class, Sides { image, patch, merge, frames, pixels })
}

/// The id of the token for which `config.json` has `key`, in the vocabulary of the language model that `text` reads.
pub(super) fn token(text: &Reader<'_>, tower: &Tower, key: &str) -> Result<u64> {
    const TOKENS: &str = "tokenizer.ggml.tokens";
    let texts = table(tower).and_then(|table| table.tokens.iter().find(|(known, _)| *known == key));
    let texts: &[&'static str] = texts.map_or(&[], |(_, texts)| texts);
    let tokens = text.gguf().map_or(Ok(None), |keys| keys.strings(TOKENS))?;
    let find = |text: &'static str| Some((text, tokens?.iter().position(|token| token == text.as_bytes())? as u64));
    let Some((found, id)) = texts.iter().copied().find_map(find) else {
        let one = format!("{TOKENS} has no {}", texts.join(" and no "));
        return Err(text.contradiction(one, format!("{} puts images into prompts by it", tower.name)));
    };
    if let Some(first) = texts.first().filter(|first| **first != found) {
        text.assume(format!("the rows of images stand in the places of {found}: {TOKENS} has no {first}"));
    }
    Ok(id)
}

/// The tensors of the tower by the names of today's converter.
pub(super) fn tensors<'a>(
    projector: &'a Projector,
    tower: &Tower,
    reader: &Reader<'_>,
) -> Result<Cow<'a, TensorTable>> {
    let names = |layer: usize, part: &str, end: &str| format!("v.blk.{layer}.ffn_{part}.{end}");
    let (hidden, width) =
        (reader.size(tower.encoder.files.keys.hidden)?, reader.size(tower.encoder.files.keys.feed_forward)?);
    let exchanged = |layer: usize| {
        let down = projector.tensors.get(&names(layer, "down", "weight"));
        let inputs = down.and_then(|down| down.shape.last().copied());
        hidden != width && inputs.is_some() && inputs == hidden.map(|hidden| hidden as u64)
    };
    if !table(tower).is_some_and(|table| table.exchanged) || !exchanged(0) {
        return Ok(Cow::Borrowed(&projector.tensors));
    }
    let mut tensors = projector.tensors.clone();
    for layer in (0..).take_while(|layer| exchanged(*layer)) {
        for end in ["weight", "bias"] {
            let [up, down] = ["up", "down"].map(|part| names(layer, part, end));
            let (was_up, was_down) = (tensors.remove(&up), tensors.remove(&down));
            tensors.extend(was_down.map(|tensor| (up, tensor)).into_iter().chain(was_up.map(|tensor| (down, tensor))));
        }
    }
    reader.assume("ffn_up and ffn_down are exchanged, as llama.cpp's older converters wrote them");
    Ok(Cow::Owned(tensors))
}

/// The tensors that no role asked for and that are not for images.
///
/// # Errors
/// `UnknownTensors` for all others.
pub(super) fn unused(projector: &Projector, used: &BTreeSet<String>, tower: &Tower) -> Result<Vec<String>> {
    let left = projector.tensors.keys().filter(|name| !used.contains(*name)).cloned();
    let (aside, names): (Vec<_>, Vec<_>) = left.partition(|name| ASIDE.iter().any(|front| name.starts_with(front)));
    match names.is_empty() {
        true => Ok(aside),
        false => Err(Error::UnknownTensors { file: projector.metadata.file().into(), family: tower.encoder.id, names }),
    }
}

/// The error for a tower that is absent or not known.
pub(super) fn no_tower(text: &Reader<'_>, missing: String) -> Error {
    let file = text.header.projector.as_ref().map_or(text.fields().file(), |projector| projector.metadata.file());
    Error::Architecture { file: file.into(), kind: ArchitectureErrorKind::NoTower { missing } }
}
