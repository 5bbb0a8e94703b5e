#include <libtrain/base/file_descriptor.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include <gtest/gtest.h>

namespace libtrain::detail {
namespace {

static_assert(!std::is_copy_constructible_v<FileDescriptor> && !std::is_copy_assignable_v<FileDescriptor>);
static_assert(std::is_nothrow_move_constructible_v<FileDescriptor>);
static_assert(std::is_nothrow_move_assignable_v<FileDescriptor>);

// A pipe: its reading end shows whether the writing end is still open, even if another object owns the number.
class Pipe {
 public:
  Pipe() {
    if (pipe2(ends_.data(), O_NONBLOCK | O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
  }
  Pipe(const Pipe&) = delete;  // owns the reading end
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() { ::close(ends_[0]); }

  /// For the test to close.
  int writing_end() const { return ends_[1]; }

  bool is_open() const {
    char byte = 0;
    return ::read(ends_[0], &byte, 1) < 0 && errno == EAGAIN;
  }

 private:
  std::array<int, 2> ends_{};
};

TEST(FileDescriptor, ClosesAtTheEnd) {
  const Pipe pipe;
  {
    const FileDescriptor owner{pipe.writing_end()};
    EXPECT_EQ(owner.get(), pipe.writing_end());
    EXPECT_TRUE(owner.is_open());
    EXPECT_TRUE(pipe.is_open());
  }
  EXPECT_FALSE(pipe.is_open());
}

TEST(FileDescriptor, LeavesNothingToTheOneItIsMovedFrom) {
  const Pipe pipe;
  auto first = std::make_unique<FileDescriptor>(pipe.writing_end());
  const FileDescriptor second{std::move(*first)};
  first.reset();
  EXPECT_TRUE(pipe.is_open());
  EXPECT_EQ(second.get(), pipe.writing_end());
}

TEST(FileDescriptor, ClosesWhatAnAssignmentReplacesAtOnce) {
  const Pipe before;
  const Pipe after;
  FileDescriptor owner{before.writing_end()};
  FileDescriptor next{after.writing_end()};
  owner = std::move(next);
  EXPECT_FALSE(before.is_open());
  EXPECT_TRUE(after.is_open());
  EXPECT_EQ(owner.get(), after.writing_end());
}

TEST(FileDescriptor, SurvivesAnAssignmentToItself) {
  const Pipe pipe;
  FileDescriptor owner{pipe.writing_end()};
  FileDescriptor& same = owner;
  owner = std::move(same);
  EXPECT_TRUE(pipe.is_open());
  EXPECT_EQ(owner.get(), pipe.writing_end());
}

TEST(FileDescriptor, ReleasedIsTheCallersToClose) {
  const Pipe pipe;
  int number = -1;
  {
    FileDescriptor owner{pipe.writing_end()};
    number = owner.release();
    EXPECT_FALSE(owner.is_open());
  }
  EXPECT_EQ(number, pipe.writing_end());
  EXPECT_TRUE(pipe.is_open());
  ::close(number);
  EXPECT_FALSE(pipe.is_open());
}

TEST(FileDescriptor, ResetClosesNowAndOnlyOnce) {
  const Pipe pipe;
  FileDescriptor owner{pipe.writing_end()};
  owner.reset();
  EXPECT_FALSE(pipe.is_open());
  EXPECT_FALSE(owner.is_open());
  errno = 0;
  owner.reset();
  EXPECT_EQ(errno, 0);
}

TEST(FileDescriptor, OfACallThatFailedIsNotOpenAndKeepsItsError) {
  errno = ENOENT;
  {
    FileDescriptor none{-1};
    EXPECT_FALSE(none.is_open());
    const FileDescriptor moved{std::move(none)};
    EXPECT_EQ(moved.get(), -1);
  }
  EXPECT_EQ(errno, ENOENT);
  EXPECT_FALSE(FileDescriptor{}.is_open());
}

TEST(WriteAll, ReturnsHowMuchWasWrittenBeforeAnError) {
  const Pipe pipe;
  const FileDescriptor end{pipe.writing_end()};
  EXPECT_EQ(write_all(end.get(), "some"), 4u);
  const std::string more_than_a_pipe_holds(4 << 20, 'x');
  const auto written = write_all(end.get(), more_than_a_pipe_holds);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_GT(written, 0u);
  EXPECT_LT(written, more_than_a_pipe_holds.size());
  EXPECT_EQ(write_all(-1, "some"), 0u);
  EXPECT_EQ(errno, EBADF);
}

}  // namespace
}  // namespace libtrain::detail
