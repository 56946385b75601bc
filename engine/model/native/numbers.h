// Numbers: bfloat16, vectors of 16 floats, and the few functions on them that the kernels need.
//
// The vectors are the compiler's own vector type, so the same source becomes AVX-512, AVX2 or NEON. Only the bf16 dot product
// has an intrinsic, because no compiler finds it by itself.
#pragma once
#include <cstdint>
#include <cstring>
#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

struct bf16 { uint16_t bits; };

typedef float    vec   __attribute__((vector_size(64), aligned(4), may_alias));    // 16 floats
typedef int32_t  ivec  __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint32_t uvec  __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint16_t hvec  __attribute__((vector_size(32), aligned(2), may_alias));    // 16 halves
typedef uint16_t h2vec __attribute__((vector_size(64), aligned(4), may_alias));    // 32 halves
constexpr int LANES = 16;

static inline vec splat(float x) { return x - vec{}; }

static inline vec load(const float* p) { return *(const vec*)p; }
static inline vec load(const bf16* p) { return (vec)(__builtin_convertvector(*(const hvec*)p, uvec) << 16); }

// Round to nearest, ties to even, as PyTorch does. NaN is not handled: nothing here makes one from finite weights.
static inline uvec rounded_bits(vec x) { uvec u = (uvec)x; return (u + 0x7fff + ((u >> 16) & 1)) >> 16; }
static inline void store(float* p, vec x) { *(vec*)p = x; }
static inline void store(bf16* p, vec x) { *(hvec*)p = __builtin_convertvector(rounded_bits(x), hvec); }

static inline float to_float(float x) { return x; }
static inline float to_float(bf16 x) { uint32_t u = (uint32_t)x.bits << 16; float f; memcpy(&f, &u, 4); return f; }
static inline void put(float* p, float x) { *p = x; }
static inline void put(bf16* p, float x) {
    uint32_t u; memcpy(&u, &x, 4);
    p->bits = (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

// The value as it reads back after being stored as T: transformers rounds at these places too.
template <class T> static inline vec as_stored(vec x);
template <> inline vec as_stored<float>(vec x) { return x; }
template <> inline vec as_stored<bf16>(vec x) { return (vec)(rounded_bits(x) << 16); }

static inline vec larger(vec a, vec b) { return a > b ? a : b; }

// The vector turned by 8, 4, 2 or 1 lanes: what reductions over the lanes are made of.
static inline vec turned8(vec x) { return __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7); }
static inline vec turned4(vec x) { return __builtin_shufflevector(x, x, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3); }
static inline vec turned2(vec x) { return __builtin_shufflevector(x, x, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1); }
static inline vec turned1(vec x) { return __builtin_shufflevector(x, x, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0); }
static inline float sum(vec x) { x += turned8(x); x += turned4(x); x += turned2(x); x += turned1(x); return x[0]; }
static inline float largest(vec x) {
    x = larger(x, turned8(x)); x = larger(x, turned4(x)); x = larger(x, turned2(x)); x = larger(x, turned1(x));
    return x[0];
}
static inline vec lanes_from(int first) { return vec{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} + (float)first; }

// e^x: 2^n times the Taylor series of e^r with |r| <= ln(2)/2; relative error below 1e-6. Below -87 it is 0, above 88 e^88.
static inline vec exponential(vec x) {
    const vec rounder = splat(12582912.f);                                // 1.5 * 2^23: adding it rounds to a whole number
    vec bounded = larger(x, splat(-87.f));
    bounded = bounded < 88.f ? bounded : splat(88.f);
    vec n = (bounded * 1.44269504f + rounder) - rounder;
    vec r = bounded - n * 0.693145752f - n * 1.42860677e-6f;              // ln(2) in two parts, so that r keeps its digits
    vec p = splat(1.f / 5040);
    p = p * r + 1.f / 720;
    p = p * r + 1.f / 120;
    p = p * r + 1.f / 24;
    p = p * r + 1.f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.f;
    p = p * r + 1.f;
    vec power = (vec)((__builtin_convertvector(n, ivec) + 127) << 23);
    return x < -87.f ? vec{} : p * power;
}
