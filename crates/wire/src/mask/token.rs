//! What a word of a text is, as far as secrets are concerned.

/// Prefixes of keys and ids; what follows is masked with them from the given number of characters on.
const PREFIXES: [(&str, usize); 36] = [
    ("sk-", 3),
    ("sk_", 3),
    ("pk-", 6),
    ("pk_", 6),
    ("rk-", 6),
    ("rk_", 6),
    ("wb-", 4),
    ("wb_", 4),
    ("wbk_", 4),
    ("wba_", 4),
    ("gsk_", 4),
    ("xai-", 6),
    ("aiza", 8),
    ("akia", 8),
    ("asia", 12),
    ("ghp_", 4),
    ("gho_", 4),
    ("ghs_", 4),
    ("github_pat_", 4),
    ("glpat-", 4),
    ("hf_", 6),
    ("r8_", 6),
    ("nvapi-", 4),
    ("pplx-", 8),
    ("fw_", 8),
    ("tgp_", 8),
    ("ya29.", 4),
    ("eyj", 12),
    ("xoxb-", 4),
    ("xoxp-", 4),
    ("sess-", 6),
    ("org-", 8),
    ("org_", 8),
    ("proj_", 6),
    ("proj-", 8),
    ("acct_", 6),
];
/// Words whose value is a secret, compared without case and without `-` and `_`.
const SECRET_NAMES: [&str; 16] = [
    "key",
    "apikey",
    "accesskey",
    "secretkey",
    "token",
    "accesstoken",
    "secret",
    "password",
    "passwd",
    "pwd",
    "authorization",
    "credential",
    "credentials",
    "signature",
    "cookie",
    "provided",
];
/// A run of token characters this long that mixes letters and digits is taken for a secret.
const LONG_RUN: usize = 20;
/// A run of letters alone this long is too.
const LONG_LETTERS: usize = 40;

pub(super) enum Token<'a> {
    /// The name of a secret, or `Bearer` and the like: the next word is the secret.
    Name,
    /// A lone `:` or `=`.
    Sign,
    /// `name=value` with a secret's name; `name` includes the sign.
    Assigned { name: &'a str },
    /// Any other word.
    Plain,
}

/// Judges a word by itself and by whether a `:` or `=` follows behind a quote or space.
pub(super) fn judge(word: &str, sign_follows: bool) -> Token<'_> {
    if word.chars().all(|c| matches!(c, ':' | '=')) {
        return Token::Sign;
    }
    let lower = word.to_ascii_lowercase();
    if matches!(lower.trim_end_matches(':'), "bearer" | "basic") {
        return Token::Name;
    }
    if word.contains("://") {
        return Token::Plain;
    }
    if let Some(at) = word.find([':', '=']) {
        let (name, value) = (word.get(..at).unwrap_or_default(), word.get(at + 1..).unwrap_or_default());
        if is_secret_name(name) {
            let value_is_next = value.chars().all(|c| matches!(c, ':' | '='));
            return if value_is_next {
                Token::Name
            } else {
                Token::Assigned { name: word.get(..=at).unwrap_or_default() }
            };
        }
        return Token::Plain;
    }
    // `"api_key":"…"` and `key = …`: the sign comes as a word of its own, behind the quote or space.
    if sign_follows && is_secret_name(word) {
        return Token::Name;
    }
    Token::Plain
}

fn is_secret_name(name: &str) -> bool {
    let bare: String = name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    // `x-api-key`, `user_password`: the end of a compound name counts.
    let compound = name.contains(['_', '-', '.', '?', '&']);
    SECRET_NAMES.iter().any(|secret| bare == *secret || compound && bare.ends_with(secret))
}

/// Writes a word with its secret parts masked.
pub(super) fn write_masked(word: &str, mask: &str, out: &mut String) {
    if let Some((scheme, rest)) = word.split_once("://") {
        return write_url(scheme, rest, mask, out);
    }
    if is_email(word) {
        out.push_str(mask);
        return;
    }
    write_runs(word, mask, out);
}

/// Scheme, host and path stay; user, query and fragment don't.
fn write_url(scheme: &str, rest: &str, mask: &str, out: &mut String) {
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    let (place, query) = rest.split_at(end);
    let host_end = place.find('/').unwrap_or(place.len());
    let (authority, path) = place.split_at(host_end);
    write_runs(scheme, mask, out);
    out.push_str("://");
    match authority.rsplit_once('@') {
        Some((_, host)) => {
            out.push_str(mask);
            out.push('@');
            write_runs(host, mask, out);
        }
        None => write_runs(authority, mask, out),
    }
    for segment in path.split_inclusive('/') {
        write_runs(segment, mask, out);
    }
    if query.len() > 1 {
        out.push('?');
        out.push_str(mask);
    }
}

fn is_email(word: &str) -> bool {
    word.split_once('@').is_some_and(|(user, host)| {
        user.ends_with(|c: char| c.is_alphanumeric())
            && host.contains('.')
            && host.starts_with(|c: char| c.is_alphanumeric())
    })
}

fn write_runs(word: &str, mask: &str, out: &mut String) {
    let mut rest = word;
    while !rest.is_empty() {
        let length = rest.find(|c| !is_token_char(c)).unwrap_or(rest.len());
        let (run, after) = rest.split_at(length);
        let gap = after.find(is_token_char).unwrap_or(after.len());
        let (others, next) = after.split_at(gap);
        if is_secret(run) {
            out.push_str(mask)
        } else {
            out.push_str(run)
        }
        out.push_str(others);
        rest = next;
    }
}

fn is_token_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '*' | '.' | '+' | '/' | '=' | '~' | '%' | '•' | '…')
}

fn is_secret(run: &str) -> bool {
    if run.contains("***") {
        return true;
    }
    // Paths and dotted names are long without being secret, so each part is judged, and the whole only as base64.
    if run.split(['.', '/', '=', '%', '+', '~', '…', '•', '*']).any(|part| has_prefix(part) || is_long_mix(part)) {
        return true;
    }
    has_prefix(run) || run.len() >= 2 * LONG_RUN && !run.contains('.') && is_base64_like(run)
}

fn has_prefix(run: &str) -> bool {
    let run = run.trim_start_matches(['-', '_']);
    PREFIXES.iter().any(|(prefix, least)| {
        run.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
            && run.len() >= prefix.len() + least
    })
}

fn is_long_mix(run: &str) -> bool {
    if run.len() < LONG_RUN {
        return false;
    }
    let digits = run.bytes().filter(u8::is_ascii_digit).count();
    let letters = run.bytes().filter(u8::is_ascii_alphabetic).count();
    let digits_alone = letters == 0 && digits >= LONG_RUN;
    digits_alone || digits > 0 && letters > 0 || letters >= LONG_LETTERS
}

fn is_base64_like(run: &str) -> bool {
    run.bytes().any(|b| b.is_ascii_digit())
        && run.bytes().any(|b| b.is_ascii_uppercase())
        && run.bytes().any(|b| b.is_ascii_lowercase())
        && run.contains(['+', '/', '='])
}
