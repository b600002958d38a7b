#version 450
// Grouped-query attention with an online softmax: no score is ever stored in device memory.
// A group takes one head of one query row and CHUNK of its elements; positions come in tiles. Lane l holds the elements
// l, l + lanes, ... of the query and of the result.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "common.glsl"

layout(set = 0, binding = 0, std430) readonly buffer Q { float q[]; };
layout(set = 0, binding = 1, std430) readonly buffer K { float keys[]; };
layout(set = 0, binding = 2, std430) readonly buffer V { float values[]; };
layout(set = 0, binding = 3, std430) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint rows;
    uint held;
    uint kv_heads;
    uint group;
    uint dim;
    uint causal;
    uint chunks;
    float scale;
} push;

// Positions in a tile.
const uint TILE = 16u;
// Elements of the result, and of the query in registers, to a lane.
const uint EACH = 8u;

shared float part[TILE * gl_WorkGroupSize.x];
shared float score[TILE];
shared float share[TILE];

void main() {
    const uint lane = gl_LocalInvocationID.x;
    const uint heads = push.kv_heads * push.group;
    const uint index = group_index();
    const uint chunk = index % push.chunks;
    const uint head = (index / push.chunks) % heads;
    const uint row = index / push.chunks / heads;
    if (row >= push.rows) {
        return;
    }
    const uint seen = push.causal != 0u ? push.held - push.rows + 1u + row : push.held;
    const uint stride = push.kv_heads * push.dim;
    const uint kv = (head / push.group) * push.dim;
    const uint q0 = (row * heads + head) * push.dim;
    const uint d0 = chunk * lanes() * EACH + lane;

    float query[EACH];
    float sum[EACH];
    [[unroll]] for (uint e = 0u; e < EACH; e++) {
        const uint d = lane + e * lanes();
        query[e] = d < push.dim ? q[q0 + d] : 0.0;
        sum[e] = 0.0;
    }
    const float lowest = uintBitsToFloat(0xff800000u);
    float highest = lowest;
    float total = 0.0;
    for (uint tile = 0u; tile < seen; tile += TILE) {
        const uint count = min(TILE, seen - tile);
        for (uint j = 0u; j < count; j++) {
            const uint k0 = (tile + j) * stride + kv;
            float dot = 0.0;
            [[unroll]] for (uint e = 0u; e < EACH; e++) {
                const uint d = lane + e * lanes();
                if (d < push.dim) {
                    dot += query[e] * keys[k0 + d];
                }
            }
            for (uint d = lane + EACH * lanes(); d < push.dim; d += lanes()) {
                dot += q[q0 + d] * keys[k0 + d];
            }
            part[j * lanes() + lane] = dot;
        }
        barrier();
        for (uint j = lane; j < count; j += lanes()) {
            float dot = part[j * lanes()];
            for (uint l = 1u; l < lanes(); l++) {
                dot += part[j * lanes() + l];
            }
            score[j] = dot * push.scale;
        }
        barrier();
        float top = highest;
        for (uint j = 0u; j < count; j++) {
            // A NaN never becomes the maximum; it shows in its own share.
            top = score[j] > top ? score[j] : top;
        }
        for (uint j = lane; j < count; j += lanes()) {
            // With nothing but -inf so far, no position has a share yet; a NaN still does.
            share[j] = top == lowest && !is_nan(score[j]) ? 0.0 : exp_f32(score[j] - top);
        }
        barrier();
        const float kept = highest == top ? 1.0 : exp_f32(highest - top);
        highest = top;
        total *= kept;
        [[unroll]] for (uint e = 0u; e < EACH; e++) {
            sum[e] *= kept;
        }
        for (uint j = 0u; j < count; j++) {
            const float p = share[j];
            total += p;
            const uint v0 = (tile + j) * stride + kv;
            [[unroll]] for (uint e = 0u; e < EACH; e++) {
                const uint d = d0 + e * lanes();
                if (d < push.dim) {
                    sum[e] += p * values[v0 + d];
                }
            }
        }
    }
    [[unroll]] for (uint e = 0u; e < EACH; e++) {
        const uint d = d0 + e * lanes();
        if (d < push.dim) {
            y[q0 + d] = sum[e] / total;
        }
    }
}
