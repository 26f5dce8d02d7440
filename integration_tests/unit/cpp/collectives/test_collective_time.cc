#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "collectives/cases.h"
#include "collectives/wire.h"
#include "core/collectives/collective_time.h"
#include "doctest/doctest.h"

using namespace collectives;
using namespace paceline::core;

namespace {

constexpr AllreduceMethod kMethods[] = {AllreduceMethod::kLinear, AllreduceMethod::kRing, AllreduceMethod::kDirect,
                                        AllreduceMethod::kDoubling};
constexpr int32_t kAhead = 4;

// 200 Mbit/s, combining ten times as fast; without and with 2 ms of latency.
constexpr Network kNear{5e-5, 5e-5, 4e-8, 4e-9};
constexpr Network kFar{2.05e-3, 5e-5, 4e-8, 4e-9};

// What the events of a message of `bytes` bytes take, a multiple of 2^14 elements in whole blocks.
template <typename Make>
double Simulated(const Network& network, int32_t ranks, double bytes, double block_bytes, const Make& make) {
  constexpr int64_t kElements = 1 << 14;
  const double element_bytes = bytes / static_cast<double>(kElements);
  Wire wire;
  wire.latency_s = network.alpha_s - network.message_s;
  wire.message_s = network.message_s;
  wire.beta_s = network.beta_s_per_byte * element_bytes;
  wire.gamma_s = network.gamma_s_per_byte * element_bytes;
  wire.notice_s = network.alpha_s;
  const BlockedMessage message{kElements, std::max<int64_t>(1, std::llround(block_bytes / element_bytes)), kAhead};
  return SecondsOn(wire, OnAll(ranks, [&](Place place) { return make(place, message); }), kElements);
}

CollectiveSchedule Broadcast(Place place, const BlockedMessage& message) { return LinearBroadcast(place, message, 0); }

CollectiveSchedule Reduced(Place place, const BlockedMessage& message) { return LinearReduce(place, message, 0); }

double Log2(int32_t ranks) { return std::floor(std::log2(ranks)); }

}  // namespace

TEST_CASE("a linear broadcast takes what the paper counts, one step less") {
  const Network network{1e-5, 1e-5, 1e-10, 0};
  CHECK(LinearBroadcastTime(network, 4, {2e8, 1e6, kAhead}) == doctest::Approx((200 + 4 - 2) * (1e-5 + 1e-4)));
  CHECK(LinearReduceTime(network, 4, {2e8, 1e6, kAhead}) == doctest::Approx((200 + 4 - 2) * (1e-5 + 1e-4)));
  // (p - 1 + n/b) alpha + (b (p - 1) + n) beta with its best block: 20.90, 21.58, 22.44 ms.
  CHECK(BestLinearBroadcast(network, 2, 2e8, kAhead).seconds == doctest::Approx(0.0209).epsilon(0.05));
  CHECK(BestLinearBroadcast(network, 4, 2e8, kAhead).seconds == doctest::Approx(0.02158).epsilon(0.03));
  CHECK(BestLinearBroadcast(network, 8, 2e8, kAhead).seconds == doctest::Approx(0.02244).epsilon(0.03));
  // Blocks of 64 KB are too small for this alpha.
  CHECK(LinearBroadcastTime(network, 4, {2e8, 65536, kAhead}) == doctest::Approx(0.0505).epsilon(0.01));
  CHECK(TreeBroadcastTime(network, 8, 2e8) == doctest::Approx(0.06003));
  CHECK(TreeBroadcastTime(network, 5, 2e8) == doctest::Approx(0.06003));
  // Short messages are better off in a tree.
  CHECK(BestLinearBroadcast(network, 8, 1e4, kAhead).seconds > TreeBroadcastTime(network, 8, 1e4));
}

TEST_CASE("start-ups and bytes are those of the table of bounds") {
  for (const int32_t p : {2, 4, 8}) {
    const Network latency{1, 0, 0, 0}, bandwidth{0, 0, 1, 0};
    const BlockedBytes short_message{1, 1, kAhead}, long_message{1e6, 10, kAhead};
    const auto start_ups = [&](AllreduceMethod method) { return AllreduceTime(method, latency, p, short_message); };
    const auto share = [&](AllreduceMethod method) { return AllreduceTime(method, bandwidth, p, long_message) / 1e6; };
    CAPTURE(p);
    CHECK(LinearBroadcastTime(latency, p, short_message) == p - 1);
    CHECK(start_ups(AllreduceMethod::kLinear) == 2 * (p - 1));
    CHECK(start_ups(AllreduceMethod::kRing) == 2 * (p - 1));
    CHECK(start_ups(AllreduceMethod::kDirect) == 2);
    CHECK(start_ups(AllreduceMethod::kDoubling) == Log2(p));
    CHECK(LinearBroadcastTime(bandwidth, p, long_message) / 1e6 == doctest::Approx(1).epsilon(1e-3));
    CHECK(share(AllreduceMethod::kLinear) == doctest::Approx(p == 2 ? 1 : 2).epsilon(1e-3));
    CHECK(share(AllreduceMethod::kRing) == doctest::Approx(2.0 * (p - 1) / p).epsilon(1e-3));
    CHECK(share(AllreduceMethod::kDirect) == doctest::Approx(2.0 * (p - 1) / p).epsilon(1e-3));
    CHECK(share(AllreduceMethod::kDoubling) == doctest::Approx(Log2(p)));
  }
  CHECK(AllreduceTime(AllreduceMethod::kDoubling, {1, 0, 0, 0}, 6, {1}) == 4);
}

TEST_CASE("messages take as long as predicted, event by event; short and middle ones about as long") {
  constexpr double kLarge = 67108864;
  for (const Network& network : {kNear, kFar}) {
    for (const int32_t p : {2, 3, 4, 8}) {
      INFO("alpha ", network.alpha_s, ", ", p, " ranks");
      const TimedChoice broadcast = BestLinearBroadcast(network, p, kLarge, kAhead);
      CHECK(Simulated(network, p, kLarge, broadcast.block_bytes, Broadcast) ==
            doctest::Approx(broadcast.seconds).epsilon(0.01));
      const TimedChoice reduce = BestLinearReduce(network, p, kLarge, kAhead);
      CHECK(Simulated(network, p, kLarge, reduce.block_bytes, Reduced) ==
            doctest::Approx(reduce.seconds).epsilon(0.01));
      for (const double bytes : {4096.0, 65536.0, 1048576.0, kLarge}) {
        for (const AllreduceMethod method : kMethods) {
          const TimedChoice choice = BestAllreduce(method, network, p, bytes, kAhead);
          INFO(NameOf(method), ", ", bytes, " bytes in blocks of ", choice.block_bytes);
          const double simulated_s =
              Simulated(network, p, bytes, choice.block_bytes,
                        [&](Place place, const BlockedMessage& message) { return Allreduce(method, place, message); });
          CHECK(simulated_s == doctest::Approx(choice.seconds).epsilon(bytes == kLarge ? 0.04 : 0.15));
        }
      }
    }
  }
}

TEST_CASE("a linear broadcast of a large message hardly grows with the number of ranks") {
  constexpr double kBytes = 67108864;
  for (const Network& network : {kNear, kFar}) {
    const auto seconds = [&](int32_t p) {
      return Simulated(network, p, kBytes, BestLinearBroadcast(network, p, kBytes, kAhead).block_bytes, Broadcast);
    };
    CHECK(seconds(8) < 1.2 * seconds(2));
    CHECK(seconds(4) <= 0.55 * TreeBroadcastTime(network, 4, kBytes));
    CHECK(kBytes * network.beta_s_per_byte >= 0.9 * seconds(4));
  }
}

TEST_CASE("the best block is about the best of all") {
  for (const Network& network : {kNear, kFar}) {
    for (const double bytes : {1e5, 1e6, 64e6}) {
      for (const AllreduceMethod method : kMethods) {
        double least_s = std::numeric_limits<double>::infinity();
        for (double block = 4096; block < bytes; block *= 1.05) {
          least_s = std::min(least_s, AllreduceTime(method, network, 4, {bytes, block, kAhead}));
        }
        CHECK(BestAllreduce(method, network, 4, bytes, kAhead).seconds <= 1.05 * least_s);
      }
    }
  }
  // The whole message in multiples of 64 bytes: nobody has to pass blocks on, or they would be too small.
  CHECK(BestLinearBroadcast(kNear, 2, 1e6, kAhead).block_bytes == 1000064);
  CHECK(BestLinearBroadcast(kNear, 4, 1000, kAhead).block_bytes == 1024);
  CHECK(BestAllreduce(AllreduceMethod::kRing, kNear, 4, 4 * 1024, kAhead).block_bytes == 1088);  // shards differ
}

TEST_CASE("the fastest allreduce is none slower than another") {
  for (const Network& network : {kNear, kFar}) {
    for (const int32_t p : {2, 3, 4, 8}) {
      for (const double bytes : {4.0, 4096.0, 65536.0, 64e6}) {
        const TimedChoice fastest = FastestAllreduce(network, p, bytes, kAhead);
        for (const AllreduceMethod method : kMethods) {
          CHECK(fastest.seconds <= BestAllreduce(method, network, p, bytes, kAhead).seconds);
        }
        const BlockedBytes message{bytes, fastest.block_bytes, kAhead};
        CHECK(AllreduceTime(fastest.method, network, p, message) == fastest.seconds);
      }
    }
  }
  // What hosts have to do with each message counts, or only the distance between them.
  CHECK(FastestAllreduce(kNear, 8, 4, kAhead).method == AllreduceMethod::kDoubling);
  CHECK(FastestAllreduce(kFar, 8, 4096, kAhead).method == AllreduceMethod::kDirect);
  CHECK(FastestAllreduce(kNear, 4, 64e6, kAhead).seconds <= 1.02 * 1.5 * 64e6 * kNear.beta_s_per_byte);
}

TEST_CASE("one rank, or no bytes, take no time; what makes no sense is refused") {
  for (const AllreduceMethod method : kMethods) {
    CHECK(AllreduceTime(method, kFar, 1, {1e6, 1e3, kAhead}) == 0);
    CHECK(AllreduceTime(method, kFar, 4, {0, 1e3, kAhead}) == 0);
  }
  CHECK(LinearBroadcastTime(kFar, 1, {1e6}) == 0);
  CHECK(LinearReduceTime(kFar, 4, {0}) == 0);
  CHECK(TreeBroadcastTime(kFar, 1, 1e6) == 0);
  CHECK_THROWS_WITH_AS(LinearBroadcastTime({-1, 0, 0, 0}, 2, {1}), "alpha is -1; it must be finite and not negative",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(LinearBroadcastTime({1, 2, 0, 0}, 2, {1}),
                       "the time of a message is part of alpha; 2.000000 s are more than 1.000000 s",
                       std::invalid_argument);
  CHECK_THROWS_AS(FastestAllreduce(kNear, 0, 1, kAhead), std::invalid_argument);
  CHECK_THROWS_AS(FastestAllreduce(kNear, 2, -1, kAhead), std::invalid_argument);
  CHECK_THROWS_AS(FastestAllreduce(kNear, 2, std::numeric_limits<double>::quiet_NaN(), kAhead), std::invalid_argument);
  CHECK_THROWS_AS(FastestAllreduce(kNear, 2, std::numeric_limits<double>::infinity(), kAhead), std::invalid_argument);
  CHECK_THROWS_AS(FastestAllreduce(kNear, 2, 1, 0), std::invalid_argument);
  CHECK_THROWS_AS(LinearReduceTime(kNear, 2, {1, 0}), std::invalid_argument);
}
