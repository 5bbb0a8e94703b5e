#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/parquet.hpp>

namespace libtrain::data {

namespace {

[[noreturn]] void refuse(const std::string& name) {
  throw EnvironmentError(
      text("File '", name,
           "' is to be read as Parquet, and this libtrain was built without Apache Arrow, which reads that: configure "
           "with -DLIBTRAIN_ARROW=ON (scripts/setup.sh installs Arrow)."));
}

}  // namespace

bool has_parquet() {
  return false;
}

ParquetFile::ParquetFile(std::unique_ptr<const File> file, const ParquetOptions& options)
    : name_(detail::require_file(file.get(), "Parquet file").name()),
      maximum_row_group_bytes_(options.maximum_row_group_bytes) {
  refuse(name_);
}

ParquetRows ParquetFile::read_row_group(std::size_t /*row_group*/, const std::vector<std::string>& /*columns*/) const {
  refuse(name_);
}

}  // namespace libtrain::data
