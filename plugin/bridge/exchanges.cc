#include "bridge/exchanges.h"

#include <algorithm>
#include <sstream>

#include "bridge/c_boundary.h"
#include "bridge/copy_text.h"
#include "bridge/participants.h"
#include "bridge/ready.h"
#include "horovod/common/operations.h"

namespace horovod::paceline {

namespace {

std::string Text(const std::string& exchange, const std::vector<double>& settings) {
  std::ostringstream text;
  text << exchange << '(';
  for (size_t n = 0; n < settings.size(); ++n) {
    text << (n > 0 ? ", " : "") << settings[n];
  }
  text << ')';
  return text.str();
}

std::string OnThisRank() { return "rank " + std::to_string(common::horovod_rank()); }

common::Status NotIncluded(const std::string& title) {
  return common::Status::InvalidArgument(title + ": " + OnThisRank() +
                                         " is not a member of the process set. Leave the call out on this rank, or "
                                         "give it a process set that this rank is in.");
}

common::Status OnGpu(const std::string& title, int device) {
  return common::Status::InvalidArgument(title + ": expected a tensor in CPU memory, found one on GPU " +
                                         std::to_string(device) +
                                         ". Use exchange=\"sync\", or a Horovod that was "
                                         "built without HOROVOD_GPU_OPERATIONS, which copies it to CPU memory.");
}

common::Status DifferentInGroup(const std::string& one, const std::string& other) {
  return common::Status::InvalidArgument("Grouped allreduce of " + one + " and " + other + ": " + OnThisRank() +
                                         " expected all of a group to belong to one exchange, found that they do not. "
                                         "Call them in different groups.");
}

}  // namespace

std::string Exchanges::Register(int32_t process_set_id, const std::string& name, const std::string& exchange,
                                const std::vector<double>& settings) {
  const auto of =
      std::find_if(exchanges_.begin(), exchanges_.end(), [&](const auto* one) { return exchange == one->word(); });
  const auto title = "Registration of " + name + " on " + OnThisRank();
  if (of == exchanges_.end()) {
    std::string known;
    for (const auto* one : exchanges_) {
      known += std::string(known.empty() ? "" : ", ") + one->word();
    }
    return title + ": expected one of the exchanges " + known + ", found " + exchange + ". Use one of these.";
  }
  std::string expected;
  auto parsed = (*of)->Parse(settings, expected);
  if (parsed == nullptr) {
    return title + ": expected " + expected + ", found " + Text(exchange, settings) + ". Give these.";
  }
  const std::lock_guard<std::mutex> lock(registering_);
  const auto registered = operations_.At(process_set_id, name)
                              ->Register(std::make_shared<Registration>(Registration{*of, settings, parsed}));
  if (registered->exchange != *of || registered->numbers != settings) {
    return title + ": expected " + Text(registered->exchange->word(), registered->numbers) +
           " as it is registered, found others: " + Text(exchange, settings) +
           ". Keep to one choice for each name, or unregister it first.";
  }
  return {};
}

void Exchanges::Unregister(int32_t process_set_id, const std::string& name) {
  const std::lock_guard<std::mutex> lock(registering_);
  const auto operation = operations_.Find(process_set_id, name);
  const auto registered = operation == nullptr ? nullptr : operation->registration();
  if (registered != nullptr) {
    registered->exchange->Unregistered(*operation);
    Forget(*operation, *registered->exchange);
  }
}

void Exchanges::BeginWorld() {
  operations_.DropAll();
  const std::lock_guard<std::mutex> lock(registering_);
  operations_.ForgetUnregistered();
}

void Exchanges::Forget(Operation& operation, Exchange& exchange) {
  operation.Unregister();
  if (!exchange.Has(operation)) {
    operation.Drop();
    operations_.Forget(operation);
  }
}

common::Status Exchanges::CallOne(AllreduceCall& call, size_t n, Operation& operation,
                                  const Registration& registration) {
  const auto title = registration.exchange->Title(operation.name);
  if (!call.process_set.IsCurrentProcessIncluded()) {
    return NotIncluded(title);
  }
  if (call.device != CPU_DEVICE_ID) {
    return OnGpu(title, call.device);
  }
  auto ready = WaitReady(call.ready[n], title);
  if (!ready.ok()) {
    return ready;
  }
  auto status = registration.exchange->Call({call.process_set, operation, *registration.settings, call.reducing,
                                             call.tensors[n], call.outputs[n], call.callbacks[n]});
  // A refused first call leaves nothing behind. Not where the world has ended: whoever goes on in the next one, goes on
  // with this exchange.
  if (status.type() == common::StatusType::INVALID_ARGUMENT && !registration.exchange->Has(operation)) {
    const std::lock_guard<std::mutex> lock(registering_);
    Forget(operation, *registration.exchange);
  }
  return status;
}

// Every tensor by itself: what Horovod's groups are for, going together, is the merging plan's business here.
bool Exchanges::Enqueue(AllreduceCall& call, common::Status& status) {
  std::vector<Operations::Found> operations;
  std::vector<std::shared_ptr<const Registration>> all;
  for (const auto& name : call.names) {
    operations.push_back(operations_.Find(call.reducing.process_set_id, name));
    all.push_back(operations.back() == nullptr ? nullptr : operations.back()->registration());
    if ((all.back() == nullptr ? nullptr : all.back()->exchange) != (all[0] == nullptr ? nullptr : all[0]->exchange)) {
      status = DifferentInGroup(call.names[0], name);
      return true;
    }
  }
  if (all[0] == nullptr) {
    return false;
  }
  size_t taken = 0;
  for (size_t n = 0; n < all.size(); ++n) {
    taken += all[n]->exchange->Takes(*operations[n], *all[n]->settings) ? 1 : 0;
  }
  if (taken == 0) {
    return false;
  }
  if (taken < all.size()) {
    status = DifferentInGroup(call.names[0], call.names.back());
    return true;
  }
  // Horovod calls no callback of a call that is refused: only the first tensor can still be.
  status = common::Status::OK();
  for (size_t n = 0; n < all.size(); ++n) {
    const auto one = CallOne(call, n, *operations[n], *all[n]);
    if (!one.ok() && n == 0) {
      status = one;
      break;
    }
    if (!one.ok()) {
      call.callbacks[n](one);
    }
  }
  return true;
}

}  // namespace horovod::paceline

extern "C" {

// Gives the operation `name` of a process set to an exchange (exchanges.h), with settings that this one knows. Returns
// 0, or -1 and in `error` what is wrong: then all is as before.
int32_t horovod_paceline_register(int32_t process_set, const char* name, const char* exchange, const double* settings,
                                  int32_t count, char* error, int64_t capacity) try {
  const auto wrong = horovod::paceline::Get<horovod::paceline::Exchanges>().Register(process_set, name, exchange,
                                                                                     {settings, settings + count});
  horovod::paceline::CopyText(wrong, error, capacity);
  return wrong.empty() ? 0 : -1;
}
PACELINE_CATCH(-1, error, capacity)

// The operation is a plain allreduce again.
void horovod_paceline_unregister(int32_t process_set, const char* name) try {
  horovod::paceline::Get<horovod::paceline::Exchanges>().Unregister(process_set, name);
}
PACELINE_CATCH()
}
