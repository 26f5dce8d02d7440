// Operations over an exchange's states and registrations (bridge/operations.h).

#include <memory>
#include <ostream>  // doctest shows pointers with it
#include <string>

#include "bridge/operations.h"
#include "doctest/doctest.h"

using horovod::paceline::ExchangeState;
using horovod::paceline::Operations;
using horovod::paceline::Registration;

namespace {

struct One : ExchangeState {
  explicit One(int number = 0) : number(number) {}
  int number;
};
struct Another : ExchangeState {};

}  // namespace

TEST_CASE("an operation is known in its process set, and what is kept of it is one exchange's") {
  Operations operations;
  CHECK(operations.Find(0, "a") == nullptr);
  CHECK(operations.Kept<One>(0, "a") == nullptr);
  const auto a = operations.At(0, "a");
  CHECK(operations.At(0, "a") == a);
  CHECK(operations.Find(1, "a") == nullptr);
  CHECK(a->KeptOrMade<One>(7)->number == 7);
  CHECK(a->KeptOrMade<One>(8)->number == 7);
  CHECK(a->Kept<Another>() == nullptr);
  CHECK(a->KeptOrMade<Another>() == nullptr);
  operations.At(1, "b")->KeptOrMade<One>(9);
  CHECK(operations.AllKept<One>().size() == 2);
  CHECK(operations.AllKept<One>(1).size() == 1);
  CHECK(operations.AllKept<Another>().empty());
}

TEST_CASE("the first registration counts") {
  Operations operations;
  const auto a = operations.At(0, "a");
  CHECK(a->registration() == nullptr);
  const auto first = a->Register(std::make_shared<Registration>());
  CHECK(a->Register(std::make_shared<Registration>()) == first);
  a->Unregister();
  CHECK(a->registration() == nullptr);
}

TEST_CASE("with a world ends what was kept, and what is not registered; with a process set all of it") {
  Operations operations;
  const auto registered = operations.At(0, "registered");
  registered->Register(std::make_shared<Registration>());
  registered->KeptOrMade<One>();
  operations.At(0, "called")->KeptOrMade<One>();
  operations.At(1, "in a set")->Register(std::make_shared<Registration>());
  operations.DropAll();
  operations.ForgetUnregistered();
  CHECK(operations.Find(0, "registered") == registered);
  CHECK(registered->Kept<One>() == nullptr);
  CHECK(operations.Find(0, "called") == nullptr);
  operations.EndProcessSet(1);
  CHECK(operations.Find(1, "in a set") == nullptr);
}
