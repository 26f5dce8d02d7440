// How long one message of a given size takes: a line, or a curve through measured points.

#ifndef PACELINE_CORE_FUSION_COST_MODEL_H
#define PACELINE_CORE_FUSION_COST_MODEL_H

#include <vector>

#include "core/fusion/cost_fit.h"

namespace paceline::core {

// Seconds for one message of M bytes; never negative, never less for more bytes. Immutable.
class CostModel {
 public:
  // a_s + b_s_per_byte * M. Throws std::invalid_argument unless both are finite and not negative.
  static CostModel Linear(double a_s, double b_s_per_byte);

  // Piecewise linear through the points, given in any order. Below the first point: its seconds. Beyond the last: on
  // with the slope between it and the last point of at most half its bytes (or the first point), so that two noisy
  // neighbours at the end decide nothing; if that is flat, with the slope of linear(). One point alone: beyond it
  // the time grows in proportion to the bytes. Throws std::invalid_argument if there is no point, if one is not
  // finite or negative, if two have the same bytes, or if a larger message takes less time (FitMeasured puts that
  // right).
  static CostModel Measured(std::vector<CostPoint> points);

  double operator()(double bytes) const;

  // The line itself, or for a measured model the line fitted to its points (FitLinear).
  const LinearCost& linear() const { return linear_; }
  // In order of size; empty for a line.
  const std::vector<CostPoint>& points() const { return points_; }

  // The same model with a constant time added to every message, for example that of one coordination round.
  // Throws std::invalid_argument unless `seconds` is finite and not negative.
  CostModel Plus(double seconds) const;
  // The same model where the start-up, which is what no bytes take, is `startup` times as long, and what bytes add to
  // it `wire` times. Throws as Plus.
  CostModel Times(double startup, double wire) const;

 private:
  CostModel() = default;

  LinearCost linear_;
  std::vector<CostPoint> points_;
  double tail_s_per_byte_ = 0;
};

// A measured model from samples of any number of sizes: median by size, then made non-decreasing (IsotonicMedians).
// Throws std::invalid_argument for samples that are not finite, negative, or none.
CostModel FitMeasured(const std::vector<CostPoint>& samples);

}  // namespace paceline::core

#endif  // PACELINE_CORE_FUSION_COST_MODEL_H
