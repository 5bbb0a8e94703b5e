// Compiled by the tests comm.work_compiles and, with -DDROP_IT, comm.dropped_work_does_not_compile; never run.

#include <libtrain/comm/work.hpp>

libtrain::Work all_reduce();

void use() {
#ifdef DROP_IT
  all_reduce();
#else
  all_reduce().wait();
#endif
}
