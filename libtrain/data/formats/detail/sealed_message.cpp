#include <libtrain/data/formats/detail/sealed_message.hpp>

#include <filesystem>
#include <system_error>

#include <libtrain/base/detail/crc32c.hpp>
#include <libtrain/base/detail/little_endian.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/output_file.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/detail/local_storage.hpp>
#include <libtrain/data/storage/disk_file.hpp>
#include <libtrain/data/storage/file.hpp>

namespace libtrain::data::detail {

std::optional<SealedMessage> SealedMessage::read(const std::string& path, std::string_view format,
                                                 std::uint64_t limit_bytes) {
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error) return std::nullopt;
  std::string file = read_all(*open_local_file(path), limit_bytes);
  const std::size_t begin = format.size() + sizeof(std::uint32_t);
  if (file.size() < begin || !file.starts_with(format)) {
    throw EnvironmentError(text("File '", path, "', byte offset 0: expected '", format, "', found other bytes."));
  }
  const auto checksum = libtrain::detail::load_little_endian<std::uint32_t>(file.data() + format.size());
  if (libtrain::detail::crc32c(std::string_view{file}.substr(begin)) != checksum) {
    throw EnvironmentError(text("File '", path, "', byte offset ", format.size(),
                                ": expected the checksum of the following bytes, found another one."));
  }
  return SealedMessage{std::move(file), begin, text("File '", path, "' after its header of ", begin, " bytes")};
}

void write_sealed_message(const std::string& path, std::string_view format, std::string_view message) {
  const auto folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) make_folder(folder);
  std::string header{format};
  libtrain::detail::append_little_endian(header, libtrain::detail::crc32c(message));
  libtrain::detail::OutputFile file(path);
  file.write(header);
  file.write(message);
  file.commit();
}

}  // namespace libtrain::data::detail
