# The types of the compiled _message.py, and the replacement of _primitives.py.
cimport cython

from kohort.records._native cimport build_state

cdef extern from "_native.h":
    enum:
        TOPIC "KOHORT_TOPIC"
        PARTITION "KOHORT_PARTITION"
        OFFSET "KOHORT_OFFSET"
        TIMESTAMP "KOHORT_TIMESTAMP"
        KEY "KOHORT_KEY"
        VALUE "KOHORT_VALUE"
        HEADERS "KOHORT_HEADERS"
        ORIGIN "KOHORT_ORIGIN"
    int prepare_messages "kohort_learn_slots"(object record_type) except -1
    object part_of "kohort_part"(object record, int part)
    int put_part "kohort_put_part"(object record, int part, object value) except -1
    int change_class "kohort_change_class"(list records, object message_type) except -1
    int free_as_records "kohort_free_as_records"(object message_type) except -1
