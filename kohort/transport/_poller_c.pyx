"""Waits for sockets and receives whole frames, without the interpreter's lock; see _poller.py."""

import os

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_SetFromErrno
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t


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
    int64_t size, filled, room
    int64_t awaited_id  # of the response; -1: unknown
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
    """True if what came begins with another correlation id than the awaited one."""
    return (
        frame.awaited_id >= 0 and frame.filled >= ID and number(frame.data) != frame.awaited_id)


cdef void advance(Frame *frame) noexcept nogil:
    """Receive what is there of the frame, and nothing behind it."""
    cdef ssize_t got
    while frame.state == WAITING:
        if frame.have < PREFIX:
            got = recv(frame.fd, frame.prefix + frame.have, PREFIX - frame.have, MSG_DONTWAIT)
        else:
            got = recv(frame.fd, frame.data + frame.filled, frame.size - frame.filled, MSG_DONTWAIT)
        if got == 0:
            frame.state = ENDED
        elif got < 0:
            if errno == EINTR:
                continue
            if errno != EAGAIN:  # Linux has the same number for EWOULDBLOCK
                frame.state = -errno
            return
        elif frame.have < PREFIX:
            frame.have += <int> got
            if frame.have == PREFIX:
                frame.size = number(frame.prefix)
                if not 0 < frame.size <= frame.room:
                    frame.state = HERE
        else:
            frame.filled += got
            if frame.filled == frame.size:
                frame.state = HERE
            elif is_another(frame):
                frame.state = HERE  # the rest may never come
            else:  # more is hardly there yet
                return


cdef double now() noexcept nogil:
    cdef timespec time
    clock_gettime(CLOCK_MONOTONIC, &time)
    return time.tv_sec + time.tv_nsec * 1e-9


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
        self.frame.state = WAITING

    def stop(self):
        """Let go of the view."""
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
        """Receive what is there. Return True if there is nothing to wait for."""
        self.look_up_id()
        with nogil:
            advance(&self.frame)
        return self.frame.state != WAITING

    def send(self, data):
        """Send what goes without waiting; return how many bytes. The lock is not given away.

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
        """True if the frame is there, does not fit, or never comes."""
        return self.frame.state != WAITING

    @property
    def prefix(self):
        """The bytes of the length prefix that came."""
        return bytes(self.frame.prefix[:self.frame.have])

    @property
    def filled(self):
        """Bytes in the view."""
        return self.frame.filled

    @property
    def error(self):
        """The errno of a failure; 0 for none."""
        return -self.frame.state if self.frame.state < 0 else 0


cdef class Poller:
    """``epoll_wait()`` that receives the frames of :class:`Receiver` objects meanwhile.

    For one thread: the one that starts and stops the receivers.
    """

    cdef int fd
    cdef list receivers

    def __cinit__(self, int epoll_fd):
        self.fd = epoll_fd
        self.receivers = []

    def add(self, Receiver receiver not None):
        """Have poll() receive for it."""
        self.receivers.append(receiver)

    def discard(self, Receiver receiver not None):
        """Have poll() forget it."""
        if receiver in self.receivers:
            self.receivers.remove(receiver)

    def poll(self, double timeout):
        """Return (fd, events) of what is ready within ``timeout`` seconds; below 0: no limit.

        A socket whose frame is being received counts as readable when there is no more to wait for.
        """
        cdef epoll_event events[MOST_EVENTS]
        cdef Frame *frames[MOST_EVENTS]
        cdef int waiting = 0, ready, index
        cdef Receiver receiver
        for each in self.receivers:
            receiver = <Receiver> each
            if receiver.frame.state == WAITING and waiting < MOST_EVENTS:
                receiver.look_up_id()
                frames[waiting] = &receiver.frame
                waiting += 1
        # What is ready at once is seen without giving the lock away.
        ready = epoll_wait(self.fd, events, MOST_EVENTS, 0)
        if ready == 0 and timeout == 0:
            return []
        if ready == 0 or (ready > 0 and waiting):
            with nogil:
                ready = wait(self.fd, events, ready, frames, waiting, timeout)
        if ready < 0:
            if errno == EINTR:
                return []
            PyErr_SetFromErrno(OSError)
        return [(events[index].data.fd, events[index].events) for index in range(ready)]


cdef int wait(
    int fd, epoll_event *events, int ready, Frame **frames, int waiting, double timeout) noexcept nogil:
    """Return the number of events to report; below 0 after an error, which errno tells."""
    cdef double until = now() + timeout, left
    cdef int index, kept, each, milliseconds
    cdef Frame *frame
    while True:
        kept = 0
        for index in range(ready):
            frame = NULL
            for each in range(waiting):
                if frames[each].fd == events[index].data.fd:
                    frame = frames[each]
            if frame != NULL:
                advance(frame)
                if frame.state == WAITING:
                    if not events[index].events & EPOLLOUT:
                        continue
                    events[index].events &= ~EPOLLIN  # a request waits to be sent
            events[kept] = events[index]
            kept += 1
        if kept:
            return kept
        if timeout < 0:
            milliseconds = -1
        else:
            left = until - now()
            if ready and left <= 0:
                return 0
            milliseconds = <int> (left * 1000 + 0.999) if 0 < left < 1e6 else 1000000000 if left > 0 else 0
        ready = epoll_wait(fd, events, MOST_EVENTS, milliseconds)
        if ready <= 0:
            return ready
