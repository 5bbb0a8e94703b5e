"""What the programs load, and in which order, in a build with CUDA: mistakes that no compiler would notice."""

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


def torch_libraries():
    """The folder that a program's LibTorch lies in."""
    listed = subprocess.run(["ldd", jobs.program("digits")], capture_output=True, text=True, check=True)
    return Path(re.search(r"libtorch_cpu\.so => (\S+)", listed.stdout)[1]).parent


def loaded(environment, *options):
    """A process of its own, and the names of all libraries that it has loaded."""
    job = jobs.run([jobs.program("digits"), "--epochs", "1", *options],
                   environment={"LD_DEBUG": "files", **environment})
    return job, set(re.findall(r"calling init: \S*/(\S+?)\.so", job.stderr))


# A driver that shows GPUs, or answers as the environment variables tell it. No kernel can run on them.
DRIVER = r"""
#include <stdlib.h>
#include <string.h>
static int number(const char* name, int otherwise) { return getenv(name) ? atoi(getenv(name)) : otherwise; }
int cuInit(unsigned flags) { (void)flags; return number("PRETENDED_INIT", 0); }
int cuDriverGetVersion(int* version) { *version = number("PRETENDED_CUDA", 13000); return 0; }
int cuDeviceGetCount(int* count) { *count = number("PRETENDED_GPUS", 1); return 0; }
int cuDeviceGet(int* device, int index) { *device = index; return 0; }
int cuDeviceGetName(char* name, int length, int device) { (void)device; strncpy(name, "pretended", length); return 0; }
int cuDeviceGetUuid_v2(char* uuid, int device) { memset(uuid, device + 1, 16); return 0; }
int cuGetErrorString(int code, const char** text) { (void)code; *text = "pretended error"; return 0; }
"""


class Linking(unittest.TestCase):
    def setUp(self):
        self.folder = jobs.temporary_directory(self)

    def pretend_a_driver(self):
        """A folder with a library that answers as CUDA's driver."""
        (self.folder / "driver.c").write_text(DRIVER)
        subprocess.run(["cc", "-shared", "-fPIC", self.folder / "driver.c", "-o", self.folder / "libcuda.so.1"],
                       check=True)
        return str(self.folder)

    def test_programs_name_no_library_that_computes_on_gpus(self):
        for name in PROGRAMS:
            with self.subTest(program=name):
                self.assertFalse({"libtorch_cuda", "libtorch"} & set(libraries(name)), libraries(name))

    def test_torchs_cuda_part_is_not_loaded_for_the_cpu(self):
        driver = {"LD_LIBRARY_PATH": self.pretend_a_driver()}
        job, names = loaded(driver, "--device", "cpu")
        self.assertEqual(job.exit_code, 0, job)
        self.assertIn("libtorch_cpu", names)
        self.assertNotIn("libtorch_cuda", names)
        # The first backward() counts GPUs, through CUDA's runtime, which LibTorch for CPUs is linked with. The program
        # itself asks for nothing.
        loaders = re.findall(r"file=libcuda\.so\S*.*dynamically loaded by (\S+)", job.stderr)
        self.assertFalse([name for name in loaders if not name.rsplit("/", 1)[-1].startswith("libcudart")], loaders)

    def test_torchs_cuda_part_is_not_loaded_where_the_driver_shows_no_gpu(self):
        driver = {"LD_LIBRARY_PATH": self.pretend_a_driver(), "PRETENDED_GPUS": "0", "CUDA_VISIBLE_DEVICES": ""}
        job, names = loaded(driver)
        self.assertEqual(job.exit_code, 0, job)
        self.assertIn("libcuda", names)
        self.assertNotIn("libtorch_cuda", names)
        self.assertIn("computing on the CPU: CUDA_VISIBLE_DEVICES='' hides all GPUs from this process", job.stderr)

    def test_a_driver_that_is_too_old_is_named(self):
        old = {"LD_LIBRARY_PATH": self.pretend_a_driver(), "PRETENDED_CUDA": "12040"}
        job, names = loaded(old)
        self.assertEqual(job.exit_code, 0, job)
        self.assertNotIn("libtorch_cuda", names)
        self.assertIn("warning: computing on the CPU: CUDA's driver is too old: it supports CUDA 12.4", job.stderr)
        digits = [jobs.program("digits"), "--epochs", "1", "--device", "cuda"]
        jobs.require_refusal(self, jobs.run(digits, ranks=2, environment=old), 3,
                             "A GPU is needed on every rank (--device cuda), but ranks 0 and 1 on ", "needs CUDA 13.0")

    def test_cuda_without_a_driver_is_refused_on_all_ranks(self):
        self.pretend_a_driver()
        (self.folder / "libcuda.so.1").write_bytes(b"")
        environment = {"LD_LIBRARY_PATH": str(self.folder)}
        for options in (["--device", "cuda"], ["--dist-backend", "nccl"]):
            with self.subTest(options=options):
                digits = [jobs.program("digits"), "--epochs", "1", *options]
                jobs.require_refusal(self, jobs.run(digits, ranks=2, environment=environment), 3,
                                     "A GPU is needed on every rank", "CUDA's driver is not installed", "libcuda.so.1")

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
        job = jobs.run(digits, ranks=1, environment=environment)
        self.assertEqual(job.exit_code, 0, job)
        self.assertIn("warning: computing on the CPU: LibTorch's CUDA part cannot be loaded", job.stderr)
        for options in (["--device", "cuda"], ["--dist-backend", "nccl"]):
            with self.subTest(options=options):
                jobs.require_refusal(
                    self,
                    jobs.run([*digits, *options], ranks=2, environment=environment),
                    3,
                    "A GPU is needed on every rank",
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
