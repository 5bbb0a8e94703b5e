#pragma once

/// The setting that this program gave to GCC's OpenMP before main(), "GOMP_SPINCOUNT=1000"; null if the environment
/// sets how idle threads wait, or has no room for another variable. The symbol is missing (null address) in programs
/// that are linked with a shared libtrain.
extern "C" [[gnu::weak]] const char* libtrain_openmp_waiting;
