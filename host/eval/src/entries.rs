//! Lists of settings in one value: `name=value,name=(a,b)`.

/// Calls `set` with each name and value of `text`; `form` says what an entry must be.
pub(crate) fn entries(
    text: &str,
    form: &str,
    mut set: impl FnMut(&str, &str) -> Result<(), String>,
) -> Result<(), String> {
    let mut seen = Vec::new();
    for part in parts(text) {
        let entry = part.split_once('=').filter(|(_, value)| !value.is_empty());
        let (name, value) = entry.ok_or_else(|| format!("`{part}`: must be {form}"))?;
        set(name, value)?;
        if seen.contains(&name) {
            return Err(format!("`{name}` is repeated"));
        }
        seen.push(name);
    }
    Ok(())
}

/// What is between the commas of `text` that are not in parentheses.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_u32;
    let separates = move |c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    };
    text.split(separates).map(str::trim)
}
