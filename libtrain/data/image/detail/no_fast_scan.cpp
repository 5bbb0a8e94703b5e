#include <libtrain/data/image/detail/fast_scan.hpp>

namespace libtrain::data::detail {

bool FastScan::take_over(JpegReader& /*reader*/) {
  return false;
}

}  // namespace libtrain::data::detail
