# Replacement of _primitives.py in the compiled modules. The callers check the sizes, as its docstrings say.
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "_native.h" nogil:
    const uint32_t KOHORT_SOURCE_STATE
    int16_t kohort_int16(const uint8_t *p)
    int32_t kohort_int32(const uint8_t *p)
    int64_t kohort_int64(const uint8_t *p)
    uint32_t kohort_crc32c(const uint8_t *p, size_t n)
    void kohort_copy(uint8_t *to, Py_ssize_t room, const uint8_t *source, Py_ssize_t there, Py_ssize_t size)
    void kohort_repeat(uint8_t *to, const uint8_t *source, Py_ssize_t size, Py_ssize_t count)
    void kohort_fill_ints(int32_t *to, Py_ssize_t count, int32_t first, int32_t step)
    void kohort_set_bits(uint8_t *bits, Py_ssize_t start, Py_ssize_t stop)
    void kohort_clear_bit(uint8_t *bits, Py_ssize_t at)
    uint64_t kohort_short(const uint8_t *data, Py_ssize_t *pos, Py_ssize_t stop)
    ctypedef struct kohort_fields:
        Py_ssize_t stop, key_pos, key_size, value_pos, value_size, pos
        uint64_t time
        int64_t delta, header_count
    void kohort_read_fields(const uint8_t *data, Py_ssize_t pos, Py_ssize_t end, kohort_fields *found)
    int64_t kohort_wrapped(int64_t base, uint64_t raw)
    void kohort_prepare()

cdef extern from "_unpack.h" nogil:
    void kohort_use(void *lz4, void *zstd, void *create, void *release)
    int64_t kohort_unpack(int codec, const uint8_t *data, int64_t size, uint8_t *scratch, int64_t room)

cdef inline int64_t build_state() noexcept nogil:
    return KOHORT_SOURCE_STATE

cdef inline int64_t int16_at(const uint8_t[::1] data, Py_ssize_t pos) noexcept nogil:
    return kohort_int16(&data[0] + pos)

cdef inline int64_t int32_at(const uint8_t[::1] data, Py_ssize_t pos) noexcept nogil:
    return kohort_int32(&data[0] + pos)

cdef inline int64_t uint32_at(const uint8_t[::1] data, Py_ssize_t pos) noexcept nogil:
    return <uint32_t> kohort_int32(&data[0] + pos)

cdef inline int64_t int64_at(const uint8_t[::1] data, Py_ssize_t pos) noexcept nogil:
    return kohort_int64(&data[0] + pos)

cdef inline int64_t checksum(const uint8_t[::1] data, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
    return kohort_crc32c(&data[0] + start, stop - start)
