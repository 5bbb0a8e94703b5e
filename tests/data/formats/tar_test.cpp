#include <libtrain/data/formats/tar.hpp>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/formats/detail/tar_header.hpp>

#include <tests/data/formats/deflated.hpp>
#include <tests/data/formats/tar_bytes.hpp>
#include <tests/data/memory_file.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using libtrain::test::read_file;
using libtrain::test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TarFile archive(std::string bytes, const ShardOptions& options = {}) {
  return TarFile(memory_file(std::move(bytes), "train.tar"), options);
}

std::vector<std::string> names_in(const std::string& bytes) {
  const TarFile file = archive(bytes);
  std::vector<std::string> names;
  for (std::uint64_t i = 0; i < file.size(); ++i) names.emplace_back(file.member_name(i));
  return names;
}

std::string content(const TarFile& file, std::uint64_t member) {
  std::string data;
  file.read(member, data);
  return data;
}

std::string tar_error(const std::string& bytes) {
  return message_of<EnvironmentError>([&] { archive(bytes); });
}

std::string pax(const std::string& lines, char type = 'x') {
  return tar_member({.name = "././@PaxHeader", .data = lines, .type = type});
}

std::string gnu(char type, const std::string& name) {
  return tar_member({.name = "././@LongLink", .data = name + '\0', .type = type, .magic = "ustar  "});
}

TEST(Tar, ReadsMembersInAnyOrder) {
  const TarFile file = archive(tar_member({.name = "a.jpg", .data = "picture"}) + tar_member({.name = "a.cls"}) +
                               tar_member({.name = "b.jpg", .data = std::string(600, 'b')}) + tar_end());
  ASSERT_EQ(file.size(), 3U);
  EXPECT_EQ(content(file, 2), std::string(600, 'b'));
  EXPECT_EQ(content(file, 0), "picture");
  EXPECT_EQ(content(file, 1), "");
  EXPECT_EQ(file.offset(0), 512U);
  EXPECT_EQ(file.offset(2), 2048U);
  EXPECT_EQ(file.bytes(2), 600U);
  EXPECT_EQ(file.describe(2), "Tar file 'train.tar', member 'b.jpg' at byte offset 2048");
}

// The contents of two members, and the number of reads that they took.
std::tuple<std::string, std::string, int> two_contents(const std::string& bytes, std::uint64_t member,
                                                       std::uint64_t other) {
  auto file = std::make_unique<MemoryFile>(bytes);
  const MemoryFile& seen = *file;
  const TarFile opened(std::move(file));
  const int reads_before = seen.reads();
  std::tuple<std::string, std::string, int> result{"a longer text than what is read", "another one", 0};
  opened.read(member, std::get<0>(result), other, std::get<1>(result));
  std::get<2>(result) = seen.reads() - reads_before;
  return result;
}

TEST(Tar, ReadsTwoMembersThatLieCloseAtOnce) {
  const std::string picture(1'500, 'p');
  const auto bytes = tar_member({.name = "a.jpg", .data = picture}) + tar_member({.name = "a.json", .data = "{}"}) +
                     tar_member({.name = "a.cls", .data = "17"}) + tar_end();
  EXPECT_EQ(two_contents(bytes, 0, 2), std::tuple(picture, "17", 1));
  EXPECT_EQ(two_contents(bytes, 2, 0), std::tuple("17", picture, 1));
  EXPECT_EQ(two_contents(bytes, 1, 1), std::tuple("{}", "{}", 1));
}

TEST(Tar, ReadsTwoMembersThatLieApartOneByOne) {
  const auto bytes = tar_member({.name = "a.jpg", .data = "picture"}) +
                     tar_member({.name = "a.wav", .data = std::string(20'000, 'w')}) +
                     tar_member({.name = "a.cls", .data = "17"}) + tar_end();
  EXPECT_EQ(two_contents(bytes, 0, 2), std::tuple("picture", "17", 2));
  EXPECT_EQ(two_contents(bytes, 2, 0), std::tuple("17", "picture", 2));
}

TEST(Tar, HasNoMembersWhereThereAreOnlyZeros) {
  EXPECT_EQ(archive(tar_end()).size(), 0U);
  EXPECT_EQ(archive(std::string(10'240, '\0')).size(), 0U);
}

TEST(Tar, JoinsThePrefixOfPosixButNotOfGnu) {
  EXPECT_THAT(names_in(tar_member({.name = "a.jpg", .prefix = "some/folder"}) + tar_end()),
              ElementsAre("some/folder/a.jpg"));
  EXPECT_THAT(names_in(tar_member({.name = "a.jpg", .prefix = "14371234567", .magic = "ustar  "}) + tar_end()),
              ElementsAre("a.jpg"));
}

TEST(Tar, ReadsNamesThatFillTheirFields) {
  const std::string name(100, 'n');
  const std::string prefix(155, 'p');
  EXPECT_THAT(names_in(tar_member({.name = name, .prefix = prefix}) + tar_end()), ElementsAre(prefix + "/" + name));
}

TEST(Tar, ReadsHeadersOlderThanPosix) {
  const std::string bytes = tar_member({.name = "a.jpg", .data = "x", .type = '\0', .magic = ""}) +
                            tar_member({.name = "folder/", .type = '\0', .magic = ""}) + tar_end();
  EXPECT_THAT(names_in(bytes), ElementsAre("a.jpg"));
}

TEST(Tar, AcceptsChecksumsOfSignedBytes) {
  const std::string bytes = tar_member({.name = "caf\xc3\xa9.jpg"}, TarSum::of_signed_bytes) + tar_end();
  EXPECT_THAT(names_in(bytes), ElementsAre("caf\xc3\xa9.jpg"));
}

TEST(Tar, ReadsSizesInOctalWithSpacesAndInBase256) {
  const std::string base_256 = std::string("\x80", 1) + std::string(9, '\0') + std::string("\x02\x58", 2);
  for (const std::string& field : {std::string("       1130 "), std::string("000000001130"), base_256}) {
    const TarFile file = archive(tar_member({.name = "a", .data = std::string(600, 'b'), .size_field = field}) +
                                 tar_member({.name = "b"}) + tar_end());
    ASSERT_EQ(file.size(), 2U);
    EXPECT_EQ(file.bytes(0), 600U);
  }
}

TEST(Tar, ReadsLongNamesOfGnu) {
  const std::string name = std::string(300, 'd') + "/a.jpg";
  const std::string bytes = gnu('L', name) + tar_member({.name = std::string(100, 'd'), .data = "x"}) +
                            tar_member({.name = "b.jpg"}) + gnu('K', name) + gnu('L', name + "2") +
                            tar_member({.name = "link", .type = '1', .link = std::string(100, 'd')}) +
                            tar_member({.name = "c.jpg"}) + tar_end();
  EXPECT_THAT(names_in(bytes), ElementsAre(name, "b.jpg", name + "2", "c.jpg"));
  EXPECT_EQ(content(archive(bytes), 2), "x");
}

TEST(Tar, ReadsPathAndSizeOfPax) {
  const std::string name = "\xc3\xa9/" + std::string(300, 'd') + ".jpg";
  const std::string lines =
      pax_line("mtime", "1.5") + pax_line("path", name) + pax_line("size", "600") + pax_line("linkpath", "elsewhere");
  const std::string bytes = pax(lines) +
                            tar_member({.name = "short", .data = std::string(600, 'b'), .size_field = "00000000000"}) +
                            tar_member({.name = "b.jpg", .data = "x"}) + tar_end();
  EXPECT_THAT(names_in(bytes), ElementsAre(name, "b.jpg"));
  EXPECT_EQ(archive(bytes).bytes(0), 600U);
}

// A length, a space, a keyword of one letter, an equals sign and a newline are the least.
TEST(Tar, ReadsTheShortestRecordOfPaxAndZerosBehindTheLast) {
  const std::string bytes =
      pax("5 a=\n" + pax_line("path", "1") + std::string(3, '\0')) + tar_member({.name = "short"}) + tar_end();
  EXPECT_THAT(names_in(bytes), ElementsAre("1"));
  const std::string of_solaris = pax(pax_line("path", "2"), 'X') + tar_member({.name = "short"}) + tar_end();
  EXPECT_THAT(names_in(of_solaris), ElementsAre("2"));
}

TEST(Tar, ReadsTheLongestNameOfGnuAndOneWithoutItsZero) {
  const std::string longest(4096, 'n');
  const TarBytes without_zero{.name = "././@LongLink", .data = "name", .type = 'L', .magic = "ustar  "};
  EXPECT_THAT(names_in(gnu('L', longest) + tar_member({.name = "a"}) + tar_member(without_zero) +
                       tar_member({.name = "b"}) + tar_end()),
              ElementsAre(longest, "name"));
  EXPECT_THAT(tar_error(gnu('L', longest + "n") + tar_member({.name = "a"}) + tar_end()),
              AllOf(HasSubstr("at most 4097 bytes"), HasSubstr("found one of 4098")));
}

TEST(Tar, PrefersTheNameOfPaxToThatOfGnuAndTheLocalSizeToTheGlobal) {
  const std::string bytes = pax(pax_line("size", "3") + pax_line("path", ""), 'g') +
                            tar_member({.name = "1", .data = "x"}) + pax(pax_line("path", "local")) + gnu('L', "gnu") +
                            tar_member({.name = "2", .data = "x"}) + pax(pax_line("path", "") + pax_line("size", "1")) +
                            tar_member({.name = "3", .data = "x"}) + tar_end();
  const TarFile file = archive(bytes);
  EXPECT_THAT(names_in(bytes), ElementsAre("1", "local", "3"));
  EXPECT_EQ(file.bytes(0), 3U);
  EXPECT_EQ(file.bytes(2), 1U);
}

TEST(Tar, LeavesOutWhatIsNoRegularFile) {
  std::string bytes;
  for (const char type : {'3', '4', '5', '6'}) {
    // Their sizes mean something else than data.
    bytes += tar_member({.name = "no", .type = type, .size_field = "00000001000"});
  }
  for (const char type : {'V', 'D', 'Z'}) bytes += tar_member({.name = "no", .data = "unknown", .type = type});
  bytes += tar_member({.name = "yes", .data = "x", .type = '7'}) + tar_end();
  EXPECT_THAT(names_in(bytes), ElementsAre("yes"));
}

// As GNU tar and Python's tarfile store the second of two names of a file.
std::string linked_archive() {
  return tar_member({.name = "a.jpg", .data = "picture"}) + tar_member({.name = "c.jpg", .data = "another"}) +
         tar_member({.name = "b.jpg", .type = '1', .size_field = "00000001000", .link = "a.jpg"}) +
         tar_member({.name = "d.jpg", .type = '1', .link = "c.jpg"}) +
         tar_member({.name = "e.jpg", .type = '1', .link = "b.jpg"}) + tar_member({.name = "b.cls", .data = "1"}) +
         tar_end();
}

TEST(Tar, GivesHardLinksTheContentOfTheirMember) {
  const TarFile file = archive(linked_archive());
  EXPECT_THAT(names_in(linked_archive()), ElementsAre("a.jpg", "c.jpg", "b.jpg", "d.jpg", "e.jpg", "b.cls"));
  for (const std::uint64_t member : {0U, 2U, 4U}) {
    EXPECT_EQ(content(file, member), "picture");
    EXPECT_EQ(file.offset(member), 512U);
    EXPECT_EQ(file.bytes(member), 7U);
  }
  EXPECT_EQ(content(file, 3), "another");
  EXPECT_EQ(content(file, 5), "1");
  EXPECT_EQ(two_contents(linked_archive(), 2, 5), std::tuple("picture", "1", 1));
  EXPECT_EQ(file.describe(4), "Tar file 'train.tar', member 'e.jpg' at byte offset 512");
}

TEST(Tar, FindsTheMembersOfHardLinksInALoadedIndex) {
  const TemporaryFolder folder;
  const ShardOptions options{.index_folder = folder.path(), .version = "1"};
  for (int round = 0; round < 2; ++round) {
    auto bytes = std::make_unique<MemoryFile>(linked_archive(), "train.tar");
    const MemoryFile& read = *bytes;
    const TarFile file(std::move(bytes), options);
    EXPECT_EQ(read.reads() == 0, round == 1);
    ASSERT_EQ(file.size(), 6U);
    for (const std::uint64_t member : {0U, 2U, 4U}) EXPECT_EQ(content(file, member), "picture");
    EXPECT_EQ(content(file, 3), "another");
  }
}

TEST(Tar, TakesTheLastOfTheMembersOfAName) {
  const std::string bytes = tar_member({.name = "a", .data = "old"}) + tar_member({.name = "a", .data = "new"}) +
                            tar_member({.name = "b", .type = '1', .link = "a"}) + tar_end();
  EXPECT_EQ(content(archive(bytes), 2), "new");
}

TEST(Tar, ReadsLongTargetsOfHardLinks) {
  const std::string name = std::string(300, 'd') + "/a.jpg";
  const std::string bytes = gnu('L', name) + tar_member({.name = "short", .data = "x"}) + gnu('K', name) +
                            tar_member({.name = "b", .type = '1', .link = "short"}) + pax(pax_line("linkpath", name)) +
                            tar_member({.name = "c", .type = '1', .link = "short"}) + tar_end();
  EXPECT_THAT(names_in(bytes), ElementsAre(name, "b", "c"));
  for (const std::uint64_t member : {1U, 2U}) EXPECT_EQ(content(archive(bytes), member), "x");
}

TEST(Tar, RefusesLinksWithoutTheirContent) {
  EXPECT_THAT(tar_error(tar_member({.name = "a"}) + tar_member({.name = "b", .type = '1', .link = "c"}) +
                        tar_member({.name = "c"}) + tar_end()),
              AllOf(HasSubstr("'train.tar', byte offset 512"), HasSubstr("'c' before its hard link 'b'"),
                    HasSubstr("--hard-dereference")));
  EXPECT_THAT(tar_error(tar_member({.name = "a"}) + tar_member({.name = "b", .type = '2', .link = "a"}) + tar_end()),
              AllOf(HasSubstr("'train.tar', byte offset 512"), HasSubstr("the symbolic link 'b' to 'a'"),
                    HasSubstr("--dereference")));
}

TEST(Tar, RefusesSparseFiles) {
  EXPECT_THAT(tar_error(tar_member({.name = "a"}) + tar_member({.name = "b", .type = 'S'}) + tar_end()),
              AllOf(HasSubstr("'train.tar', byte offset 512"), HasSubstr("sparse")));
  EXPECT_THAT(tar_error(pax(pax_line("GNU.sparse.major", "1")) + tar_member({.name = "b"}) + tar_end()),
              AllOf(HasSubstr("byte offset 512"), HasSubstr("sparse")));
}

TEST(Tar, RefusesAWrongChecksum) {
  std::string bytes = tar_member({.name = "a"}) + tar_member({.name = "b"}) + tar_end();
  bytes[512] = 'c';
  EXPECT_THAT(tar_error(bytes), AllOf(HasSubstr("byte offset 660"), HasSubstr("checksum")));
  EXPECT_THAT(tar_error(std::string(2000, 'x')), HasSubstr("found no octal number"));
}

TEST(Tar, RefusesSizesThatAreNoNumbers) {
  for (const std::string& field :
       {std::string("00000000008"), std::string(12, '\xff'), "\x80" + std::string(11, '\xff'), std::string("-1")}) {
    EXPECT_THAT(tar_error(tar_member({.name = "a", .size_field = field}) + tar_end()),
                AllOf(HasSubstr("byte offset 124"), HasSubstr("expected a size")));
  }
}

TEST(Tar, RefusesSizesBeyondTheFileBeforeAllocating) {
  const std::string huge = "\x80" + std::string(3, '\0') + std::string(8, '\xff');
  EXPECT_THAT(tar_error(tar_member({.name = "a", .size_field = huge}) + tar_end()),
              AllOf(HasSubstr("byte offset 512"), HasSubstr("18446744073709551615 bytes"), HasSubstr("after 1024")));
  EXPECT_THAT(tar_error(tar_member({.name = "a", .type = 'L', .size_field = huge}) + tar_end()),
              HasSubstr("at most 4097 bytes"));
  EXPECT_THAT(tar_error(tar_member({.name = "a", .type = 'x', .size_field = huge}) + tar_end()),
              HasSubstr("at most 1048576 bytes"));
  EXPECT_THAT(tar_error(pax(pax_line("size", "18446744073709551615")) + tar_member({.name = "a"}) + tar_end()),
              HasSubstr("18446744073709551615 bytes"));
}

// 2^56 + 600 is a number that no file is as long as; 2^64 + 600 would be 600 if what does not fit were dropped.
TEST(Tar, RefusesSizesInBase256OfMoreThan56Bits) {
  const auto refusal_of_size = [](const std::string& last_eleven) {
    const TarBytes member{.name = "a", .data = std::string(600, 'b'), .size_field = "\x80" + last_eleven};
    return tar_error(tar_member(member) + tar_end());
  };
  EXPECT_THAT(refusal_of_size(std::string("\0\0\0\x01\0\0\0\0\0\x02\x58", 11)),
              AllOf(HasSubstr("byte offset 512"), HasSubstr("72057594037928536 bytes")));
  EXPECT_THAT(refusal_of_size(std::string("\0\0\x01\0\0\0\0\0\0\x02\x58", 11)),
              AllOf(HasSubstr("byte offset 124"), HasSubstr("expected a size")));
  EXPECT_THAT(refusal_of_size(std::string("\x01\0\0\0\0\0\0\0\0\x02\x58", 11)), HasSubstr("expected a size"));
}

TEST(Tar, EveryTruncationIsAnError) {
  const std::string whole = pax(pax_line("path", "long")) + tar_member({.name = "a", .data = "x"}) +
                            tar_member({.name = "b", .data = std::string(513, 'b')}) + tar_end();
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const bool is_near_a_border = length % 512 < 2 || length % 512 > 509;
    if (!is_near_a_border && length % 100 != 0) continue;
    EXPECT_THAT(tar_error(whole.substr(0, length)), AllOf(HasSubstr("byte offset"), HasSubstr("truncated"))) << length;
  }
}

TEST(Tar, RefusesOneZeroBlockBeforeMoreMembers) {
  EXPECT_THAT(tar_error(tar_member({.name = "a"}) + std::string(512, '\0') + tar_member({.name = "b"}) + tar_end()),
              AllOf(HasSubstr("byte offset 512"), HasSubstr("two zero blocks")));
}

// As `tar --blocking-factor` fills the last record.
TEST(Tar, AcceptsZerosBehindTheEndUpToALimit) {
  const std::string a = tar_member({.name = "a"}) + tar_end();
  EXPECT_THAT(names_in(a + std::string(10'000, '\0')), ElementsAre("a"));
  EXPECT_THAT(names_in(a + std::string(std::size_t{1} << 20, '\0')), ElementsAre("a"));
  EXPECT_THAT(tar_error(a + std::string((std::size_t{1} << 20) + 1, '\0')),
              AllOf(HasSubstr("'train.tar'"), HasSubstr("at most 1048576"), HasSubstr("byte offset 512"),
                    HasSubstr("found 1048577 bytes")));
}

// `cat a.tar b.tar`, which GNU tar reads with --ignore-zeros only.
TEST(Tar, RefusesJoinedArchives) {
  const std::string one = tar_member({.name = "a"}) + tar_end();
  EXPECT_THAT(tar_error(one + one), AllOf(HasSubstr("'train.tar', byte offset 1536"),
                                          HasSubstr("end of the archive at byte offset 512"), HasSubstr("joined")));
  const std::string filled = one + std::string(8'704, '\0');
  EXPECT_THAT(tar_error(filled + filled), HasSubstr("byte offset 10240"));
  EXPECT_THAT(tar_error(deflated(one, Wrapping::gzip) + deflated(one, Wrapping::gzip)),
              AllOf(HasSubstr("'train.tar', byte offset 1536"), HasSubstr("joined")));
}

TEST(Tar, RefusesAnArchiveThatLostAPage) {
  std::string bytes;
  for (int i = 0; i < 100; ++i) bytes += tar_member({.name = std::to_string(i), .data = std::string(512, 'x')});
  bytes += tar_end();
  bytes.replace(40 * 1024, 4096, std::string(4096, '\0'));
  EXPECT_THAT(tar_error(bytes), AllOf(HasSubstr("byte offset 45056"), HasSubstr("byte offset 40960")));
}

TEST(Tar, RefusesASingleByteBehindTheEnd) {
  const std::string a = tar_member({.name = "a"}) + tar_end();
  EXPECT_THAT(tar_error(a + "x"), HasSubstr("byte offset 1536"));
  EXPECT_THAT(tar_error(a + std::string(100'000, '\0') + "x"), HasSubstr("byte offset 101536"));
}

// A header of 4 KiB for millions of members takes a thousand times the memory of the archive.
TEST(Tar, RefusesANameForAllMembers) {
  EXPECT_THAT(tar_error(pax(pax_line("path", "global"), 'g') + tar_member({.name = "1"}) + tar_end()),
              AllOf(HasSubstr("'train.tar'"), HasSubstr("a name for each member")));
}

TEST(Tar, RefusesExtendedHeadersWithoutAMember) {
  EXPECT_THAT(tar_error(gnu('L', "name") + tar_end()), HasSubstr("expected the member"));
  EXPECT_THAT(tar_error(pax(pax_line("path", "x")) + tar_end()), HasSubstr("expected the member"));
}

TEST(Tar, RefusesDamagedRecordsOfPax) {
  for (const char* const line : {"x path=a\n", "11 path=ab", "8 path=a\n", "99 path=a\n", "8 =abcd\n", "7 path\n",
                                 "3 \n", "18446744073709551616 path=a\n", "path=a\n", "0 path=a\n"}) {
    EXPECT_THAT(tar_error(pax(pax_line("mtime", "1") + line) + tar_member({.name = "a"}) + tar_end()),
                AllOf(HasSubstr("byte offset 523"), HasSubstr("length keyword=value")))
        << line;
  }
  EXPECT_THAT(tar_error(pax(pax_line("size", "12x")) + tar_member({.name = "a"}) + tar_end()),
              HasSubstr("expected a decimal size"));
}

TEST(Tar, RefusesNamesThatAreNone) {
  EXPECT_THAT(tar_error(tar_member({}) + tar_end()), HasSubstr("expected the name of a member"));
  EXPECT_THAT(tar_error(pax(pax_line("path", std::string(4097, 'n'))) + tar_member({.name = "a"}) + tar_end()),
              AllOf(HasSubstr("at most 4096 bytes"), HasSubstr("found 4097")));
  EXPECT_THAT(tar_error(pax(pax_line("path", std::string("a\0b", 3))) + tar_member({.name = "a"}) + tar_end()),
              HasSubstr("without zero bytes"));
}

TEST(Tar, KeepsNamesThatPointElsewhereAsNames) {
  EXPECT_THAT(names_in(tar_member({.name = "../../etc/passwd"}) + tar_member({.name = "/etc/passwd"}) + tar_end()),
              ElementsAre("../../etc/passwd", "/etc/passwd"));
}

TEST(Tar, ReadsArchivesInGzip) {
  const std::string bytes = tar_member({.name = "a.jpg", .data = "picture"}) + tar_end();
  const TarFile file = archive(deflated(bytes, Wrapping::gzip));
  EXPECT_EQ(file.member_name(0), "a.jpg");
  EXPECT_EQ(content(file, 0), "picture");
  EXPECT_THAT(
      message_of<EnvironmentError>([&] { archive(deflated(bytes, Wrapping::gzip), {.inflated_limit_bytes = 1000}); }),
      HasSubstr("at most 1000 bytes"));
}

// "x^" may be the beginning of a zlib stream as well (RFC 1950: 0x785e is a multiple of 31).
TEST(Tar, IsNotMisledByAFirstNameThatLooksCompressed) {
  EXPECT_THAT(names_in(tar_member({.name = "x^2.jpg"}) + tar_end()), ElementsAre("x^2.jpg"));
}

TEST(Tar, RefusesMembersThatItDoesNotHave) {
  const TarFile file = archive(tar_end());
  std::string data;
  EXPECT_THROW(file.read(0, data), UsageError);
  EXPECT_THROW(file.member_name(0), UsageError);
  EXPECT_THROW(TarFile(nullptr), UsageError);
}

using Members = std::vector<std::pair<std::string, std::string>>;

std::string written(const Members& members) {
  const TemporaryFolder folder;
  TarWriter writer(folder / "a.tar");
  for (const auto& [name, data] : members) writer.add(name, data);
  EXPECT_EQ(writer.size(), members.size());
  writer.finish();
  const std::string bytes = read_file(folder / "a.tar");
  EXPECT_EQ(writer.bytes(), bytes.size());
  return bytes;
}

Members read_back(const std::string& bytes) {
  const TarFile file(memory_file(bytes));
  Members members;
  for (std::uint64_t i = 0; i < file.size(); ++i) {
    std::string data;
    file.read(i, data);
    members.emplace_back(file.member_name(i), data);
  }
  return members;
}

// The table of POSIX.1, field by field.
TEST(TarWriter, WritesTheHeaderOfPosix) {
  const std::string bytes = written({{"folder/a.jpg", "hello"}});
  ASSERT_EQ(bytes.size(), 512U + 512U + 1024U);
  const auto field = [&](std::size_t begin, std::size_t count) { return bytes.substr(begin, count); };
  const std::string zero(1, '\0');
  EXPECT_EQ(field(0, 100), "folder/a.jpg" + std::string(88, '\0'));
  EXPECT_EQ(field(100, 8), "0000644" + zero);
  EXPECT_EQ(field(108, 8), "0000000" + zero);
  EXPECT_EQ(field(116, 8), "0000000" + zero);
  EXPECT_EQ(field(124, 12), "00000000005" + zero);
  EXPECT_EQ(field(136, 12), "00000000000" + zero);
  EXPECT_EQ(field(156, 1), "0");
  EXPECT_EQ(field(157, 100), std::string(100, '\0'));
  EXPECT_EQ(field(257, 8), "ustar" + zero + "00");
  EXPECT_EQ(field(265, 64), std::string(64, '\0'));
  EXPECT_EQ(field(329, 16), "0000000" + zero + "0000000" + zero);
  EXPECT_EQ(field(345, 167), std::string(167, '\0'));
  std::string resealed = bytes;
  set_tar_checksum(resealed, 0);
  EXPECT_EQ(bytes, resealed);
  EXPECT_EQ(field(512, 512), "hello" + std::string(507, '\0'));
  EXPECT_EQ(field(1024, 1024), std::string(1024, '\0'));
}

TEST(TarWriter, PartsNamesThatFitUstarAndExtendsTheOthers) {
  const std::string longest = std::string(155, 'p') + "/" + std::string(100, 'n');
  EXPECT_EQ(written({{longest, ""}}).size(), 512U + 1024U);
  EXPECT_EQ(written({{std::string(100, 'n'), ""}}).size(), 512U + 1024U);
  const std::string extended[] = {std::string(101, 'n'),
                                  "/" + std::string(100, 'n'),
                                  std::string(156, 'p') + "/" + std::string(100, 'n'),
                                  std::string(155, 'p') + "/" + std::string(101, 'n'),
                                  "caf\xc3\xa9",
                                  std::string(4096, 'n')};
  for (const auto& name : extended) {
    const std::string bytes = written({{name, "x"}});
    EXPECT_EQ(bytes[156], 'x');
    EXPECT_EQ(bytes.substr(512, pax_line("path", name).size()), pax_line("path", name));
    EXPECT_EQ(read_back(bytes), (Members{{name, "x"}}));
  }
}

TEST(TarWriter, RandomArchivesReadBackEqual) {
  std::mt19937 random(23);
  for (int round = 0; round < 20; ++round) {
    Members members;
    for (int i = 0; i < 30; ++i) {
      std::string name;
      const std::size_t length = 1 + random() % 300;
      while (name.size() < length) name += std::string(1 + random() % 80, 'x') + "/";
      name += std::to_string(i);
      members.emplace_back(name, std::string(random() % 2000, static_cast<char>(random() & 0xff)));
    }
    EXPECT_EQ(read_back(written(members)), members);
  }
}

TEST(TarWriter, LeavesNothingUnlessItIsFinished) {
  const TemporaryFolder folder;
  {
    TarWriter writer(folder / "a.tar");
    writer.add("a", "x");
  }
  EXPECT_EQ(folder.count(), 0);
}

TEST(TarWriter, RefusesNamesThatAreNone) {
  const TemporaryFolder folder;
  TarWriter writer(folder / "a.tar");
  const std::string wrong[] = {"", "folder/", std::string("a\0b", 3), std::string(4097, 'n')};
  for (const auto& name : wrong) {
    EXPECT_THAT(message_of<UsageError>([&] { writer.add(name, "x"); }), HasSubstr("cannot be the name of a member"));
  }
  EXPECT_EQ(writer.size(), 0U);
}

TEST(TarWriter, RefusesToGoOnAfterTheEnd) {
  const TemporaryFolder folder;
  TarWriter writer(folder / "a.tar");
  writer.finish();
  EXPECT_THROW(writer.add("a", "x"), UsageError);
  EXPECT_THROW(writer.finish(), UsageError);
}

// At 9, 98 and 997 bytes the length takes one digit more than without it.
TEST(PaxRecord, CountsItsOwnDigits) {
  for (std::size_t length = 0; length < 1100; ++length) {
    const std::string value(length, 'v');
    ASSERT_EQ(detail::pax_record("path", value), pax_line("path", value)) << length;
  }
  EXPECT_EQ(detail::pax_record("path", "x"), "9 path=x\n");
  EXPECT_EQ(detail::pax_record("path", "xy"), "11 path=xy\n");
}

}  // namespace
}  // namespace libtrain::data
