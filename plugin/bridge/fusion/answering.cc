// What a merger says in control operations, and what it learns from them; see control_op.h.

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <utility>

#include "bridge/fusion/merger.h"

namespace horovod::paceline {

namespace core = ::paceline::core;

using ::paceline::core::Message;

namespace {

double Inverse(double value) { return value > 0 ? 1 / value : 0; }

}  // namespace

std::vector<double> Merger::OwnMeasurement(int64_t elements) const {
  const auto own = monitor_.Measure();
  const auto tensors =
      elements - kMeasureHeader - kAllSweeps - static_cast<int64_t>(::paceline::core::Monitor::kMessages);
  const double steps = own.steps > 0 ? 1 / static_cast<double>(own.steps) : kIrregular;
  std::vector<double> values = {steps, std::max(own.step_s - own.exposed_s, 0.0), Inverse(own.coordination_s)};
  for (int64_t n = 0; n < tensors; ++n) {
    const double ready_s = n < static_cast<int64_t>(own.ready_s.size()) ? own.ready_s[n] : -1;
    values.push_back(ready_s < 0 ? kIrregular : ready_s);
  }
  const auto append = [&](const std::vector<Message>& messages, size_t places) {
    for (size_t n = 0; n < places; ++n) {
      values.push_back(n < messages.size() ? Inverse(static_cast<double>(messages[n].duration_ns) * 1e-9) : 0);
    }
  };
  for (const auto& sweeps : sweeps_) {
    append(sweeps, kSweeps);
  }
  append(monitor_.messages(), ::paceline::core::Monitor::kMessages);
  return values;
}

void Merger::Fill(const ControlOp& op, CpuTensor& buffer) {
  const int64_t elements = buffer.shape().num_elements();
  std::vector<double> values;
  if (op.kind == ControlKind::kSettings) {
    values.assign(static_cast<size_t>(elements), 0);
    values[static_cast<size_t>(rank_)] = std::max(heard_, 0.0) + 1;
    values[static_cast<size_t>(size_) + static_cast<size_t>(rank_)] = heard_armed_ ? 1 : 0;
  } else if (op.kind == ControlKind::kMeasure) {
    values = OwnMeasurement(elements);
  } else if (op.kind == ControlKind::kPlan && op.asker == rank_) {
    std::lock_guard<std::mutex> lock(mutex_);
    values = contributions_[NameOf(op)];
  }
  std::copy_n(values.begin(), std::min(values.size(), static_cast<size_t>(elements)), buffer.values());
}

void Merger::BeforeExecute(common::ProcessSet& process_set, const common::Response& response) {
  const bool control = OfControlOp(response);
  if (burst_ns_ != 0 && !(control && ControlOpOf(response.tensor_names()[0]).kind == ControlKind::kBurst)) {
    reducer_.Settle();  // a burst is over
    burst_ns_ = 0;
  }
  if (!control) {
    if (watching_ && response.response_type() == common::Response::ALLREDUCE) {
      monitor_.On(MessageOf(response));
    }
    return;
  }
  const auto kind = ControlOpOf(response.tensor_names()[0]).kind;
  Begin(ControlOpOf(response.tensor_names()[0]));
  if (SweepOf(kind) >= 0 && burst_ns_ == 0) {
    reducer_.Settle();
    burst_ns_ = kind == ControlKind::kBurst ? Nanoseconds(Clock::now()) : 0;
  }
  for (size_t n = 0; n < response.tensor_names().size(); ++n) {
    const auto& name = response.tensor_names()[n];
    const bool sized = n < response.tensor_sizes().size();
    const auto buffer = std::make_shared<CpuTensor>(sized ? response.tensor_type() : common::DataType::HOROVOD_FLOAT64,
                                                    sized ? response.tensor_sizes()[n] : 1);
    const ControlOp op = ControlOpOf(name);
    if (SweepOf(op.kind) > 0) {
      reducer_.GoFastest(process_set_id_, {name});
    } else if (sized && SweepOf(op.kind) < 0) {
      Fill(op, *buffer);
    }
    auto entry = EntryFor(name, buffer, process_set_id_);
    auto vote = RequestFor(op, buffer->shape().num_elements());
    process_set.tensor_queue.AddToTensorQueue(entry, vote);
  }
  joined_.Leave(process_set);
}

// Also takes the picture that the values of a measurement are about: more tensors and messages begin before its end.
void Merger::Begin(const ControlOp& op) {
  Begun begun;
  begun.op = op;
  begun.answer.kind = op.kind;
  begun.answer.number = op.number;
  begun.answer.error = "it was not performed";
  if (op.kind == ControlKind::kMeasure) {
    begun.answer.tensors = monitor_.tensors();
    begun.answer.sweeps = sweeps_;
    begun.answer.messages = monitor_.messages();
  }
  begun_.push_back(std::move(begun));
}

void Merger::Ended(const Executed& executed) {
  const auto name = NameOf(ControlOpOf(executed.response.tensor_names()[0]));
  const auto found =
      std::find_if(begun_.begin(), begun_.end(), [&](const auto& one) { return NameOf(one.op) == name; });
  if (found == begun_.end()) {
    return;
  }
  auto& answer = found->answer;
  if (!executed.status.ok()) {
    const auto& response = executed.response;
    answer.error =
        response.response_type() == common::Response::ERROR ? response.error_message() : executed.status.reason();
    return;
  }
  answer.error.clear();
  if (SweepOf(found->op.kind) < 0) {
    const auto* values = static_cast<const double*>(executed.entries[0].output->data());
    answer.values.assign(values, values + executed.entries[0].output->shape().num_elements());
    return;
  }
  for (const auto& entry : executed.entries) {
    found->sweep.bytes += static_cast<int64_t>(entry.tensor->size());
  }
  const auto start_ns = found->op.kind == ControlKind::kBurst ? burst_ns_ : executed.start_ns;
  found->sweep.duration_ns = executed.end_ns - start_ns;
}

void Merger::RoundEnded() {
  for (auto& begun : std::exchange(begun_, {})) {
    Answered({}, begun);
  }
}

void Merger::Answered(const core::agreed::RoundEnded& at, Begun& begun) {
  const auto& op = begun.op;
  auto& answer = begun.answer;
  if (SweepOf(op.kind) >= 0) {
    if (answer.error.empty()) {
      auto& sweeps = sweeps_.at(static_cast<size_t>(SweepOf(op.kind)));
      if (sweeps.size() == kSweeps) {
        sweeps.erase(sweeps.begin());
      }
      sweeps.push_back(begun.sweep);
    }
    auto other = op;
    other.part = 1;
    reducer_.GoAsChosen(process_set_id_, {NameOf(op), NameOf(other)});
  }
  if (answer.error.empty() && op.kind == ControlKind::kSettings) {
    Agree(at, answer.values);
  }
  if (answer.error.empty() && op.kind == ControlKind::kPlan) {
    try {
      Follow(at, core::DecodePlan(answer.values));
    } catch (const std::invalid_argument& error) {
      answer.error = error.what();  // the same values, hence the same verdict, on all ranks
    }
  }
  std::lock_guard<std::mutex> lock(mutex_);
  contributions_.erase(NameOf(op));
  if (op.asker == rank_) {
    answers_[static_cast<int32_t>(op.kind)] = std::move(answer);
    ++answered_;
  }
}

void Merger::Agree(const core::agreed::RoundEnded& at, const std::vector<double>& settings) {
  const std::vector<double> asked(settings.begin(), settings.begin() + size_);
  Agreement now;
  now.asked = asked;
  now.complete = std::all_of(asked.begin(), asked.end(), [&](double value) { return value > 0 && value == asked[0]; });
  now.plans = now.complete && asked[0] > 1;
  now.armed = now.plans && std::all_of(settings.begin() + size_, settings.end(), [](double one) { return one > 0; });
  if (now.armed != armed_) {
    ++follows_;
    armed_ = now.armed;
    ChooseCollectives(at);
  }
  bool changed = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    changed = now.plans != agreement_.plans || (now.plans && asked != agreement_.asked);
    agreement_ = now;
  }
  if (changed) {
    Follow(at, {});
    watching_ = now.plans;
  }
}

}  // namespace horovod::paceline
