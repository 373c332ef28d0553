//! A diagnosis of files in one folder -> of the same files in another; a report on stand-in files -> the same report
//! with the names that the user knows.

use crate::report::Remedy;
use crate::{Diagnosis, Ready, Report};
use std::path::Path;

impl Diagnosis {
    /// Changes the diagnosis to the files in the folder `to`, which are the same as those in the folder `from`: paths
    /// and the texts of the report then name `to`.
    #[doc(hidden)] // for the Hub's downloads
    pub fn relocate(&mut self, from: &Path, to: &Path) {
        let (old, new) = (from.display().to_string(), to.display().to_string());
        self.report.rename(&old, &new);
        let Some(Ready { header, spec, .. }) = &mut self.ready else { return };
        let texts = header.source.notes.iter_mut().chain(&mut header.warnings).chain(&mut spec.assumptions);
        for text in texts.chain(&mut spec.tokenizer.assumptions) {
            *text = text.replace(&old, &new);
        }
        let templates = spec.tokenizer.chat_templates.values_mut().map(|template| &mut template.place.file);
        let processor = spec.vision.iter_mut().map(|tower| &mut tower.processor.file);
        for path in header.paths().chain(templates).chain(processor) {
            if let Ok(inside) = path.strip_prefix(from) {
                // Joining an empty path would add a slash to the path of the folder itself.
                *path = if inside.as_os_str().is_empty() { to.into() } else { to.join(inside) };
            }
        }
    }
}

impl Report {
    /// Replaces the folder `folder` by `name` in all texts of the report.
    pub fn rename(&mut self, folder: &str, name: &str) {
        let remedies = self.remedies.iter_mut().filter_map(Remedy::words);
        let texts = [&mut self.reason].into_iter().chain(remedies);
        let of_models = self.input.models.iter_mut().flat_map(|model| [&mut model.path, &mut model.reason]);
        let texts = texts.chain(&mut self.input.candidates).chain(of_models).chain(&mut self.input.warnings);
        let of_model = self.model.iter_mut().flat_map(|model| &mut model.assumptions);
        let of_checks = self.checks.iter_mut().flat_map(|check| {
            let remedies = check.remedies.iter_mut().filter_map(Remedy::words);
            [&mut check.summary, &mut check.evidence].into_iter().chain(remedies)
        });
        for text in texts.chain(of_model).chain(of_checks) {
            if text.contains(folder) {
                *text = text.replace(folder, name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::family::REGISTRY;
    use crate::hardware::profiles::PROFILES;
    use crate::report::HubModel;
    use crate::{Hardware, Policy, diagnose_hub, diagnose_with};
    use std::fs;
    use std::path::Path;

    #[test]
    fn a_diagnosis_that_goes_on_elsewhere_names_no_file_of_before() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures");
        let copy = |folder: &str, to: &Path| {
            fs::create_dir(to).unwrap();
            for entry in fs::read_dir(fixtures.join(folder)).unwrap().map(Result::unwrap) {
                if entry.path().is_file() {
                    fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
                }
            }
        };
        let (hardware, policy) = (Hardware::detect(), Policy::default());
        for (folder, file, without) in [
            ("demo", "config.json", ""),
            ("models/llama-3.1/f32-sharded", "", ""),
            ("models/llama-256/split", "llama-256-q8_0-00001-of-00003.gguf", ""),
            ("models/tinyllama/bf16", "", "tokenizer.json"),
        ] {
            let folders = tempfile::tempdir().unwrap();
            let (here, there) = (folders.path().join("here"), folders.path().join("there"));
            copy(folder, &here);
            if !without.is_empty() {
                fs::remove_file(here.join(without)).unwrap();
            }
            fs::write(here.join("chat_template.jinja"), "{{ messages }}").unwrap();
            let path = |folder: &Path| if file.is_empty() { folder.into() } else { folder.join(file) };
            let mut moved = diagnose_with(REGISTRY, &path(&here), &hardware, &policy);
            assert!(moved.ready.is_some(), "{folder}: {}", moved.report);
            moved.relocate(&here, &there);
            fs::rename(&here, &there).unwrap();
            let read = diagnose_with(REGISTRY, &path(&there), &hardware, &policy);
            let (moved, read) = (format!("{:?}", moved.ready), format!("{:?}", read.ready));
            let names = |text: &str| text.matches(there.to_str().unwrap()).count();
            assert!(names(&read) > 0 && !moved.contains(here.to_str().unwrap()), "{folder}: {moved}");
            assert_eq!(names(&moved), names(&read), "{folder}");
        }
    }
    #[test]
    fn a_folder_that_stands_for_another_is_named_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.json"), "{").unwrap();
        std::fs::write(folder.path().join("model.safetensors"), [2, 0, 0, 0, 0, 0, 0, 0, b'{', b'}']).unwrap();
        let (repo, revision) = ("org/name".to_owned(), Some("v1".to_owned()));
        let model = HubModel { repo, wanted: None, revision, files: Vec::new() };
        let hardware = PROFILES[0].hardware();
        let mut report = diagnose_hub(REGISTRY, folder.path(), &model, &hardware, &Policy::default()).report;
        let path = folder.path().display().to_string();
        assert!(report.reason.contains(&path), "{}", report.reason);
        report.rename(&path, "org/name");
        assert_eq!(report.input.path, "org/name@v1");
        assert!(report.reason.contains("org/name/config.json"), "{}", report.reason);
        for text in [report.to_json(), report.to_string()] {
            assert!(!text.contains(&path), "{text}");
        }
    }
}
