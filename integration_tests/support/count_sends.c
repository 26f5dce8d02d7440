// Preloaded into a rank: counts what it hands to TCP sockets, for comparing two builds of Horovod from outside.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

static _Atomic int64_t calls, bytes;

static int is_tcp(int fd) {
  int type = 0;
  socklen_t length = sizeof type;
  struct sockaddr_storage address;
  socklen_t address_length = sizeof address;
  return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_STREAM &&
         getsockname(fd, (struct sockaddr*)&address, &address_length) == 0 &&
         (address.ss_family == AF_INET || address.ss_family == AF_INET6);
}

static ssize_t counted(int fd, ssize_t sent) {
  if (sent > 0 && is_tcp(fd)) {
    calls++;
    bytes += sent;
  }
  return sent;
}

ssize_t writev(int fd, const struct iovec* parts, int count) {
  static ssize_t (*real)(int, const struct iovec*, int);
  if (!real) real = dlsym(RTLD_NEXT, "writev");
  return counted(fd, real(fd, parts, count));
}

ssize_t send(int fd, const void* data, size_t size, int flags) {
  static ssize_t (*real)(int, const void*, size_t, int);
  if (!real) real = dlsym(RTLD_NEXT, "send");
  return counted(fd, real(fd, data, size, flags));
}

ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
  static ssize_t (*real)(int, const struct msghdr*, int);
  if (!real) real = dlsym(RTLD_NEXT, "sendmsg");
  return counted(fd, real(fd, message, flags));
}

void count_sends_read(int64_t* out) {
  out[0] = calls;
  out[1] = bytes;
}
