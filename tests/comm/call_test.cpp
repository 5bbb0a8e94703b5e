#include <libtrain/comm/detail/call.hpp>

#include <gtest/gtest.h>

#include <libtrain/comm/host_transport.hpp>

namespace libtrain::detail {
namespace {

TEST(RanksInWords, AreAsShortAsTheyCanBe) {
  EXPECT_EQ(ranks_in_words({3}), "rank 3");
  EXPECT_EQ(ranks_in_words({5, 3}), "ranks 3 and 5");
  EXPECT_EQ(ranks_in_words({0, 1}), "ranks 0 and 1");
  EXPECT_EQ(ranks_in_words({0, 1, 2}), "ranks 0 to 2");
  EXPECT_EQ(ranks_in_words({9, 12, 3, 5, 6, 7, 8}), "ranks 3, 5 to 9 and 12");
  EXPECT_EQ(ranks_in_words({1, 2, 4, 5}), "ranks 1, 2, 4 and 5");
}

TEST(WhoCalledWhat, GroupsRanksByTheirCalls) {
  EXPECT_EQ(who_called_what({"barrier", "split", "barrier", "barrier", "barrier"}),
            "ranks 0 and 2 to 4 called barrier; rank 1 called split");
}

TEST(Fingerprint, DiffersInEveryRespect) {
  const Call call{CallKind::reduce, 8, DataType::float32, ReduceOp::sum, 1};
  const auto known = fingerprint(call, 3);
  EXPECT_EQ(fingerprint(call, 3), known);
  EXPECT_NE(fingerprint(call, 4), known);
  const auto changed = [&](const auto& change) {
    auto other = call;
    change(other);
    return fingerprint(other, 3);
  };
  EXPECT_NE(changed([](Call& other) { other.kind = CallKind::all_reduce; }), known);
  EXPECT_NE(changed([](Call& other) { other.count = 9; }), known);
  EXPECT_NE(changed([](Call& other) { other.type = DataType::int32; }), known);
  EXPECT_NE(changed([](Call& other) { other.op = ReduceOp::average; }), known);
  EXPECT_NE(changed([](Call& other) { other.root = 0; }), known);
  EXPECT_NE(changed([](Call& other) { other.root.reset(); }), known);
}

}  // namespace
}  // namespace libtrain::detail
