// A FastScan that does not match the loaded libjpeg is disabled. The linker takes the one below instead of the
// library's: it makes every image grey, as if libjpeg's private members were at other offsets.

#define JPEG_INTERNALS
#include <libtrain/data/image/detail/fast_scan.hpp>

#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/data/image/detail/jpeg.hpp>

#include <tests/data/image/decoders.hpp>
#include <tests/data/image/jpeg_writer.hpp>
#include <tests/support/log_sinks.hpp>

namespace libtrain::data::detail {

bool FastScan::take_over(JpegReader& reader) {
  reader.info().client_data = this;
  reader.info().entropy->decode_mcu = [](j_decompress_ptr, JBLOCKROW*) -> boolean { return TRUE; };
  return true;
}

bool FastScan::decode_mcu(const jpeg_decompress_struct& /*info*/, JBLOCKROW* /*blocks*/) noexcept {
  return true;
}

namespace {

using libtrain::test::decode_jpeg;
using libtrain::test::reference_decode;
using libtrain::test::write_jpeg;

TEST(BrokenFastScan, IsSwitchedOffWithOneWarning) {
  const auto file = write_jpeg({.width = 90, .height = 60, .luma = {2, 2}});
  const libtrain::test::CapturedLog log;
  std::vector<Image> images(4);
  std::vector<std::thread> threads;
  for (Image& image : images) threads.emplace_back([&] { image = decode_jpeg(file); });
  for (std::thread& thread : threads) thread.join();
  for (const Image& image : images) EXPECT_TRUE(image.pixels == reference_decode(file).pixels);
  EXPECT_FALSE(uses_fast_scan());
  EXPECT_THAT(log.lines(), ::testing::ElementsAre(::testing::HasSubstr("warning: libtrain's decoder of JPEG scans")));
}

}  // namespace
}  // namespace libtrain::data::detail
