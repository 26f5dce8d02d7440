"""Gloo's thread of each network device sleeps until something happens."""

from __future__ import annotations

from paceline.horovod.edits import Edit

_LOOP = "third_party/gloo/gloo/transport/tcp/loop.cc"
# What wakes the thread: it finds a byte in its pipe and a function that does nothing.
_WAKE = "defer([] {});"

TICKS_EDITS = (
    Edit(
        _LOOP,
        "nfds = epoll_wait(fd_, events.data(), events.size(), 10);",
        "replace",
        "nfds = epoll_wait(fd_, events.data(), events.size(), 1000);",
    ),
    # Who takes a connection out waits until the thread has come round, which may be long now: it is woken. Both hold
    # the lock, so that it does not come round before it is waited for.
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
