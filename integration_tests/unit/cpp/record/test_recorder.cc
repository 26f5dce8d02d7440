#include <doctest/doctest.h>

#include <string>
#include <thread>
#include <vector>

#include "core/record/recorder.h"

using paceline::core::CollectiveKind;
using paceline::core::Recorder;
using paceline::core::Snapshot;

namespace {

constexpr int32_t kFloat32 = 7;

// Reads a snapshot's words in order; the test fails where it would read past the end.
class Words {
 public:
  explicit Words(const Snapshot& snapshot) : words_(snapshot.words) {}
  int64_t Next() {
    REQUIRE(at_ < words_.size());
    return words_[at_++];
  }
  std::vector<int64_t> Next(int count) {
    std::vector<int64_t> taken;
    for (int n = 0; n < count; ++n) {
      taken.push_back(Next());
    }
    return taken;
  }
  bool AtEnd() const { return at_ == words_.size(); }

 private:
  std::vector<int64_t> words_;
  size_t at_ = 0;
};

}  // namespace

TEST_CASE("a recorder that was not started keeps nothing but counts") {
  Recorder recorder;
  recorder.Arrived({"a", 4, kFloat32, 0}, 10);
  recorder.Performed(CollectiveKind::kAllreduce, {"a"}, 4, 20, 30);
  recorder.Coordinated();
  Words words(recorder.TakeSnapshot());
  CHECK(words.Next() == 0);  // tensors
  CHECK(words.Next() == 0);  // steps
  CHECK(words.AtEnd());
  CHECK(recorder.counters().messages == 1);
  CHECK(recorder.counters().tensors == 1);
  CHECK(recorder.counters().bytes == 4);
  CHECK(recorder.counters().coordination_rounds == 1);
}

TEST_CASE("the snapshot holds arrivals and collectives relative to the start") {
  Recorder recorder;
  recorder.Start(8, 1000);
  recorder.Arrived({"a", 12, kFloat32, 0}, 1005);
  recorder.Arrived({"b", 20, kFloat32, 2}, 1007);
  recorder.Performed(CollectiveKind::kAllreduce, {"b", "a"}, 32, 1010, 1030);
  const auto snapshot = recorder.TakeSnapshot();
  CHECK(snapshot.names == std::string("a\0b\0", 4));
  Words words(snapshot);
  CHECK(words.Next() == 2);
  CHECK(words.Next(3) == std::vector<int64_t>{12, kFloat32, 0});
  CHECK(words.Next(3) == std::vector<int64_t>{20, kFloat32, 2});
  CHECK(words.Next() == 1);
  CHECK(words.Next(3) == std::vector<int64_t>{0, 5, 0});
  CHECK(words.Next() == 2);
  CHECK(words.Next(4) == std::vector<int64_t>{0, 5, 1, 7});
  CHECK(words.Next() == 1);
  CHECK(words.Next(5) == std::vector<int64_t>{0, 10, 30, 32, 2});
  CHECK(words.Next(2) == std::vector<int64_t>{1, 0});
  CHECK(words.AtEnd());
}

TEST_CASE("a collective belongs to the step of its tensors even when the next step has begun") {
  Recorder recorder;
  recorder.Start(8, 0);
  recorder.Arrived({"a", 4, kFloat32, 0}, 1);
  recorder.Arrived({"b", 4, kFloat32, 0}, 2);
  recorder.Arrived({"a", 4, kFloat32, 0}, 10);                              // step 1 begins
  recorder.Performed(CollectiveKind::kAllreduce, {"b"}, 4, 11, 12);         // b arrived in step 0
  recorder.Performed(CollectiveKind::kBroadcast, {"stranger"}, 4, 13, 14);  // never arrived: the running step
  Words words(recorder.TakeSnapshot());
  words.Next(1 + 2 * 3);
  CHECK(words.Next() == 2);
  words.Next(3);
  CHECK(words.Next() == 2);  // step 0: two arrivals
  words.Next(4);
  CHECK(words.Next() == 1);  // and b's message
  CHECK(words.Next(6) == std::vector<int64_t>{0, 11, 12, 4, 1, 1});
  words.Next(3);
  CHECK(words.Next() == 1);
  words.Next(2);
  CHECK(words.Next() == 1);
  CHECK(words.Next(5) == std::vector<int64_t>{static_cast<int64_t>(CollectiveKind::kBroadcast), 13, 14, 4, 0});
  CHECK(words.AtEnd());
}

TEST_CASE("a message of a step that made room is dropped from the record, not from the counts") {
  Recorder recorder;
  recorder.Start(1, 0);
  recorder.Arrived({"late", 4, kFloat32, 0}, 1);
  recorder.Arrived({"a", 4, kFloat32, 0}, 2);
  recorder.Arrived({"a", 4, kFloat32, 0}, 3);
  recorder.Performed(CollectiveKind::kAllreduce, {"late"}, 4, 4, 5);
  Words words(recorder.TakeSnapshot());
  words.Next(1 + 2 * 3);
  CHECK(words.Next() == 1);
  CHECK(words.Next(3) == std::vector<int64_t>{1, 3, 0});
  CHECK(words.Next(3) == std::vector<int64_t>{1, 1, 3});
  CHECK(words.Next() == 0);
  CHECK(recorder.counters().messages == 1);
}

TEST_CASE("framework threads and the background thread may record at once") {
  Recorder recorder;
  recorder.Start(1000, 0);
  constexpr int kRounds = 2000;
  std::thread arrivals([&] {
    for (int round = 0; round < kRounds; ++round) {
      recorder.Arrived({"a" + std::to_string(round % 7), 4, kFloat32, 0}, round);
    }
  });
  std::thread messages([&] {
    for (int round = 0; round < kRounds; ++round) {
      recorder.Performed(CollectiveKind::kAllreduce, {"a" + std::to_string(round % 7)}, 4, round, round + 1);
      recorder.Coordinated();
      recorder.TakeSnapshot();
    }
  });
  arrivals.join();
  messages.join();
  CHECK(recorder.counters().messages == kRounds);
  CHECK(recorder.counters().coordination_rounds == kRounds);
  CHECK(recorder.counters().bytes == 4 * kRounds);
}
