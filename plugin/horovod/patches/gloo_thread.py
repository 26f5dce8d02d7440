"""Edits that let Gloo's thread of each network device sleep: until an event, and until a batch of bytes has come."""

from __future__ import annotations

from paceline.horovod.edits import Edit

_LOOP = "third_party/gloo/gloo/transport/tcp/loop.cc"
_PAIR = "third_party/gloo/gloo/transport/tcp/pair"
# Wakes the thread with a byte in its pipe and a function without effect.
_WAKE = "defer([] {});"

TICKS_EDITS = (
    Edit(
        _LOOP,
        "nfds = epoll_wait(fd_, events.data(), events.size(), 10);",
        "replace",
        "nfds = epoll_wait(fd_, events.data(), events.size(), 1000);",
    ),
    # A thread that removes a connection waits for the loop's next iteration, which may take long now: wake the loop.
    # Both hold the lock, so that the iteration cannot end before the wait begins.
    Edit(_LOOP, "cv_.wait(lock);", "before", _WAKE, within="void Loop::unregisterDescriptor(int fd, Handler* h) {"),
    Edit(
        _LOOP,
        "cv_.notify_all();",
        "before",
        "{\n  std::lock_guard<std::mutex> guard(m_);\n}",
        within="void Loop::run() {",
    ),
    Edit(_LOOP, "done_ = true;", "after", _WAKE, within="Loop::~Loop() {"),
)

# Bytes of a payload to wait for. A link of 10 Gbit/s brings as many in 26 us; TCP's window is several times larger.
_BATCH_BYTES = 32 << 10
_SMALL_BYTES = 4 << 10  # a shorter rest is read as it comes, which needs no system call

BATCHES_EDITS = (
    Edit(
        f"{_PAIR}.h",
        "int fd_;",
        "after",
        "int lowWater_{1};  // SO_RCVLOWAT of fd_\nvoid wakeAfter(ssize_t nbytes);",
    ),
    Edit(
        f"{_PAIR}.cc",
        "bool Pair::read() {",
        "before",
        "// Ends and errors of a connection wake the thread at once, whatever the mark.\n"
        "void Pair::wakeAfter(ssize_t nbytes) {\n"
        "  const int lowWater =\n"
        f"      nbytes < {_SMALL_BYTES} ? 1 : static_cast<int>(std::min<ssize_t>(nbytes, {_BATCH_BYTES}));\n"
        "  if (lowWater != lowWater_ &&\n"
        "      ::setsockopt(fd_, SOL_SOCKET, SO_RCVLOWAT, &lowWater, sizeof(lowWater)) == 0) {\n"
        "    lowWater_ = lowWater;\n"
        "  }\n"
        "}\n",
    ),
    # The thread gets to one of these two before it sleeps. Here `nbytes` of the operation are missing: a payload's, or
    # the next header's.
    Edit(f"{_PAIR}.cc", "// Async mode: can't read more than this.", "after", "wakeAfter(nbytes);"),
    # Here the receiver has no memory for the payload yet. All of it may have come, and be less than the last mark.
    Edit(f"{_PAIR}.cc", "if (nbytes < 0) {", "after", "  wakeAfter(1);", within="bool Pair::read() {"),
)
