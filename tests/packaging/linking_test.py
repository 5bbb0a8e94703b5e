"""What the programs load, and in which order: mistakes that no compiler and no machine without a GPU would notice."""

import json
import re
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import jobs

PROGRAMS = ("digits", "bench_train_step")


def libraries(name):
    """The libraries that a program names, without their versions, in the order in which symbols are looked up."""
    dynamic = subprocess.run(["readelf", "-d", "-W", jobs.program(name)], capture_output=True, text=True, check=True)
    return re.findall(r"\(NEEDED\).*\[(\S+?)\.so[.0-9]*\]", dynamic.stdout)


def built_with_cuda():
    return bool(json.loads(jobs.run([jobs.program("libtrain-info"), "--json"]).stdout)["versions"]["cuda"])


class Linking(unittest.TestCase):
    def test_programs_load_torchs_cuda_part_where_the_build_has_cuda(self):
        # It registers its kernels when it is loaded; no symbol of it is named, and a linker likes to drop it.
        expected = built_with_cuda()
        for name in PROGRAMS:
            with self.subTest(program=name):
                self.assertEqual("libtorch_cuda" in libraries(name), expected, libraries(name))

    def test_the_cpp_library_is_searched_before_torch(self):
        # Torch's wheel exports a std::filesystem of its own.
        for name in PROGRAMS:
            with self.subTest(program=name):
                found = libraries(name)
                self.assertLess(found.index("libstdc++"), found.index("libtorch_cpu"), found)


if __name__ == "__main__":
    jobs.require_programs("libtrain-info", *PROGRAMS)
    unittest.main()
