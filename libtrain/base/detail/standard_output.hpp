#pragma once

namespace libtrain::detail {

/// Call it at the end of a program that prints its results: throws EnvironmentError if something that was printed to
/// standard output was not written, for example because the disk is full, so that incomplete output is not used.
void require_printed();

}  // namespace libtrain::detail
