"""Capsules of the Arrow C data interface over memory that Python has; see _capsule.py and _capsule.h."""

from cpython.bytearray cimport PyByteArray_FromStringAndSize
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint32_t


cdef extern from "_capsule.h":
    const uint32_t KOHORT_SOURCE_STATE

    ctypedef struct kohort_field:
        int64_t n_children
        const kohort_field *children

    struct ArrowSchema:
        pass

    struct ArrowArray:
        int64_t length, null_count, offset, n_buffers
        const void **buffers
        ArrowArray **children
        void (*release)(ArrowArray *) noexcept

    struct ArrowArrayStream:
        void (*release)(ArrowArrayStream *) noexcept

    const kohort_field kohort_rows
    int kohort_fill_schema(ArrowSchema *, const kohort_field *)
    int kohort_fill_array(ArrowArray *, int64_t, object)
    int kohort_fill_stream(ArrowArrayStream *, int64_t)
    ArrowArray *kohort_stream_part(ArrowArrayStream *, int64_t)
    object kohort_schema_capsule(ArrowSchema *)
    object kohort_array_capsule(ArrowArray *)
    object kohort_stream_capsule(ArrowArrayStream *)


def built_from():
    """As in ``_record_decoder``."""
    return KOHORT_SOURCE_STATE


def unset_bytes(Py_ssize_t size):
    """A bytearray of any content, because zeros would cost as much as the decoding of the records."""
    return PyByteArray_FromStringAndSize(NULL, size)


def schema_capsule():
    """An ``arrow_schema`` of the columns."""
    cdef ArrowSchema schema
    if kohort_fill_schema(&schema, &kohort_rows):
        raise MemoryError
    return kohort_schema_capsule(&schema)


def array_capsule(nodes, owner):
    """An ``arrow_array`` of (length, offset, null_count, buffers) for each node, parents first.

    ``owner`` is kept for as long as anybody has a part of it, and has to keep the buffers as they are.
    """
    cdef ArrowArray array
    _fill(&array, &kohort_rows, iter(nodes), owner)
    return kohort_array_capsule(&array)


def stream_capsule(parts):
    """An ``arrow_array_stream`` of these arrays, each of which is (nodes, owner) as above."""
    cdef ArrowArrayStream stream
    cdef int64_t index
    if kohort_fill_stream(&stream, len(parts)):
        raise MemoryError
    try:
        for index, (nodes, owner) in enumerate(parts):
            _fill(kohort_stream_part(&stream, index), &kohort_rows, iter(nodes), owner)
    except BaseException:
        stream.release(&stream)
        raise
    return kohort_stream_capsule(&stream)


cdef int _fill(ArrowArray *out, const kohort_field *field, nodes, owner) except -1:
    cdef Py_buffer view
    cdef int64_t index
    length, offset, null_count, buffers = next(nodes)
    if kohort_fill_array(out, field.n_children, owner):
        raise MemoryError
    try:
        out.length, out.offset, out.null_count = length, offset, null_count
        for buffer in buffers:
            if buffer is not None:
                PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
                out.buffers[out.n_buffers] = view.buf
                PyBuffer_Release(&view)
            out.n_buffers += 1
        for index in range(field.n_children):
            _fill(out.children[index], &field.children[index], nodes, owner)
    except BaseException:
        out.release(out)
        raise
    return 0
