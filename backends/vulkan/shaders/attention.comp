#version 450
// Grouped-query attention with an online softmax: no score is ever stored in device memory.
// A group takes one head of one query row and a chunk of its elements; positions come in tiles. Lane l holds the runs of
// WIDTH elements l, l + lanes, ... of the query and of the result. With BY_TEXEL the store is fetched in texels of four
// elements, which must fill its heads.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "common.glsl"

layout(set = 0, binding = 0, std430) readonly buffer Q { float q[]; };
#if BY_TEXEL
layout(set = 0, binding = 4) uniform utextureBuffer keys;
layout(set = 0, binding = 5) uniform utextureBuffer values;
#else
layout(set = 0, binding = 1, std430) readonly buffer K { float keys[]; };
layout(set = 0, binding = 2, std430) readonly buffer V { float values[]; };
#endif
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
#if BY_TEXEL
#define WIDTH 4u
#define RUN vec4
#else
#define WIDTH 1u
#define RUN float
#endif
// Runs of the result, and of the query in registers, to a lane: eight elements.
const uint EACH = 8u / WIDTH;

shared float part[TILE * gl_WorkGroupSize.x];
shared float score[TILE];
shared float share[TILE];

// In runs.
RUN query_at(uint i) {
#if BY_TEXEL
    return vec4(q[4u * i], q[4u * i + 1u], q[4u * i + 2u], q[4u * i + 3u]);
#else
    return q[i];
#endif
}

RUN key_at(uint i) {
#if BY_TEXEL
    return uintBitsToFloat(texelFetch(keys, int(i)));
#else
    return keys[i];
#endif
}

RUN value_at(uint i) {
#if BY_TEXEL
    return uintBitsToFloat(texelFetch(values, int(i)));
#else
    return values[i];
#endif
}

float product(RUN a, RUN b, float sum) {
#if BY_TEXEL
    sum += a.x * b.x;
    sum += a.y * b.y;
    sum += a.z * b.z;
    return sum + a.w * b.w;
#else
    return sum + a * b;
#endif
}

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
    const uint runs = push.dim / WIDTH;
    const uint stride = push.kv_heads * runs;
    const uint kv = (head / push.group) * runs;
    const uint q0 = (row * heads + head) * runs;
    const uint d0 = chunk * lanes() * EACH + lane;

    RUN query[EACH];
    RUN sum[EACH];
    [[unroll]] for (uint e = 0u; e < EACH; e++) {
        const uint d = lane + e * lanes();
        query[e] = RUN(0.0);
        if (d < runs) {
            query[e] = query_at(q0 + d);
        }
        sum[e] = RUN(0.0);
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
                if (d < runs) {
                    dot = product(query[e], key_at(k0 + d), dot);
                }
            }
            for (uint d = lane + EACH * lanes(); d < runs; d += lanes()) {
                dot = product(query_at(q0 + d), key_at(k0 + d), dot);
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
                if (d < runs) {
                    sum[e] += p * value_at(v0 + d);
                }
            }
        }
    }
    [[unroll]] for (uint e = 0u; e < EACH; e++) {
        const uint d = d0 + e * lanes();
        if (d < runs) {
#if BY_TEXEL
            [[unroll]] for (uint c = 0u; c < 4u; c++) {
                y[4u * (q0 + d) + c] = sum[e][c] / total;
            }
#else
            y[q0 + d] = sum[e] / total;
#endif
        }
    }
}
