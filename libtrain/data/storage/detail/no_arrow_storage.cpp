#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/detail/arrow_storage.hpp>

namespace libtrain::data {

bool detail::has_arrow_storage() {
  return false;
}

std::shared_ptr<const Storage> detail::open_arrow_storage(const detail::Location& location,
                                                          const StorageOptions& /*options*/) {
  throw EnvironmentError(
      text("'", location.name,
           "' lies in an object store, and this libtrain was built without Apache Arrow, which reads "
           "those: configure with -DLIBTRAIN_ARROW=ON (scripts/setup.sh installs Arrow), or mount or "
           "download the data and give the local path."));
}

}  // namespace libtrain::data
