# The types of the compiled _record_decoder.py, and the replacement of _primitives.py.
cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t

from kohort.records._native cimport (
    build_state, checksum, int16_at, int32_at, int64_at, uint32_at, kohort_prepare, kohort_unpack, kohort_use)
from kohort.records._record_type_c cimport kohort_memory, memory

cdef extern from "_record.h":
    int kohort_learn_type(object type, kohort_memory *memory) except -1
    object kohort_record(
        object topic, object partition, object origin,
        const uint8_t *key, Py_ssize_t key_size, const uint8_t *value, Py_ssize_t value_size,
        int64_t offset, int64_t timestamp, object headers, object sizes)
    bytes PyBytes_FromStringAndSize(const char *data, Py_ssize_t size)

# In place of _primitives.py, with what is in _native.pxd.
cdef inline int prepare(object record_type) except -1:
    kohort_prepare()
    return kohort_learn_type(record_type, memory)

cdef inline const uint8_t[::1] window(const uint8_t[::1] data, Py_ssize_t start, Py_ssize_t stop):
    return data[start:stop]

cdef inline bytes cut(const uint8_t[::1] data, Py_ssize_t start, Py_ssize_t stop):
    return PyBytes_FromStringAndSize(<const char *> &data[0] + start, stop - start)

cdef inline object new_record(
    object topic, object partition, object origin, const uint8_t[::1] data, Py_ssize_t key_at, Py_ssize_t key_size,
    Py_ssize_t value_at, Py_ssize_t value_size, int64_t offset, int64_t timestamp, object headers, object sizes):
    return kohort_record(
        topic, partition, origin, &data[0] + key_at, key_size, &data[0] + value_at, value_size, offset, timestamp,
        headers, sizes)

cdef inline int use_decompressors(uintptr_t lz4, uintptr_t zstd, uintptr_t create, uintptr_t release) except -1:
    kohort_use(<void *> lz4, <void *> zstd, <void *> create, <void *> release)
    return 0

cdef inline int64_t unpack(
    int64_t codec, const uint8_t[::1] data, Py_ssize_t start, Py_ssize_t stop, uint8_t[::1] scratch):
    cdef const uint8_t *source = &data[0] + start
    cdef uint8_t *target = &scratch[0] if scratch.shape[0] else NULL
    cdef int64_t size
    with nogil:
        size = kohort_unpack(codec, source, stop - start, target, scratch.shape[0])
    return size

# The types of _record_decoder.py.
cpdef int use_lz4(uintptr_t address) except -1

cdef int64_t _WIDE
cdef int64_t _HEADER_SIZE
cdef int64_t _MAX_BASE_OFFSET
cdef int64_t _PLAIN
cdef int64_t _LZ4

@cython.final
cdef class Scan:
    cdef readonly Py_ssize_t end
    cdef readonly Py_ssize_t batches
    cdef readonly int64_t next_offset
    cdef readonly int64_t leader_epoch

@cython.locals(found=Scan, pos=Py_ssize_t, left=Py_ssize_t, size=int64_t, base_offset=int64_t, last_offset_delta=int64_t)
cpdef Scan scan(const uint8_t[::1] data)

@cython.locals(size=int64_t, attributes=int64_t, base_offset=int64_t, last_offset_delta=int64_t, crc=int64_t,
               before=Py_ssize_t, passed=int64_t, codec=int64_t, body_size=int64_t, count=int64_t, log_append=bint,
               timestamp=int64_t)
cpdef (Py_ssize_t, int64_t) read_plain(
    const uint8_t[::1] data, Py_ssize_t pos, Py_ssize_t end, list records, Py_ssize_t enough, int64_t start_offset,
    bint check_crcs, object topic, object partition, uint8_t[::1] scratch) except *

@cython.locals(end=Py_ssize_t, first=Py_ssize_t, last=int64_t, raw=uint64_t, high=uint64_t, stop=Py_ssize_t,
               delta=int64_t, timestamp=int64_t, key_at=Py_ssize_t, key_size=Py_ssize_t, value_at=Py_ssize_t,
               value_size=Py_ssize_t, header_size=Py_ssize_t, wide=bint, _=Py_ssize_t, origin=tuple, sizes=tuple)
cpdef int decode_records(
    const uint8_t[::1] data, Py_ssize_t pos, int64_t count, int64_t base_offset, int64_t last_offset_delta,
    int64_t base_timestamp, bint log_append, object leader_epoch, object topic, object partition,
    list records) except -1

@cython.locals(raw=uint64_t, count=int64_t, size=Py_ssize_t, split=Py_ssize_t, _=Py_ssize_t)
cdef tuple _headers(const uint8_t[::1] data, Py_ssize_t pos, Py_ssize_t stop)

@cython.locals(raw=uint64_t, shift=int, byte=uint64_t)
cdef (uint64_t, Py_ssize_t) _varint(const uint8_t[::1] data, Py_ssize_t pos) except *

@cython.locals(raw=uint64_t, shift=int, byte=uint64_t)
cdef (uint64_t, Py_ssize_t) _varlong(const uint8_t[::1] data, Py_ssize_t pos) except *
