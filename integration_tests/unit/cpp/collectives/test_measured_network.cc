#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "core/collectives/measured_network.h"
#include "doctest/doctest.h"

using namespace paceline::core;

namespace {

constexpr int32_t kRanks = 4;
constexpr Network kNetwork{1e-3, 0, 4e-8, 0};
constexpr auto kStock = MeasuredNetwork::kStock;

constexpr int32_t Number(AllreduceMethod method) { return static_cast<int32_t>(method); }

MeasuredTime Reduced(AllreduceMethod method, double bytes, double seconds) {
  return {Operation::kAllreduce, Number(method), bytes, seconds};
}

// Doubling is best up to 2 KB, ring above 500 KB, and stock Horovod's in between; the two others were never good.
MeasuredNetwork Example() {
  std::vector<MeasuredTime> times;
  for (const double bytes : {1e3, 1e5, 1e6}) {
    times.push_back(Reduced(AllreduceMethod::kDoubling, bytes, 1e-3 + 4e-8 * bytes));
    times.push_back({Operation::kAllreduce, kStock, bytes, 1.04e-3 + 2e-8 * bytes});
    times.push_back(Reduced(AllreduceMethod::kRing, bytes, 6.04e-3 + 1e-8 * bytes));
    times.push_back(Reduced(AllreduceMethod::kLinear, bytes, 1));
    times.push_back(Reduced(AllreduceMethod::kDirect, bytes, 1));
  }
  times.push_back({Operation::kBroadcast, Number(AllreduceMethod::kLinear), 1e6, 2e-2});
  times.push_back({Operation::kBroadcast, kStock, 1e3, 1e-3});
  times.push_back({Operation::kBroadcast, kStock, 1e6, 9e-2});
  return {kRanks, kNetwork, 0, times};
}

}  // namespace

TEST_CASE("what was measured is what is told, and lines join it") {
  const auto network = Example();
  for (const double bytes : {1e3, 5e3, 1e5, 7e5, 1e6}) {
    CHECK(network.Allreduce(AllreduceMethod::kDoubling, bytes).seconds == doctest::Approx(1e-3 + 4e-8 * bytes));
  }
  CHECK(network.Allreduce(AllreduceMethod::kRing, 1e5).block_bytes == UsualBlockBytes(AllreduceMethod::kRing, kRanks));
  CHECK(network.Allreduce(AllreduceMethod::kRing, 1e5).method == AllreduceMethod::kRing);
}

TEST_CASE("beyond what was measured the theory goes on from there") {
  const auto network = Example();
  const auto theory = [](double bytes) {
    return AllreduceTime(AllreduceMethod::kDoubling, kNetwork, kRanks, {bytes, bytes});
  };
  CHECK(network.Allreduce(AllreduceMethod::kDoubling, 1e8).seconds ==
        doctest::Approx(4.1e-2 * theory(1e8) / theory(1e6)));
  CHECK(network.Allreduce(AllreduceMethod::kDoubling, 4).seconds == doctest::Approx(1.04e-3 * theory(4) / theory(1e3)));
}

TEST_CASE("the fastest at every size, stock Horovod's among them") {
  const auto network = Example();
  const auto fastest = [&](double bytes) { return network.Fastest(Operation::kAllreduce, bytes); };
  CHECK(fastest(1e3) == Number(AllreduceMethod::kDoubling));
  CHECK(fastest(1.9e3) == Number(AllreduceMethod::kDoubling));
  CHECK(fastest(2.1e3) == kStock);
  CHECK(fastest(4.9e5) == kStock);
  CHECK(fastest(5.1e5) == Number(AllreduceMethod::kRing));
  CHECK(fastest(1e8) == Number(AllreduceMethod::kRing));
  CHECK(network.Fastest(Operation::kBroadcast, 1e3) == kStock);
  CHECK(network.Fastest(Operation::kBroadcast, 1e6) == Number(AllreduceMethod::kLinear));
}

TEST_CASE("without measured messages theory says all, and never that stock Horovod's is faster") {
  const MeasuredNetwork network(kRanks, kNetwork, 1 << 10, {Reduced(AllreduceMethod::kRing, 0, 1e-9)});
  const auto direct = network.Allreduce(AllreduceMethod::kDirect, 1e6);
  CHECK(direct.block_bytes == 1 << 10);
  CHECK(direct.seconds == AllreduceTime(AllreduceMethod::kDirect, kNetwork, kRanks, {1e6, 1 << 10}));
  CHECK(network.Fastest(Operation::kAllreduce, 4) == Number(AllreduceMethod::kDirect));
  CHECK(TreeBroadcastTime(kNetwork, kRanks, 4) < LinearBroadcastTime(kNetwork, kRanks, {4, 1 << 10}));
  CHECK(network.Fastest(Operation::kBroadcast, 4) == Number(AllreduceMethod::kLinear));
}

TEST_CASE("of several times for one size the least counts") {
  const MeasuredNetwork network(2, kNetwork, 0,
                                {Reduced(AllreduceMethod::kRing, 8, 3), Reduced(AllreduceMethod::kRing, 8, 2),
                                 Reduced(AllreduceMethod::kRing, 8, 4)});
  CHECK(network.Allreduce(AllreduceMethod::kRing, 8).seconds == 2);
}

TEST_CASE("what makes no sense is refused") {
  const auto make = [](int32_t ranks, const Network& network, int64_t block_bytes, const MeasuredTime& time) {
    return MeasuredNetwork(ranks, network, block_bytes, {time});
  };
  const auto fine = Reduced(AllreduceMethod::kRing, 8, 1);
  CHECK_NOTHROW(make(2, kNetwork, 0, fine));
  CHECK_THROWS_AS(make(1, kNetwork, 0, fine), std::invalid_argument);
  CHECK_THROWS_AS(make(2, kNetwork, -1, fine), std::invalid_argument);
  CHECK_THROWS_AS(make(2, {-1, 0, 0, 0}, 0, fine), std::invalid_argument);
  CHECK_THROWS_AS(make(2, kNetwork, 0, {Operation::kAllreduce, 4, 8, 1}), std::invalid_argument);
  CHECK_THROWS_AS(make(2, kNetwork, 0, {Operation::kBroadcast, 1, 8, 1}), std::invalid_argument);
  CHECK_THROWS_AS(make(2, kNetwork, 0, {static_cast<Operation>(7), 0, 8, 1}), std::invalid_argument);
  CHECK_THROWS_AS(make(2, kNetwork, 0, Reduced(AllreduceMethod::kRing, 8, std::nan(""))), std::invalid_argument);
  CHECK_THROWS_AS(make(2, kNetwork, 0, Reduced(AllreduceMethod::kRing, -8, 1)), std::invalid_argument);
}
