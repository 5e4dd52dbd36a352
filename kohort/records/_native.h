/* What the compiled decoder does without Python: loads, copies and checksums.
   Each function here has a twin in _primitives.py, whose docstring describes it. */
#ifndef KOHORT_NATIVE_H
#define KOHORT_NATIVE_H
#include <Python.h>
#include <stdint.h>
#include <string.h>

#ifndef KOHORT_SOURCE_STATE
#define KOHORT_SOURCE_STATE 0u /* setup.py knows it */
#endif

#if (defined(__GNUC__) || defined(__clang__)) && defined(__x86_64__)
#define KOHORT_SSE42 1
#include <nmmintrin.h>
#elif defined(__ARM_FEATURE_CRC32)
#define KOHORT_ARM 1
#include <arm_acle.h>
#endif

static inline int64_t kohort_int64(const uint8_t *p) {
    uint64_t v = 0;
    for (int i = 0; i < 8; i++) v = v << 8 | p[i];
    return (int64_t)v;
}
static inline int32_t kohort_int32(const uint8_t *p) {
    return (int32_t)((uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]);
}
static inline int16_t kohort_int16(const uint8_t *p) { return (int16_t)((uint16_t)p[0] << 8 | p[1]); }

/* Copy short strings as 16 bytes if both buffers have room. The surplus is overwritten by the next copy, or lies
   after the end. A memcpy() of a variable size takes longer. */
static inline void kohort_copy(uint8_t *to, Py_ssize_t room, const uint8_t *source, Py_ssize_t there, Py_ssize_t size) {
    if (size <= 16 && room >= 16 && there >= 16) {
        memcpy(to, source, 16);
    } else if (size > 0) { /* an empty buffer may be NULL, which memcpy() does not allow */
        memcpy(to, source, (size_t)size);
    }
}

/* Repeat a string. Each copy is twice as long as the one before, so that short strings take few calls. */
static inline void kohort_repeat(uint8_t *to, const uint8_t *source, Py_ssize_t size, Py_ssize_t count) {
    Py_ssize_t total = size * count, made = size;
    if (total <= 0) return;
    memcpy(to, source, (size_t)size);
    while (made < total) {
        Py_ssize_t more = made < total - made ? made : total - made;
        memcpy(to + made, to, (size_t)more);
        made += more;
    }
}
static inline void kohort_fill_ints(int32_t *to, Py_ssize_t count, int32_t first, int32_t step) {
    for (Py_ssize_t i = 0; i < count; i++) to[i] = first + (int32_t)i * step;
}

/* Set bits, and the bits after them in the last byte. */
static inline void kohort_set_bits(uint8_t *bits, Py_ssize_t start, Py_ssize_t stop) {
    if (start >= stop) return;
    Py_ssize_t first = start >> 3, behind = (stop + 7) >> 3;
    if (start & 7) {
        bits[first] = (uint8_t)(bits[first] | 0xFF << (start & 7));
        first++;
    }
    if (behind > first) memset(bits + first, 0xFF, (size_t)(behind - first));
}
static inline void kohort_clear_bit(uint8_t *bits, Py_ssize_t at) {
    bits[at >> 3] = (uint8_t)(bits[at >> 3] & ~(1 << (at & 7)));
}

/* Zigzag numbers as on the wire. The position becomes -1 if a number is too long or does not end before stop. */
static uint64_t kohort_longer(const uint8_t *data, Py_ssize_t *pos, Py_ssize_t stop, int last_shift, uint64_t last_max) {
    Py_ssize_t at = *pos;
    uint64_t raw = 0;
    for (int shift = 0; at < stop && shift <= last_shift; shift += 7) {
        uint64_t byte = data[at++];
        raw |= (byte & 0x7F) << shift;
        if (byte < 0x80) {
            if (shift == last_shift && byte > last_max) break;
            *pos = at;
            return raw;
        }
    }
    *pos = -1;
    return 0;
}
/* near: the caller knows that two bytes can be read, also after stop. */
static inline uint64_t kohort_number(const uint8_t *data, Py_ssize_t *pos, Py_ssize_t stop, const int near,
                                     const int last_shift, const uint64_t last_max) {
    if (near || stop - *pos >= 2) {
        uint64_t low = data[*pos], high = data[*pos + 1];
        if (low < 0x80) {
            *pos += 1;
            return low;
        }
        if (high < 0x80) {
            *pos += 2;
            return (low & 0x7F) | high << 7;
        }
    }
    return kohort_longer(data, pos, stop, last_shift, last_max);
}
#define KOHORT_SHORT 28, 0x0F /* 32 bits in 5 bytes: the shift of the last byte, and the most that it can be */
#define KOHORT_LONG 63, 0x01  /* 64 bits in 10 bytes */

static inline uint64_t kohort_short(const uint8_t *data, Py_ssize_t *pos, Py_ssize_t stop) {
    return kohort_number(data, pos, stop, 0, KOHORT_SHORT);
}

typedef struct {
    Py_ssize_t stop, key_pos, key_size, value_pos, value_size, pos;
    uint64_t time;
    int64_t delta, header_count;
} kohort_fields;

/* The fields before a key have at most 26 bytes: length 5, attributes 1, timestamp 10, offset 5, key's length 5. */
#define KOHORT_FRONT 32
static inline int kohort_read_front(
    const uint8_t *data, Py_ssize_t at, Py_ssize_t end, kohort_fields *found, const int near) {
    uint64_t raw = kohort_number(data, &at, end, near, KOHORT_SHORT);
    Py_ssize_t stop = at + (Py_ssize_t)(raw >> 1);
    if (at < 0 || raw & 1 || stop > end) return 0;
    at++;
    found->time = kohort_number(data, &at, near ? end : stop, near, KOHORT_LONG);
    if (at < 0) return 0;
    raw = kohort_number(data, &at, near ? end : stop, near, KOHORT_SHORT);
    if (at < 0 || raw & 1) return 0;
    found->delta = (int64_t)(raw >> 1);
    raw = kohort_number(data, &at, near ? end : stop, near, KOHORT_SHORT);
    if (at < 0 || (raw & 1 && raw != 1)) return 0;
    found->key_size = raw == 1 ? -1 : (Py_ssize_t)(raw >> 1);
    found->key_pos = at;
    found->stop = stop;
    return 1;
}
static inline void kohort_read_fields(const uint8_t *data, Py_ssize_t pos, Py_ssize_t end, kohort_fields *found) {
    if (end - pos >= KOHORT_FRONT ? !kohort_read_front(data, pos, end, found, 1)
                                  : !kohort_read_front(data, pos, end, found, 0)) goto wrong;
    Py_ssize_t stop = found->stop, at = found->key_pos;
    if (at > stop || found->key_size > stop - at) goto wrong;
    if (found->key_size > 0) at += found->key_size;
    uint64_t raw = kohort_short(data, &at, stop);
    if (at < 0 || (raw & 1 && raw != 1)) goto wrong;
    found->value_size = raw == 1 ? -1 : (Py_ssize_t)(raw >> 1);
    found->value_pos = at;
    if (found->value_size > stop - at) goto wrong;
    if (found->value_size > 0) at += found->value_size;
    if (at < stop && data[at] == 0) {
        raw = 0;
        at++;
    } else {
        raw = kohort_short(data, &at, stop);
        if (at < 0 || raw & 1 || (Py_ssize_t)(raw >> 1) > (stop - at) / 2) goto wrong;
    }
    found->header_count = (int64_t)(raw >> 1);
    found->pos = at;
    return;
wrong:
    memset(found, 0, sizeof *found);
    found->stop = -1;
}
static inline int64_t kohort_wrapped(int64_t base, uint64_t raw) {
    return (int64_t)((uint64_t)base + (raw >> 1 ^ (0 - (raw & 1))));
}

/* CRC-32C, reflected: a table of eight bytes at a time where the processor has no instruction. */
#define KOHORT_POLYNOMIAL 0x82F63B78u
#define KOHORT_BLOCK 1024 /* bytes of each of three streams that are computed side by side */
#define KOHORT_AHEAD 4096 /* bytes: what is asked of memory now is there when it is needed */
static uint32_t kohort_table[8][256];
static uint32_t kohort_shift[4][256]; /* the effect of KOHORT_BLOCK zero bytes, a byte of the CRC each */
static int kohort_hardware = 0;

static inline void kohort_prepare(void) {
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t crc = n;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ KOHORT_POLYNOMIAL : crc >> 1;
        kohort_table[0][n] = crc;
    }
    for (uint32_t n = 0; n < 256; n++)
        for (int k = 1; k < 8; k++)
            kohort_table[k][n] = kohort_table[k - 1][n] >> 8 ^ kohort_table[0][kohort_table[k - 1][n] & 0xFF];
    uint32_t basis[32];
    for (int bit = 0; bit < 32; bit++) {
        uint32_t crc = (uint32_t)1 << bit;
        for (int i = 0; i < KOHORT_BLOCK; i++) crc = crc >> 8 ^ kohort_table[0][crc & 0xFF];
        basis[bit] = crc;
    }
    for (int k = 0; k < 4; k++)
        for (uint32_t n = 0; n < 256; n++) {
            uint32_t crc = 0;
            for (int bit = 0; bit < 8; bit++)
                if (n >> bit & 1) crc ^= basis[8 * k + bit];
            kohort_shift[k][n] = crc;
        }
#ifdef KOHORT_SSE42
    __builtin_cpu_init();
    kohort_hardware = __builtin_cpu_supports("sse4.2") != 0;
#elif defined(KOHORT_ARM)
    kohort_hardware = 1;
#endif
}

static uint32_t kohort_crc_table(uint32_t crc, const uint8_t *p, size_t n) {
    while (n >= 8) {
        uint32_t low = crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
        crc = kohort_table[7][low & 0xFF] ^ kohort_table[6][low >> 8 & 0xFF] ^ kohort_table[5][low >> 16 & 0xFF] ^
              kohort_table[4][low >> 24] ^ kohort_table[3][p[4]] ^ kohort_table[2][p[5]] ^ kohort_table[1][p[6]] ^
              kohort_table[0][p[7]];
        p += 8;
        n -= 8;
    }
    while (n--) crc = crc >> 8 ^ kohort_table[0][(crc ^ *p++) & 0xFF];
    return crc;
}

#if defined(KOHORT_SSE42) || defined(KOHORT_ARM)
#ifdef KOHORT_SSE42
#ifdef __clang__
/* Clang has the CRC instructions apart from SSE 4.2. */
#define KOHORT_TARGET __attribute__((target("sse4.2,crc32")))
#else
#define KOHORT_TARGET __attribute__((target("sse4.2")))
#endif
#define KOHORT_STEP8(crc, v) _mm_crc32_u64(crc, v)
#define KOHORT_STEP1(crc, v) _mm_crc32_u8((uint32_t)(crc), v)
#else
#define KOHORT_TARGET
#define KOHORT_STEP8(crc, v) __crc32cd((uint32_t)(crc), v)
#define KOHORT_STEP1(crc, v) __crc32cb((uint32_t)(crc), v)
#endif
static inline uint32_t kohort_over_block(uint32_t crc) {
    return kohort_shift[0][crc & 0xFF] ^ kohort_shift[1][crc >> 8 & 0xFF] ^ kohort_shift[2][crc >> 16 & 0xFF] ^
           kohort_shift[3][crc >> 24];
}
static inline uint64_t kohort_word(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}
KOHORT_TARGET static uint32_t kohort_crc_hardware(uint32_t crc, const uint8_t *p, size_t n) {
    uint64_t a = crc;
    /* The instruction's result comes after three cycles, but one can start in each. */
    while (n >= 3 * KOHORT_BLOCK) {
        uint64_t b = 0, c = 0;
        for (size_t line = 0; line < KOHORT_BLOCK; line += 64) {
            /* Bytes just received are first read here. The processor does not prefetch three streams. */
            for (size_t i = 0; i < 192; i += 64) __builtin_prefetch(p + KOHORT_AHEAD + 3 * line + i);
            for (size_t i = line; i < line + 64; i += 8) {
                a = KOHORT_STEP8(a, kohort_word(p + i));
                b = KOHORT_STEP8(b, kohort_word(p + KOHORT_BLOCK + i));
                c = KOHORT_STEP8(c, kohort_word(p + 2 * KOHORT_BLOCK + i));
            }
        }
        a = kohort_over_block((uint32_t)a) ^ (uint32_t)b;
        a = kohort_over_block((uint32_t)a) ^ (uint32_t)c;
        p += 3 * KOHORT_BLOCK;
        n -= 3 * KOHORT_BLOCK;
    }
    for (; n >= 8; p += 8, n -= 8) a = KOHORT_STEP8(a, kohort_word(p));
    for (; n; p++, n--) a = KOHORT_STEP1(a, *p);
    return (uint32_t)a;
}
#endif

static inline uint32_t kohort_crc32c(const uint8_t *p, size_t n) {
#if defined(KOHORT_SSE42) || defined(KOHORT_ARM)
    if (kohort_hardware) return ~kohort_crc_hardware(~0u, p, n);
#endif
    return ~kohort_crc_table(~0u, p, n);
}
#endif
