// How weights are stored, and their values in f32.
//   F32   one word each
//   F16   two in a word, IEEE 754 binary16
//   BF16  two in a word, the upper half of an f32
//   Q8_0  signed codes, four in a word, and apart from them one f32 scale for every 32
//   Q4_K  GGUF super-blocks of 256 in 36 words
#define F32 0
#define F16 1
#define BF16 2
#define Q8_0 3
#define Q4_K 4

// False where the device's own conversion loses denormals of 16 bits.
layout(constant_id = 1) const bool UNPACK_IS_EXACT = true;

float half_by_bits(uint h) {
    const uint magnitude = h & 0x7fffu;
    const float sign = (h & 0x8000u) != 0u ? -1.0 : 1.0;
    if (magnitude < 0x400u) {
        return sign * (float(magnitude) * 5.9604644775390625e-8);
    }
    const uint exponent = magnitude >= 0x7c00u ? 0x70000000u : 0x38000000u;
    return uintBitsToFloat(((h & 0x8000u) << 16) | ((magnitude << 13) + exponent));
}

// Both values of a word of two.
vec2 pair(uint word) {
#if FORMAT == BF16
    return vec2(uintBitsToFloat(word << 16), uintBitsToFloat(word & 0xffff0000u));
#else
    if (UNPACK_IS_EXACT) {
        return unpackHalf2x16(word);
    }
    return vec2(half_by_bits(word & 0xffffu), half_by_bits(word >> 16));
#endif
}

// Scale and minimum of sub-block j of a q4_k super-block: eight pairs of six bits in twelve bytes.
uvec2 scale_and_minimum(uvec3 packed, uint j) {
    const uint shift = 8u * (j % 4u);
    const uvec3 bytes = packed >> shift;
    if (j < 4u) {
        return bytes.xy & 63u;
    }
    return uvec2(bytes.z & 15u, (bytes.z >> 4) & 15u) | ((bytes.xy >> 2) & 48u);
}
