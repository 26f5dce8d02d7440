#include "core/fusion/cost_model.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/arguments.h"

namespace paceline::core {

namespace {

// The line that linear() reports for a measured model: the robust fit, or what operator() does where none is defined.
LinearCost LineThrough(const std::vector<CostPoint>& points) {
  if (points.back().seconds <= 0) {
    return {0, 0};
  }
  if (points.size() > 1) {
    return FitLinear(points);
  }
  const auto& [bytes, seconds] = points.front();
  return bytes > 0 ? LinearCost{0, seconds / bytes} : LinearCost{seconds, 0};
}

}  // namespace

CostModel CostModel::Linear(double a_s, double b_s_per_byte) {
  CostModel model;
  model.linear_ = {RequireNotNegative("the start-up time a_s", a_s),
                   RequireNotNegative("the time per byte b_s_per_byte", b_s_per_byte)};
  return model;
}

CostModel CostModel::Measured(std::vector<CostPoint> points) {
  if (points.empty()) {
    throw std::invalid_argument("a measured cost needs at least one point of (bytes, seconds); there is none");
  }
  for (size_t n = 0; n < points.size(); ++n) {
    const std::string name = "measured point " + std::to_string(n);
    RequireNotNegative("the number of bytes of " + name, points[n].bytes);
    RequireNotNegative("the time of " + name, points[n].seconds);
  }
  std::sort(points.begin(), points.end(), [](const CostPoint& x, const CostPoint& y) { return x.bytes < y.bytes; });
  for (size_t n = 1; n < points.size(); ++n) {
    std::ostringstream text;
    if (points[n].bytes == points[n - 1].bytes) {
      text << "two measured points have " << points[n].bytes << " bytes; give one of each size, or samples to a fit";
      throw std::invalid_argument(text.str());
    }
    if (points[n].seconds < points[n - 1].seconds) {
      text << "the measured cost falls from " << points[n - 1].seconds << " s at " << points[n - 1].bytes
           << " bytes to " << points[n].seconds << " s at " << points[n].bytes
           << " bytes; give samples to a fit, which evens them out";
      throw std::invalid_argument(text.str());
    }
  }
  CostModel model;
  model.points_ = std::move(points);
  model.linear_ = LineThrough(model.points_);
  const auto& last = model.points_.back();
  auto from = std::upper_bound(model.points_.begin(), model.points_.end() - 1, last.bytes / 2,
                               [](double bytes, const CostPoint& point) { return bytes < point.bytes; });
  if (from != model.points_.begin()) {
    --from;
  }
  const double run = last.bytes - from->bytes;
  model.tail_s_per_byte_ = run > 0 ? (last.seconds - from->seconds) / run : 0;
  if (model.tail_s_per_byte_ <= 0) {
    model.tail_s_per_byte_ = model.linear_.b_s_per_byte;
  }
  return model;
}

double CostModel::operator()(double bytes) const {
  if (points_.empty()) {
    return linear_.a_s + linear_.b_s_per_byte * bytes;
  }
  const auto next = std::upper_bound(points_.begin(), points_.end(), bytes,
                                     [](double value, const CostPoint& point) { return value < point.bytes; });
  if (next == points_.begin()) {
    return next->seconds;
  }
  const auto& before = *(next - 1);
  if (next == points_.end()) {
    return before.seconds + tail_s_per_byte_ * (bytes - before.bytes);
  }
  const double share = (bytes - before.bytes) / (next->bytes - before.bytes);
  return before.seconds + share * (next->seconds - before.seconds);
}

CostModel CostModel::Plus(double seconds) const {
  RequireNotNegative("the time to add to every message", seconds);
  CostModel model = *this;
  model.linear_.a_s += seconds;
  for (auto& point : model.points_) {
    point.seconds += seconds;
  }
  return model;
}

CostModel CostModel::Times(double startup, double wire) const {
  RequireNotNegative("the factor of every start-up", startup);
  RequireNotNegative("the factor of every byte", wire);
  CostModel model = *this;
  model.linear_.a_s *= startup;
  model.linear_.b_s_per_byte *= wire;
  model.tail_s_per_byte_ *= wire;
  const double startup_s = (*this)(0);
  for (auto& point : model.points_) {
    point.seconds = startup * startup_s + wire * (point.seconds - startup_s);
  }
  return model;
}

CostModel FitMeasured(const std::vector<CostPoint>& samples) { return CostModel::Measured(IsotonicMedians(samples)); }

}  // namespace paceline::core
