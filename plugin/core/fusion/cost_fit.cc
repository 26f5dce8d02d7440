#include "core/fusion/cost_fit.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace paceline::core {

namespace {

// All pairs of up to 64 sizes are tried; of more sizes as many random pairs. When half of the sizes are good, the
// chance that no pair is good is 0.75 to the power of this.
constexpr size_t kMaxPairs = 2016;
constexpr int kRefinements = 20;
// Tukey's biweight at its usual constant: 95 % efficient on clean data, and no weight at all beyond.
constexpr double kTukey = 4.685;
// Median absolute deviation to standard deviation of a normal distribution.
constexpr double kMadToSigma = 1.4826;
// Relative errors smaller than this are taken for rounding.
constexpr double kLeastScale = 1e-9;

struct SizeMedian {
  double bytes = 0;
  double seconds = 0;
  double weight = 0;  // number of samples
};

// The lower median: of two times the later one is more likely to have been disturbed.
double LowerMedian(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::vector<SizeMedian> MediansBySize(const std::vector<CostPoint>& samples) {
  if (samples.empty()) {
    throw std::invalid_argument("a cost needs at least one sample of (bytes, seconds); there is none");
  }
  std::vector<std::pair<double, double>> sorted;
  sorted.reserve(samples.size());
  for (size_t n = 0; n < samples.size(); ++n) {
    const auto& [bytes, seconds] = samples[n];
    if (!std::isfinite(bytes) || !std::isfinite(seconds) || bytes < 0 || seconds < 0) {
      std::ostringstream text;
      text << "sample " << n << " is (" << bytes << " bytes, " << seconds
           << " s): bytes and seconds must be finite and not negative";
      throw std::invalid_argument(text.str());
    }
    sorted.emplace_back(bytes, seconds);
  }
  std::sort(sorted.begin(), sorted.end());
  std::vector<SizeMedian> medians;
  std::vector<double> times;
  for (size_t from = 0; from < sorted.size();) {
    times.clear();
    size_t to = from;
    while (to < sorted.size() && sorted[to].first == sorted[from].first) {
      times.push_back(sorted[to++].second);
    }
    medians.push_back({sorted[from].first, LowerMedian(times), static_cast<double>(to - from)});
    from = to;
  }
  return medians;
}

// Relative to the larger of both, so that neither a line near zero nor a huge outlier dominates.
double RelativeError(const LinearCost& line, const SizeMedian& point) {
  const double predicted = line.a_s + line.b_s_per_byte * point.bytes;
  const double scale = std::max(predicted, point.seconds);
  return scale > 0 ? std::abs(predicted - point.seconds) / scale : 0;
}

// The lower median error, not counting two points: a line through two of them fits these in any case.
double MedianError(const LinearCost& line, const std::vector<SizeMedian>& points, std::vector<double>& scratch) {
  scratch.clear();
  for (const auto& point : points) {
    scratch.push_back(RelativeError(line, point));
  }
  const size_t rank = std::min((points.size() + 1) / 2, points.size() - 1);
  std::nth_element(scratch.begin(), scratch.begin() + static_cast<std::ptrdiff_t>(rank), scratch.end());
  return scratch[rank];
}

LinearCost Through(const SizeMedian& one, const SizeMedian& other) {
  const double slope = std::max(0.0, (other.seconds - one.seconds) / (other.bytes - one.bytes));
  return {std::max(0.0, one.seconds - slope * one.bytes), slope};
}

LinearCost BestThroughTwo(const std::vector<SizeMedian>& points) {
  LinearCost best;
  double best_error = std::numeric_limits<double>::infinity();
  std::vector<double> scratch;
  const auto consider = [&](size_t i, size_t j) {
    const auto line = Through(points[i], points[j]);
    const double error = MedianError(line, points, scratch);
    if (error < best_error) {
      best_error = error;
      best = line;
    }
  };
  const size_t count = points.size();
  if (count * (count - 1) / 2 <= kMaxPairs) {
    for (size_t i = 0; i < count; ++i) {
      for (size_t j = i + 1; j < count; ++j) {
        consider(i, j);
      }
    }
    return best;
  }
  std::mt19937 random(1);  // NOLINT(bugprone-random-generator-seed): every run shall find the same line
  for (size_t n = 0; n < kMaxPairs; ++n) {
    const size_t i = random() % count;
    const size_t j = (i + 1 + random() % (count - 1)) % count;
    consider(std::min(i, j), std::max(i, j));
  }
  return best;
}

// Weighted least squares under a >= 0 and b >= 0.
LinearCost LeastSquares(const std::vector<SizeMedian>& points, const std::vector<double>& weights) {
  double w = 0, wx = 0, wy = 0, wxx = 0, wxy = 0;
  for (size_t n = 0; n < points.size(); ++n) {
    const auto& point = points[n];
    w += weights[n];
    wx += weights[n] * point.bytes;
    wy += weights[n] * point.seconds;
    wxx += weights[n] * point.bytes * point.bytes;
    wxy += weights[n] * point.bytes * point.seconds;
  }
  const double determinant = w * wxx - wx * wx;
  if (determinant <= 1e-12 * w * wxx) {
    return {w > 0 ? wy / w : 0, 0};
  }
  const LinearCost free{(wy * wxx - wxy * wx) / determinant, (w * wxy - wx * wy) / determinant};
  if (free.a_s < 0) {
    return {0, wxy / wxx};
  }
  if (free.b_s_per_byte < 0) {
    return {wy / w, 0};
  }
  return free;
}

}  // namespace

LinearCost FitLinear(const std::vector<CostPoint>& samples) {
  const auto points = MediansBySize(samples);
  if (points.size() < 2) {
    std::ostringstream text;
    text << "a line needs messages of at least two sizes; all samples have " << points.front().bytes << " bytes";
    throw std::invalid_argument(text.str());
  }
  if (std::all_of(points.begin(), points.end(), [](const SizeMedian& point) { return point.seconds == 0; })) {
    throw std::invalid_argument("all measured times are zero; no cost can be fitted to them");
  }
  auto line = BestThroughTwo(points);
  std::vector<double> weights(points.size());
  std::vector<double> scratch;
  for (int round = 0; round < kRefinements; ++round) {
    const double sigma = std::max(kLeastScale, kMadToSigma * MedianError(line, points, scratch));
    for (size_t n = 0; n < points.size(); ++n) {
      const double distance = RelativeError(line, points[n]) / (kTukey * sigma);
      const double trust = distance < 1 ? (1 - distance * distance) * (1 - distance * distance) : 0;
      const double predicted = line.a_s + line.b_s_per_byte * points[n].bytes;
      weights[n] = predicted > 0 ? trust / (predicted * predicted) : 0;
    }
    const auto better = LeastSquares(points, weights);
    const bool settled = std::abs(better.a_s - line.a_s) <= kLeastScale * line.a_s &&
                         std::abs(better.b_s_per_byte - line.b_s_per_byte) <= kLeastScale * line.b_s_per_byte;
    line = better;
    if (settled) {
      break;
    }
  }
  return line;
}

std::vector<CostPoint> IsotonicMedians(const std::vector<CostPoint>& samples) {
  struct Pool {
    double weighted_seconds = 0;
    double weight = 0;
    size_t sizes = 0;
    double Mean() const { return weighted_seconds / weight; }
  };
  const auto medians = MediansBySize(samples);
  std::vector<Pool> pools;
  for (const auto& median : medians) {
    pools.push_back({median.seconds * median.weight, median.weight, 1});
    while (pools.size() > 1 && pools[pools.size() - 2].Mean() > pools.back().Mean()) {
      const auto last = pools.back();
      pools.pop_back();
      pools.back().weighted_seconds += last.weighted_seconds;
      pools.back().weight += last.weight;
      pools.back().sizes += last.sizes;
    }
  }
  std::vector<CostPoint> points;
  for (const auto& pool : pools) {
    for (size_t n = 0; n < pool.sizes; ++n) {
      points.push_back({medians[points.size()].bytes, pool.sizes == 1 ? medians[points.size()].seconds : pool.Mean()});
    }
  }
  return points;
}

}  // namespace paceline::core
