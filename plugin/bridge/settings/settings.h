// Compares what all ranks must have the same settings of, when they have connected and before their first round.

#ifndef PACELINE_BRIDGE_SETTINGS_SETTINGS_H
#define PACELINE_BRIDGE_SETTINGS_SETTINGS_H

#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include "bridge/participant.h"

namespace horovod::paceline {

class Settings : public Participant {
 public:
  // Ends the world for a reason that all ranks have found at the same time.
  using EndTogether = std::function<void(const std::string& why)>;

  explicit Settings(EndTogether end) : end_(std::move(end)) {}

  void BeginWorld() override;
  // Throws std::runtime_error with the report on every rank if settings differ. One message of each rank if they do
  // not; texts are exchanged only where their digests differ.
  void AllConnected(common::HorovodGlobalState& state) override;

  // Before init(): this rank's settings (core/settings/comparison.h).
  void Set(std::string text);
  // Why the last init() was refused, empty if it was not.
  std::string Report() const;

 private:
  EndTogether end_;
  mutable std::mutex mutex_;  // protects everything below: the background thread and those of frameworks
  std::string text_, report_;
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_SETTINGS_SETTINGS_H
