#version 450
// w[out, inner] times rows of x[rows, inner]: y[rows, out]. FORMAT says how w is stored, ROWS how many rows of x a group
// takes: 1 for a vector. A group makes OUTS columns of them; its lanes share out the terms in runs of four, and their
// sums meet in shared memory in the order of the lanes.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "common.glsl"
#include "formats.glsl"

layout(set = 0, binding = 1, std430) readonly buffer X { float x[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint rows;
    uint outs;
    uint inner;
    // First word of the scales, for formats that keep them apart.
    uint scales;
} push;

const uint TILE = OUTS * ROWS;

shared float partial[TILE * gl_WorkGroupSize.x];

void main() {
    const uint lane = gl_LocalInvocationID.x;
    const uint column_groups = (push.outs + OUTS - 1u) / OUTS;
    const uint group = group_index();
    const uint row0 = (group / column_groups) * ROWS;
    const uint out0 = (group % column_groups) * OUTS;
    if (row0 >= push.rows) {
        return;
    }
    // Tiles that stick out repeat the last row or column; what they make of it is not stored.
    uint wi[OUTS];
    uint xi[ROWS];
    float sum[TILE];
    [[unroll]] for (uint o = 0u; o < OUTS; o++) {
        wi[o] = min(out0 + o, push.outs - 1u);
    }
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        xi[r] = min(row0 + r, push.rows - 1u) * push.inner;
    }
    [[unroll]] for (uint i = 0u; i < TILE; i++) {
        sum[i] = 0.0;
    }
    const uint whole = push.inner & ~3u;
    for (uint k = 4u * lane; k < whole; k += 4u * lanes()) {
        float xs[4 * ROWS];
        [[unroll]] for (uint r = 0u; r < ROWS; r++) {
            [[unroll]] for (uint c = 0u; c < 4u; c++) {
                xs[4u * r + c] = x[xi[r] + k + c];
            }
        }
        [[unroll]] for (uint o = 0u; o < OUTS; o++) {
            vec4 w = weights(wi[o], k, push.inner, push.scales);
            [[unroll]] for (uint r = 0u; r < ROWS; r++) {
                sum[o * ROWS + r] += w.x * xs[4u * r];
                sum[o * ROWS + r] += w.y * xs[4u * r + 1u];
                sum[o * ROWS + r] += w.z * xs[4u * r + 2u];
                sum[o * ROWS + r] += w.w * xs[4u * r + 3u];
            }
        }
    }
#if HAS_TAIL
    for (uint k = whole + lane; k < push.inner; k += lanes()) {
        [[unroll]] for (uint o = 0u; o < OUTS; o++) {
            float w = weight(wi[o] * push.inner + k);
            [[unroll]] for (uint r = 0u; r < ROWS; r++) {
                sum[o * ROWS + r] += w * x[xi[r] + k];
            }
        }
    }
#endif
    [[unroll]] for (uint i = 0u; i < TILE; i++) {
        partial[i * lanes() + lane] = sum[i];
    }
    barrier();
    for (uint i = lane; i < TILE; i += lanes()) {
        const uint o = out0 + i / ROWS;
        const uint r = row0 + i % ROWS;
        if (o < push.outs && r < push.rows) {
            float total = partial[i * lanes()];
            for (uint l = 1u; l < lanes(); l++) {
                total += partial[i * lanes() + l];
            }
            y[r * push.outs + o] = total;
        }
    }
}
