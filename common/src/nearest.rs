//! The nearest name: what a misspelt key, column, function or connector most likely meant.

/// Longest name that is compared, in letters: comparing costs the product of two lengths.
const LETTERS_MAX: usize = 40;

/// The candidate that `name` most likely meant, if any is near.
///
/// Contract: compares without case and takes `-` for `_`; at most a third of the letters may differ. Ties go to the first.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = folded(name);
    let letters = wanted.chars().count();
    if letters > LETTERS_MAX {
        return None;
    }
    let allowed = letters.div_ceil(3);
    candidates
        .into_iter()
        .filter(|candidate| candidate.chars().take(LETTERS_MAX + 1).count().abs_diff(letters) <= allowed)
        .map(|candidate| (strsim::damerau_levenshtein(&wanted, &folded(candidate)), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

fn folded(name: &str) -> String {
    name.to_lowercase().replace('-', "_")
}

/// `; did you mean "line"?`, or nothing.
pub fn did_you_mean<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, candidates).map(|near| format!("; did you mean \"{near}\"?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_near_is_suggested() {
        assert_eq!(nearest("lin", ["word", "line"]), Some("line"));
        assert_eq!(nearest("datetime", ["dateTime"]), Some("dateTime"));
        assert_eq!(nearest("max-state-size", ["max_state_size"]), Some("max_state_size"));
        assert_eq!(nearest("x", ["auction", "bidder"]), None);
        assert_eq!(nearest(&"x".repeat(100), ["x"]), None);
    }
}
