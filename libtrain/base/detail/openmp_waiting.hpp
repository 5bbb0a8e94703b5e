#pragma once

/// What this program told GCC's OpenMP before main(), "GOMP_SPINCOUNT=1000"; null where the environment says how idle
/// threads wait, or has no place for one more variable. Absent, with a null address, from programs that are linked with
/// a shared libtrain.
extern "C" [[gnu::weak]] const char* libtrain_openmp_waiting;
