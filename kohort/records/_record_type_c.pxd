# The memory of freed records, for the compiled modules that create records or change their class.
cdef extern from "_record.h":
    ctypedef struct kohort_memory:
        pass

cdef kohort_memory *memory
cpdef object own_type(type plain)
