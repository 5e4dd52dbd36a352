# The types of _columns.py where it is compiled.
cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from kohort.records._native cimport (
    build_state, checksum, int16_at, int32_at, int64_at, uint32_at, kohort_copy, kohort_prepare, kohort_unpack, kohort_use,
    kohort_wrapped)

ctypedef (Py_ssize_t, int64_t) (*passing)(
    const uint8_t[::1], Py_ssize_t, Py_ssize_t, int64_t, int64_t, int64_t, bint, const uint8_t[::1], int32_t, Columns,
    uint8_t[::1], Lack) noexcept nogil
ctypedef int64_t (*putting)(
    const uint8_t[::1], Py_ssize_t, Py_ssize_t, int64_t, int64_t, int64_t, int64_t, int32_t, int64_t, int64_t,
    const uint8_t[::1], int32_t, Columns, Lack) noexcept nogil

cdef inline void prepare():
    kohort_prepare()

cdef inline int use_decompressors(uintptr_t lz4, uintptr_t zstd, uintptr_t create, uintptr_t release) except -1:
    kohort_use(<void *> lz4, <void *> zstd, <void *> create, <void *> release)
    return 0

cdef inline int64_t wrapped(int64_t base, uint64_t raw) noexcept nogil:
    return kohort_wrapped(base, raw)

cdef inline void copy(
    uint8_t[::1] target, Py_ssize_t to, const uint8_t[::1] source, Py_ssize_t start, Py_ssize_t size) noexcept nogil:
    if size:
        kohort_copy(&target[0] + to, target.shape[0] - to, &source[0] + start, source.shape[0] - start, size)

cdef inline int64_t unpack(
    int64_t codec, const uint8_t[::1] data, Py_ssize_t start, Py_ssize_t stop, uint8_t[::1] scratch) noexcept nogil:
    return kohort_unpack(
        codec, &data[0] + start, stop - start, &scratch[0] if scratch.shape[0] else NULL, scratch.shape[0])

cdef inline (Py_ssize_t, int64_t) released(
    passing function, const uint8_t[::1] data, Py_ssize_t pos, Py_ssize_t end, int64_t start_offset,
    int64_t max_rows, int64_t max_bytes, bint check_crcs, const uint8_t[::1] topic, int32_t partition,
    Columns columns, uint8_t[::1] scratch, Lack lack):
    cdef (Py_ssize_t, int64_t) result
    with nogil:
        result = function(
            data, pos, end, start_offset, max_rows, max_bytes, check_crcs, topic, partition, columns, scratch, lack)
    return result

cdef inline int64_t filled(
    putting function, const uint8_t[::1] data, Py_ssize_t pos, Py_ssize_t end, int64_t count, int64_t base_offset,
    int64_t last_offset_delta, int64_t base_timestamp, int32_t timestamp_type, int64_t start_offset, int64_t max_rows,
    const uint8_t[::1] topic, int32_t partition, Columns columns, Lack lack):
    cdef int64_t result
    with nogil:
        result = function(
            data, pos, end, count, base_offset, last_offset_delta, base_timestamp, timestamp_type, start_offset, max_rows,
            topic, partition, columns, lack)
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
    cdef int64_t[::1] offsets, timestamps
    cdef int32_t[::1] topic_ends, key_ends, value_ends, header_ends, name_ends, header_value_ends, timestamp_types, partitions
    cdef uint8_t[::1] topics, keys, values, names, header_values
    cdef uint8_t[::1] timestamp_valid, key_valid, value_valid, header_value_valid
    cdef readonly int64_t rows, headers

@cython.final
cdef class Lack:
    cdef readonly int64_t rows, key_bytes, value_bytes, headers, name_bytes, header_value_bytes, scratch

cpdef int use_codecs(uintptr_t lz4, uintptr_t zstd, uintptr_t create, uintptr_t release) except -1

cpdef (Py_ssize_t, int64_t) take_plain(
    const uint8_t[::1] data, Py_ssize_t pos, Py_ssize_t end, int64_t start_offset, int64_t max_rows, int64_t max_bytes,
    bint check_crcs, const uint8_t[::1] topic, int32_t partition, Columns columns, uint8_t[::1] scratch,
    Lack lack) except *

@cython.locals(timestamp_type=int32_t, log_append=bint)
cpdef int64_t take_body(
    const uint8_t[::1] data, object header, int64_t start_offset, int64_t max_rows, const uint8_t[::1] topic,
    int32_t partition, Columns columns, Lack lack) except? -1

@cython.locals(passed=int64_t, size=int64_t, attributes=int64_t, base_offset=int64_t, last_offset_delta=int64_t,
               codec=int64_t, crc=int64_t, body_size=int64_t, log_append=bint, last=int64_t)
cdef (Py_ssize_t, int64_t) _take_plain(
    const uint8_t[::1] data, Py_ssize_t pos, Py_ssize_t end, int64_t start_offset, int64_t max_rows, int64_t max_bytes,
    bint check_crcs, const uint8_t[::1] topic, int32_t partition, Columns columns, uint8_t[::1] scratch,
    Lack lack) noexcept nogil

cdef inline int64_t _filled_bytes(Columns columns) noexcept nogil

@cython.locals(row=int64_t, header=int64_t, topic_size=Py_ssize_t, topic_at=int32_t, key_at=int32_t, value_at=int32_t,
               name_at=int32_t, content_at=int32_t, room=int64_t, topic_room=int64_t, key_room=int64_t,
               value_room=int64_t, log_append=bint, below=int, last=int64_t, cut=int64_t, _=int64_t,
               raw=uint64_t, stop=Py_ssize_t, time=uint64_t, delta=int64_t, key=uint64_t, key_pos=Py_ssize_t,
               key_size=Py_ssize_t, value=uint64_t, value_pos=Py_ssize_t, value_size=Py_ssize_t, taken=bint,
               timestamp=int64_t, _header=int64_t, name=uint64_t, name_pos=Py_ssize_t, name_size=Py_ssize_t,
               content=uint64_t, content_size=Py_ssize_t, bit=int, begin=Py_ssize_t, start=int64_t,
               offsets=int64_t[::1], timestamps=int64_t[::1], timestamp_valid=uint8_t[::1],
               timestamp_types=int32_t[::1], partitions=int32_t[::1], topic_ends=int32_t[::1], topics=uint8_t[::1],
               key_ends=int32_t[::1], keys=uint8_t[::1], key_valid=uint8_t[::1], value_ends=int32_t[::1],
               values=uint8_t[::1], value_valid=uint8_t[::1], header_ends=int32_t[::1])
cdef int64_t _take(
    const uint8_t[::1] data, Py_ssize_t pos, Py_ssize_t end, int64_t count, int64_t base_offset,
    int64_t last_offset_delta, int64_t base_timestamp, int32_t timestamp_type, int64_t start_offset, int64_t max_rows,
    const uint8_t[::1] topic, int32_t partition, Columns columns, Lack lack) noexcept nogil

@cython.locals(rows=int64_t, key_bytes=int64_t, value_bytes=int64_t, headers=int64_t, name_bytes=int64_t,
               header_value_bytes=int64_t, raw=uint64_t, delta=int64_t, _ignored=uint64_t, stop=Py_ssize_t, key=uint64_t,
               key_size=Py_ssize_t, value=uint64_t, value_size=Py_ssize_t, taken=bint, name=uint64_t, content=uint64_t,
               content_size=Py_ssize_t, _=int64_t, _header=int64_t)
cdef int64_t _measure(
    const uint8_t[::1] data, Py_ssize_t pos, Py_ssize_t end, int64_t count, int64_t start, int64_t max_rows,
    Lack lack) noexcept nogil

@cython.locals(raw=uint64_t, shift=int, byte=uint64_t)
cdef inline (uint64_t, Py_ssize_t) _short(const uint8_t[::1] data, Py_ssize_t pos, Py_ssize_t stop) noexcept nogil

@cython.locals(raw=uint64_t, shift=int, byte=uint64_t)
cdef inline (uint64_t, Py_ssize_t) _long(const uint8_t[::1] data, Py_ssize_t pos, Py_ssize_t stop) noexcept nogil
