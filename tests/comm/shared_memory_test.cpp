// The results of collectives over shared memory, in all kinds of memory. Failures: shared_memory_faults_test.cpp.

#include <libtrain/comm/detail/shared_memory/shared_memory_transport.hpp>

#include <array>
#include <memory>

#include <gtest/gtest.h>

#include <tests/comm/shared_memory_ranks.hpp>
#include <tests/numeric/reference_reduction.hpp>

namespace libtrain {
namespace {

using test::Bytes;
using test::on_processes;
using test::on_threads;
using test::wait_policy;

// The memory of the ranks' buffers; mixed: rank 0's in ordinary memory.
enum class Memory { shared, ordinary, mixed };

// A buffer of one rank.
class Buffer {
 public:
  Buffer(HostTransport& transport, Memory memory, Bytes content) : bytes_(content.size()) {
    const bool is_shared = memory == Memory::shared || (memory == Memory::mixed && transport.rank() > 0);
    if (is_shared && bytes_ > 0) {
      memory_ = transport.allocate(bytes_);
      std::memcpy(data(), content.data(), bytes_);
    } else {
      auto owner = std::make_shared<Bytes>(std::move(content));
      memory_ = std::shared_ptr<void>(owner, owner->data());
    }
  }

  std::byte* data() const { return static_cast<std::byte*>(memory_.get()); }

  bool equals(const Bytes& other) const { return bytes_ == other.size() && has(0, other.data(), bytes_); }
  bool has(std::size_t begin, const std::byte* other, std::size_t bytes) const {
    return bytes == 0 || std::memcmp(data() + begin, other, bytes) == 0;
  }

 private:
  std::size_t bytes_;
  std::shared_ptr<void> memory_;
};

struct Case {
  DataType type;
  ReduceOp op;
  std::size_t count;
  std::vector<Bytes> inputs;
  Bytes expected;

  Case(DataType type_, ReduceOp op_, std::size_t count_, int ranks) : type(type_), op(op_), count(count_) {
    for (int rank = 0; rank < ranks; ++rank) inputs.push_back(test::sample(rank, count, type));
    expected = test::reduced(inputs, type, op);
  }
  const Bytes& input(int rank) const { return inputs[static_cast<std::size_t>(rank)]; }
};

std::size_t begin_of(int part, std::size_t bytes) {
  return static_cast<std::size_t>(part) * bytes;
}

Bytes zeros(std::size_t bytes) {
  return Bytes(bytes);
}

void arrive(HostTransport& transport, const void* input, void* output) {
  EXPECT_TRUE(transport.arrive({.fingerprint = 7, .input = input, .output = output}, wait_policy()));
}

void check_all_reduce(HostTransport& transport, Memory memory, const Case& c) {
  const Buffer in_place{transport, memory, c.input(transport.rank())};
  arrive(transport, in_place.data(), in_place.data());
  transport.all_reduce(in_place.data(), in_place.data(), c.count, c.type, c.op, wait_policy());
  EXPECT_TRUE(in_place.equals(c.expected));

  const Buffer input{transport, memory, c.input(transport.rank())};
  const Buffer output{transport, memory, zeros(c.expected.size())};
  arrive(transport, input.data(), output.data());
  transport.all_reduce(input.data(), output.data(), c.count, c.type, c.op, wait_policy());
  EXPECT_TRUE(output.equals(c.expected));
  EXPECT_TRUE(input.equals(c.input(transport.rank())));
}

void check_reduce(HostTransport& transport, Memory memory, const Case& c) {
  const int root = transport.world_size() - 1;
  const bool is_root = transport.rank() == root;
  const Buffer input{transport, memory, c.input(transport.rank())};
  const Buffer output{transport, memory, zeros(c.expected.size())};
  auto* const target = is_root ? output.data() : nullptr;
  arrive(transport, input.data(), target);
  transport.reduce(input.data(), target, c.count, c.type, c.op, root, wait_policy());
  EXPECT_TRUE(output.equals(is_root ? c.expected : zeros(c.expected.size())));
  EXPECT_TRUE(input.equals(c.input(transport.rank())));
}

void check_reduce_scatter(HostTransport& transport, Memory memory, const Case& c) {
  const auto count = c.count / static_cast<std::size_t>(transport.world_size());
  const auto bytes = count * size_of(c.type);
  const auto own_part = begin_of(transport.rank(), bytes);
  const Buffer input{transport, memory, c.input(transport.rank())};
  const Buffer output{transport, memory, zeros(bytes)};
  arrive(transport, input.data(), output.data());
  transport.reduce_scatter(input.data(), output.data(), count, c.type, c.op, wait_policy());
  EXPECT_TRUE(output.has(0, c.expected.data() + own_part, bytes));
  EXPECT_TRUE(input.equals(c.input(transport.rank())));

  arrive(transport, input.data(), input.data() + own_part);
  transport.reduce_scatter(input.data(), input.data() + own_part, count, c.type, c.op, wait_policy());
  EXPECT_TRUE(input.has(own_part, c.expected.data() + own_part, bytes));
}

void check_copies(HostTransport& transport, Memory memory, const Case& c) {
  const auto ranks = transport.world_size();
  const int root = ranks / 2;
  const Buffer message{transport, memory, c.input(transport.rank())};
  arrive(transport, nullptr, message.data());
  transport.broadcast(message.data(), c.expected.size(), root, wait_policy());
  EXPECT_TRUE(message.equals(c.input(root)));

  const auto bytes = c.expected.size();
  const Buffer input{transport, memory, c.input(transport.rank())};
  const Buffer all{transport, memory, zeros(bytes * static_cast<std::size_t>(ranks))};
  arrive(transport, input.data(), all.data());
  transport.all_gather(input.data(), all.data(), bytes, wait_policy());
  for (int rank = 0; rank < ranks; ++rank) EXPECT_TRUE(all.has(begin_of(rank, bytes), c.input(rank).data(), bytes));

  const auto piece = bytes / static_cast<std::size_t>(ranks);
  const Buffer received{transport, memory, zeros(piece * static_cast<std::size_t>(ranks))};
  arrive(transport, input.data(), received.data());
  transport.all_to_all(input.data(), received.data(), piece, wait_policy());
  const auto own_part = begin_of(transport.rank(), piece);
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_TRUE(received.has(begin_of(rank, piece), c.input(rank).data() + own_part, piece));
  }
}

void check_everything(HostTransport& transport, const Case& c) {
  SCOPED_TRACE(test::describe(c.type, c.op, c.count));
  for (const auto memory : {Memory::shared, Memory::ordinary, Memory::mixed}) {
    SCOPED_TRACE(static_cast<int>(memory));
    check_all_reduce(transport, memory, c);
    check_reduce(transport, memory, c);
    check_reduce_scatter(transport, memory, c);
    if (c.op == ReduceOp::sum) check_copies(transport, memory, c);
  }
}

using Collectives = ::testing::TestWithParam<int>;
INSTANTIATE_TEST_SUITE_P(SharedMemory, Collectives, ::testing::Range(1, 9));

TEST_P(Collectives, ComputeTheSameInAllMemories) {
  for (const auto type : test::kTypes) {
    for (const auto op : test::kOps) {
      if (op == ReduceOp::average && !is_floating(type)) continue;
      std::vector<Case> cases;
      for (const std::size_t count : {0, 1, 2, 3, 17, 1021}) cases.emplace_back(type, op, count, GetParam());
      on_threads(GetParam(), [&](HostTransport& transport) {
        for (const auto& c : cases) check_everything(transport, c);
      });
    }
  }
}

void check_on_threads(int ranks, DataType type, ReduceOp op, std::size_t count) {
  const Case c{type, op, count, ranks};
  on_threads(ranks, [&](HostTransport& transport) { check_everything(transport, c); });
}

TEST_P(Collectives, ComputeTheSameInManySlices) {
  for (const auto type : test::kTypes) check_on_threads(GetParam(), type, ReduceOp::sum, 65537);
  for (const auto op : test::kOps) check_on_threads(GetParam(), DataType::float32, op, 65537);
}

TEST_P(Collectives, ComputeTheSameInManyChunks) {
  check_on_threads(GetParam(), DataType::float32, ReduceOp::average, (std::size_t{1} << 20) + 7);
  check_on_threads(GetParam(), DataType::bfloat16, ReduceOp::sum, 300007);
}

TEST(SharedMemory, WorksBetweenProcesses) {
  for (const int ranks : {2, 3, 4}) {
    for (const std::size_t count : {std::size_t{17}, std::size_t{65537}, (std::size_t{1} << 20) + 7}) {
      const Case c{DataType::float32, ReduceOp::sum, count, ranks};
      const auto results = on_processes(ranks, [&](HostTransport& transport) { check_everything(transport, c); });
      EXPECT_EQ(results, std::vector<int>(static_cast<std::size_t>(ranks), 0));
    }
  }
}

TEST(SharedMemory, TakesBuffersThatBeginAnywhereInAnAllocation) {
  on_threads(3, [](HostTransport& transport) {
    constexpr std::size_t kCount = 1000;
    const auto memory = transport.allocate(2 * kCount * sizeof(float));
    auto* data = static_cast<float*>(memory.get()) + 3 + 10 * transport.rank();
    std::fill_n(data, kCount, 1.0f);
    arrive(transport, data, data);
    transport.all_reduce(data, data, kCount, DataType::float32, ReduceOp::sum, wait_policy());
    EXPECT_EQ(std::vector<float>(data, data + kCount), std::vector<float>(kCount, 3.0f));
    EXPECT_EQ(data[-1], 0.0f);
    EXPECT_EQ(data[kCount], 0.0f);
  });
}

TEST(SharedMemory, TakesSeveralCollectivesAfterOneArrival) {
  on_threads(4, [](HostTransport& transport) {
    for (int repetition = 0; repetition < 200; ++repetition) {
      arrive(transport, nullptr, nullptr);
      std::array<int, 4> ranks{};
      const int mine = transport.rank() + repetition;
      transport.all_gather(&mine, ranks.data(), sizeof(int), wait_policy());
      const auto shared = transport.allocate(sizeof(ranks));
      transport.all_gather(&mine, shared.get(), sizeof(int), wait_policy());
      std::array<int, 4> again{};
      transport.all_gather(&mine, again.data(), sizeof(int), wait_policy());
      EXPECT_EQ(ranks, (std::array{repetition, repetition + 1, repetition + 2, repetition + 3}));
      EXPECT_EQ(ranks, again);
      EXPECT_EQ(std::memcmp(shared.get(), ranks.data(), sizeof(ranks)), 0);
    }
  });
}

TEST(SharedMemory, TellsDifferentFingerprints) {
  on_threads(3, [](HostTransport& transport) {
    for (int odd = 0; odd < 3; ++odd) {
      EXPECT_FALSE(transport.arrive({.fingerprint = transport.rank() == odd ? 1u : 2u}, wait_policy()));
      EXPECT_TRUE(transport.arrive({.fingerprint = 3}, wait_policy()));
    }
  });
}

TEST(SharedMemory, SplitsIntoGroupsOrderedByKey) {
  on_threads(5, [](HostTransport& transport) {
    const auto part = transport.split(transport.rank() % 2, -transport.rank(), wait_policy());
    EXPECT_EQ(part->world_size(), transport.rank() % 2 == 0 ? 3 : 2);
    std::vector<int> ranks(static_cast<std::size_t>(part->world_size()));
    const int mine = transport.rank();
    part->all_gather(&mine, ranks.data(), sizeof(int), wait_policy());
    EXPECT_EQ(ranks, transport.rank() % 2 == 0 ? (std::vector{4, 2, 0}) : (std::vector{3, 1}));
    EXPECT_EQ(ranks[static_cast<std::size_t>(part->rank())], mine);
    arrive(transport, nullptr, nullptr);
  });
}

}  // namespace
}  // namespace libtrain
