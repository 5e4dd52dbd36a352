/* Compressed batches, checked and decompressed by two threads: the one that fills a table, and a helper that goes ahead
   of it. zstd takes three quarters of the time of a table, and the order of the rows needs no order of decompression.

   The batches from one position on are claimed in their order, at most KOHORT_AHEAD_SLOTS of them before the first of
   them is used, each with a slot of memory. The thread that fills the table claims batches, too, while it would wait. */
#ifndef KOHORT_AHEAD_H
#define KOHORT_AHEAD_H
#include "_native.h"
#include "_unpack.h"

#if defined(__unix__) || defined(__APPLE__)
#define KOHORT_HAS_AHEAD 1
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#endif

#define KOHORT_AHEAD_SLOTS 4
#define KOHORT_AHEAD_SLOT_MAX (1 << 20) /* bytes; batches that may hold more are left to the caller */
#define KOHORT_AHEAD_RATIO 8            /* so are batches that may hold more than so many times their size */
#define KOHORT_AHEAD_SMALL (128 << 10)  /* and so many bytes more: what a block of zstd may hold */
#define KOHORT_AHEAD_STACK (256 << 10)

typedef struct {
    int64_t pos, size; /* where the batch begins, and the bytes of its records; -1: it is left to others */
    int done;
} kohort_slot_of_batch;

typedef struct {
    const uint8_t *data;
    int64_t next, end, room; /* the batch to claim next, the end of those that may be claimed; bytes of a slot */
    int64_t claimed, used;   /* numbers of batches */
    int check_crcs, stops;
    uint8_t *memory;
    kohort_slot_of_batch slots[KOHORT_AHEAD_SLOTS];
#ifdef KOHORT_HAS_AHEAD
    pthread_t helper;
    pthread_mutex_t lock;
    pthread_cond_t changed;
#endif
} kohort_ahead;

#ifdef KOHORT_HAS_AHEAD
/* The codec of a batch that a table takes without Python; 0 for all others. */
static inline int kohort_codec_at(const uint8_t *batch) {
    int codec = kohort_int16(batch + 21) & ~0x48;
    return codec == 3 || codec == 4 ? codec : 0;
}
static inline int64_t kohort_batch_size(const uint8_t *batch) { return 12 + (int64_t)kohort_int32(batch + 8); }

/* With the lock held: the slot of the batch that is claimed, or -1 if there is none to claim now. */
static int kohort_claim(kohort_ahead *ahead) {
    if (ahead->stops || ahead->next >= ahead->end || ahead->claimed - ahead->used >= KOHORT_AHEAD_SLOTS) return -1;
    int index = (int)(ahead->claimed++ % KOHORT_AHEAD_SLOTS);
    ahead->slots[index].pos = ahead->next;
    ahead->slots[index].done = 0;
    ahead->next += kohort_batch_size(ahead->data + ahead->next);
    return index;
}

/* With the lock held before and after, not meanwhile. */
static void kohort_work(kohort_ahead *ahead, int index) {
    kohort_slot_of_batch *slot = &ahead->slots[index];
    pthread_mutex_unlock(&ahead->lock);
    const uint8_t *batch = ahead->data + slot->pos;
    int64_t size = kohort_batch_size(batch);
    slot->size = -1;
    if (!ahead->check_crcs || kohort_crc32c(batch + 21, (size_t)(size - 21)) == (uint32_t)kohort_int32(batch + 17))
        slot->size = kohort_unpack(
            kohort_codec_at(batch), batch + 61, size - 61, ahead->memory + index * ahead->room, ahead->room);
    pthread_mutex_lock(&ahead->lock);
    slot->done = 1;
    pthread_cond_broadcast(&ahead->changed);
}

static void *kohort_help(void *given) {
    kohort_ahead *ahead = (kohort_ahead *)given;
    pthread_mutex_lock(&ahead->lock);
    while (!ahead->stops && ahead->next < ahead->end) {
        int index = kohort_claim(ahead);
        if (index >= 0)
            kohort_work(ahead, index);
        else
            pthread_cond_wait(&ahead->changed, &ahead->lock);
    }
    pthread_mutex_unlock(&ahead->lock);
    return NULL;
}

/* Signals are for the threads that Python knows. */
static int kohort_start_helper(kohort_ahead *ahead) {
    pthread_attr_t attributes;
    sigset_t all, before;
    if (pthread_attr_init(&attributes)) return -1;
    pthread_attr_setstacksize(&attributes, KOHORT_AHEAD_STACK);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&ahead->helper, &attributes, kohort_help, ahead);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return failed ? -1 : 0;
}
#endif

/* Begin with the batches between two positions, of which a table takes at most so many rows. All of them are known to be
   complete. NULL if there are fewer than two, or there is no memory or no thread for it. */
static kohort_ahead *kohort_begin_ahead(
    const uint8_t *data, int64_t pos, int64_t end, int64_t rows, int64_t budget, int check_crcs) {
#ifdef KOHORT_HAS_AHEAD
    int64_t stop = pos, room = 0, batches = 0;
    while (stop < end && rows > 0 && kohort_codec_at(data + stop)) {
        int64_t size = kohort_batch_size(data + stop);
        int64_t most = kohort_unpack(kohort_codec_at(data + stop), data + stop + 61, size - 61, NULL, 0);
        if (most >= -1) break;
        most = -1 - most;
        int64_t likely = KOHORT_AHEAD_RATIO * size + KOHORT_AHEAD_SMALL;
        if (most > KOHORT_AHEAD_SLOT_MAX || most > budget || most > likely) break;
        if (most > room) room = most;
        rows -= kohort_int32(data + stop + 57);
        stop += size;
        batches++;
    }
    if (batches < 2) return NULL;
    kohort_ahead *ahead = (kohort_ahead *)calloc(1, sizeof(kohort_ahead));
    if (ahead == NULL) return NULL;
    ahead->memory = (uint8_t *)malloc((size_t)(KOHORT_AHEAD_SLOTS * room));
    ahead->data = data;
    ahead->next = pos;
    ahead->end = stop;
    ahead->room = room;
    ahead->check_crcs = check_crcs;
    pthread_mutex_init(&ahead->lock, NULL);
    pthread_cond_init(&ahead->changed, NULL);
    if (ahead->memory != NULL && !kohort_start_helper(ahead)) return ahead;
    pthread_cond_destroy(&ahead->changed);
    pthread_mutex_destroy(&ahead->lock);
    free(ahead->memory);
    free(ahead);
#else
    (void)data, (void)pos, (void)end, (void)rows, (void)budget, (void)check_crcs;
#endif
    return NULL;
}

/* The records of the batch at a position, which is not before the last one asked for, and their size; valid until the
   next call. NULL if the batch is left to the caller: its CRC is wrong, or it is no part of this. */
static const uint8_t *kohort_taken_ahead(kohort_ahead *ahead, int64_t pos, int64_t *size) {
    const uint8_t *found = NULL;
#ifdef KOHORT_HAS_AHEAD
    pthread_mutex_lock(&ahead->lock);
    for (;;) {
        kohort_slot_of_batch *slot = &ahead->slots[ahead->used % KOHORT_AHEAD_SLOTS];
        int is_claimed = ahead->used < ahead->claimed;
        if (is_claimed && slot->done && slot->pos < pos) { /* of the call before */
            ahead->used++;
            pthread_cond_broadcast(&ahead->changed);
        } else if (is_claimed && slot->done) {
            if (slot->pos == pos && slot->size >= 0) {
                found = ahead->memory + ahead->used % KOHORT_AHEAD_SLOTS * ahead->room;
                *size = slot->size;
            }
            break;
        } else {
            int index = kohort_claim(ahead);
            if (index >= 0)
                kohort_work(ahead, index);
            else if (is_claimed)
                pthread_cond_wait(&ahead->changed, &ahead->lock);
            else
                break;
        }
    }
    pthread_mutex_unlock(&ahead->lock);
#else
    (void)ahead, (void)pos, (void)size;
#endif
    return found;
}

static void kohort_end_ahead(kohort_ahead *ahead) {
#ifdef KOHORT_HAS_AHEAD
    if (ahead == NULL) return;
    pthread_mutex_lock(&ahead->lock);
    ahead->stops = 1;
    pthread_cond_broadcast(&ahead->changed);
    pthread_mutex_unlock(&ahead->lock);
    pthread_join(ahead->helper, NULL);
    pthread_cond_destroy(&ahead->changed);
    pthread_mutex_destroy(&ahead->lock);
    free(ahead->memory);
    free(ahead);
#else
    (void)ahead;
#endif
}
#endif
