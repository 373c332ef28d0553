//! A report on files that stand for others -> the same report with the names that the user knows.

use super::Report;
use super::commands::quoted;

impl Report {
    /// Calls the input `input`, also in commands, and writes `name` wherever the report's text names the folder `folder`.
    pub fn rename(&mut self, input: &str, folder: &str, name: &str) {
        let (before, after) = (quoted(&self.input.path), quoted(input));
        let commands = self.distribution.iter_mut().flat_map(|plan| &mut plan.commands);
        for command in self.commands.iter_mut().chain(commands) {
            *command = command.replace(&before, &after);
        }
        let texts = [&mut self.reason].into_iter().chain(&mut self.remedies);
        let texts = texts.chain(&mut self.commands);
        let texts = texts.chain(self.distribution.iter_mut().flat_map(|plan| &mut plan.commands));
        let of_models = self.input.models.iter_mut().flat_map(|model| [&mut model.path, &mut model.reason]);
        let texts = texts.chain(&mut self.input.candidates).chain(of_models).chain(&mut self.input.warnings);
        let of_model = self.model.iter_mut().flat_map(|model| &mut model.assumptions);
        let of_checks = self.checks.iter_mut().flat_map(|check| {
            let texts = [&mut check.summary, &mut check.evidence].into_iter().chain(&mut check.remedy);
            texts.chain(&mut check.more_remedies)
        });
        for text in texts.chain(of_model).chain(of_checks) {
            if text.contains(folder) {
                *text = text.replace(folder, name);
            }
        }
        self.input.path = input.into();
    }
}

#[cfg(test)]
mod tests {
    use crate::hardware::profiles::PROFILES;
    use crate::{Policy, diagnose};

    #[test]
    fn a_folder_that_stands_for_another_is_named_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.json"), "{").unwrap();
        std::fs::write(folder.path().join("model.safetensors"), [2, 0, 0, 0, 0, 0, 0, 0, b'{', b'}']).unwrap();
        let mut report = diagnose(folder.path(), &PROFILES[0].hardware(), &Policy::default());
        let path = folder.path().display().to_string();
        assert!(report.reason.contains(&path), "{}", report.reason);
        report.rename("org/name@main", &path, "org/name");
        assert_eq!(report.input.path, "org/name@main");
        assert!(report.reason.contains("org/name/config.json"), "{}", report.reason);
        for text in [report.to_json(), report.to_string()] {
            assert!(!text.contains(&path), "{text}");
        }
    }
}
