/* OpenSSL as Python's ssl module has loaded it. It is found at run time: nothing is linked. */

#ifndef KOHORT_OPENSSL_H
#define KOHORT_OPENSSL_H

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <sys/types.h>

enum { KOHORT_WANT_READ = 2, KOHORT_SYSCALL = 5 };  /* of SSL_get_error() */
#define KOHORT_SYSTEM_ERROR 0x80000000ul  /* in the code of an error */

static struct {
    int (*read)(void *ssl, void *data, int size);
    int (*write)(void *ssl, const void *data, int size);
    int (*get_error)(const void *ssl, int result);
    int (*get_fd)(const void *ssl);
    int (*has_pending)(const void *ssl);
    void (*set_read_ahead)(void *ssl, int yes);
    void (*clear_errors)(void);
    unsigned long (*last_error)(void);
    void (*new_error)(void);
    void (*set_error)(int library, int reason, const char *format, ...);
} kohort_openssl;

/* A connection of TLS, and why the last call for it failed. */
typedef struct {
    void *ssl;
    int stopped;          /* Python's ssl module has to make the next call */
    int number;           /* errno; 0 for none */
    unsigned long error;  /* the code of OpenSSL's last error; 0 for none */
} kohort_tls;

/* Take the functions from an extension module's libraries. 0: it is not loaded or lacks one. */
static int kohort_openssl_load(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);

    if (library == NULL)
        return 0;
#define TAKE(field, name) (*(void **) &kohort_openssl.field = dlsym(library, name)) != NULL
    return TAKE(read, "SSL_read") && TAKE(write, "SSL_write") && TAKE(get_error, "SSL_get_error")
        && TAKE(get_fd, "SSL_get_fd") && TAKE(has_pending, "SSL_has_pending")
        && TAKE(set_read_ahead, "SSL_set_read_ahead") && TAKE(clear_errors, "ERR_clear_error")
        && TAKE(last_error, "ERR_peek_last_error") && TAKE(new_error, "ERR_new")
        && TAKE(set_error, "ERR_set_error");
#undef TAKE
}

static int kohort_tls_fd(const kohort_tls *tls)
{
    return kohort_openssl.get_fd(tls->ssl);
}

/* 0: what comes next makes the socket readable. */
static int kohort_tls_pending(const kohort_tls *tls)
{
    return kohort_openssl.has_pending(tls->ssl);
}

/* Have OpenSSL receive up to 16 KiB at once. Else it does so twice for each record. */
static void kohort_tls_read_ahead(const kohort_tls *tls)
{
    kohort_openssl.set_read_ahead(tls->ssl, 1);
}

/* Note why a call failed, and leave no error in the queue: others use this thread, too. */
static void kohort_tls_note(kohort_tls *tls, int kind, int number)
{
    tls->stopped = 1;
    tls->number = kind == KOHORT_SYSCALL ? number : 0;
    tls->error = kohort_openssl.last_error();
    kohort_openssl.clear_errors();
}

/* Read one record at most. 0: there is none yet. -1: tls->stopped, for any other reason. */
static ssize_t kohort_tls_read(kohort_tls *tls, void *data, size_t size)
{
    int got, kind, number;

    if (tls->stopped)
        return -1;
    kohort_openssl.clear_errors();
    errno = 0;
    got = kohort_openssl.read(tls->ssl, data, size > INT_MAX ? INT_MAX : (int) size);
    if (got > 0)
        return got;
    number = errno;
    kind = kohort_openssl.get_error(tls->ssl, got);
    if (kind == KOHORT_WANT_READ)
        return 0;
    kohort_tls_note(tls, kind, number);
    return -1;
}

/* Put the error back into the queue: the next call of OpenSSL fails with it once more. */
static void kohort_tls_put_back(kohort_tls *tls)
{
    unsigned long error = tls->error;

    tls->stopped = 0;
    tls->error = 0;
    if (error != 0 && !(error & KOHORT_SYSTEM_ERROR)) {
        kohort_openssl.new_error();
        kohort_openssl.set_error((int) (error >> 23 & 0xff), (int) (error & 0x7fffff), NULL);
    }
}

/* Write without waiting. 0: nothing was written, and Python's ssl module has to write the same. */
static ssize_t kohort_tls_write(kohort_tls *tls, const void *data, size_t size)
{
    kohort_tls failed = {0};
    int sent;

    kohort_openssl.clear_errors();
    sent = kohort_openssl.write(tls->ssl, data, (int) size);
    if (sent > 0)
        return sent;
    kohort_tls_note(&failed, kohort_openssl.get_error(tls->ssl, sent), 0);
    kohort_tls_put_back(&failed);
    return 0;
}

#endif
