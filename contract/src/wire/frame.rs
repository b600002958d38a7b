//! Frames: a length-capped JSON header and a body of raw tensor bytes.

use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Transport;

/// Largest header in bytes.
pub const HEADER_LIMIT: u32 = 64 << 10;
/// Bytes of a body that are read at a time, so that a length that lies makes nobody allocate.
const PIECE: usize = 1 << 20;

/// Why a frame could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The header is longer than [`HEADER_LIMIT`], or empty.
    #[error("a header of {length} bytes: expected 1 to {HEADER_LIMIT}")]
    Header {
        /// Its length.
        length: u32,
    },
    /// The body is longer than the reader takes.
    #[error("a body of {length} bytes: expected at most {limit}")]
    Body {
        /// Its length.
        length: u64,
        /// The most that is taken.
        limit: u64,
    },
    /// The header is not the JSON of a message.
    #[error("the header is no message: {reason}; it begins {start:?}")]
    Json {
        /// What the parser says.
        reason: String,
        /// The first characters.
        start: String,
    },
    /// The stream failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Sends one frame: `u32` header length, `u64` body length (both little-endian), header, body.
///
/// # Errors
/// [`FrameError::Header`] if the message is too long, [`FrameError::Io`].
pub fn write<M: Serialize>(
    transport: &mut impl Transport,
    message: &M,
    body: &[u8],
) -> Result<(), FrameError> {
    let header = serde_json::to_vec(message)
        .map_err(|e| FrameError::Json { reason: e.to_string(), start: String::new() })?;
    let length = u32::try_from(header.len()).unwrap_or(u32::MAX);
    if length > HEADER_LIMIT {
        return Err(FrameError::Header { length });
    }
    let mut start = Vec::with_capacity(12 + header.len());
    start.extend(length.to_le_bytes());
    start.extend((body.len() as u64).to_le_bytes());
    start.extend(header);
    transport.send(&start)?;
    if !body.is_empty() {
        transport.send(body)?;
    }
    Ok(())
}

/// Receives one frame whose body has at most `limit` bytes.
///
/// # Errors
/// Every [`FrameError`]; nothing is allocated for a length that is refused.
pub fn read<M: DeserializeOwned>(
    transport: &mut impl Transport,
    limit: u64,
) -> Result<(M, Vec<u8>), FrameError> {
    let mut lengths = [0; 12];
    transport.receive(&mut lengths)?;
    let [h0, h1, h2, h3, body @ ..] = lengths;
    let (header, length) = (u32::from_le_bytes([h0, h1, h2, h3]), u64::from_le_bytes(body));
    if header == 0 || header > HEADER_LIMIT {
        return Err(FrameError::Header { length: header });
    }
    if length > limit {
        return Err(FrameError::Body { length, limit });
    }
    let mut text = vec![0; header as usize];
    transport.receive(&mut text)?;
    let message = serde_json::from_slice(&text).map_err(|e| FrameError::Json {
        reason: e.to_string(),
        start: String::from_utf8_lossy(&text).chars().take(40).collect(),
    })?;
    let mut body = Vec::new();
    let mut left = length;
    while left > 0 {
        let piece = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
        let from = body.len();
        body.resize(from + piece, 0);
        transport.receive(&mut body[from..])?;
        left -= piece as u64;
    }
    Ok((message, body))
}
