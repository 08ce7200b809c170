//! `docs/config.md`, made from the embedded defaults and their comments.

use super::DEFAULTS;

/// The reference of all settings, as Markdown.
pub fn reference_markdown() -> String {
    let mut text = String::from(
        "# Configuration of JobManager and TaskManager\n\nMade from `common/src/config/default.yaml`; do not edit.\n\n\
         Later layers win: defaults, the file of `--config`, environment variables (`LEVADA__TASKMANAGER__SLOTS=4`), `--set taskmanager.slots=4`.\n\
         Durations are `100ms`, `10s`, `1h30m`; sizes are `64KiB`, `10MiB` or a number of bytes. An unknown key or a value out of range ends the start with exit code 2.\n\n\
         | key | default | meaning |\n|---|---|---|\n",
    );
    let mut path: Vec<&str> = Vec::new();
    for line in DEFAULTS.lines().filter(|line| !line.trim().is_empty()) {
        let depth = (line.len() - line.trim_start().len()) / 2;
        path.truncate(depth);
        let (setting, meaning) = line.split_once(" #").unwrap_or((line, ""));
        let (key, value) = setting.trim().split_once(':').expect("each line of the defaults has a key");
        path.push(key);
        if !value.trim().is_empty() {
            text += &format!("| `{}` | `{}` | {} |\n", path.join("."), value.trim(), meaning.trim());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/config.md");
        let made = reference_markdown();
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(path, &made).expect("docs/ is writable");
        }
        let kept = std::fs::read_to_string(path).unwrap_or_default();
        assert!(made == kept, "docs/config.md is old; UPDATE_GOLDEN=1 cargo test -p levada-common writes it anew");
    }
}
