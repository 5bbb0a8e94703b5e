// How long idle threads of GCC's OpenMP, which LibTorch computes with, spin before they sleep.
//
// By default they spin for several milliseconds after each operation. Where another program runs on one of the cores,
// two threads of a program come to share a core, one of them spins there while the other has the work, and training
// becomes tens of times slower. 1000 turns take about 20 microseconds: as fast as the default on a machine of one's
// own, within 3 percent, and nearly as good as no spinning beside other programs (docs/launch.md).
//
// libgomp reads its variables when it is loaded, before main() and before the constructors of the program. Only
// .preinit_array comes earlier. There the C library does not know the environment yet, and will take the kernel's array
// as it is, which has no room for one more: GOMP_SPINCOUNT takes the place of a variable that no library reads when it
// is loaded, until the program's own constructors run. Where the user has said how to wait, or all of those variables
// are missing, nothing changes.
//
// Nothing refers to this file: executables are linked with --undefined (libtrain/CMakeLists.txt), since a shared
// library may have no .preinit_array.

#include <libtrain/base/detail/openmp_waiting.hpp>

#include <unistd.h>

#include <initializer_list>

// No checks of a sanitizer: its own constructors have not run.
#define LIBTRAIN_BEFORE_ALL __attribute__((no_sanitize("address", "thread", "undefined")))

const char* libtrain_openmp_waiting = nullptr;

namespace {

char setting[] = "GOMP_SPINCOUNT=1000";
char* displaced = nullptr;

LIBTRAIN_BEFORE_ALL char** find(char** environment, const char* name) {
  for (char** entry = environment; *entry != nullptr; ++entry) {
    int length = 0;
    while (name[length] != '\0' && (*entry)[length] == name[length]) ++length;
    if (name[length] == '\0' && (*entry)[length] == '=') return entry;
  }
  return nullptr;
}

LIBTRAIN_BEFORE_ALL void lend_a_place(int /*argc*/, char** /*argv*/, char** environment) {
  for (const char* chosen : {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}) {
    if (find(environment, chosen) != nullptr) return;
  }
  for (const char* unread : {"_", "OLDPWD", "SHLVL", "PWD", "HOSTNAME"}) {
    if (char** const place = find(environment, unread)) {
      displaced = *place;
      *place = setting;
      libtrain_openmp_waiting = setting;
      return;
    }
  }
}

// The libraries' constructors have run. One of them may have made a new array of the same entries.
__attribute__((constructor(101))) void give_it_back() {
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (*entry == setting) *entry = displaced;
  }
}

__attribute__((section(".preinit_array"), used)) void (*const before_all)(int, char**, char**) = lend_a_place;

}  // namespace
