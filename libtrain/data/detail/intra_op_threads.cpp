#include <libtrain/data/detail/intra_op_threads.hpp>

#include <dlfcn.h>

#include <ATen/Parallel.h>

namespace libtrain::data::detail {

void keep_torch_on_this_thread() {
  static thread_local bool done = false;
  if (done) return;
  done = true;
  // Torch sets the number of a thread at its first operator: that must have happened before ours. Asked of the library,
  // since what a header's function remembers of this thread is another library's own.
  at::get_num_threads();
  // OpenMP keeps the number per thread. The function is looked up in the OpenMP that torch loaded; linking one
  // ourselves could bring a second runtime into the process. A torch without OpenMP has nothing to set.
  using SetNumThreads = void (*)(int);
  if (auto* symbol = dlsym(RTLD_DEFAULT, "omp_set_num_threads")) reinterpret_cast<SetNumThreads>(symbol)(1);
}

}  // namespace libtrain::data::detail
