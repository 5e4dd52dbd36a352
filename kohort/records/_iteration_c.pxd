# The types of the compiled _iteration.py, and the replacement of _primitives.py.
cimport cython
from libc.stdint cimport int64_t

from kohort.records._native cimport build_state

cdef extern from "_step.h":
    ctypedef object (*kohort_taker)(object)
    int kohort_prepare_steps(kohort_taker take) except -1
    object kohort_step(object owner)
    bint kohort_is_monotonic(object clock)
    double kohort_monotonic(int64_t *tick, double latest) noexcept

@cython.final
cdef class WakeUp:
    cdef object __weakref__
    cdef public bint is_set
    cdef public double taken_at

@cython.final
cdef class RecordRun:
    cdef public WakeUp wake_up
    cdef object _clock
    cdef bint _is_monotonic
    cdef int64_t _tick
    cdef public double now
    cdef public list records
    cdef public Py_ssize_t first
    cdef public Py_ssize_t index
    cdef public Py_ssize_t stop
    cdef public double until

    cdef inline double clock(self) except? -1:
        if self._is_monotonic:
            return kohort_monotonic(&self._tick, self.now)
        return self._clock()

cdef class SyncIteration:
    cdef public RecordRun _record_run

cdef class AsyncIteration:
    cdef public RecordRun _record_run

# In place of _primitives.py.
cdef inline object take_next(object owner):
    cdef RecordRun run = (<AsyncIteration> owner)._record_run
    if run is None:
        return None
    run.now = run.clock()
    if run.index < run.stop and not run.wake_up.is_set and run.now < run.until:
        run.wake_up.taken_at = run.now
        record = run.records[run.index]
        run.index += 1
        return record
    return None

cdef inline int use_clock(RecordRun run, object clock) except -1:
    run._clock = clock
    run._is_monotonic = kohort_is_monotonic(clock)
    run._tick = -1
    return 0

cdef inline int prepare_steps() except -1:
    return kohort_prepare_steps(take_next)

cdef inline object next_step(AsyncIteration self):
    cdef RecordRun run = self._record_run
    if run is None or run.index >= run.stop or run.wake_up.is_set:
        return self._step()
    return kohort_step(self)
