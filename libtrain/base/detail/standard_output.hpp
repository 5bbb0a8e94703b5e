#pragma once

namespace libtrain::detail {

/// Call it at the end of a program that prints its results: throws EnvironmentError if something that was printed to
/// standard output was not written, for example because the disk is full, so that incomplete output is not used.
void require_printed();

/// Opens /dev/null for each of the descriptors 0 to 2 that is closed: otherwise the next file or socket of the program
/// gets that number, and what is printed goes into it. Call it before the program opens any.
void reserve_standard_descriptors();

}  // namespace libtrain::detail
