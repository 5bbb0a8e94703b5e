#include <libtrain/comm/detail/nccl/nccl_settings.hpp>

#include <gtest/gtest.h>

namespace libtrain::detail {
namespace {

TEST(NcclSettings, LaunchOrderIsSetUnlessTheUserHasSetIt) {
  EXPECT_EQ(nccl_defaults(Environment{}), (NcclSettings{{"NCCL_LAUNCH_ORDER_IMPLICIT", "1"}}));
  EXPECT_EQ(nccl_defaults(Environment{{{"NCCL_LAUNCH_ORDER_IMPLICIT", "0"}}}), NcclSettings{});
}

TEST(NcclSettings, TheLogSaysWhoSetWhat) {
  const Environment environment{
      {{"HOME", "/root"}, {"NCCL_IB_HCA", "mlx5"}, {"NCCL_DEBUG", ""}, {"NCCL_SOCKET_IFNAME", "eth0"}}};
  EXPECT_EQ(describe_nccl_settings(22809, environment, nccl_defaults(environment)),
            "NCCL 2.28.9 with NCCL_IB_HCA=mlx5 (set by the user), NCCL_SOCKET_IFNAME=eth0 (set by the user), "
            "NCCL_LAUNCH_ORDER_IMPLICIT=1 (set by libtrain)");
  EXPECT_EQ(describe_nccl_settings(23003, Environment{}, {}), "NCCL 2.30.3");
}

}  // namespace
}  // namespace libtrain::detail
