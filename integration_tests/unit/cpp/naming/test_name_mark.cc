#include <doctest/doctest.h>

#include <string>

#include "core/codecs/codec.h"
#include "core/collectives/algorithms.h"
#include "core/naming/name_mark.h"

using namespace paceline::core;

TEST_CASE("a name says by which codec its values travel") {
  const auto codecs = CodecNames();
  for (size_t number = 1; number < codecs.size(); ++number) {
    const auto mark = NameMark::Of("allreduce.>" + codecs[number] + ">fc.weight");
    CHECK(mark.codec == static_cast<int32_t>(number));
    CHECK(mark.error_feedback);
    CHECK_FALSE(mark.method.has_value());
    CHECK_FALSE(NameMark::Of("a_>" + codecs[number] + "_plain>0").error_feedback);
  }
}

TEST_CASE("a name says by which collective its messages go") {
  for (const auto* method : {"linear", "ring", "direct", "doubling"}) {
    const auto number = static_cast<int32_t>(AllreduceMethodOf(method));
    CHECK(NameMark::Of(std::string(">none_") + method + ">w").method == number);
    CHECK(NameMark::Of(std::string(">q8_plain_") + method + ">w").method == number);
  }
  CHECK(NameMark::Of(">none_horovod>w").method == NameMark::kHorovods);
  CHECK(NameMark::Of(">none_auto>w").method == NameMark::kAuto);
  CHECK(NameMark::Of(">none_auto>w").codec == 0);
}

TEST_CASE("other names travel as they are") {
  for (const auto* name : {"", "allreduce.w", "a>b", "a>b>c", ">>", ">q9>w", ">q8_other>w", ">q8_ring_more>w", "q8>w",
                           ">q8", "HorovodAllreduce_>7Fpaceline.reduce.0.w"}) {
    CAPTURE(name);
    CHECK(NameMark::Of(name).codec == 0);
    CHECK_FALSE(NameMark::Of(name).method.has_value());
  }
  CHECK(NameMark::Of("user>s.>q8>w").codec == 2);
}
