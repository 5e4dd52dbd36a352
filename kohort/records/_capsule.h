/* The Arrow C data interface: its structures, how they are filled, and how they are given back.

   This is C, because the owner of a structure may release it on any thread. An exception may be set
   at that time, and then Python code must not run. Each structure has its memory, so that a child may
   be moved out of its parent and outlive it. */
#ifndef KOHORT_CAPSULE_H
#define KOHORT_CAPSULE_H
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef KOHORT_SOURCE_STATE
#define KOHORT_SOURCE_STATE 0u /* setup.py knows it */
#endif

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE
#define ARROW_FLAG_NULLABLE 2
struct ArrowSchema {
    const char *format, *name, *metadata;
    int64_t flags, n_children;
    struct ArrowSchema **children, *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};
struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct ArrowArray **children, *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};
#endif
#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE
struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
    int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
    const char *(*get_last_error)(struct ArrowArrayStream *);
    void (*release)(struct ArrowArrayStream *);
    void *private_data;
};
#endif

/* The columns, as arrow_schema() has them. */
typedef struct kohort_field {
    const char *format, *name;
    int64_t flags, n_children;
    const struct kohort_field *children;
} kohort_field;
static const kohort_field kohort_header[2] = {{"u", "key", 0, 0, NULL}, {"z", "value", ARROW_FLAG_NULLABLE, 0, NULL}};
static const kohort_field kohort_item = {"+s", "item", 0, 2, kohort_header};
static const kohort_field kohort_columns[8] = {
    {"z", "key", ARROW_FLAG_NULLABLE, 0, NULL},
    {"z", "value", ARROW_FLAG_NULLABLE, 0, NULL},
    {"u", "topic", 0, 0, NULL},
    {"i", "partition", 0, 0, NULL},
    {"l", "offset", 0, 0, NULL},
    {"tsm:UTC", "timestamp", ARROW_FLAG_NULLABLE, 0, NULL},
    {"i", "timestampType", 0, 0, NULL},
    {"+l", "headers", 0, 1, &kohort_item},
};
static const kohort_field kohort_rows = {"+s", "", 0, 8, kohort_columns};

static void kohort_release_schema(struct ArrowSchema *schema) {
    for (int64_t i = 0; i < schema->n_children; i++)
        if (schema->children[i]->release) schema->children[i]->release(schema->children[i]);
    free(schema->private_data);
    schema->release = NULL;
}

/* 0, or -1 without memory; then there is nothing to release. */
static int kohort_fill_schema(struct ArrowSchema *out, const kohort_field *field) {
    memset(out, 0, sizeof *out);
    out->format = field->format;
    out->name = field->name;
    out->flags = field->flags;
    out->release = kohort_release_schema;
    if (field->n_children == 0) return 0;
    size_t each = sizeof(struct ArrowSchema *) + sizeof(struct ArrowSchema);
    out->private_data = calloc((size_t)field->n_children, each);
    if (out->private_data == NULL) {
        out->release = NULL;
        return -1;
    }
    out->children = out->private_data;
    struct ArrowSchema *children = (struct ArrowSchema *)(out->children + field->n_children);
    for (int64_t i = 0; i < field->n_children; i++) {
        out->children[i] = children + i;
        out->n_children = i + 1;
        if (kohort_fill_schema(children + i, field->children + i)) {
            out->release(out);
            return -1;
        }
    }
    return 0;
}

enum { KOHORT_BUFFERS = 3 };
typedef struct {
    PyObject *owner; /* keeps the buffers */
    const void *buffers[KOHORT_BUFFERS];
    struct ArrowArray *children[]; /* and behind them the structures */
} kohort_array;

static void kohort_let_go(PyObject *owner) {
    if (owner == NULL || !Py_IsInitialized()) return;
    PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF(owner);
    PyGILState_Release(state);
}

static void kohort_release_array(struct ArrowArray *array) {
    kohort_array *own = array->private_data;
    for (int64_t i = 0; i < array->n_children; i++)
        if (array->children[i]->release) array->children[i]->release(array->children[i]);
    array->release = NULL;
    PyObject *owner = own->owner;
    free(own);
    kohort_let_go(owner);
}

/* A node whose buffers and children are still to be filled; -1 without memory. */
static int kohort_fill_array(struct ArrowArray *out, int64_t n_children, PyObject *owner) {
    memset(out, 0, sizeof *out);
    size_t each = sizeof(struct ArrowArray *) + sizeof(struct ArrowArray);
    kohort_array *own = calloc(1, sizeof *own + (size_t)n_children * each);
    if (own == NULL) return -1;
    struct ArrowArray *children = (struct ArrowArray *)(own->children + n_children);
    for (int64_t i = 0; i < n_children; i++) own->children[i] = children + i;
    own->owner = Py_NewRef(owner);
    out->n_children = n_children;
    out->buffers = own->buffers;
    out->children = n_children ? own->children : NULL;
    out->private_data = own;
    out->release = kohort_release_array;
    return 0;
}

/* A stream of arrays. An array that was taken, or is not filled yet, has no release. */
typedef struct {
    int64_t count, taken;
    struct ArrowArray arrays[];
} kohort_stream;

static int kohort_get_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out) {
    (void)stream;
    return kohort_fill_schema(out, &kohort_rows) ? 12 /* ENOMEM */ : 0;
}
static int kohort_get_next(struct ArrowArrayStream *stream, struct ArrowArray *out) {
    kohort_stream *own = stream->private_data;
    memset(out, 0, sizeof *out); /* the end of the stream is an array without release */
    if (own->taken == own->count) return 0;
    struct ArrowArray *next = &own->arrays[own->taken++];
    *out = *next;
    next->release = NULL;
    return 0;
}
static const char *kohort_last_error(struct ArrowArrayStream *stream) {
    (void)stream;
    return NULL;
}
static void kohort_release_stream(struct ArrowArrayStream *stream) {
    kohort_stream *own = stream->private_data;
    for (int64_t i = 0; i < own->count; i++)
        if (own->arrays[i].release) own->arrays[i].release(&own->arrays[i]);
    free(own);
    stream->release = NULL;
}
/* A stream whose arrays are still to be filled; -1 without memory. */
static int kohort_fill_stream(struct ArrowArrayStream *out, int64_t count) {
    kohort_stream *own = calloc(1, sizeof *own + (size_t)count * sizeof(struct ArrowArray));
    if (own == NULL) return -1;
    own->count = count;
    out->get_schema = kohort_get_schema;
    out->get_next = kohort_get_next;
    out->get_last_error = kohort_last_error;
    out->release = kohort_release_stream;
    out->private_data = own;
    return 0;
}
static struct ArrowArray *kohort_stream_part(struct ArrowArrayStream *stream, int64_t index) {
    kohort_stream *own = stream->private_data;
    return &own->arrays[index];
}

/* Capsules own the structure, and its parts that were not moved out of it. */
#define KOHORT_CAPSULE(kind, type, label)                                                    \
    static void kohort_drop_##kind(PyObject *capsule) {                                      \
        struct type *held = PyCapsule_GetPointer(capsule, label);                            \
        if (held->release) held->release(held);                                              \
        free(held);                                                                          \
    }                                                                                        \
    static PyObject *kohort_##kind##_capsule(struct type *filled) {                          \
        struct type *held = malloc(sizeof *held);                                            \
        PyObject *capsule = NULL;                                                            \
        if (held != NULL) {                                                                  \
            *held = *filled;                                                                 \
            capsule = PyCapsule_New(held, label, kohort_drop_##kind);                        \
        } else {                                                                             \
            PyErr_NoMemory();                                                                \
        }                                                                                    \
        if (capsule == NULL) {                                                               \
            filled->release(filled);                                                         \
            free(held);                                                                      \
        }                                                                                    \
        return capsule;                                                                      \
    }
KOHORT_CAPSULE(schema, ArrowSchema, "arrow_schema")
KOHORT_CAPSULE(array, ArrowArray, "arrow_array")
KOHORT_CAPSULE(stream, ArrowArrayStream, "arrow_array_stream")
#endif
