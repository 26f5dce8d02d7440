#include "bridge/settings/settings.h"

#include <array>
#include <cstddef>
#include <exception>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/settings/comparison.h"
#include "horovod/common/logging.h"

namespace horovod::paceline {

namespace core = ::paceline::core;

namespace {

std::vector<std::array<int, 2>> FromAll(common::Controller& controller, uint64_t own) {
  std::vector<int> all;
  controller.Allgather2Ints(
      {static_cast<int>(static_cast<uint32_t>(own >> 32U)), static_cast<int>(static_cast<uint32_t>(own))}, all);
  std::vector<std::array<int, 2>> by_rank;
  for (size_t n = 0; n + 1 < all.size(); n += 2) {
    by_rank.push_back({all[n], all[n + 1]});
  }
  return by_rank;
}

std::vector<std::string> TextsOfAll(common::Controller& controller, const std::string& own) {
  const auto sizes = FromAll(controller, own.size());
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < sizes.size(); ++rank) {
    const bool here = static_cast<int>(rank) == controller.GetRank();
    texts.push_back(here ? own : std::string(static_cast<size_t>(sizes[rank][1]), '\0'));
    if (!texts.back().empty()) {
      controller.Bcast(texts.back().data(), texts.back().size(), static_cast<int>(rank), common::Communicator::GLOBAL);
    }
  }
  return texts;
}

}  // namespace

void Settings::BeginWorld() {
  const std::lock_guard<std::mutex> lock(mutex_);
  report_.clear();
}

void Settings::AllConnected(common::HorovodGlobalState& state) {
  auto& controller = *state.global_controller;
  if (controller.GetSize() == 1) {
    return;
  }
  std::string own;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    own = text_;
  }
  const auto digests = FromAll(controller, core::Digest(own));
  bool same = true;
  for (const auto& one : digests) {
    same = same && one == digests[0];
  }
  if (same) {
    return;
  }
  const auto report = core::ReportOfDiffering(TextsOfAll(controller, own));
  if (report.empty()) {
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    report_ = report;
  }
  try {
    controller.Barrier(common::Communicator::GLOBAL);  // a rank that ends now takes no text from another
  } catch (const std::exception& error) {
    using namespace ::horovod::common;  // the LOG macro names Horovod's classes without their namespace
    LOG(DEBUG) << "Another rank has ended first: " << error.what();
  }
  end_(report);
  throw std::runtime_error(report);
}

void Settings::Set(std::string text) {
  const std::lock_guard<std::mutex> lock(mutex_);
  text_ = std::move(text);
}

std::string Settings::Report() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return report_;
}

}  // namespace horovod::paceline
