/* Counts what is allocated, by whomever: the interpreter, C, Rust and Arrow. For LD_PRELOAD, glibc. */
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stddef.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static atomic_llong live, peak, start, largest;

static void raise_to(atomic_llong *most, long long value) {
    long long before = atomic_load(most);
    while (value > before && !atomic_compare_exchange_weak(most, &before, value)) {
    }
}

static void *taken(void *block) {
    if (block) {
        long long size = malloc_usable_size(block);
        raise_to(&peak, atomic_fetch_add(&live, size) + size);
        raise_to(&largest, size);
    }
    return block;
}

static void given_back(void *block) {
    if (block)
        atomic_fetch_sub(&live, malloc_usable_size(block));
}

void *malloc(size_t size) { return taken(__libc_malloc(size)); }

void *calloc(size_t count, size_t size) { return taken(__libc_calloc(count, size)); }

void *memalign(size_t alignment, size_t size) { return taken(__libc_memalign(alignment, size)); }

void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void **block, size_t alignment, size_t size) {
    *block = memalign(alignment, size);
    return *block ? 0 : ENOMEM;
}

void free(void *block) {
    given_back(block);
    __libc_free(block);
}

/* While a block moves there are two of it. */
void *realloc(void *block, size_t size) {
    long long before = block ? (long long)malloc_usable_size(block) : 0;
    void *moved = __libc_realloc(block, size);
    if (!moved) {
        if (block && !size)
            atomic_fetch_sub(&live, before);
        return NULL;
    }
    taken(moved);
    atomic_fetch_sub(&live, before);
    return moved;
}

/* From here on the peak and the largest block are counted. */
void kohort_heap_begin(void) {
    start = live;
    peak = live;
    largest = 0;
}

long long kohort_heap_peak(void) { return peak - start; }

long long kohort_heap_largest(void) { return largest; }
