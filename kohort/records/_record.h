/* Records as the compiled modules see them: made at once, and read and changed by the slots of their class.

   _record_type.h has the type, and what becomes of the memory of freed records. */
#ifndef KOHORT_RECORD_H
#define KOHORT_RECORD_H
#include <Python.h>
#include <structmember.h>
#include <stdint.h>

enum { KOHORT_TOPIC, KOHORT_PARTITION, KOHORT_OFFSET, KOHORT_TIMESTAMP, KOHORT_KEY, KOHORT_VALUE, KOHORT_HEADERS,
       KOHORT_ORIGIN, KOHORT_SIZES, KOHORT_FIELDS };
static const char *const kohort_names[KOHORT_FIELDS] = {"topic", "partition", "offset",  "timestamp", "key",
                                                        "value", "headers",   "_origin", "_sizes"};

/* Memory of freed records, linked by the first of their slots. There is one such list (_record_type.h, R4). */
typedef struct {
    PyObject *freed;
    int count;
    destructor free; /* tp_dealloc of the types whose memory may be in the list; NULL without a list */
} kohort_memory;

/* What a module learns at its import. */
static Py_ssize_t kohort_at[KOHORT_FIELDS];
static PyTypeObject *kohort_type = NULL;
static kohort_memory *kohort_reused = NULL; /* or NULL, if ConsumerRecord is the Python class */

static inline PyObject **kohort_slot(PyObject *record, int field) {
    return (PyObject **)((char *)record + kohort_at[field]);
}

static inline int kohort_learn_slots(PyObject *type) {
    for (int field = 0; field < KOHORT_FIELDS; field++) {
        PyObject *slot = PyObject_GetAttrString(type, kohort_names[field]);
        if (slot == NULL) return -1;
        if (!PyObject_TypeCheck(slot, &PyMemberDescr_Type)) {
            Py_DECREF(slot);
            PyErr_Format(PyExc_TypeError, "%s is not a slot", kohort_names[field]);
            return -1;
        }
        kohort_at[field] = ((PyMemberDescrObject *)slot)->d_member->offset;
        Py_DECREF(slot);
    }
    return 0;
}

static inline int kohort_learn_type(PyObject *type, kohort_memory *memory) {
    if (kohort_learn_slots(type)) return -1;
    kohort_type = (PyTypeObject *)Py_NewRef(type);
    if (memory->free != NULL && kohort_type->tp_dealloc == memory->free) kohort_reused = memory;
    return 0;
}

/* A record with empty slots, not tracked by the garbage collector. */
static inline PyObject *kohort_blank(void) {
    if (kohort_reused != NULL && kohort_reused->freed != NULL) {
        PyObject *record = kohort_reused->freed;
        kohort_reused->freed = *kohort_slot(record, 0);
        kohort_reused->count--;
        return PyObject_Init(record, kohort_type);
    }
    PyObject *record = kohort_type->tp_alloc(kohort_type, 0);
    if (record != NULL) PyObject_GC_UnTrack(record); /* it holds nothing that could refer back to it (R3) */
    return record;
}

static inline int kohort_put(PyObject *record, int field, PyObject *value) {
    *kohort_slot(record, field) = value; /* steals it; NULL is an empty slot */
    return value == NULL;
}

static inline PyObject *kohort_bytes(const uint8_t *data, Py_ssize_t size) {
    return size < 0 ? Py_NewRef(Py_None) : PyBytes_FromStringAndSize((const char *)data, size);
}

/* Producers in a hurry write many records in a millisecond. */
static inline PyObject *kohort_time(int64_t timestamp) {
#if !defined(Py_GIL_DISABLED) && !defined(PYPY_VERSION)
    static PyObject *latest = NULL;
    static int64_t latest_timestamp;
    if (latest == NULL || latest_timestamp != timestamp) {
        PyObject *made = PyLong_FromLongLong(timestamp);
        if (made == NULL) return NULL;
        latest_timestamp = timestamp;
        Py_XSETREF(latest, made);
    }
    return Py_NewRef(latest);
#else
    return PyLong_FromLongLong(timestamp);
#endif
}

static inline PyObject *kohort_record(PyObject *topic, PyObject *partition, PyObject *origin, const uint8_t *key,
                                      Py_ssize_t key_size, const uint8_t *value, Py_ssize_t value_size, int64_t offset,
                                      int64_t timestamp, PyObject *headers, PyObject *sizes) {
    PyObject *record = kohort_blank();
    if (record == NULL) return NULL;
    int failed = 0;
    kohort_put(record, KOHORT_TOPIC, Py_NewRef(topic));
    kohort_put(record, KOHORT_PARTITION, Py_NewRef(partition));
    failed |= kohort_put(record, KOHORT_OFFSET, PyLong_FromLongLong(offset));
    failed |= kohort_put(record, KOHORT_TIMESTAMP, kohort_time(timestamp));
    failed |= kohort_put(record, KOHORT_KEY, kohort_bytes(key, key_size));
    failed |= kohort_put(record, KOHORT_VALUE, kohort_bytes(value, value_size));
    kohort_put(record, KOHORT_HEADERS, Py_NewRef(headers));
    kohort_put(record, KOHORT_ORIGIN, Py_NewRef(origin));
    kohort_put(record, KOHORT_SIZES, Py_NewRef(sizes));
    if (failed) Py_CLEAR(record);
    return record;
}

/* Messages: records of a subclass with methods, which read and replace the slots. */
static inline int kohort_check_record(PyObject *record) {
    if (PyObject_TypeCheck(record, kohort_type)) return 0;
    PyErr_Format(PyExc_TypeError, "expected a record, not %s", Py_TYPE(record)->tp_name);
    return -1;
}

static inline PyObject *kohort_part(PyObject *record, int field) {
    if (kohort_check_record(record)) return NULL;
    PyObject *part = *kohort_slot(record, field);
    if (part == NULL) PyErr_SetString(PyExc_AttributeError, kohort_names[field]);
    return Py_XNewRef(part);
}

static inline int kohort_put_part(PyObject *record, int field, PyObject *value) {
    if (kohort_check_record(record)) return -1;
    /* It may refer to the record (R3). */
    if (!PyObject_GC_IsTracked(record) && PyObject_IS_GC(value)) PyObject_GC_Track(record);
    Py_XSETREF(*kohort_slot(record, field), Py_NewRef(value));
    return 0;
}

/* Change the class of records. A check of each class, as Python makes it, costs as much as the record. */
static inline int kohort_change_class(PyObject *records, PyObject *type) {
    PyObject *name = PyUnicode_InternFromString("__class__");
    int failed = name == NULL;
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(records); i++) {
        PyObject *record = PyList_GET_ITEM(records, i);
        /* Both have the slots of a record and no more (R1). */
        if (kohort_reused != NULL && Py_TYPE(record) == kohort_type &&
            ((PyTypeObject *)type)->tp_dealloc == kohort_reused->free) {
            Py_SET_TYPE(record, (PyTypeObject *)Py_NewRef(type));
            Py_DECREF(kohort_type);
            continue;
        }
        failed = PyObject_GenericSetAttr(record, name, type);
    }
    Py_XDECREF(name);
    return failed ? -1 : 0;
}
#endif
