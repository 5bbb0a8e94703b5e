// Sets how long idle threads of GCC's OpenMP, which LibTorch uses, spin before they sleep.
//
// By default they spin for several milliseconds after each operation. If another program runs on one of the cores, two
// threads of a program share a core, one of them spins while the other has the work, and training becomes tens of times
// slower. 1000 spins take about 20 microseconds: within 3 percent of the default's speed on an otherwise idle machine,
// and nearly as good as no spinning beside other programs (docs/launch.md).
//
// libgomp reads its variables when it is loaded, before main() and before the constructors of the program. Only
// .preinit_array runs earlier. At that time the C library has not read the environment, and will use the kernel's
// array, which has no room for another entry: GOMP_SPINCOUNT takes the place of a variable that no library reads when
// it is loaded, until the program's own constructors run. If the user has set how threads wait, or all of those
// variables are missing, nothing changes.
//
// Nothing refers to this file: executables are linked with --undefined (libtrain/base/CMakeLists.txt), since a shared
// library cannot have a .preinit_array.

#include <libtrain/base/detail/openmp_waiting.hpp>

#include <unistd.h>

#include <initializer_list>

// No sanitizer checks: the sanitizer's own constructors have not run yet.
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

LIBTRAIN_BEFORE_ALL void set_spin_count(int /*argc*/, char** /*argv*/, char** environment) {
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

// The libraries' constructors have run. One of them may have created a new array of the same entries.
__attribute__((constructor(101))) void restore_environment() {
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (*entry == setting) *entry = displaced;
  }
}

__attribute__((section(".preinit_array"), used)) void (*const before_all)(int, char**, char**) = set_spin_count;

}  // namespace
