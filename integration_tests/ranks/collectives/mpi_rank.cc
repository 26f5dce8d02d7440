// What one rank does in the tests of test_mpi_transport.py: `mpirun -np P mpi_rank CASE`. No Horovod.

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "bridge/transport/mpi_transport.h"
#include "transport_checks.h"

using namespace transport_checks;
using horovod::paceline::MpiTransport;

namespace {

// See transport_checks.h: a transport for each message.
void Values(MPI_Comm set) {
  transport_checks::Values([set] { return std::make_unique<MpiTransport>(set, kLong); });
}

void Window(MPI_Comm set) {
  transport_checks::Window([set] { return std::make_unique<MpiTransport>(set, kLong); });
}

// Messages find the receives with their tags, in whatever order; empty ones, and ones in pieces, too.
void Messages(MPI_Comm set) {
  constexpr size_t kPiece = 1000;
  constexpr size_t kBytes[] = {0, 1, 999, 1000, 1001, 10000, 123457};
  constexpr auto kCount = std::size(kBytes);
  MpiTransport transport(set, kLong, kPiece);
  const auto peer = 1 - transport.rank();
  std::vector<std::vector<uint8_t>> out;
  std::vector<std::vector<uint8_t>> in;
  for (size_t number = 0; number < kCount; ++number) {
    out.emplace_back(kBytes[number], static_cast<uint8_t>(16 * (transport.rank() + 1) + number));
    std::iota(out.back().begin() + static_cast<int64_t>(kBytes[number] / 2), out.back().end(), number);
    in.emplace_back(kBytes[number], uint8_t{0});
  }
  for (size_t number = 0; number < kCount; ++number) {
    transport.Send(peer, number, out[number].data(), out[number].size());
  }
  for (size_t number = kCount; number-- > 0;) {
    transport.Receive(peer, number, in[number].data(), in[number].size());
  }
  for (const auto& [operation, error] : Ended(transport, 2 * kCount)) {
    Check(error.empty(), error);
  }
  for (size_t number = 0; number < kCount; ++number) {
    for (size_t index = 0; index < kBytes[number]; ++index) {
      const auto half = kBytes[number] / 2;
      const auto wanted = index < half ? 16 * (peer + 1) + number : number + (index - half);
      Check(in[number][index] == static_cast<uint8_t>(wanted), "wrong bytes in message " + std::to_string(number));
    }
  }
}

// Both ends name different lengths.
void Lengths(MPI_Comm set) {
  MpiTransport transport(set, kLong);
  std::vector<uint8_t> bytes(100000);
  if (transport.rank() == 0) {
    transport.Send(1, 1, bytes.data(), 10);
    transport.Send(1, 2, bytes.data(), 30);
    Ended(transport, 2);
    return;
  }
  const auto shorter = transport.Receive(0, 1, bytes.data(), 20);
  const auto longer = transport.Receive(0, 2, bytes.data() + 20, 20);
  const auto errors = Ended(transport, 2);
  const std::string remedy =
      "where 20 were expected. Are PACELINE_COLLECTIVE and PACELINE_DEBUG the same on all ranks?";
  Check(errors.at(shorter) == "it sends 10 bytes " + remedy, errors.at(shorter));
  Check(errors.at(longer) == "it sends more " + remedy, errors.at(longer));
  // Only these two failed.
  Completion completion;
  transport.Receive(1, 3, bytes.data(), 5);
  transport.Send(1, 3, bytes.data() + 5, 5);
  Check(transport.Wait(Transport::Clock::now() + kLong, completion) && completion.error.empty(), completion.error);
  Check(transport.Wait(Transport::Clock::now() + kLong, completion) && completion.error.empty(), completion.error);
}

// A tag that MPI has not: 2^24 - 1 is more than any library's part for messages. Nothing else is upset by it.
void Tags(MPI_Comm set) {
  MpiTransport transport(set, kLong);
  uint8_t byte = 0;
  transport.Send(transport.rank(), (uint64_t{1} << Transport::kMessageBits) - 1, &byte, 1);
  const auto errors = Ended(transport, 1);
  Check(errors.begin()->second.find("Set collective_block_bytes of PACELINE_DEBUG higher") != std::string::npos,
        "no error");
}

// Rank 1 gives up; the others hear of it while they wait for somebody else, and afterwards.
void GivesUp(MPI_Comm set) {
  uint8_t byte = 0;
  {
    MpiTransport transport(set, kLong);
    if (transport.rank() == 1) {
      const auto own = transport.Receive(0, 7, &byte, 1);
      transport.Abort();
      Check(Ended(transport, 1).at(own) == "this rank gave up", "the own operation");
    } else {
      const auto own = transport.Receive((transport.rank() + 2) % transport.size(), 7, &byte, 1);
      const auto begin = Transport::Clock::now();
      Check(Ended(transport, 1).at(own) == "rank 1 gave up", "the other's operation");
      Check(Transport::Clock::now() - begin < kLong / 2, "nobody told it");
    }
  }
  MpiTransport later(set, kLong);
  const auto sent = later.Send((later.rank() + 1) % later.size(), 8, &byte, 1);
  Check(Ended(later, 1).at(sent).find("gave up") != std::string::npos, "what is begun after it");
}

// Rank 1 is stopped. Rank 0 ends with an error that names it; what it was sent cannot be taken back.
void Stopped(MPI_Comm set) {
  MpiTransport transport(set, kShort);
  const core::Place place{transport.rank(), transport.size()};
  if (place.rank == 1) {
    raise(SIGSTOP);
  }
  auto values = Brings(place.rank, 1 << 20, 0);
  Collective one;
  one.name = "gradient";
  one.schedule = Shared(core::RingAllreduce(place, {1 << 20, 1 << 18}));
  one.result = values.data();
  Engine engine(transport);
  try {
    engine.Begin(one);
    engine.Finish();
    std::printf("rank %d: no error\n", place.rank);
  } catch (const std::runtime_error& error) {
    std::printf("%s\n", error.what());
  }
  std::fflush(stdout);
}

// Rank 1 dies in the middle of collectives without end.
void Dies(MPI_Comm set) {
  for (uint32_t sequence = 0;; ++sequence) {
    MpiTransport transport(set, kLong);
    const core::Place place{transport.rank(), transport.size()};
    if (place.rank == 1 && sequence == 20) {
      raise(SIGKILL);
    }
    auto values = Brings(place.rank, 10000, 0);
    Collective one;
    one.schedule = Shared(core::RingAllreduce(place, {10000, 1000}));
    one.result = values.data();
    one.sequence = sequence;
    Engine engine(transport);
    engine.Begin(one);
    engine.Finish();
  }
}

// Rank 1 never begins with collectives of ours.
void Alone(MPI_Comm set) {
  int rank = 0;
  MPI_Comm_rank(set, &rank);
  if (rank == 1) {
    sleep(10);
  } else {
    uint8_t byte = 0;
    MpiTransport transport(set, kShort);
    transport.Send(1, 1, &byte, 1);
    std::printf("%s\n", Ended(transport, 1).begin()->second.c_str());
    std::fflush(stdout);
  }
  MPI_Abort(MPI_COMM_WORLD, 3);  // the library waits for the communicator at its end
}

// Process sets come and go, more often than Open MPI has communicators (2^16), each with a transport.
void Sets(MPI_Comm set) {
  for (int32_t round = 0; round < 70000; ++round) {
    MPI_Comm another = MPI_COMM_NULL;
    MPI_Comm_dup(set, &another);
    const MpiTransport transport(another, kLong);
    MPI_Comm_free(&another);
  }
}

const std::map<std::string, std::function<void(MPI_Comm)>> kCases = {
    {"values", Values},   {"messages", Messages}, {"lengths", Lengths}, {"tags", Tags}, {"gives_up", GivesUp},
    {"stopped", Stopped}, {"dies", Dies},         {"alone", Alone},     {"sets", Sets}, {"window", Window},
};

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm set = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &set);
  try {
    kCases.at(argv[1])(set);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "FAILED %s: %s\n", argv[1], error.what());
    return 1;
  }
  MPI_Comm_free(&set);
  MPI_Finalize();
  return 0;
}
