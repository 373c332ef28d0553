//! A report on files that stand for others -> the same report with the names that the user knows.

use super::{Remedy, Report};

impl Report {
    /// Writes `name` wherever the report's text names the folder `folder`.
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
    use crate::{Policy, diagnose_hub};

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
