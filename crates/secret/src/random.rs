//! The one place where randomness comes in: the operating system's generator.

use rand::TryRng;
use rand::rngs::SysRng;

/// The operating system gave no random bytes.
#[derive(Debug, thiserror::Error)]
#[error("the operating system gave no random bytes: {0}")]
pub struct RandomError(#[from] rand::rngs::SysError);

/// Fills `bytes` from the operating system's generator.
pub(crate) fn fill(bytes: &mut [u8]) -> Result<(), RandomError> {
    Ok(SysRng.try_fill_bytes(bytes)?)
}
