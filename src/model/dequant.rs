//! Stored encodings of weights and their decoding to f32.

use half::{bf16, f16};

/// How the rows of a stored tensor are encoded. Blocks never cross a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of a binary32.
    Bf16,
    /// 32 four-bit codes around 8, one scale (18 bytes).
    Q4_0,
    /// 32 four-bit codes, scale and minimum (20 bytes).
    Q4_1,
    /// 32 five-bit codes around 16, one scale (22 bytes).
    Q5_0,
    /// 32 five-bit codes, scale and minimum (24 bytes).
    Q5_1,
    /// 32 signed bytes, one scale (34 bytes).
    Q8_0,
    /// 256 four-bit codes, eight packed scales and minima (144 bytes).
    Q4K,
    /// 256 five-bit codes, eight packed scales and minima (176 bytes).
    Q5K,
    /// 256 six-bit codes around 32, sixteen scales (210 bytes).
    Q6K,
}

impl Encoding {
    /// Every encoding that can be decoded.
    pub const ALL: [Encoding; 11] = [
        Encoding::F32,
        Encoding::F16,
        Encoding::Bf16,
        Encoding::Q4_0,
        Encoding::Q4_1,
        Encoding::Q5_0,
        Encoding::Q5_1,
        Encoding::Q8_0,
        Encoding::Q4K,
        Encoding::Q5K,
        Encoding::Q6K,
    ];

    /// The name that GGUF and safetensors use.
    pub fn as_str(self) -> &'static str {
        match self {
            Encoding::F32 => "F32",
            Encoding::F16 => "F16",
            Encoding::Bf16 => "BF16",
            Encoding::Q4_0 => "Q4_0",
            Encoding::Q4_1 => "Q4_1",
            Encoding::Q5_0 => "Q5_0",
            Encoding::Q5_1 => "Q5_1",
            Encoding::Q8_0 => "Q8_0",
            Encoding::Q4K => "Q4_K",
            Encoding::Q5K => "Q5_K",
            Encoding::Q6K => "Q6_K",
        }
    }

    /// Elements of one block.
    pub fn block_elements(self) -> usize {
        match self {
            Encoding::F32 | Encoding::F16 | Encoding::Bf16 => 1,
            Encoding::Q4K | Encoding::Q5K | Encoding::Q6K => 256,
            _ => 32,
        }
    }

    /// Bytes of one block.
    pub fn block_bytes(self) -> usize {
        match self {
            Encoding::F32 => 4,
            Encoding::F16 | Encoding::Bf16 => 2,
            Encoding::Q4_0 => 18,
            Encoding::Q4_1 => 20,
            Encoding::Q5_0 => 22,
            Encoding::Q5_1 => 24,
            Encoding::Q8_0 => 34,
            Encoding::Q4K => 144,
            Encoding::Q5K => 176,
            Encoding::Q6K => 210,
        }
    }

    /// Bytes of a row of `elements`, or `None` if they are not whole blocks or the size overflows.
    pub fn row_bytes(self, elements: usize) -> Option<usize> {
        if !elements.is_multiple_of(self.block_elements()) {
            return None;
        }
        (elements / self.block_elements()).checked_mul(self.block_bytes())
    }

    /// Decodes whole blocks of `raw` into `out`, whose length is the number of elements in `raw`.
    pub(super) fn decode(self, raw: &[u8], out: &mut [f32]) {
        let blocks = raw.chunks_exact(self.block_bytes()).zip(out.chunks_exact_mut(self.block_elements()));
        for (block, out) in blocks {
            match self {
                Encoding::F32 => out[0] = f32::from_le_bytes([block[0], block[1], block[2], block[3]]),
                Encoding::F16 => out[0] = half_at(block, 0),
                Encoding::Bf16 => out[0] = bf16::from_le_bytes([block[0], block[1]]).to_f32(),
                Encoding::Q4_0 => {
                    let d = half_at(block, 0);
                    nibbles(&block[2..], |k, code| out[k] = d * f32::from(i16::from(code) - 8));
                }
                Encoding::Q4_1 => {
                    let (d, m) = (half_at(block, 0), half_at(block, 2));
                    nibbles(&block[4..], |k, code| out[k] = d * f32::from(code) + m);
                }
                Encoding::Q5_0 => {
                    let (d, high) = (half_at(block, 0), word_at(block, 2));
                    nibbles(&block[6..], |k, code| {
                        out[k] = d * f32::from(i16::from(code | fifth(high, k)) - 16);
                    });
                }
                Encoding::Q5_1 => {
                    let (d, m, high) = (half_at(block, 0), half_at(block, 2), word_at(block, 4));
                    nibbles(&block[8..], |k, code| out[k] = d * f32::from(code | fifth(high, k)) + m);
                }
                Encoding::Q8_0 => {
                    let d = half_at(block, 0);
                    for (out, code) in out.iter_mut().zip(&block[2..]) {
                        *out = d * f32::from(code.cast_signed());
                    }
                }
                Encoding::Q4K => decode_k(&block[..16], None, &block[16..], out),
                Encoding::Q5K => decode_k(&block[..16], Some(&block[16..48]), &block[48..], out),
                Encoding::Q6K => decode_q6k(block, out),
            }
        }
    }
}

impl std::fmt::Display for Encoding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

fn word_at(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

/// Calls `put(element, code)` for the 32 codes of 16 bytes: low nibbles come first.
fn nibbles(codes: &[u8], mut put: impl FnMut(usize, u8)) {
    for (k, byte) in codes.iter().enumerate() {
        put(k, byte & 15);
        put(k + 16, byte >> 4);
    }
}

/// The fifth bit of element `k`, in place.
fn fifth(high: u32, k: usize) -> u8 {
    if (high >> k) & 1 == 1 { 16 } else { 0 }
}

/// Q4_K and Q5_K: `head` holds d, dmin and twelve bytes of packed scales; `high` one bit plane for each group.
fn decode_k(head: &[u8], high: Option<&[u8]>, codes: &[u8], out: &mut [f32]) {
    let (d, dmin, packed) = (half_at(head, 0), half_at(head, 2), &head[4..16]);
    for (group, out) in out.chunks_exact_mut(32).enumerate() {
        let (scale, min) = if group < 4 {
            (packed[group] & 63, packed[group + 4] & 63)
        } else {
            let low = packed[group + 4];
            ((low & 15) | ((packed[group - 4] >> 6) << 4), (low >> 4) | ((packed[group] >> 6) << 4))
        };
        let (scale, min) = (d * f32::from(scale), dmin * f32::from(min));
        let bytes = &codes[(group / 2) * 32..][..32];
        for (k, (out, byte)) in out.iter_mut().zip(bytes).enumerate() {
            let low = if group % 2 == 0 { byte & 15 } else { byte >> 4 };
            let bit = high.map_or(0, |plane| ((plane[k] >> group) & 1) << 4);
            *out = scale * f32::from(low | bit) - min;
        }
    }
}

fn decode_q6k(block: &[u8], out: &mut [f32]) {
    let (low, high, scales, d) = (&block[..128], &block[128..192], &block[192..208], half_at(block, 208));
    for (k, out) in out.iter_mut().enumerate() {
        // Each half of 128 elements has 64 low bytes and 32 high bytes; a quarter of it is 32 elements.
        let (half, quarter, j) = (k / 128, (k % 128) / 32, k % 32);
        let byte = low[half * 64 + (quarter % 2) * 32 + j];
        let nibble = if quarter < 2 { byte & 15 } else { byte >> 4 };
        let top = (high[half * 32 + j] >> (2 * quarter)) & 3;
        let code = i16::from(nibble | (top << 4)) - 32;
        *out = (d * f32::from(scales[k / 16].cast_signed())) * f32::from(code);
    }
}
