#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/text/json.h"

using paceline::core::Json;

TEST_CASE("an object has its fields by name") {
  const std::vector<std::pair<std::string, std::pair<int64_t, int32_t>>> tensors = {{"a\"\\\n", {1, 2}},
                                                                                    {"\xc3\xa9", {-3, 4}}};
  const std::vector<double> times_s = {0.1, -1, std::numeric_limits<double>::quiet_NaN(), 1e300};
  CHECK(Json().Text() == "{}");
  CHECK(Json().Put("most", std::numeric_limits<int64_t>::max()).Put("on", true).Put("why", "").Text() ==
        R"({"most":9223372036854775807,"on":true,"why":""})");
  CHECK(Json().Put("tensors", tensors).Text() == "{\"tensors\":[[\"a\\\"\\\\\\u000a\",[1,2]],[\"\xc3\xa9\",[-3,4]]]}");
  CHECK(Json().Put("times_s", times_s).Put("none", std::vector<int>{}).Text() ==
        R"({"times_s":[0.1,-1,null,1e+300],"none":[]})");
}
