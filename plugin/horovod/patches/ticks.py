"""Edits that let Gloo's thread of each network device sleep until an event, instead of polling every 10 ms."""

from __future__ import annotations

from paceline.horovod.edits import Edit

_LOOP = "third_party/gloo/gloo/transport/tcp/loop.cc"
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
