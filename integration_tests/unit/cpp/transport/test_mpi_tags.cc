#include <cstdint>
#include <limits>
#include <set>
#include <stdexcept>
#include <string>

#include "core/transport/mpi_tags.h"
#include "doctest/doctest.h"

using paceline::core::MpiTags;

namespace {

// What the standard promises, what Open MPI has over UCX, odd ones, and as many as an int can count.
constexpr int32_t kHighest[] = {32767, 32768, 40000, (1 << 23) - 1, std::numeric_limits<int32_t>::max()};

std::string Refused(MpiTags& tags, uint64_t collective, uint64_t message) {
  try {
    tags.Begin(collective, message);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("all that may be under way at once has tags of its own, within those that MPI has") {
  for (const auto highest : kHighest) {
    CAPTURE(highest);
    MpiTags tags(highest);
    std::set<int32_t> seen{tags.other()};
    const uint64_t first = 1000001;  // any run of collectives
    const auto last_message = static_cast<uint64_t>(tags.messages() - 1);
    for (uint64_t one = first; one < first + static_cast<uint64_t>(tags.collectives()); ++one) {
      for (const auto message : {uint64_t{0}, uint64_t{1}, last_message}) {
        const auto tag = tags.Begin(one, message);
        CHECK(tag >= 0);
        CHECK(seen.insert(tag).second);
      }
    }
    CHECK(*seen.rbegin() <= highest);
    CHECK(tags.collectives() >= 16);
    CHECK(tags.messages() >= 1024);
  }
}

TEST_CASE("most of the bits are for messages") {
  const MpiTags usual(std::numeric_limits<int32_t>::max());
  CHECK(usual.collectives() == 128);
  CHECK(usual.messages() == 1 << 23);  // a schedule has at most 2^20 blocks
  const MpiTags ucx((1 << 23) - 1);
  CHECK(ucx.collectives() == 32);
  CHECK(ucx.messages() == 1 << 17);
}

TEST_CASE("a message beyond the last tag is refused, with what to do") {
  MpiTags tags(32767);
  CHECK(Refused(tags, 7, static_cast<uint64_t>(tags.messages())) ==
        "this MPI has tags for 1024 messages between two ranks in a collective, and there are more. Set "
        "collective_block_bytes of PACELINE_DEBUG higher, the same on all ranks.");
  CHECK(Refused(tags, 7, static_cast<uint64_t>(tags.messages() - 1)).empty());
}

TEST_CASE("a collective gets the tags of an earlier one when that has ended, and not before") {
  MpiTags tags(32767);
  const auto later = 3 + static_cast<uint64_t>(tags.collectives());
  const auto tag = tags.Begin(3, 5);
  tags.Begin(3, 6);
  const auto* refusal =
      "this MPI has tags for 16 collectives at a time, and number 19 is to begin before number 3 has ended.";
  CHECK(Refused(tags, later, 5) == refusal);
  tags.End(3);
  CHECK(Refused(tags, later, 5) == refusal);
  tags.End(3);
  CHECK(tags.Begin(later, 5) == tag);
}
