/* Types of records with a deallocator in C, and the memory of freed records.

   Records are created and freed by the million. Python frees an instance of a Python class by way of each base of
   the class. The garbage collector counts the instance, and runs after 700 of them. So the class that programs see
   as ConsumerRecord is a type made here. It is a subclass of the Python class of _record.py and adds nothing but
   tp_dealloc: what a record does is written once, in Python. Without the compiled module, the Python class is used.

       ConsumerRecord       Python   what a record does, over the slots of RecordFields
         ConsumerRecord     C        frees its instances: kohort_own_type() of the class above
           ShareRecord      Python   a subclass with a slot more, as programs have, too
           MessageRecord    Python   methods in place of attributes (_message.py)
             a message      Python   a subclass of a compat module
               a message    C        kohort_own_type() of the class above

   A record that is freed loses its parts, and its memory goes to a list. The next record is made there
   (kohort_blank() of _record.h), without the allocator and unseen by the garbage collector. The list is short:
   what exceeds it is given back to Python.

   Invariants:
   R1. An own type has the slots of a record and no more: no dictionary, no weak references, no finalizer. So the
       memory of one fits the others, and a record may change between them. kohort_own_type() refuses other classes.
   R2. Memory in the list holds nothing. Its slots are empty except the first, which is the link. It is untracked,
       and the reference to its type was given back.
   R3. A record is untracked while all of its parts are bytes, numbers, strings or tuples of them. C code that puts
       another part into a record tracks it first. So an untracked record is freed without recursion.
   R4. Only the holder of the interpreter's lock reads or changes the list. A build of Python without the lock has no
       list and no own types. _record_type_c has the list, and other compiled modules get its address.
   R5. Only instances of own types get into the list. Those of Python subclasses may be larger. Python's
       deallocator frees what the subclass adds, and then calls that of the own type below it. */
#ifndef KOHORT_RECORD_TYPE_H
#define KOHORT_RECORD_TYPE_H
#include "_record.h"

#define KOHORT_KEEPS 4096 /* records of a large poll; 450 KB */

static void kohort_free(PyObject *record);

#if !defined(Py_GIL_DISABLED) && !defined(PYPY_VERSION)
static kohort_memory kohort_list = {NULL, 0, kohort_free};
#else
static kohort_memory kohort_list = {NULL, 0, NULL};
#endif

static inline void kohort_empty(PyObject *record) {
    for (int field = 0; field < KOHORT_FIELDS; field++) Py_CLEAR(*kohort_slot(record, field));
}

static void kohort_free(PyObject *record) {
    PyTypeObject *type = Py_TYPE(record);
    if (type->tp_dealloc == kohort_free && !PyObject_GC_IsTracked(record)) {
        kohort_empty(record);
        if (kohort_list.count < KOHORT_KEEPS) {
            *kohort_slot(record, 0) = kohort_list.freed;
            kohort_list.freed = record;
            kohort_list.count++;
        } else {
            type->tp_free(record);
        }
        Py_DECREF(type);
        return;
    }
    /* What a tracked record holds may be nested as deeply as memory allows. */
    PyObject_GC_UnTrack(record);
    Py_TRASHCAN_BEGIN(record, kohort_free)
    kohort_empty(record);
    type->tp_free(record);
    Py_DECREF(type);
    Py_TRASHCAN_END
}

/* An own type: a subclass of this class of records, with its name. It inherits all but tp_dealloc. */
static PyObject *kohort_own_type(PyObject *base, const char *name) {
    PyTypeObject *plain = (PyTypeObject *)base;
    if (kohort_list.free == NULL) return Py_NewRef(base);
    if (plain->tp_basicsize != (Py_ssize_t)(sizeof(PyObject) + KOHORT_FIELDS * sizeof(PyObject *)) ||
        plain->tp_dictoffset || plain->tp_weaklistoffset || plain->tp_finalize || plain->tp_del) {
        PyErr_Format(PyExc_TypeError, "there is more to %s than the fields of a record", name);
        return NULL;
    }
    if (kohort_type == NULL || !PyType_IsSubtype(plain, kohort_type)) { /* its subclasses may hide the slots */
        if (kohort_learn_slots(base)) return NULL;
        kohort_type = (PyTypeObject *)Py_NewRef(base);
    }
    PyType_Slot slots[] = {{Py_tp_dealloc, (void *)kohort_free}, {0, NULL}};
    PyType_Spec spec = {name, (int)plain->tp_basicsize, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
    PyObject *bases = PyTuple_Pack(1, base);
    if (bases == NULL) return NULL;
    PyObject *type = PyType_FromSpecWithBases(&spec, bases);
    Py_DECREF(bases);
    return type;
}
#endif
