"""What the programs load, and in which order, in a build with CUDA: mistakes that no compiler would notice."""

import ctypes
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


def has_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def torch_libraries():
    """The folder that a program's LibTorch lies in."""
    listed = subprocess.run(["ldd", jobs.program("digits")], capture_output=True, text=True, check=True)
    return Path(re.search(r"libtorch_cpu\.so => (\S+)", listed.stdout)[1]).parent


def loaded(environment):
    """The names of all that a program has loaded when it is in its main()."""
    job = jobs.run([jobs.program("digits"), "--help"], environment={"LD_DEBUG": "files", **environment})
    return job, set(re.findall(r"calling init: \S*/(\S+?)\.so", job.stderr))


class Linking(unittest.TestCase):
    def setUp(self):
        self.folder = jobs.temporary_directory(self)

    def pretend_a_driver(self):
        """An environment in which the machine seems to have CUDA's driver."""
        subprocess.run(["cc", "-shared", "-x", "c", "/dev/null", "-o", self.folder / "libcuda.so.1"], check=True)
        return str(self.folder)

    def test_programs_name_no_library_that_computes_on_gpus(self):
        for name in PROGRAMS:
            with self.subTest(program=name):
                self.assertFalse({"libtorch_cuda", "libtorch"} & set(libraries(name)), libraries(name))

    def test_torchs_cuda_part_is_loaded_where_there_is_a_driver(self):
        # Also by a program that names nothing of it.
        for program_environment, expected in ({}, has_driver()), ({"LD_LIBRARY_PATH": self.pretend_a_driver()}, True):
            with self.subTest(environment=program_environment):
                job, names = loaded(program_environment)
                self.assertEqual(job.exit_code, 0, job)
                self.assertIn("libtorch_cpu", names)
                self.assertEqual("libtorch_cuda" in names, expected, names)

    def test_a_cuda_part_that_cannot_be_loaded_ends_only_what_needs_it(self):
        torch = self.folder / "torch" / "lib"
        torch.mkdir(parents=True)
        for library in torch_libraries().glob("*.so*"):
            (torch / library.name).symlink_to(library)
        packages = torch_libraries().parents[1] / "nvidia"
        if packages.exists():
            (self.folder / "nvidia").symlink_to(packages)
        (torch / "libtorch_cuda.so").unlink()
        (torch / "libtorch_cuda.so").write_bytes(b"no library")
        environment = {"LD_LIBRARY_PATH": f"{torch}:{self.pretend_a_driver()}"}
        digits = [jobs.program("digits"), "--epochs", "1"]
        self.assertEqual(jobs.run(digits, ranks=1, environment=environment).exit_code, 0)
        jobs.require_refusal(
            self,
            jobs.run([*digits, "--dist-backend", "nccl"], ranks=2, environment=environment),
            3,
            "This machine has CUDA's driver",
            "libtorch_cuda.so: file too short",
        )

    def test_the_cpp_library_is_searched_before_torch(self):
        # Torch's wheel exports a std::filesystem of its own.
        for name in PROGRAMS:
            with self.subTest(program=name):
                found = libraries(name)
                self.assertLess(found.index("libstdc++"), found.index("libtorch_cpu"), found)


if __name__ == "__main__":
    jobs.require_programs(*PROGRAMS)
    unittest.main()
