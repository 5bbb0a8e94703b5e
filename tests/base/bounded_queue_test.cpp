#include <libtrain/base/detail/bounded_queue.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <thread>
#include <vector>

namespace libtrain {
namespace {

TEST(BoundedQueue, KeepsTheOrderOfOneProducer) {
  detail::BoundedQueue<int> queue{3};
  for (int value = 1; value <= 3; ++value) ASSERT_TRUE(queue.push(value));
  EXPECT_EQ(queue.size(), 3u);
  EXPECT_EQ(queue.pop(), 1);
  EXPECT_EQ(queue.pop(), 2);
  EXPECT_EQ(queue.pop(), 3);
  EXPECT_EQ(queue.try_pop(), std::nullopt);
}

TEST(BoundedQueue, RefusesACapacityOfZero) {
  EXPECT_THROW(detail::BoundedQueue<int>{0}, UsageError);
}

TEST(BoundedQueue, CarriesMoveOnlyValues) {
  detail::BoundedQueue<std::unique_ptr<int>> queue{1};
  ASSERT_TRUE(queue.push(std::make_unique<int>(7)));
  EXPECT_EQ(**queue.pop(), 7);
}

TEST(BoundedQueue, DrainsAfterClosing) {
  detail::BoundedQueue<int> queue{2};
  ASSERT_TRUE(queue.push(1));
  queue.close();
  queue.close();
  EXPECT_TRUE(queue.closed());
  EXPECT_FALSE(queue.push(2));
  EXPECT_EQ(queue.pop(), 1);
  EXPECT_EQ(queue.pop(), std::nullopt);
}

TEST(BoundedQueue, DropsWhatIsLeftWhenClearedToo) {
  const auto value = std::make_shared<int>(1);
  detail::BoundedQueue<std::shared_ptr<int>> queue{2};
  ASSERT_TRUE(queue.push(value));
  queue.close_and_clear();
  EXPECT_EQ(value.use_count(), 1);
  EXPECT_EQ(queue.pop(), std::nullopt);
}

TEST(BoundedQueue, ClosingEndsAWaitingPop) {
  detail::BoundedQueue<int> queue{1};
  auto popped = std::async(std::launch::async, [&] { return queue.pop(); });
  queue.close();
  EXPECT_EQ(popped.get(), std::nullopt);
}

TEST(BoundedQueue, ClosingEndsAWaitingPush) {
  detail::BoundedQueue<int> queue{1};
  ASSERT_TRUE(queue.push(1));
  auto pushed = std::async(std::launch::async, [&] { return queue.push(2); });
  queue.close();
  EXPECT_FALSE(pushed.get());
  EXPECT_EQ(queue.size(), 1u);
}

TEST(BoundedQueue, PushWaitsForRoom) {
  detail::BoundedQueue<int> queue{1};
  ASSERT_TRUE(queue.push(1));
  auto pushed = std::async(std::launch::async, [&] { return queue.push(2); });
  EXPECT_EQ(queue.pop(), 1);
  EXPECT_TRUE(pushed.get());
  EXPECT_EQ(queue.pop(), 2);
}

TEST(BoundedQueue, HandsEveryValueToExactlyOneConsumer) {
  constexpr int kProducers = 4;
  constexpr int kConsumers = 4;
  constexpr int kPerProducer = 5000;
  detail::BoundedQueue<int> queue{3};
  std::vector<std::atomic<int>> seen(kProducers * kPerProducer);
  std::atomic<bool> grew_too_large = false;
  {
    std::vector<std::jthread> consumers;
    for (int consumer = 0; consumer < kConsumers; ++consumer) {
      consumers.emplace_back([&] {
        while (const auto value = queue.pop()) {
          ++seen[static_cast<std::size_t>(*value)];
          if (queue.size() > queue.capacity()) grew_too_large = true;
        }
      });
    }
    {
      std::vector<std::jthread> producers;
      for (int producer = 0; producer < kProducers; ++producer) {
        producers.emplace_back([&queue, producer] {
          for (int i = 0; i < kPerProducer; ++i) EXPECT_TRUE(queue.push(producer * kPerProducer + i));
        });
      }
    }
    queue.close();
  }
  for (const auto& count : seen) ASSERT_EQ(count, 1);
  EXPECT_FALSE(grew_too_large);
}

TEST(BoundedQueue, OneConsumerSeesEachProducersOrder) {
  constexpr int kProducers = 3;
  constexpr int kPerProducer = 3000;
  detail::BoundedQueue<std::pair<int, int>> queue{2};
  std::vector<int> next(kProducers, 0);
  {
    std::vector<std::jthread> producers;
    for (int producer = 0; producer < kProducers; ++producer) {
      producers.emplace_back([&queue, producer] {
        for (int i = 0; i < kPerProducer; ++i) EXPECT_TRUE(queue.push({producer, i}));
      });
    }
    for (int i = 0; i < kProducers * kPerProducer; ++i) {
      const auto [producer, value] = queue.pop().value();
      ASSERT_EQ(value, next[static_cast<std::size_t>(producer)]++);
    }
  }
}

}  // namespace
}  // namespace libtrain
