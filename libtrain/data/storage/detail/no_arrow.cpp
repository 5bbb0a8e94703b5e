#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/parquet.hpp>
#include <libtrain/data/storage/detail/arrow_object_store.hpp>
#include <libtrain/data/storage/detail/arrow_storage.hpp>
#include <libtrain/data/storage/open_storage.hpp>

namespace libtrain::data {

namespace {

[[noreturn]] void refuse_parquet(const std::string& name) {
  throw EnvironmentError(
      text("File '", name,
           "' is a Parquet file, and this libtrain was built without Apache Arrow, which reads these. Configure with "
           "-DLIBTRAIN_ARROW=ON (scripts/setup.sh installs Arrow)."));
}

[[noreturn]] void refuse_store(const detail::Location& location) {
  throw EnvironmentError(text("'", location.name,
                              "' lies in an object store, and this libtrain was built without Apache Arrow, which "
                              "reads these. Configure with -DLIBTRAIN_ARROW=ON (scripts/setup.sh installs Arrow), or "
                              "mount or download the data and give the local path."));
}

}  // namespace

bool has_arrow() {
  return false;
}

std::shared_ptr<const Storage> detail::open_arrow_storage(const detail::Location& location,
                                                          const StorageOptions& /*options*/) {
  refuse_store(location);
}

std::unique_ptr<libtrain::detail::ObjectStore> detail::open_object_store(const detail::Location& location,
                                                                         const StorageOptions& /*options*/) {
  refuse_store(location);
}

ParquetFile::ParquetFile(std::unique_ptr<const File> file, const ParquetOptions& options)
    : name_(detail::require_file(file.get(), "Parquet file").name()),
      maximum_row_group_bytes_(options.maximum_row_group_bytes) {
  refuse_parquet(name_);
}

ParquetRows ParquetFile::read_row_group(std::size_t /*row_group*/, const std::vector<std::string>& /*columns*/) const {
  refuse_parquet(name_);
}

}  // namespace libtrain::data
