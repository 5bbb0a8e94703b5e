#pragma once

namespace libtrain::detail {

/// For the end of a program that prints its results: throws EnvironmentError where something that was printed to
/// standard output did not get there, as on a full disk. What is missing there must not pass for the whole.
void require_printed();

}  // namespace libtrain::detail
