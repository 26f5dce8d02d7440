#include <algorithm>
#include <cmath>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "codecs/values.h"
#include "core/codecs/codec.h"
#include "core/codecs/error_feedback.h"
#include "doctest/doctest.h"

using namespace paceline::core;

namespace {

const std::vector<float> kFirst = Families(1000)[0].second, kSecond = Families(1000)[1].second;

// Hands in one gradient; returns what the receiver decodes.
std::vector<float> Send(ErrorFeedback& feedback, const Codec& codec, const std::string& name,
                        const std::vector<float>& gradient, std::vector<int64_t> cuts = {}) {
  const auto elements = static_cast<int64_t>(gradient.size());
  std::vector<float> decoded(gradient.size());
  cuts.push_back(elements);
  int64_t begin = 0;
  feedback.Begin(name);
  for (const int64_t end : cuts) {
    std::vector<uint8_t> bytes(static_cast<size_t>(codec.EncodedBytes(DataType::kFloat32, end - begin)));
    feedback.Encode(codec, {{name, elements, begin, end - begin}}, DataType::kFloat32, gradient.data() + begin,
                    bytes.data());
    codec.Decode(DataType::kFloat32, bytes.data(), end - begin, decoded.data() + begin);
    begin = end;
  }
  return decoded;
}

struct Sums {
  explicit Sums(size_t elements) : given(elements), sent(elements) {}
  void Add(const std::vector<float>& gradient, const std::vector<float>& decoded) {
    for (size_t i = 0; i < given.size(); ++i) {
      given[i] += gradient[i];
      sent[i] += decoded[i];
    }
  }
  double Apart() const {
    double most = 0;
    for (size_t i = 0; i < given.size(); ++i) {
      most = std::max(most, std::abs(given[i] - sent[i]));
    }
    return most;
  }
  std::vector<double> given, sent;
};

}  // namespace

TEST_CASE("over 1000 rounds what was decoded adds up to what was given, to within one step; without feedback not") {
  // Steps for magnitudes below 4, which none of these gradients with their residuals exceeds.
  struct Row {
    const char* codec;
    double step;
  };
  for (const Row& row : {Row{"bf16", 0x1p-6}, Row{"q8", 4. / 127}, Row{"q4", 4. / 7}}) {
    CAPTURE(row.codec);
    const Codec& codec = CodecNamed(row.codec);
    ErrorFeedback feedback;
    std::mt19937 random(17);
    std::uniform_real_distribution<float> noise(-1, 1);
    Sums with(1283), without(1283);
    for (int round = 0; round < 1000; ++round) {
      std::vector<float> gradient(1283);
      for (size_t i = 0; i < gradient.size(); ++i) {
        gradient[i] = i % 2 == 0 ? noise(random) : 1e-3F * (2 + noise(random));  // small ones, all of one sign
      }
      gradient[round % 1283] = 3;  // so that steps are large
      with.Add(gradient, Send(feedback, codec, "g", gradient));
      ErrorFeedback none;
      without.Add(gradient, Send(none, codec, "g", gradient));
      REQUIRE(with.Apart() <= row.step);
    }
    CHECK(without.Apart() > 2 * row.step);
  }
}

TEST_CASE("the approximation and the residual are the gradient and the residual before") {
  for (const char* name : {"bf16", "q8", "q4"}) {
    CAPTURE(name);
    ErrorFeedback feedback;
    std::vector<float> before(1000);
    for (const auto& [family, gradient] : Families(1000)) {
      CAPTURE(family);
      const std::vector<float> sent = Send(feedback, CodecNamed(name), "g", gradient);
      const std::vector<float> after = feedback.Of("g");
      for (size_t i = 0; i < sent.size(); ++i) {
        const float wanted = gradient[i] + before[i], lost = wanted - sent[i];
        REQUIRE(after[i] == (std::isfinite(lost) ? lost : 0));
      }
      before = after;
    }
  }
}

TEST_CASE("residuals belong to a name and to positions, in whatever blocks the gradient is encoded") {
  const Codec& codec = CodecNamed("bf16");
  ErrorFeedback whole, cut;
  Send(whole, codec, "a", kFirst);
  Send(cut, codec, "a", kFirst, {1, 300, 777});
  CHECK(whole.Of("a") == cut.Of("a"));
  CHECK(Send(whole, codec, "a", kSecond) == Send(cut, codec, "a", kSecond, {256, 999}));

  ErrorFeedback other;
  CHECK(Send(whole, codec, "b", kFirst) == Send(other, codec, "a", kFirst));
}

TEST_CASE("gradients that share a message have the residuals that they have alone") {
  const Codec& codec = CodecNamed("bf16");
  const std::vector<ErrorFeedback::Part> parts = {
      {"a", 300, 200, 100}, {"empty", 0, 0, 0}, {"b", 7, 0, 7}, {"c", 1, 0, 1}, {"d", 900, 0, 892}};
  std::vector<uint8_t> together(2000), alone(2000);
  ErrorFeedback shared, own;
  for (int round = 0; round < 2; ++round) {
    for (const auto& part : parts) {
      shared.Begin(part.name);
      own.Begin(part.name);
    }
    shared.Encode(codec, parts, DataType::kFloat32, kFirst.data(), together.data());
    int64_t begin = 0;
    for (const auto& part : parts) {
      own.Encode(codec, {part}, DataType::kFloat32, kFirst.data() + begin, alone.data() + 2 * begin);
      begin += part.count;
    }
    CHECK(together == alone);
    for (const auto& part : parts) {
      CHECK(shared.Of(part.name) == own.Of(part.name));
    }
  }
}

TEST_CASE("a run that goes on with saved residuals sends what it would have sent") {
  const Codec& codec = CodecNamed("q8");
  ErrorFeedback feedback, continued, forgot;
  Send(feedback, codec, "g", kFirst);
  continued.Put("g", feedback.Of("g"));
  const std::vector<float> expected = Send(feedback, codec, "g", kSecond);
  CHECK(Send(continued, codec, "g", kSecond) == expected);
  CHECK(Send(forgot, codec, "g", kSecond) != expected);
  feedback.Put("g", {});
  CHECK(feedback.Of("g").empty());
  CHECK(Send(feedback, codec, "g", kFirst) == Send(forgot, codec, "h", kFirst));
}

TEST_CASE("NaN and infinities are sent as they are and leave no residual; neither do saved ones") {
  for (const char* name : {"bf16", "q8", "q4"}) {
    CAPTURE(name);
    const Codec& codec = CodecNamed(name);
    ErrorFeedback feedback;
    const std::vector<float> sent = Send(feedback, codec, "g", {0.3F, kNan, kInf, -kInf, kGreatest});
    CHECK(std::isfinite(sent[0]));
    CHECK(std::isnan(sent[1]));
    CHECK(sent[2] == kInf);
    CHECK(sent[3] == -kInf);
    for (const float residual : feedback.Of("g")) {
      CHECK(std::isfinite(residual));
    }
    const std::vector<float> next = Send(feedback, codec, "g", std::vector<float>(5, 0.5F));
    CHECK(std::all_of(next.begin(), next.end() - 1, [](float value) { return std::isfinite(value); }));

    feedback.Put("g", {kNan, kInf, 0.25F, -kInf, 0});
    CHECK(feedback.Of("g") == std::vector<float>{0, 0, 0.25F, 0, 0});
  }
}

TEST_CASE("a gradient of another size begins anew, and a part beyond the end is refused") {
  const Codec& codec = CodecNamed("q8");
  ErrorFeedback feedback, fresh;
  Send(feedback, codec, "g", kFirst);
  const std::vector<float> smaller = Families(300)[1].second;
  CHECK(Send(feedback, codec, "g", smaller) == Send(fresh, codec, "g", smaller));
  CHECK(feedback.Of("g").size() == 300);
  uint8_t bytes[16] = {};
  CHECK_THROWS_WITH_AS(feedback.Encode(codec, {{"g", 300, 299, 2}}, DataType::kFloat32, smaller.data(), bytes),
                       "elements 299 to 301 of g, which has 300", std::invalid_argument);
}

TEST_CASE("other types are corrected in float32, an exact codec has nothing to correct, integers are refused") {
  const Codec& codec = CodecNamed("q8");
  for (const DataType type : kFloatTypes) {
    ErrorFeedback feedback, wide;
    Block block(type, Families(300)[0].second);
    const std::vector<float> values = block.Values(type);
    std::vector<uint8_t> bytes(static_cast<size_t>(codec.EncodedBytes(type, 300)));
    for (int round = 0; round < 3; ++round) {
      feedback.Begin("g");
      feedback.Encode(codec, {{"g", 300, 0, 300}}, type, block.data(), bytes.data());
      Send(wide, codec, "g", values);
      CHECK(feedback.Of("g") == wide.Of("g"));
    }
  }
  ErrorFeedback exact, lossy;
  int32_t number = 7, back = 0;
  uint8_t bytes[8] = {};
  exact.Encode(CodecNamed("none"), {{"n", 1, 0, 1}}, DataType::kInt32, &number, bytes);
  CodecNamed("none").Decode(DataType::kInt32, bytes, 1, &back);
  CHECK(back == 7);
  CHECK(exact.Of("n").empty());
  CHECK_THROWS_AS(lossy.Encode(codec, {{"n", 1, 0, 1}}, DataType::kInt32, &number, bytes), std::invalid_argument);
  CHECK(lossy.Of("n").empty());
}

TEST_CASE("a step with a result that is not finite leaves the residuals of all its gradients as they were") {
  const Codec& codec = CodecNamed("q8");
  const std::vector<float> large(1000, 1e30F);
  ErrorFeedback skipped, never;
  for (auto* one : {&skipped, &never}) {
    Send(*one, codec, "a", kFirst);
    Send(*one, codec, "b", kSecond);
  }
  Send(skipped, codec, "a", large);
  Send(skipped, codec, "b", std::vector<float>(1000, kInf));
  skipped.Spoil("b");
  CHECK(skipped.Of("a") == never.Of("a"));
  CHECK(Send(skipped, codec, "a", kSecond) == Send(never, codec, "a", kSecond));
  Send(skipped, codec, "a", large);  // the step before was a good one, and this is another
  CHECK(skipped.Of("a") != never.Of("a"));
}

TEST_CASE("a gradient may come again while others of its step are still being encoded") {
  const Codec& codec = CodecNamed("q8");
  const auto encode = [&](ErrorFeedback& feedback, int64_t begin) {
    std::vector<uint8_t> bytes(static_cast<size_t>(codec.EncodedBytes(DataType::kFloat32, 500)));
    feedback.Encode(codec, {{"late", 1000, begin, 500}}, DataType::kFloat32, kFirst.data() + begin, bytes.data());
  };
  for (const bool spoilt : {false, true}) {
    CAPTURE(spoilt);
    ErrorFeedback both, alone;
    for (auto* one : {&both, &alone}) {
      Send(*one, codec, "late", kSecond);
      one->Begin("late");
      encode(*one, 0);
      if (one == &both) {
        Send(both, codec, "early", kSecond);
        Send(both, codec, "early", kFirst);
      }
      encode(*one, 500);
      if (spoilt) {
        one->Spoil("late");
      }
    }
    CHECK(both.Of("late") == alone.Of("late"));
    const auto of_early = both.Of("early");
    CHECK(Send(both, codec, "late", kSecond) == Send(alone, codec, "late", kSecond));
    CHECK(both.Of("early") == of_early);
  }
}

TEST_CASE("infinities and NaN are found wherever they are") {
  for (const DataType type : kFloatTypes) {
    for (const int64_t at : {0, 63, 255, 256, 299}) {
      for (const float value : {kInf, -kInf, kNan}) {
        std::vector<float> values(300, 2);
        CHECK(paceline::core::AllFinite(type, Block(type, values).data(), 300));
        values[static_cast<size_t>(at)] = value;
        CHECK_FALSE(paceline::core::AllFinite(type, Block(type, values).data(), 300));
      }
    }
  }
  CHECK(paceline::core::AllFinite(DataType::kFloat32, nullptr, 0));
}
