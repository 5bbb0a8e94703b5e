#include <libtrain/data/storage/disk_file.hpp>

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/data/storage/storage.hpp>

#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::data::detail {
namespace {

using libtrain::test::message_of;
using libtrain::test::TemporaryFolder;
using libtrain::test::write_file;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(DiskFile, ErrorsNameThePath) {
  const TemporaryFolder folder;
  const std::string path = folder / "file";
  write_file(path, "bytes");
  const auto only_readable = DiskFile::open(path, O_RDONLY);
  EXPECT_THAT(message_of<DiskError>([&] { only_readable.resize(1); }),
              AllOf(HasSubstr("Cannot resize"), HasSubstr("'" + path + "'")));
  const auto only_a_place = DiskFile::open(path, O_PATH);
  EXPECT_THAT(message_of<DiskError>([&] { try_lock(only_a_place, LockMode::exclusive); }),
              AllOf(HasSubstr("Cannot lock"), HasSubstr("'" + path + "'")));
}

TEST(DiskFile, KnowsItsPathAlsoWhereItWasMovedTo) {
  const TemporaryFolder folder;
  auto first = open_to_write(folder / "file");
  const auto second = std::move(first);
  EXPECT_EQ(second.path().string(), folder / "file");
}

TEST(DiskFile, ThatIsNotThereIsNotOpenAndLeavesTheReason) {
  const TemporaryFolder folder;
  errno = 0;
  const auto absent = DiskFile::open(folder / "absent", O_RDONLY);
  const int code = errno;
  EXPECT_EQ(code, ENOENT);
  EXPECT_FALSE(absent.is_open());
}

TEST(DiskFile, BlamesAFileForItsOwnErrorsOnly) {
  for (const int code :
       {EACCES, EAGAIN, EBADMSG, EDQUOT, EHOSTDOWN, EIO,   EKEYEXPIRED, EMFILE, ENETUNREACH, ENFILE,
        ENODEV, ENOKEY, ENOMEM,  ENOSPC, ENOTCONN,  EPERM, EREMOTEIO,   ESTALE, ETIMEDOUT,   EUCLEAN}) {
    EXPECT_THAT(message_of<StorageUnavailable>([&] { throw_if_not_of_the_file("File 'x'", code); }),
                AllOf(StartsWith("File 'x': "), HasSubstr(std::strerror(code))));
  }
  for (const int code : {0, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, ENXIO, EOVERFLOW}) {
    EXPECT_NO_THROW(throw_if_not_of_the_file("File 'x'", code)) << code;
  }
}

}  // namespace
}  // namespace libtrain::data::detail
