// The weights of matmul.comp, word by word.
#include "words.glsl"

layout(set = 0, binding = 0, std430) readonly buffer W { uint w[]; };

#define HAS_TAIL (FORMAT == F32 || FORMAT == F16 || FORMAT == BF16)

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
    const uvec2 packed = scale_and_minimum(uvec3(w[block + 1u], w[block + 2u], w[block + 3u]), j);
    const vec2 d = pair(w[block]);
    const uint word = w[block + 4u + (k % 256u) / 64u * 8u + (k % 32u) / 4u] >> (4u * (j & 1u));
    const vec4 codes = vec4(uvec4(word, word >> 8, word >> 16, word >> 24) & 15u);
    // Both products are exact in f32; their difference rounds once.
    return codes * (d.x * float(packed.x)) - d.y * float(packed.y);
#endif
}
