"""LZ4_decompress_safe() of lz4.c, which is compiled into this module; see _lz4.py."""

from libc.stdint cimport uint32_t, uintptr_t


cdef extern from *:
    """
    /* No other module sees or replaces these functions, and the compiler drops those that nothing uses. */
    #define LZ4LIB_VISIBILITY static
    #if defined(__GNUC__) || defined(__clang__)
    #pragma GCC diagnostic ignored "-Wunused-function"
    #endif
    #include "lz4.c"
    #undef likely
    #undef unlikely
    """
    const uint32_t KOHORT_SOURCE_STATE
    int LZ4_decompress_safe(const char *source, char *target, int size, int room) nogil
    const char *LZ4_versionString()


def built_from():
    """Return the state of the source that this was compiled from."""
    return KOHORT_SOURCE_STATE


def version():
    """Return the version of lz4.c."""
    return LZ4_versionString().decode()


def decompressor_address():
    """Return the address of LZ4_decompress_safe()."""
    return <uintptr_t> &LZ4_decompress_safe
