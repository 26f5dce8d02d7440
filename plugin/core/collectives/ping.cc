#include "core/collectives/ping.h"

#include <stdexcept>
#include <string>

#include "core/collectives/schedule_builder.h"

namespace paceline::core {

CollectiveSchedule PingPong(Place place, int64_t elements, const Pair& pair) {
  ScheduleBuilder builder(place, {elements, 1, 1});
  for (const int32_t rank : {pair.first, pair.second}) {
    if (rank < 0 || rank >= place.ranks || pair.first == pair.second || pair.rounds < 1) {
      throw std::invalid_argument("no pair of the " + std::to_string(place.ranks) +
                                  " ranks, and rounds: " + std::to_string(pair.first) + ", " +
                                  std::to_string(pair.second) + ", " + std::to_string(pair.rounds));
    }
  }
  for (const auto& whole : builder.Whole()) {
    for (int32_t round = 0; round < pair.rounds; ++round) {
      if (place.rank == pair.first) {
        builder.Send(whole, pair.second);
        builder.Receive(whole, pair.second);
      } else if (place.rank == pair.second) {
        builder.Receive(whole, pair.first);
        builder.Send(whole, pair.first);
      }
    }
  }
  return builder.Take();
}

}  // namespace paceline::core
