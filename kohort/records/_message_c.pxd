# The types of the compiled _message.py, and the replacement of _primitives.py.
cimport cython

from kohort.records._native cimport build_state
from kohort.records._record_type_c cimport kohort_memory, memory, own_type

cdef extern from "_record.h":
    enum:
        TOPIC "KOHORT_TOPIC"
        PARTITION "KOHORT_PARTITION"
        OFFSET "KOHORT_OFFSET"
        TIMESTAMP "KOHORT_TIMESTAMP"
        KEY "KOHORT_KEY"
        VALUE "KOHORT_VALUE"
        HEADERS "KOHORT_HEADERS"
        ORIGIN "KOHORT_ORIGIN"
    kohort_memory *kohort_reused
    int kohort_learn_type(object type, kohort_memory *memory) except -1
    object part_of "kohort_part"(object record, int part)
    int put_part "kohort_put_part"(object record, int part, object value) except -1
    int change_class "kohort_change_class"(list records, object message_type) except -1
    int put_lock "kohort_put_lock"(list records, object message_type, object lock) except -1
    int prepare_locks "kohort_learn_locks"(object lock_type) except -1
    bint put_marks "kohort_put_marks"(tuple records, object owner, int mark) except -1

# In place of _primitives.py.
cdef inline int prepare_messages(object record_type) except -1:
    return kohort_learn_type(record_type, memory)

cdef inline object freed_as_records(type message_type):
    return message_type if kohort_reused == NULL else own_type(message_type)
