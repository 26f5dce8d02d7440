#include <memory>
#include <ostream>  // doctest shows pointers with it
#include <string>
#include <thread>
#include <vector>

#include "bridge/by_name.h"
#include "doctest/doctest.h"

using horovod::paceline::ByName;

TEST_CASE("a name is known in its process set, from the first time on") {
  ByName<int> numbers;
  CHECK_FALSE(numbers.used());
  CHECK(numbers.Find(0, "a") == nullptr);
  CHECK(*numbers.FindOr(0, "a", [] { return std::make_shared<int>(1); }) == 1);
  CHECK(*numbers.FindOr(0, "a", [] { return std::make_shared<int>(2); }) == 1);
  CHECK(numbers.used());
  CHECK(numbers.Find(1, "a") == nullptr);
  numbers.Put(1, "a", std::make_shared<int>(3));
  CHECK(*numbers.Find(1, "a") == 3);
  CHECK(numbers.All().size() == 2);
  CHECK(numbers.All(1).size() == 1);
}

TEST_CASE("what is not made leaves nothing behind") {
  ByName<int> numbers;
  CHECK(numbers.FindOr(0, "a", [] { return std::shared_ptr<int>(); }) == nullptr);
  CHECK(numbers.Find(0, "a") == nullptr);
  CHECK(numbers.All().empty());
}

TEST_CASE("one, a set, or all can go") {
  ByName<int> numbers;
  for (int n = 0; n < 5; ++n) {
    numbers.Put(n % 2, std::to_string(n), std::make_shared<int>(n));
  }
  const auto four = numbers.Take(0, "4");
  CHECK(*four == 4);
  CHECK(numbers.Take(0, "4") == nullptr);
  CHECK(numbers.Find(0, "0") != nullptr);
  numbers.EraseSet(1);
  CHECK(numbers.All(1).empty());
  numbers.Reset();
  CHECK(numbers.Find(0, "0") == nullptr);
  CHECK_FALSE(numbers.used());
  CHECK(*four == 4);
}

TEST_CASE("threads that ask for one name get one thing") {
  ByName<int> numbers;
  std::vector<std::shared_ptr<int>> found(4);
  std::vector<std::thread> threads;
  threads.reserve(found.size());
  for (auto& one : found) {
    threads.emplace_back([&] { one = numbers.FindOr(0, "a", [] { return std::make_shared<int>(0); }); });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  for (const auto& one : found) {
    CHECK(one == found[0]);
  }
}
