#version 450
// As matmul.comp, for rows that are whole texels of 16 bytes: weights and activations are fetched by texel, which drivers
// that run on a CPU do many times faster than word by word. A lane takes the texels lane, lane + lanes, ... of a row.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "common.glsl"
#include "words.glsl"

layout(set = 0, binding = 2, std430) writeonly buffer Y { float y[]; };
layout(set = 0, binding = 4) uniform utextureBuffer w;
layout(set = 0, binding = 5) uniform utextureBuffer x;
layout(push_constant) uniform Push {
    uint rows;
    uint outs;
    uint inner;
    // First word of the scales, for formats that keep them apart.
    uint scales;
} push;

// Elements in a step of a lane.
#if FORMAT == F32
const uint RUN = 4u;
#elif FORMAT == F16 || FORMAT == BF16
const uint RUN = 8u;
#elif FORMAT == Q8_0
const uint RUN = 16u;
#else
const uint RUN = 32u;
#endif
const uint QUADS = RUN / 4u;
const uint TILE = OUTS * ROWS;

shared float partial[TILE * gl_WorkGroupSize.x];

vec4 activations(uint row, uint quad) {
    return uintBitsToFloat(texelFetch(x, int(row * (push.inner / 4u) + quad)));
}

// Number of a step's quad within the row.
uint quad_of(uint step, uint i) {
#if FORMAT == Q4_K
    // Sixteen bytes hold sixteen elements in their low nibbles and those 32 further on in their high ones.
    const uint first = step / 2u * 16u + (step & 1u) * 4u;
    return first + (i < 4u ? i : i + 4u);
#else
    return step * QUADS + i;
#endif
}

// The values of a step of a row, quad by quad.
void weights(uint row, uint step, out vec4 values[QUADS]) {
#if FORMAT == F32
    values[0] = uintBitsToFloat(texelFetch(w, int(row * (push.inner / RUN) + step)));
#elif FORMAT == F16 || FORMAT == BF16
    const uvec4 raw = texelFetch(w, int(row * (push.inner / RUN) + step));
    values[0] = vec4(pair(raw.x), pair(raw.y));
    values[1] = vec4(pair(raw.z), pair(raw.w));
#elif FORMAT == Q8_0
    const uint at = row * (push.inner / RUN) + step;
    const ivec4 raw = ivec4(texelFetch(w, int(at)));
    const uint scale = push.scales + at / 2u;
    const float d = uintBitsToFloat(texelFetch(w, int(scale / 4u))[scale % 4u]);
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        values[i] = vec4(ivec4(raw[i] << 24, raw[i] << 16, raw[i] << 8, raw[i]) >> 24) * d;
    }
#else
    const uint block = (row * (push.inner / 256u) + step / 8u) * 9u;
    const uvec4 head = texelFetch(w, int(block));
    const uvec4 raw = texelFetch(w, int(block + 1u + step % 8u));
    const vec2 d = pair(head.x);
    const uint j = step % 8u / 2u * 2u;
    [[unroll]] for (uint high = 0u; high < 2u; high++) {
        // Both products are exact in f32; their difference rounds once.
        const uvec2 packed = scale_and_minimum(head.yzw, j + high);
        const float scale = d.x * float(packed.x);
        const float minimum = d.y * float(packed.y);
        [[unroll]] for (uint i = 0u; i < 4u; i++) {
            const uint word = raw[i] >> (4u * high);
            const vec4 codes = vec4(uvec4(word, word >> 8, word >> 16, word >> 24) & 15u);
            values[4u * high + i] = codes * scale - minimum;
        }
    }
#endif
}

void main() {
    const uint lane = gl_LocalInvocationID.x;
    const uint column_groups = (push.outs + OUTS - 1u) / OUTS;
    const uint group = group_index();
    const uint row0 = (group / column_groups) * ROWS;
    const uint out0 = (group % column_groups) * OUTS;
    if (row0 >= push.rows) {
        return;
    }
    float sum[TILE];
    [[unroll]] for (uint i = 0u; i < TILE; i++) {
        sum[i] = 0.0;
    }
    for (uint step = lane; step < push.inner / RUN; step += lanes()) {
        vec4 xs[QUADS * ROWS];
        [[unroll]] for (uint r = 0u; r < ROWS; r++) {
            [[unroll]] for (uint i = 0u; i < QUADS; i++) {
                // Tiles that stick out repeat the last row or column; what they make of it is not stored.
                xs[r * QUADS + i] = activations(min(row0 + r, push.rows - 1u), quad_of(step, i));
            }
        }
        [[unroll]] for (uint o = 0u; o < OUTS; o++) {
            vec4 ws[QUADS];
            weights(min(out0 + o, push.outs - 1u), step, ws);
            [[unroll]] for (uint r = 0u; r < ROWS; r++) {
                [[unroll]] for (uint i = 0u; i < QUADS; i++) {
                    const vec4 v = xs[r * QUADS + i];
                    sum[o * ROWS + r] += ws[i].x * v.x;
                    sum[o * ROWS + r] += ws[i].y * v.y;
                    sum[o * ROWS + r] += ws[i].z * v.z;
                    sum[o * ROWS + r] += ws[i].w * v.w;
                }
            }
        }
    }
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
