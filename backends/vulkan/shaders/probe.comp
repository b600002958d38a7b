#version 450
// What the device does with denormals, and whether it contracts a product into a sum. One lane computes.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

// Triples a, b, c, and two halves in a word behind each.
layout(set = 0, binding = 0, std430) readonly buffer In { uint given[]; };
// For each: a + b, a * b, a * b + c as the device likes, fma(a, b, c), and both halves widened.
layout(set = 0, binding = 1, std430) writeonly buffer Out { uint found[]; };
layout(push_constant) uniform Push {
    uint count;
} push;

void main() {
    const uint i = group_index() * lanes() + gl_LocalInvocationID.x;
    if (i >= push.count) {
        return;
    }
    const float a = uintBitsToFloat(given[4u * i]);
    const float b = uintBitsToFloat(given[4u * i + 1u]);
    const float c = uintBitsToFloat(given[4u * i + 2u]);
    const vec2 halves = unpackHalf2x16(given[4u * i + 3u]);
    found[6u * i] = floatBitsToUint(a + b);
    found[6u * i + 1u] = floatBitsToUint(a * b);
    found[6u * i + 2u] = floatBitsToUint(a * b + c);
    found[6u * i + 3u] = floatBitsToUint(fma(a, b, c));
    found[6u * i + 4u] = floatBitsToUint(halves.x);
    found[6u * i + 5u] = floatBitsToUint(halves.y);
}
