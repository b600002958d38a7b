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

layout(set = 0, binding = 0, std430) readonly buffer W { uint w[]; };

#define HAS_TAIL (FORMAT == F32 || FORMAT == F16 || FORMAT == BF16)

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

#if FORMAT == F32
float weight(uint i) {
    return uintBitsToFloat(w[i]);
}
#elif FORMAT == F16 || FORMAT == BF16
float weight(uint i) {
    const vec2 both = pair(w[i >> 1]);
    return (i & 1u) == 0u ? both.x : both.y;
}
#endif

// Elements k to k + 3 of a row; k is a multiple of 4.
vec4 weights(uint row, uint k, uint inner, uint scales) {
#if FORMAT == F32
    const uint i = row * inner + k;
    return uintBitsToFloat(uvec4(w[i], w[i + 1u], w[i + 2u], w[i + 3u]));
#elif FORMAT == F16 || FORMAT == BF16
    const uint i = row * inner + k;
    if ((inner & 1u) == 0u) {
        return vec4(pair(w[i >> 1]), pair(w[(i >> 1) + 1u]));
    }
    return vec4(weight(i), weight(i + 1u), weight(i + 2u), weight(i + 3u));
#elif FORMAT == Q8_0
    const uint i = row * (inner / 4u) + k / 4u;
    const float d = uintBitsToFloat(w[scales + i / 8u]);
    const int word = int(w[i]);
    return vec4(ivec4(word << 24, word << 16, word << 8, word) >> 24) * d;
#else
    const uint block = (row * (inner / 256u) + k / 256u) * 36u;
    const uint j = (k / 32u) % 8u;
    // Six bits of scale and of minimum: eight pairs in twelve bytes.
    const uint b0 = w[block + 1u];
    const uint b1 = w[block + 2u];
    const uint b2 = w[block + 3u];
    const uint shift = 8u * (j % 4u);
    uint scale;
    uint minimum;
    if (j < 4u) {
        scale = (b0 >> shift) & 63u;
        minimum = (b1 >> shift) & 63u;
    } else {
        const uint rest = b2 >> shift;
        scale = (rest & 15u) | (((b0 >> shift) >> 2) & 48u);
        minimum = ((rest >> 4) & 15u) | (((b1 >> shift) >> 2) & 48u);
    }
    const vec2 d = pair(w[block]);
    const uint word = w[block + 4u + (k % 256u) / 64u * 8u + (k % 32u) / 4u] >> (4u * (j & 1u));
    const vec4 codes = vec4(uvec4(word, word >> 8, word >> 16, word >> 24) & 15u);
    // Both products are exact in f32; their difference rounds once.
    return codes * (d.x * float(scale)) - d.y * float(minimum);
#endif
}
