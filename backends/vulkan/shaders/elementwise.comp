#version 450
// Ops on single elements: OP is SWIGLU (y = silu(a) * b), ADD (y += a) or BIAS (y[row] += a). Each lane takes EACH elements.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

#define SWIGLU 0
#define ADD 1
#define BIAS 2

const uint EACH = 4u;

layout(set = 0, binding = 0, std430) readonly buffer A { float a[]; };
#if OP == SWIGLU
layout(set = 0, binding = 1, std430) readonly buffer B { float b[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Y { float y[]; };
#else
layout(set = 0, binding = 1, std430) buffer Y { float y[]; };
#endif
layout(push_constant) uniform Push {
    uint count;
    // Length of a row.
    uint n;
} push;

// 1 / (1 + e^-z), from an exponential that cannot overflow.
float sigmoid(float z) {
    const float e = exp_f32(-abs(z));
    return (z >= 0.0 ? 1.0 : e) / (1.0 + e);
}

void main() {
    const uint first = group_index() * lanes() * EACH + gl_LocalInvocationID.x;
    for (uint step = 0u; step < EACH; step++) {
        const uint i = first + step * lanes();
        if (i < push.count) {
#if OP == SWIGLU
            const float z = a[i];
            y[i] = z * sigmoid(z) * b[i];
#elif OP == ADD
            y[i] += a[i];
#else
            y[i] += a[i % push.n];
#endif
        }
    }
}
