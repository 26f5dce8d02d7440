// Preloaded into the processes of a job: appends a line to the file LISTENS for each TCP socket that begins to listen:
// process, address, port, calling library, offset of the call in it, and the command line with spaces.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void command_line(char* text, size_t size) {
  int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  ssize_t length = file < 0 ? 0 : read(file, text, size - 1);
  if (file >= 0) close(file);
  if (length < 0) length = 0;
  for (ssize_t at = 0; at < length; at++) {
    if (text[at] == '\0' || text[at] == '\n' || text[at] == '\t') text[at] = ' ';
  }
  text[length] = '\0';
}

int listen(int fd, int backlog) {
  static int (*real)(int, int);
  if (!real) real = (int (*)(int, int))dlsym(RTLD_NEXT, "listen");
  const void* caller = __builtin_return_address(0);
  const int result = real(fd, backlog);
  struct sockaddr_storage address;
  socklen_t length = sizeof address;
  const char* path = getenv("LISTENS");
  if (result != 0 || !path || getsockname(fd, (struct sockaddr*)&address, &length) != 0) return result;
  char ip[INET6_ADDRSTRLEN] = "";
  int port = 0;
  if (address.ss_family == AF_INET) {
    const struct sockaddr_in* inet = (const struct sockaddr_in*)&address;
    inet_ntop(AF_INET, &inet->sin_addr, ip, sizeof ip);
    port = ntohs(inet->sin_port);
  } else if (address.ss_family == AF_INET6) {
    const struct sockaddr_in6* inet = (const struct sockaddr_in6*)&address;
    inet_ntop(AF_INET6, &inet->sin6_addr, ip, sizeof ip);
    port = ntohs(inet->sin6_port);
  } else {
    return result;
  }
  Dl_info library = {0};
  dladdr(caller, &library);
  char command[1024], line[4096];
  command_line(command, sizeof command);
  snprintf(line, sizeof line, "%d\t%s\t%d\t%s\t%zu\t%s\n", getpid(), ip, port, library.dli_fname,
           (size_t)((const char*)caller - (const char*)library.dli_fbase), command);
  int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (file >= 0) {
    if (write(file, line, strlen(line)) < 0) perror(path);
    close(file);
  }
  return result;
}
