#include <libtrain/base/error.hpp>
#include <libtrain/observe/detail/http.hpp>

namespace libtrain::detail {

std::unique_ptr<HttpClient> make_http_client(const HttpOptions&) {
  throw EnvironmentError(
      "This libtrain was built without libcurl, which MLflow needs. Configure with -DLIBTRAIN_MLFLOW=ON "
      "(scripts/setup.sh installs libcurl), or unset MLFLOW_TRACKING_URI.");
}

}  // namespace libtrain::detail
