/* LZ4 and zstd, decompressed without Python by C functions that are called by their addresses.
   Only frames with nothing wrong and nothing rare in them: all else is left to Python, which also says what is wrong. */
#ifndef KOHORT_UNPACK_H
#define KOHORT_UNPACK_H
#include <stdint.h>
#include <string.h>

/* LZ4_decompress_safe(), for frames as producers write them: the blocks do not refer to each other, and the header's
   checksum is the only one. */
typedef int (*kohort_lz4_decompress)(const char *source, char *target, int size, int room);
static kohort_lz4_decompress kohort_lz4 = NULL;

static inline uint32_t kohort_little(const uint8_t *p) {
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static inline uint32_t kohort_rotated(uint32_t v, int bits) { return v << bits | v >> (32 - bits); }

static uint8_t kohort_lz4_header_checksum(const uint8_t *p, int n) { /* xxHash32 of fewer than 16 bytes */
    uint32_t total = 0x165667B1u + (uint32_t)n;
    for (; n >= 4; p += 4, n -= 4) total = kohort_rotated(total + kohort_little(p) * 0xC2B2AE3Du, 17) * 0x27D4EB2Fu;
    for (; n; p++, n--) total = kohort_rotated(total + *p * 0x165667B1u, 11) * 0x9E3779B1u;
    total = (total ^ total >> 15) * 0x85EBCA77u;
    total = (total ^ total >> 13) * 0xC2B2AE3Du;
    return (uint8_t)((total ^ total >> 16) >> 8);
}

static int64_t kohort_unpack_lz4(const uint8_t *data, int64_t size, uint8_t *scratch, int64_t room) {
    if (kohort_lz4 == NULL || size < 11 || kohort_little(data) != 0x184D2204u) return -1;
    int sized = data[4] & 8, header = sized ? 15 : 7;
    if ((data[4] & ~8) != 0x60 || (data[5] & 0x8F) || data[5] < 0x40 || size < header + 4) return -1;
    if (kohort_lz4_header_checksum(data + 4, header - 5) != data[header - 1]) return -1;
    int64_t block_max = (int64_t)1 << (8 + 2 * (data[5] >> 4)), most = 0, at = header, made = 0;
    for (;;) { /* what it could become at most, and whether it ends where it should */
        if (size - at < 4) return -1;
        uint32_t word = kohort_little(data + at);
        int64_t length = word & 0x7FFFFFFF;
        at += 4;
        if (!word) break;
        if (length > block_max || length > size - at) return -1;
        int64_t full = word >> 31 ? length : 256 * length;
        most += full < block_max ? full : block_max;
        at += length;
    }
    if (at != size) return -1;
    if (most > room) return -1 - most;
    for (at = header;;) {
        uint32_t word = kohort_little(data + at);
        int64_t length = word & 0x7FFFFFFF;
        at += 4;
        if (!word) break;
        if (word >> 31) {
            memcpy(scratch + made, data + at, (size_t)length);
            made += length;
        } else {
            int64_t full = 256 * length < block_max ? 256 * length : block_max;
            int done = kohort_lz4((const char *)data + at, (char *)scratch + made, (int)length, (int)full);
            if (done < 0) return -1;
            made += done;
        }
        at += length;
    }
    if (sized && ((int64_t)kohort_little(data + 6) | (int64_t)kohort_little(data + 10) << 32) != made) return -1;
    return made;
}

/* ZSTD_decompressDCtx() and what makes and frees its contexts. It writes straight into the scratch, so a frame's window
   and content size make it take no memory. */
typedef size_t (*kohort_zstd_decompress)(void *context, void *target, size_t room, const void *source, size_t size);
typedef void *(*kohort_zstd_create)(void);
typedef size_t (*kohort_zstd_free)(void *context);
static kohort_zstd_decompress kohort_zstd = NULL;
static kohort_zstd_create kohort_new_context = NULL;
static kohort_zstd_free kohort_free_context = NULL;

static inline void kohort_use(void *lz4, void *zstd, void *create, void *release) {
    kohort_lz4 = (kohort_lz4_decompress)lz4;
    kohort_new_context = (kohort_zstd_create)create;
    kohort_free_context = (kohort_zstd_free)release;
    kohort_zstd = (kohort_zstd_decompress)zstd;
}

/* A context has 160 KB, so a few are kept. Any thread takes one out of its slot, and puts it into a slot afterwards. */
#define KOHORT_CONTEXTS 4
#if defined(__GNUC__) || defined(__clang__)
static void *kohort_contexts[KOHORT_CONTEXTS];
static inline void *kohort_swap_context(int slot, void *context) {
    return __atomic_exchange_n(&kohort_contexts[slot], context, __ATOMIC_ACQ_REL);
}
#else
static inline void *kohort_swap_context(int slot, void *context) { return context; }
#endif

static void *kohort_take_context(void) {
    for (int slot = 0; slot < KOHORT_CONTEXTS; slot++) {
        void *context = kohort_swap_context(slot, NULL);
        if (context != NULL) return context;
    }
    return kohort_new_context();
}

static void kohort_keep_context(void *context) {
    for (int slot = 0; slot < KOHORT_CONTEXTS && context != NULL; slot++) context = kohort_swap_context(slot, context);
    if (context != NULL) kohort_free_context(context);
}

#define KOHORT_ZSTD_BLOCK (128 * 1024)
#define KOHORT_ZSTD_BLOCKS (1 << 16)
#define KOHORT_ZSTD_WINDOW_MAX (17 << 3) /* 128 MiB: the largest that decoders take by default */
#define KOHORT_ZSTD_WINDOW_MIN (7 << 3)  /* 128 KiB: no block may be larger, and not all versions check that */

/* The most bytes that the frames can hold, by the headers of their blocks; -1 if they are left to Python. */
static int64_t kohort_zstd_most(const uint8_t *data, int64_t size) {
    static const int sizes[4] = {0, 2, 4, 8}, dictionaries[4] = {0, 1, 2, 4};
    int64_t most = 0, at = 0, blocks = 0;
    while (at < size) {
        if (size - at < 8) return -1;
        uint32_t magic = kohort_little(data + at);
        at += 4;
        if ((magic & ~0xFu) == 0x184D2A50u) { /* to be skipped */
            at += 4 + (int64_t)kohort_little(data + at);
            continue;
        }
        if (magic != 0xFD2FB528u) return -1;
        int flags = data[at], single = flags >> 5 & 1;
        if (!single && (data[at + 1] < KOHORT_ZSTD_WINDOW_MIN || data[at + 1] > KOHORT_ZSTD_WINDOW_MAX)) return -1;
        at += (single ? 1 : 2) + dictionaries[flags & 3] + sizes[flags >> 6] + (single && !(flags >> 6));
        for (int last = 0; !last;) {
            if (size - at < 3 || ++blocks > KOHORT_ZSTD_BLOCKS) return -1;
            uint32_t block = data[at] | (uint32_t)data[at + 1] << 8 | (uint32_t)data[at + 2] << 16;
            int kind = block >> 1 & 3;
            int64_t length = block >> 3;
            if (kind == 3 || length > KOHORT_ZSTD_BLOCK) return -1;
            most += kind == 2 ? KOHORT_ZSTD_BLOCK : length;
            at += 3 + (kind == 1 ? 1 : length);
            last = block & 1;
        }
        at += flags & 4; /* its checksum */
    }
    return at == size && blocks ? most : -1;
}

static int64_t kohort_unpack_zstd(const uint8_t *data, int64_t size, uint8_t *scratch, int64_t room) {
    if (kohort_zstd == NULL) return -1;
    int64_t most = kohort_zstd_most(data, size);
    if (most < 0) return -1;
    if (most > room) return -1 - most;
    void *context = kohort_take_context();
    if (context == NULL) return -1;
    size_t made = kohort_zstd(context, scratch, (size_t)most, data, (size_t)size);
    kohort_keep_context(context);
    return made > (size_t)most ? -1 : (int64_t)made; /* errors are numbers close to the largest */
}

/* Return the number of bytes that are now in the scratch. The value -1 leaves the content to
   Python. The value -1 - n asks for a scratch of n bytes. */
static inline int64_t kohort_unpack(int codec, const uint8_t *data, int64_t size, uint8_t *scratch, int64_t room) {
    return codec == 4   ? kohort_unpack_zstd(data, size, scratch, room)
           : codec == 3 ? kohort_unpack_lz4(data, size, scratch, room)
                        : -1;
}
#endif
