#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/sources/image_source.hpp>
#include <libtrain/data/storage/storage.hpp>

#include <tests/support/message_of.hpp>

#include <tools/inspect/contact_sheet.hpp>
#include <tools/inspect/image_check.hpp>

// What libtrain-inspect makes of a storage that fails, which no script can bring about at the right moment.

namespace libtrain::inspect {
namespace {

using test::message_of;

// Holds one image, which cannot be read.
template <typename Reason>
class Unreadable final : public data::ImageSource {
 public:
  const std::string& name() const override { return name_; }
  std::uint64_t size() const override { return 1; }
  void read(std::uint64_t /*index*/, data::EncodedImage& /*image*/) const override { throw Reason("It is gone."); }
  data::SampleOrigin origin(std::uint64_t /*index*/) const override { return {.path = name_}; }
  const std::vector<std::string>& classes() const override { return classes_; }
  std::vector<std::uint64_t> blocks() const override { return {}; }

 private:
  std::string name_ = "images";
  std::vector<std::string> classes_;
};

TEST(ImageCheck, TakesAnImageThatCannotBeReadForDamaged) {
  EXPECT_EQ(check_image(Unreadable<EnvironmentError>(), 0, Check::headers).damage, "It is gone.");
}

TEST(ImageCheck, TakesAStorageThatFailsForNoDamage) {
  const Unreadable<data::StorageUnavailable> source;
  EXPECT_EQ(message_of<data::StorageUnavailable>([&] { check_image(source, 0, Check::decode); }), "It is gone.");
}

TEST(ContactSheet, LeavesNothingOutForAStorageThatFails) {
  const Unreadable<data::StorageUnavailable> source;
  EXPECT_EQ(message_of<data::StorageUnavailable>([&] { write_contact_sheet(source, {.path = "unused", .side = 8}); }),
            "It is gone.");
}

}  // namespace
}  // namespace libtrain::inspect
