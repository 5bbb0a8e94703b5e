#include <tools/inspect/listed_once.hpp>

#include <utility>

namespace libtrain::inspect {

ListedOnce::ListedOnce(std::shared_ptr<const data::Storage> storage)
    : storage_(std::move(storage)), files_(storage_->list("")) {}

std::vector<data::FileInfo> ListedOnce::list(const std::string& folder) const {
  return folder.empty() ? files_ : storage_->list(folder);
}

}  // namespace libtrain::inspect
