#include <libtrain/comm/detail/tcp/local_address.hpp>

#include <sys/resource.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/tcp/socket.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain::detail {
namespace {

/// While it lives, this process opens no further file.
class NoMoreFiles {
 public:
  NoMoreFiles() {
    getrlimit(RLIMIT_NOFILE, &former_);
    const rlimit none{0, former_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
  }
  NoMoreFiles(const NoMoreFiles&) = delete;  // one limit of the process
  NoMoreFiles& operator=(const NoMoreFiles&) = delete;
  ~NoMoreFiles() { setrlimit(RLIMIT_NOFILE, &former_); }

 private:
  rlimit former_{};
};

TEST(LocalAddress, ALimitOfOpenFilesIsNotTakenForAMissingRoute) {
  const auto deadline = Deadline::after(std::chrono::seconds(30));
  const TcpOptions options{.master_address = "127.0.0.1"};
  // UBSan opens a pipe when it first sees an object of a class: here a stream and an error.
  std::string message = EnvironmentError(text("error ", 1)).what();
  try {
    const NoMoreFiles limit;
    choose_local_address(options, false, deadline);
  } catch (const EnvironmentError& error) {
    message = error.what();
  }
  EXPECT_THAT(message, ::testing::HasSubstr("The limit of open files is reached (socket)"));
  EXPECT_THAT(message, ::testing::HasSubstr("ulimit -n"));
}

// A peer may have no IPv6.
TEST(LocalAddress, RankZeroServesAtIpv4IfItsNameHasBoth) {
  const auto address = address_to_serve("localhost", 29500, Deadline::after(std::chrono::seconds(30)));
  EXPECT_EQ(address.name(), "127.0.0.1:29500");
}

// As IPv6 where the kernel was started without it: the name may have other addresses, or rank 0 not be there yet.
TEST(LocalAddress, OneOfAFamilyThatIsNotSupportedIsPassedOver) {
  const sockaddr none{.sa_family = AF_UNSPEC, .sa_data = {}};
  const SocketAddress address{&none, sizeof none};
  const auto socket = begin_connect(address);
  const int code = errno;
  EXPECT_FALSE(socket.is_open());
  EXPECT_EQ(code, EAFNOSUPPORT);
  EXPECT_THAT(test::message_of<EnvironmentError>([&] { listen_at(address); }), ::testing::HasSubstr("not supported"));
}

}  // namespace
}  // namespace libtrain::detail
