#version 450
// Rotates the pairs (j, j + half) of every head of every row. Cosines and sines come from the host, which has float64.
// Rows start at in_row and out_row of their buffers.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(set = 0, binding = 0, std430) readonly buffer X { float x[]; };
// [rows, half] cosines, then as many sines.
layout(set = 0, binding = 1, std430) readonly buffer Turn { float turn[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint rows;
    uint heads;
    uint half_dim;
    uint in_row;
    uint out_row;
} push;

void main() {
    const uint pairs = push.heads * push.half_dim;
    const uint i = group_index() * lanes() + gl_LocalInvocationID.x;
    const uint row = i / pairs;
    if (row >= push.rows) {
        return;
    }
    const uint head = (i % pairs) / push.half_dim;
    const uint j = i % push.half_dim;
    const float c = turn[row * push.half_dim + j];
    const float s = turn[(push.rows + row) * push.half_dim + j];
    const uint at = head * 2u * push.half_dim + j;
    const uint from = (push.in_row + row) * 2u * pairs + at;
    const uint to = (push.out_row + row) * 2u * pairs + at;
    const float a = x[from];
    const float b = x[from + push.half_dim];
    y[to] = a * c - b * s;
    y[to + push.half_dim] = b * c + a * s;
}
