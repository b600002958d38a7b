#version 450
// x / sqrt(mean(x^2) + eps) * weight for each row; a group takes one row.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(set = 0, binding = 0, std430) readonly buffer X { float x[]; };
layout(set = 0, binding = 1, std430) readonly buffer W { float weight[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint rows;
    uint n;
    float eps;
} push;

shared float partial[gl_WorkGroupSize.x];

void main() {
    const uint lane = gl_LocalInvocationID.x;
    const uint row = group_index();
    if (row >= push.rows) {
        return;
    }
    const uint first = row * push.n;
    float sum = 0.0;
    for (uint i = lane; i < push.n; i += lanes()) {
        const float v = x[first + i];
        sum += v * v;
    }
    partial[lane] = sum;
    barrier();
    float total = partial[0];
    for (uint l = 1u; l < lanes(); l++) {
        total += partial[l];
    }
    const float inverse = inversesqrt(total / float(push.n) + push.eps);
    for (uint i = lane; i < push.n; i += lanes()) {
        y[first + i] = x[first + i] * inverse * weight[i];
    }
}
