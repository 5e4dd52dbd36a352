# The types of the compiled _columns.py.
cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from kohort.records._native cimport (
    build_state, checksum, int16_at, int32_at, int64_at, uint32_at, kohort_clear_bit, kohort_copy, kohort_fields,
    kohort_fill_ints, kohort_prepare, kohort_read_fields, kohort_repeat, kohort_set_bits, kohort_short, kohort_unpack,
    kohort_use, kohort_wrapped)

ctypedef (Py_ssize_t, int64_t) (*passing)(
    const uint8_t[::1], Py_ssize_t, Py_ssize_t, int64_t, int64_t, int64_t, bint, const uint8_t[::1], int32_t, Columns,
    uint8_t[::1], MissingRoom) noexcept nogil
ctypedef int64_t (*putting)(
    const uint8_t[::1], int64_t, int64_t, int64_t, int64_t, int32_t, int64_t, int64_t, const uint8_t[::1], int32_t,
    Columns, MissingRoom) noexcept nogil

cdef inline void prepare():
    kohort_prepare()

cdef inline int use_decompressors(uintptr_t lz4, uintptr_t zstd, uintptr_t create, uintptr_t release) except -1:
    kohort_use(<void *> lz4, <void *> zstd, <void *> create, <void *> release)
    return 0

cdef inline int64_t wrapped(int64_t base, uint64_t raw) noexcept nogil:
    return kohort_wrapped(base, raw)

cdef inline (uint64_t, Py_ssize_t) short_at(const uint8_t *data, Py_ssize_t pos, Py_ssize_t stop) noexcept nogil:
    cdef Py_ssize_t at = pos
    cdef uint64_t raw = kohort_short(data, &at, stop)
    return raw, at

cdef inline (Py_ssize_t, uint64_t, int64_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, int64_t) fields_at(
    const uint8_t *data, Py_ssize_t pos, Py_ssize_t end) noexcept nogil:
    cdef kohort_fields found
    kohort_read_fields(data, pos, end, &found)
    return (
        found.stop, found.time, found.delta, found.key_pos, found.key_size, found.value_pos, found.value_size, found.pos,
        found.header_count)

cdef inline int64_t *longs(uint8_t[::1] view) except? NULL:
    return <int64_t *> &view[0] if view.shape[0] else NULL

cdef inline int32_t *ints(uint8_t[::1] view) except? NULL:
    return <int32_t *> &view[0] if view.shape[0] else NULL

cdef inline uint8_t *octets(uint8_t[::1] view) except? NULL:
    return &view[0] if view.shape[0] else NULL

cdef inline const uint8_t *start_of(const uint8_t[::1] data) noexcept nogil:
    return &data[0] if data.shape[0] else NULL

cdef inline void copy(
    uint8_t *target, Py_ssize_t to, Py_ssize_t room, const uint8_t *source, Py_ssize_t start, Py_ssize_t end,
    Py_ssize_t size) noexcept nogil:
    kohort_copy(target + to, room - to, source + start, end - start, size)

cdef inline void repeat(
    uint8_t *target, Py_ssize_t to, const uint8_t[::1] source, Py_ssize_t count) noexcept nogil:
    if source.shape[0]:
        kohort_repeat(target + to, &source[0], source.shape[0], count)

cdef inline void fill_ints(int32_t *target, Py_ssize_t start, Py_ssize_t stop, int32_t first, int32_t step) noexcept nogil:
    kohort_fill_ints(target + start, stop - start, first, step)

cdef inline void set_bits(uint8_t *target, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
    kohort_set_bits(target, start, stop)

cdef inline void clear_bit(uint8_t *target, Py_ssize_t at) noexcept nogil:
    kohort_clear_bit(target, at)

cdef inline int64_t unpack(
    int64_t codec, const uint8_t[::1] data, Py_ssize_t start, Py_ssize_t stop, uint8_t[::1] scratch) noexcept nogil:
    return kohort_unpack(
        codec, &data[0] + start, stop - start, &scratch[0] if scratch.shape[0] else NULL, scratch.shape[0])

cdef inline (Py_ssize_t, int64_t) released(
    passing function, const uint8_t[::1] data, Py_ssize_t pos, Py_ssize_t end, int64_t start_offset,
    int64_t max_rows, int64_t max_bytes, bint check_crcs, const uint8_t[::1] topic, int32_t partition,
    Columns columns, uint8_t[::1] scratch, MissingRoom missing_room):
    cdef (Py_ssize_t, int64_t) result
    with nogil:
        result = function(
            data, pos, end, start_offset, max_rows, max_bytes, check_crcs, topic, partition, columns, scratch, missing_room)
    return result

cdef inline int64_t filled(
    putting function, const uint8_t[::1] data, int64_t count, int64_t base_offset,
    int64_t last_offset_delta, int64_t base_timestamp, int32_t timestamp_type, int64_t start_offset, int64_t max_rows,
    const uint8_t[::1] topic, int32_t partition, Columns columns, MissingRoom missing_room):
    cdef int64_t result
    with nogil:
        result = function(
            data, count, base_offset, last_offset_delta, base_timestamp, timestamp_type, start_offset, max_rows, topic,
            partition, columns, missing_room)
    return result

cdef int64_t MIN_RECORD_SIZE
cdef int64_t _HEADER_SIZE
cdef int64_t _PLAIN
cdef int64_t _LZ4
cdef int64_t _ZSTD
cdef int64_t ALL_FIT
cdef int64_t WRONG
cdef int64_t NO_ROOM

@cython.final
cdef class Columns:
    cdef tuple views
    cdef int64_t *offsets
    cdef int64_t *timestamps
    cdef int32_t *timestamp_types
    cdef int32_t *partitions
    cdef int32_t *topic_ends
    cdef int32_t *key_ends
    cdef int32_t *value_ends
    cdef int32_t *header_ends
    cdef int32_t *name_ends
    cdef int32_t *header_value_ends
    cdef uint8_t *topics
    cdef uint8_t *keys
    cdef uint8_t *values
    cdef uint8_t *names
    cdef uint8_t *header_values
    cdef uint8_t *timestamp_valid
    cdef uint8_t *key_valid
    cdef uint8_t *value_valid
    cdef uint8_t *header_value_valid
    cdef int64_t row_room, topic_room, key_room, value_room, header_room, name_room, header_value_room
    cdef readonly int64_t rows, headers

@cython.final
cdef class MissingRoom:
    cdef readonly int64_t rows, key_bytes, value_bytes, headers, name_bytes, header_value_bytes, scratch

cpdef int use_codecs(uintptr_t lz4, uintptr_t zstd, uintptr_t create, uintptr_t release) except -1

cpdef (Py_ssize_t, int64_t) take_plain(
    const uint8_t[::1] data, Py_ssize_t pos, Py_ssize_t end, int64_t start_offset, int64_t max_rows, int64_t max_bytes,
    bint check_crcs, const uint8_t[::1] topic, int32_t partition, Columns columns, uint8_t[::1] scratch,
    MissingRoom missing_room) except *

@cython.locals(timestamp_type=int32_t, log_append=bint)
cpdef int64_t take_body(
    const uint8_t[::1] data, object header, int64_t start_offset, int64_t max_rows, const uint8_t[::1] topic,
    int32_t partition, Columns columns, MissingRoom missing_room) except? -1

@cython.locals(passed=int64_t, size=int64_t, attributes=int64_t, base_offset=int64_t, last_offset_delta=int64_t,
               codec=int64_t, crc=int64_t, body_size=int64_t, log_append=bint, last=int64_t, first=int64_t, room=int64_t)
cdef (Py_ssize_t, int64_t) _take_plain(
    const uint8_t[::1] data, Py_ssize_t pos, Py_ssize_t end, int64_t start_offset, int64_t max_rows, int64_t max_bytes,
    bint check_crcs, const uint8_t[::1] topic, int32_t partition, Columns columns, uint8_t[::1] scratch,
    MissingRoom missing_room) noexcept nogil

cpdef tuple extent_of(Columns columns)

cpdef int64_t filled_bytes(Columns columns) noexcept nogil

@cython.locals(first=int64_t, last=int64_t)
cdef int64_t _take_body(
    const uint8_t[::1] data, int64_t count, int64_t base_offset, int64_t last_offset_delta, int64_t base_timestamp,
    int32_t timestamp_type, int64_t start_offset, int64_t max_rows, const uint8_t[::1] topic, int32_t partition,
    Columns columns, MissingRoom missing_room) noexcept nogil

@cython.locals(left=int64_t)
cdef int64_t _row_room(Columns columns, int64_t topic_size) noexcept nogil

@cython.locals(rows=int64_t, topic_at=int64_t)
cdef void _fill_shared(Columns columns, int64_t first, const uint8_t[::1] topic, int32_t partition) noexcept nogil

@cython.locals(first=int64_t, row=int64_t, header=int64_t, key_at=int64_t, value_at=int64_t, name_at=int64_t,
               content_at=int64_t, key_room=int64_t, value_room=int64_t, log_append=bint, last=int64_t, cut=int64_t, most=int64_t,
               is_short=bint, _=int64_t, raw=uint64_t, stop=Py_ssize_t, time=uint64_t, delta=int64_t, header_count=int64_t, key_pos=Py_ssize_t,
               key_size=Py_ssize_t, value_pos=Py_ssize_t, value_size=Py_ssize_t, taken=bint,
               timestamp=int64_t, start=int64_t, _header=int64_t, name=uint64_t, name_pos=Py_ssize_t,
               name_size=Py_ssize_t, content=uint64_t, content_size=Py_ssize_t, offsets='int64_t *',
               timestamps='int64_t *', timestamp_valid='uint8_t *', key_ends='int32_t *', keys='uint8_t *',
               key_valid='uint8_t *', value_ends='int32_t *', values='uint8_t *', value_valid='uint8_t *', header_ends='int32_t *')
cdef int64_t _take(
    const uint8_t *data, Py_ssize_t pos, Py_ssize_t end, int64_t count, int64_t base_offset,
    int64_t last_offset_delta, int64_t base_timestamp, int32_t timestamp_type, int64_t start_offset, int64_t max_rows,
    int64_t room, Columns columns, MissingRoom missing_room) noexcept nogil
