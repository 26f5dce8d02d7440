// A thread that does one thing after the other for another thread, which does not wait for it.

#ifndef PACELINE_CORE_TRANSPORT_WORKER_H
#define PACELINE_CORE_TRANSPORT_WORKER_H

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace paceline::core {

class Worker {
 public:
  using Task = std::function<void()>;

  Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  Worker(Worker&&) = delete;
  Worker& operator=(Worker&&) = delete;
  // Waits for the task at hand, and drops those that it has not begun.
  ~Worker();

  // Tasks are begun in the order of these calls, and must not throw.
  void Do(Task task);

 private:
  void Run();

  std::mutex mutex_;  // protects all but the thread
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_TRANSPORT_WORKER_H
