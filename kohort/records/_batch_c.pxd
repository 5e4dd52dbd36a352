# The types of _batch.py where it is compiled, and what stands in place of _primitives.py.
cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "_native.h" nogil:
    int16_t kohort_int16(const uint8_t *p)
    int32_t kohort_int32(const uint8_t *p)
    int64_t kohort_int64(const uint8_t *p)
    const uint32_t KOHORT_SOURCE_STATE
    uint32_t kohort_crc32c(const uint8_t *p, size_t n)

cdef extern from "_native.h":
    void kohort_prepare()
    int kohort_learn_slots(object type) except -1
    object kohort_record(
        object topic, object partition, object origin,
        const uint8_t *key, Py_ssize_t key_size, const uint8_t *value, Py_ssize_t value_size,
        int64_t offset, int64_t timestamp, object headers, object sizes)
    bytes PyBytes_FromStringAndSize(const char *data, Py_ssize_t size)

# In place of _primitives.py. The callers see to it that the bytes are there, as said in its docstrings.
cdef inline int prepare(object record_type) except -1:
    kohort_prepare()
    return kohort_learn_slots(record_type)

cdef inline int64_t build_state() noexcept nogil:
    return KOHORT_SOURCE_STATE

cdef inline int64_t int16_at(const uint8_t[::1] data, Py_ssize_t pos) noexcept nogil:
    return kohort_int16(&data[0] + pos)

cdef inline int64_t int32_at(const uint8_t[::1] data, Py_ssize_t pos) noexcept nogil:
    return kohort_int32(&data[0] + pos)

cdef inline int64_t int64_at(const uint8_t[::1] data, Py_ssize_t pos) noexcept nogil:
    return kohort_int64(&data[0] + pos)

cdef inline int64_t checksum(const uint8_t[::1] data, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
    return kohort_crc32c(&data[0] + start, stop - start)

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

# The types of _batch.py.
cdef int64_t _WIDE
cdef int64_t _HEADER_SIZE
cdef int64_t _MAX_BASE_OFFSET
cdef int64_t _PLAIN

@cython.final
cdef class Scan:
    cdef readonly Py_ssize_t end
    cdef readonly Py_ssize_t batches
    cdef readonly int64_t next_offset
    cdef readonly int64_t leader_epoch

@cython.locals(found=Scan, pos=Py_ssize_t, left=Py_ssize_t, size=int64_t, base_offset=int64_t, last_offset_delta=int64_t)
cpdef Scan scan(const uint8_t[::1] data)

@cython.locals(size=int64_t, attributes=int64_t, base_offset=int64_t, last_offset_delta=int64_t, crc=int64_t,
               before=Py_ssize_t, passed=int64_t)
cpdef (Py_ssize_t, int64_t) read_plain(
    const uint8_t[::1] data, Py_ssize_t pos, Py_ssize_t end, list records, Py_ssize_t enough, int64_t start_offset,
    bint check_crcs, object topic, object partition) except *

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
