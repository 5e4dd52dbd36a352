/* The awaitable of one step of "async for", which takes a record when it is awaited and not before.

   It behaves as a coroutine of the iterator's method _step(). It creates that coroutine only if no
   record can be taken at once. So a task that is cancelled before it awaits has taken nothing. */
#ifndef KOHORT_STEP_H
#define KOHORT_STEP_H

#include <Python.h>
#include <stdint.h>
#include <time.h>

typedef PyObject *(*kohort_taker)(PyObject *owner);

typedef struct {
    PyObject_HEAD
    PyObject *owner;     /* the iterator; NULL once it has begun */
    PyObject *coroutine; /* of _step(); NULL unless it has begun and waits */
} kohort_step_object;

static kohort_taker kohort_take = NULL; /* returns a new reference, or None without a record */
static PyTypeObject *kohort_step_type = NULL;
static PyObject *kohort_spare_step = NULL; /* freed memory of a step, for the next one */

static PySendResult kohort_step_send(PyObject *op, PyObject *value, PyObject **result)
{
    kohort_step_object *self = (kohort_step_object *)op;
    PySendResult outcome;
    PyObject *owner = self->owner, *coroutine;
    *result = NULL;
    if (owner != NULL) {
        if (value != NULL && value != Py_None) {
            PyErr_SetString(PyExc_TypeError, "can't send non-None value to a just-started coroutine");
            return PYGEN_ERROR;
        }
        self->owner = NULL;
        *result = kohort_take(owner);
        if (*result == NULL || *result != Py_None) {
            Py_DECREF(owner);
            return *result == NULL ? PYGEN_ERROR : PYGEN_RETURN;
        }
        Py_CLEAR(*result);
        self->coroutine = PyObject_CallMethod(owner, "_step", NULL);
        Py_DECREF(owner);
        if (self->coroutine == NULL)
            return PYGEN_ERROR;
    }
    coroutine = self->coroutine;
    if (coroutine == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "cannot reuse already awaited coroutine");
        return PYGEN_ERROR;
    }
    Py_INCREF(coroutine);
    outcome = PyIter_Send(coroutine, value == NULL ? Py_None : value, result);
    Py_DECREF(coroutine);
    if (outcome != PYGEN_NEXT)
        Py_CLEAR(self->coroutine);
    return outcome;
}

/* The result of an iterator's next step: what was yielded, or NULL with StopIteration or an error. */
static PyObject *kohort_step_result(PySendResult outcome, PyObject *result)
{
    PyObject *stop;
    if (outcome != PYGEN_RETURN)
        return result;
    stop = PyObject_CallOneArg(PyExc_StopIteration, result);
    Py_DECREF(result);
    if (stop != NULL) {
        PyErr_SetObject(PyExc_StopIteration, stop);
        Py_DECREF(stop);
    }
    return NULL;
}

static PyObject *kohort_step_next(PyObject *op)
{
    PyObject *result;
    PySendResult outcome = kohort_step_send(op, Py_None, &result);
    return kohort_step_result(outcome, result);
}

static PyObject *kohort_step_send_value(PyObject *op, PyObject *value)
{
    PyObject *result;
    PySendResult outcome = kohort_step_send(op, value, &result);
    return kohort_step_result(outcome, result);
}

static PyObject *kohort_step_throw(PyObject *op, PyObject *args)
{
    kohort_step_object *self = (kohort_step_object *)op;
    PyObject *coroutine, *method, *result;
    if (self->owner != NULL) {
        PyObject *owner = self->owner;
        self->owner = NULL;
        self->coroutine = PyObject_CallMethod(owner, "_step", NULL);
        Py_DECREF(owner);
        if (self->coroutine == NULL)
            return NULL;
    }
    coroutine = self->coroutine;
    if (coroutine == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "cannot reuse already awaited coroutine");
        return NULL;
    }
    Py_INCREF(coroutine);
    method = PyObject_GetAttrString(coroutine, "throw");
    result = method == NULL ? NULL : PyObject_Call(method, args, NULL);
    Py_XDECREF(method);
    Py_DECREF(coroutine);
    if (result == NULL) /* it returned, or it raised */
        Py_CLEAR(self->coroutine);
    return result;
}

static PyObject *kohort_step_close(PyObject *op, PyObject *unused)
{
    kohort_step_object *self = (kohort_step_object *)op;
    PyObject *coroutine = self->coroutine, *result;
    (void)unused;
    Py_CLEAR(self->owner);
    if (coroutine == NULL)
        Py_RETURN_NONE;
    Py_INCREF(coroutine);
    result = PyObject_CallMethod(coroutine, "close", NULL);
    Py_DECREF(coroutine);
    if (result != NULL)
        Py_CLEAR(self->coroutine);
    return result;
}

static int kohort_step_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(((kohort_step_object *)op)->owner);
    Py_VISIT(((kohort_step_object *)op)->coroutine);
    return 0;
}

static int kohort_step_clear(PyObject *op)
{
    Py_CLEAR(((kohort_step_object *)op)->owner);
    Py_CLEAR(((kohort_step_object *)op)->coroutine);
    return 0;
}

static void kohort_step_dealloc(PyObject *op)
{
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    kohort_step_clear(op);
#ifndef Py_GIL_DISABLED
    if (kohort_spare_step == NULL)
        kohort_spare_step = op;
    else
#endif
        PyObject_GC_Del(op);
    Py_DECREF(type);
}

static PyObject *kohort_step_await(PyObject *op)
{
    if (((kohort_step_object *)op)->coroutine != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "coroutine is being awaited already");
        return NULL;
    }
    return Py_NewRef(op);
}

static PyMethodDef kohort_step_methods[] = {
    {"send", kohort_step_send_value, METH_O, "Go on, as a coroutine does."},
    {"throw", kohort_step_throw, METH_VARARGS, "Raise an exception where it waits, as a coroutine does."},
    {"close", kohort_step_close, METH_NOARGS, "End it, as a coroutine does."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot kohort_step_slots[] = {
    {Py_tp_doc, "Awaitable of the next record."},
    {Py_tp_dealloc, kohort_step_dealloc},
    {Py_tp_traverse, kohort_step_traverse},
    {Py_tp_clear, kohort_step_clear},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, kohort_step_next},
    {Py_tp_methods, kohort_step_methods},
    {Py_am_await, kohort_step_await},
    {Py_am_send, kohort_step_send},
    {0, NULL},
};

static PyType_Spec kohort_step_spec = {
    "kohort.records.Step",
    sizeof(kohort_step_object),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    kohort_step_slots,
};

#if defined(__linux__) && defined(CLOCK_MONOTONIC_COARSE)
#define KOHORT_READS_CLOCK
#endif

static PyObject *kohort_time_monotonic = NULL; /* time.monotonic */

/* True if kohort_monotonic() may be called in place of the clock. */
static int kohort_is_monotonic(PyObject *clock)
{
#ifdef KOHORT_READS_CLOCK
    struct timespec tick; /* none, where the system call is refused */
    if (clock_getres(CLOCK_MONOTONIC_COARSE, &tick) || tick.tv_sec || tick.tv_nsec > 10000000)
        return 0;
    return clock == kohort_time_monotonic && !clock_gettime(CLOCK_MONOTONIC_COARSE, &tick);
#else
    (void)clock;
    return 0;
#endif
}

/* The time of time.monotonic(), or its latest one until the kernel's tick (1 to 10 ms) after that.

   The time of the latest tick is read in 3 ns, the exact one in 20 and more. `tick` is -1 at first. */
static double kohort_monotonic(int64_t *tick, double latest)
{
#ifdef KOHORT_READS_CLOCK
    struct timespec at;
    int64_t now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &at);
    now = (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
    if (now != *tick) {
        *tick = now;
        clock_gettime(CLOCK_MONOTONIC, &at);
        latest = (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
    }
#else
    (void)tick;
#endif
    return latest;
}

static int kohort_prepare_steps(kohort_taker take)
{
    PyObject *module = PyImport_ImportModule("time");
    if (module == NULL)
        return -1;
    kohort_time_monotonic = PyObject_GetAttrString(module, "monotonic");
    Py_DECREF(module);
    if (kohort_time_monotonic == NULL)
        return -1;
    kohort_take = take;
    kohort_step_type = (PyTypeObject *)PyType_FromSpec(&kohort_step_spec);
    return kohort_step_type == NULL ? -1 : 0;
}

/* An awaitable of the owner's next step. */
static PyObject *kohort_step(PyObject *owner)
{
    kohort_step_object *step = (kohort_step_object *)kohort_spare_step;
    if (step != NULL) {
        kohort_spare_step = NULL;
        PyObject_Init((PyObject *)step, kohort_step_type);
    } else {
        step = PyObject_GC_New(kohort_step_object, kohort_step_type);
        if (step == NULL)
            return NULL;
    }
    step->coroutine = NULL;
    step->owner = Py_NewRef(owner);
    PyObject_GC_Track(step);
    return (PyObject *)step;
}

#endif
