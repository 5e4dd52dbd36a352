"""Waits for sockets and receives whole frames, without the interpreter's lock. See _poller.py."""

import os

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_SetFromErrno
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, realloc


cdef extern from "Python.h":
    const uint32_t KOHORT_SOURCE_STATE


cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        int fd

    struct epoll_event:
        uint32_t events
        epoll_data_t data

    int epoll_wait(int, epoll_event *, int, int)
    uint32_t EPOLLIN, EPOLLOUT


cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int, void *, size_t, int)
    ssize_t send(int, const void *, size_t, int)
    int MSG_DONTWAIT, MSG_NOSIGNAL


cdef extern from "<time.h>" nogil:
    struct timespec:
        int64_t tv_sec, tv_nsec
    int clock_gettime(int, timespec *)
    int CLOCK_MONOTONIC


cdef enum:
    PREFIX = 4
    ID = 4  # bytes of the correlation id, which a response begins with
    MOST_EVENTS = 64
    WAITING = 0
    HERE = 1
    ENDED = 2


cdef struct Frame:
    int fd
    int have  # bytes of the prefix
    int state  # WAITING, HERE, ENDED, or a negative errno
    bint dry  # nothing can be received before epoll says so
    int64_t size, filled, room
    int64_t awaited_id  # of the response; -1: unknown
    double first_at, last_at  # times of the first and the latest bytes, by CLOCK_MONOTONIC
    uint8_t prefix[PREFIX]
    uint8_t *data


def built_from():
    """Return the state of the source that this was compiled from."""
    return KOHORT_SOURCE_STATE


cdef int number(const uint8_t *data) noexcept nogil:
    return <int> (
        <uint32_t> data[0] << 24 | <uint32_t> data[1] << 16
        | <uint32_t> data[2] << 8 | <uint32_t> data[3])


cdef bint is_another(Frame *frame) noexcept nogil:
    """Return true if the frame begins with another correlation id than the awaited one."""
    return (
        frame.awaited_id >= 0 and frame.filled >= ID and number(frame.data) != frame.awaited_id)


cdef ssize_t receive(Frame *frame, uint8_t *data, int64_t size) noexcept nogil:
    """Receive bytes and return the number, or 0 if the frame is dry or no longer waits."""
    cdef ssize_t got = recv(frame.fd, data, size, MSG_DONTWAIT)
    if got == 0:
        frame.state = ENDED
    elif got < 0 and errno == EAGAIN:  # Linux has the same number for EWOULDBLOCK
        frame.dry = True
    elif got < 0 and errno != EINTR:
        frame.state = -errno
    return max(got, 0)


cdef double now() noexcept nogil:
    cdef timespec time
    clock_gettime(CLOCK_MONOTONIC, &time)
    return time.tv_sec + time.tv_nsec * 1e-9


cdef void count(Frame *frame, ssize_t got) noexcept nogil:
    """Count received bytes of the prefix, or else of the frame."""
    if got > 0:
        frame.last_at = now()
        if frame.have == 0:
            frame.first_at = frame.last_at
    if frame.have < PREFIX:
        frame.have += <int> got
        if frame.have == PREFIX:
            frame.size = number(frame.prefix)
            if not 0 < frame.size <= frame.room:
                frame.state = HERE
    else:
        frame.filled += got
        if frame.filled == frame.size or is_another(frame):  # the rest of another may never come
            frame.state = HERE


cdef void advance(Frame *frame) noexcept nogil:
    """Receive the available bytes of the frame, and no byte after it."""
    cdef ssize_t got
    while frame.state == WAITING and not frame.dry:
        if frame.have < PREFIX:
            count(frame, receive(frame, frame.prefix + frame.have, PREFIX - frame.have))
            continue
        got = receive(frame, frame.data + frame.filled, frame.size - frame.filled)
        if got:
            count(frame, got)
            frame.dry = True  # more bytes are unlikely yet


@cython.no_gc_clear  # it would clear the view without a release
cdef class Receiver:
    """Receives one frame at a time from a non-blocking socket, while a Poller waits."""

    cdef Frame frame
    cdef Py_buffer buffer
    cdef bint started
    cdef object awaited

    def __cinit__(self, int fd):
        self.frame.fd = fd
        self.frame.state = HERE

    def __dealloc__(self):
        self.stop()

    def start(self, view, awaited_id):
        """Receive the next frame into ``view``, without its prefix, if it fits.

        It ends early if it does not begin with ``awaited_id()``, unless that is None.
        """
        self.stop()
        PyObject_GetBuffer(view, &self.buffer, PyBUF_WRITABLE)
        self.started = True
        self.awaited = awaited_id
        self.frame.data = <uint8_t *> self.buffer.buf
        self.frame.room = self.buffer.len
        self.frame.have = 0
        self.frame.size = self.frame.filled = 0
        self.frame.first_at = self.frame.last_at = 0
        self.frame.state = WAITING
        self.frame.dry = True

    def stop(self):
        """Release the view."""
        if self.frame.state == WAITING:
            self.frame.state = HERE
        if self.started:
            self.started = False
            self.awaited = None
            PyBuffer_Release(&self.buffer)

    cdef int look_up_id(self) except -1:
        """Note which response comes next: requests may have been sent since the last time."""
        awaited_id = self.awaited()
        self.frame.awaited_id = -1 if awaited_id is None else awaited_id
        return 0

    def advance(self):
        """Receive the available bytes. Return True if the frame needs no wait."""
        self.look_up_id()
        self.frame.dry = False
        with nogil:
            advance(&self.frame)
        return self.frame.state != WAITING

    def send(self, data):
        """Send without waiting and return the number of bytes. The lock is kept.

        A thread that was woken would take it, and keep it while a response could be received.
        """
        cdef Py_buffer buffer
        cdef ssize_t sent
        cdef int error
        PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
        sent = send(self.frame.fd, buffer.buf, buffer.len, MSG_DONTWAIT | MSG_NOSIGNAL)
        error = errno if sent < 0 else 0
        PyBuffer_Release(&buffer)
        if error and error != EAGAIN and error != EINTR:
            raise OSError(error, os.strerror(error))
        return max(sent, 0)

    @property
    def done(self):
        """True if the frame was received, does not fit, or failed."""
        return self.frame.state != WAITING

    @property
    def prefix(self):
        """Received bytes of the length prefix."""
        return bytes(self.frame.prefix[:self.frame.have])

    @property
    def filled(self):
        """Number of bytes in the view."""
        return self.frame.filled

    @property
    def first_at(self):
        """Time of the first bytes of the frame by CLOCK_MONOTONIC, or 0.0 before them."""
        return self.frame.first_at

    @property
    def last_at(self):
        """Time of the latest bytes of the frame by CLOCK_MONOTONIC, or 0.0 before them."""
        return self.frame.last_at

    @property
    def error(self):
        """The errno of a failure, or 0."""
        return -self.frame.state if self.frame.state < 0 else 0


cdef class Poller:
    """``epoll_wait()`` that receives the frames of :class:`Receiver` objects meanwhile.

    For one thread: the one that starts and stops the receivers.
    """

    cdef int fd
    cdef list receivers
    cdef Frame **frames  # room for one of each receiver

    def __cinit__(self, int epoll_fd):
        self.fd = epoll_fd
        self.receivers = []

    def __dealloc__(self):
        free(self.frames)

    def add(self, Receiver receiver not None):
        """Make poll() receive for it."""
        cdef void *room = realloc(self.frames, (len(self.receivers) + 1) * sizeof(Frame *))
        if room == NULL:
            raise MemoryError
        self.frames = <Frame **> room
        self.receivers.append(receiver)

    def discard(self, Receiver receiver not None):
        """Remove it from poll()."""
        if receiver in self.receivers:
            self.receivers.remove(receiver)

    def poll(self, double timeout):
        """Return (fd, events) of what is ready within ``timeout`` seconds; below 0: no limit.

        A socket whose frame is being received counts as readable when there is no more to wait for.
        """
        cdef epoll_event events[2 * MOST_EVENTS]
        cdef int waiting = 0, ready, index
        cdef bint dry = True
        cdef Receiver receiver
        for each in self.receivers:
            receiver = <Receiver> each
            if receiver.frame.state == WAITING:
                receiver.look_up_id()
                self.frames[waiting] = &receiver.frame
                dry = dry and receiver.frame.dry
                waiting += 1
        # What is ready at once is seen without giving the lock away.
        ready = epoll_wait(self.fd, events, MOST_EVENTS, 0)
        if ready == 0 and timeout == 0 and dry:
            return []
        if ready == 0 or (ready > 0 and waiting):
            with nogil:
                ready = wait(self.fd, events, ready, self.frames, waiting, timeout)
        if ready < 0:
            if errno == EINTR:
                return []
            PyErr_SetFromErrno(OSError)
        return [(events[index].data.fd, events[index].events) for index in range(ready)]


cdef int receive_all(
    epoll_event *events, int ready, Frame **frames, int waiting, bint *dry) noexcept nogil:
    """Receive for the frames that are not dry; return the number of events that are left.

    Frames that no longer wait have an event at the end.
    """
    cdef int index, each, kept = 0, done = 0
    cdef Frame *frame
    for index in range(ready):
        for each in range(waiting):
            if frames[each].fd == events[index].data.fd:
                if events[index].events & ~EPOLLOUT:
                    frames[each].dry = False
                events[index].events &= EPOLLOUT  # a request waits to be sent
        if events[index].events:
            events[kept] = events[index]
            kept += 1
    dry[0] = True
    for each in range(waiting):
        frame = frames[each]
        if done < MOST_EVENTS:
            advance(frame)
        if frame.state != WAITING:
            events[kept].data.fd = frame.fd
            events[kept].events = EPOLLIN
            kept += 1
            done += 1
        dry[0] = dry[0] and frame.dry
    return kept


cdef int wait(
    int fd, epoll_event *events, int ready, Frame **frames, int waiting, double timeout) noexcept nogil:
    """Return the number of events to report; below 0 after an error, which is in errno."""
    cdef double until = now() + timeout, left
    cdef int kept, milliseconds
    cdef bint dry
    while True:
        kept = receive_all(events, ready, frames, waiting, &dry)
        if kept:
            return kept
        if timeout < 0:
            milliseconds = -1
        else:
            left = until - now()
            if (ready or not dry) and left <= 0:
                return 0
            milliseconds = <int> (left * 1000 + 0.999) if 0 < left < 1e6 else 1000000000 if left > 0 else 0
        ready = epoll_wait(fd, events, MOST_EVENTS, milliseconds if dry else 0)
        if ready < 0 or (ready == 0 and dry):
            return ready
