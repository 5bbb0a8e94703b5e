#pragma once

namespace libtrain::data::detail {

/// Makes torch's operators run on the calling thread alone when this thread calls them. Other threads keep their
/// setting, which at::set_num_threads(1) would not grant: it also changes what threads get that start using torch
/// later, autograd's among them. Repeated calls cost nothing.
void keep_torch_on_this_thread();

}  // namespace libtrain::data::detail
