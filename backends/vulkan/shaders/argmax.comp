#version 450
// The first maximum, in two stages. The first stage reduces each group's share of the logits to a key and an index; the
// second one, of one group, reduces those. Keys are unsigned integers in the order of the contract: NaN lowest, except in
// front, where it is highest; -0 equals 0.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(set = 0, binding = 0, std430) readonly buffer In { uint source[]; };
// Pairs of key and index.
layout(set = 0, binding = 1, std430) writeonly buffer Out { uint best[]; };
layout(push_constant) uniform Push {
    // Logits, or pairs in the second stage.
    uint count;
    // Of them to a group.
    uint each;
    uint second;
} push;

shared uint key_of[gl_WorkGroupSize.x];
shared uint index_of[gl_WorkGroupSize.x];

uint key(uint bits, uint index) {
    if ((bits & 0x7fffffffu) > INFINITY_BITS) {
        return index == 0u ? 0xffffffffu : 0u;
    }
    if ((bits & 0x7fffffffu) == 0u) {
        return 0x80000000u;
    }
    return (bits & 0x80000000u) != 0u ? ~bits : bits | 0x80000000u;
}

void main() {
    const uint lane = gl_LocalInvocationID.x;
    const uint group = group_index();
    const uint begin = group * push.each;
    if (begin >= push.count) {
        return;
    }
    const uint end = min(begin + push.each, push.count);
    uint top = 0u;
    uint at = 0xffffffffu;
    for (uint i = begin + lane; i < end; i += lanes()) {
        const uint k = push.second != 0u ? source[2u * i] : key(source[i], i);
        const uint index = push.second != 0u ? source[2u * i + 1u] : i;
        // Indices rise, so that the first of equals stays.
        if (at == 0xffffffffu || k > top) {
            top = k;
            at = index;
        }
    }
    key_of[lane] = top;
    index_of[lane] = at;
    barrier();
    if (lane == 0u) {
        for (uint l = 1u; l < lanes(); l++) {
            const bool empty = index_of[l] == 0xffffffffu;
            if (!empty && (key_of[l] > top || (key_of[l] == top && index_of[l] < at))) {
                top = key_of[l];
                at = index_of[l];
            }
        }
        best[2u * group] = top;
        best[2u * group + 1u] = at;
    }
}
