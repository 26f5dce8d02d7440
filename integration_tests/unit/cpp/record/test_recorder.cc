#include <string>
#include <vector>

#include "core/record/recorder.h"
#include "doctest/doctest.h"

using paceline::core::CollectiveKind;
using paceline::core::Recorder;
using Words = std::vector<int64_t>;

namespace {

constexpr int32_t kFloat32 = 7;
constexpr auto kBroadcast = static_cast<int64_t>(CollectiveKind::kBroadcast);

// Of 4 bytes.
void Arrived(Recorder& recorder, const std::string& name, int64_t now_ns) {
  recorder.Arrived({name, 4, kFloat32, 0}, now_ns);
}

// The words of a snapshot, by what belongs together: the number of tensors, each tensor, the number of steps, and of a
// step its head with the number of arrivals, the arrivals with the number of collectives, and each collective.
Words Joined(const std::vector<Words>& parts) {
  Words all;
  for (const auto& part : parts) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace

TEST_CASE("a recorder that was not started keeps nothing but counts") {
  Recorder recorder;
  Arrived(recorder, "a", 10);
  recorder.Performed(CollectiveKind::kAllreduce, {"a"}, 4, 20, 30);
  recorder.Coordinated();
  CHECK(recorder.TakeSnapshot().words == Words{0, 0});  // tensors, steps
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
  CHECK(snapshot.words ==
        Joined(
            {{2}, {12, kFloat32, 0}, {20, kFloat32, 2}, {1}, {0, 5, 0, 2}, {0, 5, 1, 7, 1}, {0, 10, 30, 32, 2, 1, 0}}));
}

TEST_CASE("a collective belongs to the step of its tensors even when the next step has begun") {
  Recorder recorder;
  recorder.Start(8, 0);
  Arrived(recorder, "a", 1);
  Arrived(recorder, "b", 2);
  Arrived(recorder, "a", 10);                                               // step 1 begins
  recorder.Performed(CollectiveKind::kAllreduce, {"b"}, 4, 11, 12);         // b arrived in step 0
  recorder.Performed(CollectiveKind::kBroadcast, {"stranger"}, 4, 13, 14);  // never arrived: the running step
  CHECK(recorder.TakeSnapshot().words == Joined({{2},
                                                 {4, kFloat32, 0},
                                                 {4, kFloat32, 0},
                                                 {2},
                                                 {0, 1, 0, 2},
                                                 {0, 1, 1, 2, 1},
                                                 {0, 11, 12, 4, 1, 1},
                                                 {1, 10, 0, 1},
                                                 {0, 10, 1},
                                                 {kBroadcast, 13, 14, 4, 0}}));
}

TEST_CASE("a message of a step that made room is dropped from the record, not from the counts") {
  Recorder recorder;
  recorder.Start(1, 0);
  Arrived(recorder, "late", 1);
  Arrived(recorder, "a", 2);
  Arrived(recorder, "a", 3);
  recorder.Performed(CollectiveKind::kAllreduce, {"late"}, 4, 4, 5);
  CHECK(recorder.TakeSnapshot().words ==
        Joined({{2}, {4, kFloat32, 0}, {4, kFloat32, 0}, {1}, {1, 3, 0, 1}, {1, 3, 0}}));
  CHECK(recorder.counters().messages == 1);
}

TEST_CASE("medians are over the last complete steps, and communication is exposed behind the last arrival") {
  Recorder recorder;
  recorder.Start(64, 0);
  CHECK(recorder.pace().steps == 0);
  int64_t now_ns = 0;
  // The first step is ten times as long as the 25 behind it.
  for (int64_t step = 0; step < 26; ++step) {
    const int64_t unit_ns = step == 0 ? 1'000'000'000 : 100'000'000;
    Arrived(recorder, "a", now_ns);
    Arrived(recorder, "b", now_ns + 4 * unit_ns);
    recorder.Performed(CollectiveKind::kAllreduce, {"a", "b"}, 8, now_ns + 4 * unit_ns, now_ns + 7 * unit_ns);
    now_ns += 10 * unit_ns;
  }
  const auto pace = recorder.pace();
  CHECK(pace.steps == 26);
  CHECK(pace.step_s == doctest::Approx(1.0));
  CHECK(pace.exposed_s == doctest::Approx(0.3));
}

TEST_CASE("names beyond the limit are not recorded") {
  Recorder recorder;
  recorder.Start(2, 0);
  for (size_t n = 0; n <= Recorder::kMostTensors; ++n) {
    Arrived(recorder, std::to_string(n), 1);
  }
  CHECK(recorder.TakeSnapshot().words[0] == static_cast<int64_t>(Recorder::kMostTensors));
  Arrived(recorder, "0", 2);
  CHECK(recorder.pace().steps == 2);
}
