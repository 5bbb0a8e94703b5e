#include <tools/inspect/image_check.hpp>

#include <cstddef>
#include <span>

#include <libtrain/base/error.hpp>
#include <libtrain/data/image/decode_image.hpp>
#include <libtrain/data/image/detail/jpeg.hpp>
#include <libtrain/data/storage/storage.hpp>

namespace libtrain::inspect {

namespace {

// Returns the number of damaged places.
long decode(std::span<const std::byte> file, data::ImageFormat format, const std::string& name) {
  if (format != data::ImageFormat::jpeg) {
    static_cast<void>(data::decode_image(file, {.name = name}));
    return 0;
  }
  data::detail::JpegDecoder decoder;
  static_cast<void>(decoder.decode(file, {.name = name}));
  return decoder.damaged_places();
}

}  // namespace

CheckedImage check_image(const data::ImageSource& source, std::uint64_t index, Check check) {
  CheckedImage result;
  try {
    data::EncodedImage image;
    source.read(index, image);
    const auto file = std::as_bytes(std::span{image.bytes});
    result.stored = StoredImage{.label = image.label, .hash = data::content_hash(file)};
    const std::string name = source.origin(index).path;
    result.header = data::read_image_header(file, name);
    if (check == Check::decode) result.damaged_places = decode(file, result.header->format, name);
  } catch (const data::StorageUnavailable&) {
    throw;  // the error is not about the image
  } catch (const EnvironmentError& error) {
    result.damage = error.what();
  }
  return result;
}

}  // namespace libtrain::inspect
