"""Types of records that free their instances in C; see _record_type.h."""

from libc.stdint cimport uint32_t

from kohort.records._native cimport build_state


cdef extern from "_record_type.h":
    kohort_memory kohort_list
    object kohort_own_type(object base, const char *name)


cdef kohort_memory *memory = &kohort_list


def built_from():
    """As in ``_record_decoder``."""
    return build_state()


cpdef object own_type(type plain):
    """A subclass of a class of records that frees its instances in C, with the name of the class."""
    made = kohort_own_type(plain, f"{plain.__module__}.{plain.__name__}".encode())
    made.__qualname__, made.__doc__ = plain.__qualname__, plain.__doc__
    return made
