// What every kernel shares: the index of its group, and arithmetic that no device may approximate.

// Lanes of a group; the host chooses it for the device.
layout(local_size_x_id = 0) in;

const uint INFINITY_BITS = 0x7f800000u;

// Groups form a plane, since one dimension may end at 65,535; the host launches at least as many as it needs.
uint group_index() {
    return gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x;
}

uint lanes() {
    return gl_WorkGroupSize.x;
}

// By the bits: isnan may be assumed away.
bool is_nan(float v) {
    return (floatBitsToUint(v) & 0x7fffffffu) > INFINITY_BITS;
}

// 2^k for -126 <= k <= 127.
float power_of_two(int k) {
    return uintBitsToFloat(uint(k + 127) << 23);
}

// e^x within 2 ulp wherever the result is normal. The built-in one may be off by 3 + 2|x| ulp.
float exp_f32(float x) {
    if (is_nan(x)) {
        return x;
    }
    if (x > 89.0) {
        return uintBitsToFloat(INFINITY_BITS);
    }
    if (x < -104.0) {
        return 0.0;
    }
    // ln 2 in two parts, of which the first has so few bits that n times it is exact.
    precise float n = floor(x * 1.44269504 + 0.5);
    precise float r = (x - n * 0.693359375) - n * -2.12194440e-4;
    precise float p = 1.9875691500e-4;
    p = p * r + 1.3981999507e-3;
    p = p * r + 8.3334519073e-3;
    p = p * r + 4.1665795894e-2;
    p = p * r + 1.6666665459e-1;
    p = p * r + 5.0000001201e-1;
    precise float y = p * (r * r) + r + 1.0;
    // In two steps, since 2^n alone may be out of range; only the second can round.
    int whole = int(n);
    int first = whole / 2;
    precise float z = y * power_of_two(first);
    z = z * power_of_two(whole - first);
    return z;
}
