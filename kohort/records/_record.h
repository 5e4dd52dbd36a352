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

static inline int kohort_learn_slot(PyObject *type, const char *name, Py_ssize_t *at) {
    PyObject *slot = PyObject_GetAttrString(type, name);
    if (slot == NULL) return -1;
    if (!PyObject_TypeCheck(slot, &PyMemberDescr_Type)) {
        Py_DECREF(slot);
        PyErr_Format(PyExc_TypeError, "%s is not a slot", name);
        return -1;
    }
    *at = ((PyMemberDescrObject *)slot)->d_member->offset;
    Py_DECREF(slot);
    return 0;
}

static inline int kohort_learn_slots(PyObject *type) {
    for (int field = 0; field < KOHORT_FIELDS; field++)
        if (kohort_learn_slot(type, kohort_names[field], &kohort_at[field])) return -1;
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

/* Change the class of a record. A check of each class, as Python makes it, costs as much as the record. */
static inline int kohort_put_class(PyObject *record, PyObject *type) {
    /* Both have the slots of a record and no more (R1). */
    if (kohort_reused != NULL && Py_TYPE(record) == kohort_type &&
        ((PyTypeObject *)type)->tp_dealloc == kohort_reused->free) {
        Py_SET_TYPE(record, (PyTypeObject *)Py_NewRef(type));
        Py_DECREF(kohort_type);
        return 0;
    }
    PyObject *name = PyUnicode_InternFromString("__class__");
    int failed = name == NULL || PyObject_GenericSetAttr(record, name, type);
    Py_XDECREF(name);
    return failed ? -1 : 0;
}

static inline int kohort_change_class(PyObject *records, PyObject *type) {
    int failed = 0;
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(records); i++)
        failed = kohort_put_class(PyList_GET_ITEM(records, i), type);
    return failed;
}

/* Locks: the last of the values that the records of a batch share. Python has their class, and changes them.
   These functions call nothing of Python's between a check and the change that depends on it. */
static struct {
    PyTypeObject *type;
    Py_ssize_t owner, first, open;
} kohort_locks = {NULL, 0, 0, 0};

static inline int kohort_learn_locks(PyObject *type) {
    if (kohort_learn_slot(type, "owner", &kohort_locks.owner) || kohort_learn_slot(type, "first", &kohort_locks.first) ||
        kohort_learn_slot(type, "open", &kohort_locks.open))
        return -1;
    Py_XSETREF(kohort_locks.type, (PyTypeObject *)Py_NewRef(type));
    return 0;
}

/* Add a lock to the origin of records, and change their class. A lock refers to no record, so R3 holds. */
static inline int kohort_put_lock(PyObject *records, PyObject *type, PyObject *lock) {
    PyObject *plain = NULL, *shared = NULL, *last = PyTuple_Pack(1, lock);
    int failed = last == NULL;
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(records); i++) {
        PyObject *record = PyList_GET_ITEM(records, i);
        PyObject *origin = kohort_part(record, KOHORT_ORIGIN);
        if (origin != NULL && origin != plain) {
            Py_XSETREF(shared, PySequence_Concat(origin, last));
            Py_XSETREF(plain, Py_NewRef(origin));
        }
        failed = origin == NULL || shared == NULL;
        Py_XDECREF(origin);
        if (failed) break;
        Py_XSETREF(*kohort_slot(record, KOHORT_ORIGIN), Py_NewRef(shared));
        failed = kohort_put_class(record, type);
    }
    Py_XDECREF(plain);
    Py_XDECREF(shared);
    Py_XDECREF(last);
    return failed ? -1 : 0;
}

#define KOHORT_LOCK 3 /* its place in the origin */

static inline PyObject *kohort_lock_part(PyObject *lock, Py_ssize_t at) { return *(PyObject **)((char *)lock + at); }

/* Find the byte of a record in the open range of its lock. 0 unless it has one. */
static inline int kohort_mark_of(PyObject *record, PyObject *owner, char **mark) {
    if (!PyObject_TypeCheck(record, kohort_type)) return 0;
    PyObject *origin = *kohort_slot(record, KOHORT_ORIGIN), *offset = *kohort_slot(record, KOHORT_OFFSET);
    if (origin == NULL || !PyTuple_Check(origin) || PyTuple_GET_SIZE(origin) <= KOHORT_LOCK) return 0;
    PyObject *lock = PyTuple_GET_ITEM(origin, KOHORT_LOCK);
    if (Py_TYPE(lock) != kohort_locks.type || kohort_lock_part(lock, kohort_locks.owner) != owner) return 0;
    PyObject *open = kohort_lock_part(lock, kohort_locks.open), *first = kohort_lock_part(lock, kohort_locks.first);
    if (open == NULL || !PyByteArray_CheckExact(open)) return 0;
    if (offset == NULL || !PyLong_Check(offset) || first == NULL || !PyLong_Check(first)) return 0;
    int64_t at = PyLong_AsLongLong(offset) - PyLong_AsLongLong(first);
    if (PyErr_Occurred()) return -1;
    if (at < 0 || at >= PyByteArray_GET_SIZE(open)) return 0;
    *mark = PyByteArray_AS_STRING(open) + at;
    return 1;
}

/* Set the byte of each record in the open range of its lock. 0 and none set unless all have one. */
static inline int kohort_put_marks(PyObject *records, PyObject *owner, int mark) {
#if !defined(Py_GIL_DISABLED) && !defined(PYPY_VERSION)
    Py_ssize_t count = PyTuple_GET_SIZE(records);
    char *found = NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        int has = kohort_mark_of(PyTuple_GET_ITEM(records, i), owner, &found);
        if (has <= 0) return has;
    }
    if (count == 1) *found = (char)mark; /* the usual case */
    else
        for (Py_ssize_t i = 0; i < count; i++)
            if (kohort_mark_of(PyTuple_GET_ITEM(records, i), owner, &found) > 0) *found = (char)mark;
    return count > 0;
#else
    (void)records, (void)owner, (void)mark;
    return 0;
#endif
}
#endif
