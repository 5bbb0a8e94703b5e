"""libtrain-checkpoint, beside Python's safetensors, torch and numpy: checkpoints written as docs/checkpoints.md says.

Runs itself with the project's Python, which has these packages.
"""

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import unittest
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "support"), str(TESTS / "checkpoint")]
import jobs

jobs.require_packages("safetensors", "torch", "numpy")

import numpy
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from weights_peer_test import crc32c

DIFFERENT, USAGE, ENVIRONMENT = 1, 2, 3
WRITTEN = 1750000000  # 2025-06-15 15:06:40 UTC


def tool(*arguments, **options):
    return jobs.run([jobs.program("libtrain-checkpoint"), *arguments], **options)


def peak_kib(*arguments):
    """The most memory that the tool had, in KiB."""
    # AddressSanitizer keeps memory that was freed.
    environment = os.environ | {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1"}
    process = subprocess.Popen([jobs.program("libtrain-checkpoint"), *arguments], stdout=subprocess.DEVNULL,
                               env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise AssertionError(f"exit code {process.returncode} of {arguments}")
    return usage.ru_maxrss


def open_files(process):
    """The paths of what a process has open."""
    paths = set()
    for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
        try:
            paths.add(os.readlink(descriptor))
        except OSError:
            pass  # it has just been closed
    return paths


def seal(manifest):
    """The bytes of manifest.json."""
    text = json.dumps(manifest, indent=1)
    body = text[:-len("\n}")]
    return f'{body},\n "manifest_crc32c": "0x{crc32c(body.encode()):08x}"\n}}\n'


def entry_of(path):
    data = path.read_bytes()
    tensors = []
    if path.suffix == ".safetensors":
        length = struct.unpack_from("<Q", data)[0]
        for name, tensor in json.loads(data[8:8 + length]).items():
            if name != "__metadata__":
                begin, end = (8 + length + offset for offset in tensor["data_offsets"])
                tensors.append({"name": name, "offset": begin, "bytes": end - begin,
                                "crc32c": f"0x{crc32c(data[begin:end]):08x}"})
    return {"name": path.name, "bytes": len(data), "crc32c": f"0x{crc32c(data):08x}", "tensors": tensors}


def write_checkpoint(root, step, parts, **members):
    """A checkpoint of safetensors files, dicts of tensors, and of others, bytes."""
    folder = root / f"step-{step:08}"
    folder.mkdir(parents=True)
    for name, content in parts.items():
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        else:
            save_file(content, folder / f"{name}.safetensors", {"format": "pt"})
    manifest = {"format": "libtrain checkpoint", "version": 1, "step": step, "epoch": 0, "world_size": 1,
                "libtrain": "0.1.0", "torch": "2.11.0", "time": WRITTEN, "run_ids": ["first", "second"], "metrics": {},
                "configuration": {}, "files": [entry_of(path) for path in sorted(folder.iterdir())]}
    (folder / "manifest.json").write_text(seal(manifest | members))
    return folder


def tensors(seed):
    generator = torch.Generator().manual_seed(seed)

    def values(*shape):
        return torch.randn(shape, generator=generator)

    return {"fc.weight": values(5, 7), "fc.bias": values(5), "norm.steps": torch.tensor(seed),
            "half": values(300).half(), "brain": values(9).bfloat16(), "double": values(2, 3, 4).double(),
            "empty": values(0, 3), "scalar": values(), "mask": values(6) > 0,
            "wave": torch.view_as_complex(values(4, 2))}


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 16
    path.write_bytes(data)


class Tool(unittest.TestCase):
    maxDiff = 8000

    def setUp(self):
        self.folder = jobs.temporary_directory(self)

    def save(self, name, content):
        path = self.folder / name
        (torch.save if path.suffix == ".pth" else save_file)(content, path)
        return path

    def json(self, *arguments, exit_code=0):
        job = tool(*arguments, "--json")
        self.assertEqual((job.exit_code, job.stderr, len(job.stdout.splitlines())), (exit_code, "", 1), job)
        return json.loads(job.stdout)

    def lines(self, *arguments, exit_code=0):
        job = tool(*arguments)
        self.assertEqual((job.exit_code, job.stderr), (exit_code, ""), job)
        return job.stdout.splitlines()

    def refuse(self, exit_code, *arguments, **options):
        """The only line on standard error."""
        job = tool(*arguments, **options)
        self.assertEqual(job.exit_code, exit_code, job)
        self.assertEqual((len(job.stderr.splitlines()), job.stdout), (1, ""), job)
        self.assertTrue(job.stderr.startswith("libtrain-checkpoint: "), job)
        return job.stderr

    def require_equal(self, path, expected):
        found = load_file(path)
        self.assertEqual(set(found), set(expected))
        for name, tensor in expected.items():
            self.assertEqual((found[name].dtype, found[name].shape), (tensor.dtype, tensor.shape), name)
            as_bytes = [each.contiguous().reshape(-1).view(torch.uint8) for each in (found[name], tensor)]
            self.assertTrue(torch.equal(*as_bytes), name)


class Run(Tool):
    """A run with three checkpoints, of which the second is marked as the best."""

    def setUp(self):
        super().setUp()
        self.output = self.folder / "outputs"
        self.root = self.output / "checkpoints"
        self.steps = [write_checkpoint(self.root, step, {"model": tensors(step), "sgd": {"fc.weight": torch.ones(5, 7)},
                                                         "loader.json": b"{}"}, epoch=step // 10, world_size=2,
                                       metrics={"accuracy": step / 100})
                      for step in (10, 20, 30)]
        (self.root / "best.json").write_text('{"step": 20}\n')
        (self.root / "step-00000040.0123456789abcdef.partial").mkdir()

    def expected(self, step, **changes):
        folder = self.root / f"step-{step:08}"
        files = [{"name": path.name, "bytes": path.stat().st_size,
                  "tensors": {"model.safetensors": 10, "sgd.safetensors": 1}.get(path.name, 0)}
                 for path in sorted(folder.iterdir()) if path.name != "manifest.json"]
        return {"folder": str(folder), "complete": True, "step": step, "epoch": step // 10,
                "bytes": sum(file["bytes"] for file in files), "world_size": 2, "time": WRITTEN,
                "metrics": {"accuracy": step / 100}, "best": step == 20, "libtrain": "0.1.0", "torch": "2.11.0",
                "run_ids": ["first", "second"], "files": files} | changes


class List(Run):
    def test_has_all_checkpoints_of_a_run(self):
        expected = {"checkpoints": [self.expected(step) for step in (10, 20, 30)]}
        self.assertEqual(self.json("list", self.output), expected)
        self.assertEqual(self.json("list", self.root), expected)
        self.assertEqual(self.json("list", self.steps[1]), {"checkpoints": [self.expected(20)]})
        self.assertEqual(self.json("list", f"{self.steps[1]}/"), {"checkpoints": [self.expected(20)]})

    def test_is_one_line_a_checkpoint(self):
        (self.steps[2] / "sgd.safetensors").unlink()
        first, second, third = self.lines("list", self.output)
        self.assertEqual(first, "step 10, epoch 1, 0.0 MB, world size 2, written 2025-06-15 15:06:40 UTC, accuracy 0.1")
        self.assertTrue(second.startswith("step 20, ") and second.endswith(", accuracy 0.2, best"), second)
        self.assertEqual(third, f"step-00000030 is damaged: The checkpoint file '{self.steps[2]}/sgd.safetensors' is "
                                "missing. Use another checkpoint.")

    def test_has_damaged_ones_with_the_reason(self):
        flip(self.steps[0] / "manifest.json", 60)
        os.truncate(self.steps[1] / "model.safetensors", 100)
        self.steps[2].rename(self.root / "step-00000031")
        found = self.json("list", self.output)["checkpoints"]
        self.assertEqual([checkpoint["complete"] for checkpoint in found], [False] * 3)
        for checkpoint, reason in zip(found, ("manifest.json", "has 100 bytes", "is one of step 30")):
            self.assertEqual(set(checkpoint), {"folder", "complete", "problem"})
            self.assertIn(reason, checkpoint["problem"])

    def test_is_there_without_the_mark_of_the_best(self):
        (self.root / "best.json").write_text("20")
        found = self.json("list", self.output)
        self.assertEqual([checkpoint["best"] for checkpoint in found["checkpoints"]], [False] * 3)
        self.assertIn("best.json' is damaged", found["problem"])
        self.assertEqual(self.lines("list", self.output)[0], found["problem"])

    def test_may_be_empty(self):
        (self.folder / "new").mkdir()
        self.assertEqual(self.json("list", self.folder / "new"), {"checkpoints": []})
        self.assertEqual(self.lines("list", self.folder / "new"),
                         [f"There are no checkpoints in '{self.folder}/new'."])

    def test_needs_a_folder(self):
        self.assertIn("No such file or directory", self.refuse(ENVIRONMENT, "list", self.folder / "missing"))
        self.assertIn("Not a directory", self.refuse(ENVIRONMENT, "list", self.steps[0] / "loader.json"))


class Verify(Run):
    def test_finds_nothing_in_undamaged_ones(self):
        found = self.json("verify", self.output, self.steps[0])["verified"]
        self.assertEqual([item["path"] for item in found], list(map(str, [*self.steps, self.steps[0]])))
        self.assertEqual([item["problems"] for item in found], [[]] * 4)
        self.assertEqual(found[0]["bytes"], self.expected(10)["bytes"])
        self.assertEqual(self.lines("verify", self.steps[0]), [f"{self.steps[0]}: undamaged, 0.0 MB"])

    def test_names_each_damaged_file_and_tensor(self):
        model = self.steps[1] / "model.safetensors"
        (tensor,) = [tensor for tensor in entry_of(model)["tensors"] if tensor["name"] == "half"]
        flip(model, tensor["offset"] + 3)
        flip(self.steps[1] / "loader.json", 0)
        flip(self.steps[2] / "sgd.safetensors", 30)  # of the header
        first, second, third = self.json("verify", self.output, exit_code=ENVIRONMENT)["verified"]
        self.assertEqual(first["problems"], [])
        (one, other), (header,) = second["problems"], third["problems"]
        self.assertIn("loader.json' is damaged: its 2 bytes have changed", one)
        self.assertIn(f"model.safetensors' is damaged: the 600 bytes from offset {tensor['offset']}, tensor 'half'",
                      other)
        self.assertIn("sgd.safetensors' is damaged: its", header)
        lines = self.lines("verify", self.output, exit_code=ENVIRONMENT)
        self.assertEqual(lines[1:], [f"{self.steps[1]}: {one}", f"{self.steps[1]}: {other}",
                                     f"{self.steps[2]}: {header}"])

    def test_finds_damage_of_files_of_weights(self):
        content = tensors(1)
        good, also_good = self.save("good.safetensors", content), self.save("good.pth", content)
        found = self.json("verify", good, also_good)["verified"]
        self.assertEqual([(item["problems"], item["checksums"]) for item in found], [([], False), ([], True)])
        self.assertEqual(self.lines("verify", good), [f"{good}: undamaged, 0.0 MB, by header and length: the format "
                                                      "has no checksums"])
        flip(also_good, also_good.read_bytes().index(content["half"].numpy().tobytes()) + 5)
        os.truncate(good, good.stat().st_size - 1)
        found = self.json("verify", good, also_good, exit_code=ENVIRONMENT)["verified"]
        self.assertIn("the file is truncated", found[0]["problems"][0])
        self.assertIn("CRC-32", found[1]["problems"][0])

    def test_passes_over_what_its_run_removes_meanwhile(self):
        root = self.folder / "busy"
        size = 1 << 27  # reading it takes long enough
        large = write_checkpoint(root, 1, {"large.bin": b""}, files=[
            {"name": "large.bin", "bytes": size, "crc32c": "0x00000000", "tensors": []}]) / "large.bin"
        os.truncate(large, size)
        removed = write_checkpoint(root, 2, {"model": tensors(2)})
        with subprocess.Popen([jobs.program("libtrain-checkpoint"), "verify", root, "--json"],
                              stdout=subprocess.PIPE) as process:
            while process.poll() is None and str(large) not in open_files(process):
                pass
            process.send_signal(signal.SIGSTOP)
            shutil.rmtree(removed)
            process.send_signal(signal.SIGCONT)
            (found,) = json.loads(process.stdout.read())["verified"]
        self.assertEqual((process.returncode, found["path"]), (ENVIRONMENT, str(large.parent)))
        self.assertIn("bytes have changed", found["problems"][0])

    def test_needs_something_to_verify(self):
        (self.folder / "new").mkdir()
        (found,) = self.json("verify", self.folder / "new", exit_code=ENVIRONMENT)["verified"]
        self.assertIn("no checkpoints", found["problems"][0])
        self.assertIn("missing' cannot be verified: it does not exist",
                      self.refuse(ENVIRONMENT, "verify", self.output, self.folder / "missing"))


class Compare(Tool):
    def test_finds_equal_files_of_both_kinds_equal(self):
        content = tensors(1) | {"nan": torch.tensor([float("nan")])}
        first, second = self.save("a.safetensors", content), self.save("b.pth", content)
        found = self.json("compare", first, second)
        self.assertEqual((found["equal"], found["equal_tensors"]), (True, 11))
        self.assertEqual(self.lines("compare", first, second), ["equal bit for bit, tensors: 11"])

    def test_reads_views_as_they_are(self):
        base = torch.arange(24.0)
        views = {"whole": base, "part": base[3:9], "transposed": base.view(2, 3, 4).permute(2, 0, 1),
                 "expanded": base[5].expand(3, 2), "third": base[::3], "one": base.view(4, 6)[2:3, 1:2],
                 "far": torch.as_strided(base, (3, 1, 2), (2, 1 << 61, 1), 1),
                 "image": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last), "none": base[:0]}
        first = self.save("a.pth", views)
        second = self.save("b.safetensors", {name: view.clone(memory_format=torch.contiguous_format)
                                             for name, view in views.items()})
        self.assertEqual(self.json("compare", first, second)["equal_tensors"], 9)

    def test_measures_values_that_differ(self):
        for name, dtype in (("float32", torch.float32), ("float64", torch.float64), ("float16", torch.float16),
                            ("bfloat16", torch.bfloat16), ("int64", torch.int64), ("uint8", torch.uint8)):
            generator = torch.Generator().manual_seed(7)
            one = (torch.rand(6, 50, generator=generator) * 100).to(dtype)
            other = torch.where(torch.rand(6, 50, generator=generator) < 0.3, one, (one.double() * 1.2 + 1).to(dtype))
            first, second = self.save("a.safetensors", {"t": one}), self.save("b.safetensors", {"t": other})
            (found,) = self.json("compare", first, second, exit_code=DIFFERENT)["differing"]
            x, y = one.double().numpy(), other.double().numpy()
            with self.subTest(name):
                self.assertEqual((found["name"], found["values"], found["not_finite"]), ("t", 300, 0))
                self.assertEqual(found["differing"], int((x != y).sum()))
                self.assertEqual(found["first"], [int(i) for i in numpy.argwhere(x != y)[0]])
                self.assertEqual(found["largest_absolute"], numpy.abs(x - y).max())
                relative = numpy.abs(x - y) / numpy.maximum(numpy.maximum(abs(x), abs(y)), 1e-300)
                self.assertEqual(found["largest_relative"], relative.max())

    def test_names_what_only_one_has_and_other_shapes_and_types(self):
        first = self.save("a.safetensors", {"both": torch.ones(2), "left": torch.ones(1), "shape": torch.ones(2, 3),
                                            "type": torch.ones(2), "nan": torch.tensor([1.0, 2.0])})
        second = self.save("b.safetensors", {"both": torch.ones(2), "right": torch.ones(1), "shape": torch.ones(3, 2),
                                             "type": torch.ones(2).half(), "nan": torch.tensor([1.0, float("nan")])})
        found = self.json("compare", first, second, exit_code=DIFFERENT)
        self.assertEqual((found["equal"], found["equal_tensors"]), (False, 1))
        self.assertEqual((found["only_in_first"], found["only_in_second"]), (["left"], ["right"]))
        self.assertEqual(sorted(found["mismatched"], key=lambda tensor: tensor["name"]), [
            {"name": "shape", "first": {"dtype": "F32", "shape": [2, 3]}, "second": {"dtype": "F32", "shape": [3, 2]}},
            {"name": "type", "first": {"dtype": "F32", "shape": [2]}, "second": {"dtype": "F16", "shape": [2]}}])
        (nan,) = found["differing"]
        self.assertEqual((nan["name"], nan["first"], nan["not_finite"], nan["largest_absolute"]), ("nan", [1], 1, None))
        lines = self.lines("compare", first, second, exit_code=DIFFERENT)
        for line in (f"left is only in {first}", f"right is only in {second}",
                     f"shape is F32 [2, 3] in {first} and F32 [3, 2] in {second}",
                     "nan: 1 of 2 values differ, first at [1], NaN or infinite: 1",
                     "differences: 5, equal tensors: 1"):
            self.assertIn(line, lines)

    def test_takes_all_files_of_two_checkpoints_or_one_part(self):
        model = tensors(1)
        first = write_checkpoint(self.folder / "a", 1, {"model": model, "sgd": {"m": torch.ones(2)}, "x.json": b"{}"})
        second = write_checkpoint(self.folder / "b", 2, {"model": model, "sgd": {"m": torch.zeros(2)}, "x.json": b"[]",
                                                         "more": {"n": torch.ones(1)}})
        found = self.json("compare", first, second, exit_code=DIFFERENT)
        self.assertEqual((found["equal_tensors"], found["differing_files"]), (10, ["x.json"]))
        self.assertEqual(found["only_in_second"], ["more.safetensors"])
        self.assertEqual([tensor["name"] for tensor in found["differing"]], ["sgd.safetensors: m"])
        self.assertTrue(self.json("compare", first, first)["equal"])
        self.assertTrue(self.json("compare", first, second, "--part", "model")["equal"])
        self.assertTrue(self.json("compare", first, self.save("model.pth", model))["equal"])
        self.json("compare", first, second, "--part", "sgd", exit_code=DIFFERENT)

    def test_refuses_what_it_cannot_compare(self):
        good = self.save("good.safetensors", tensors(1))
        checkpoint = write_checkpoint(self.folder / "run/checkpoints", 1, {"model": tensors(1)})
        self.assertIn("No such file", self.refuse(ENVIRONMENT, "compare", good, self.folder / "missing"))
        self.assertIn(f"such as '{checkpoint}'", self.refuse(USAGE, "compare", good, self.folder / "run"))
        self.assertIn("has no file 'x.safetensors', but model.safetensors",
                      self.refuse(USAGE, "compare", good, checkpoint, "--part", "x"))
        flip(checkpoint / "model.safetensors", -1)
        self.assertIn("is damaged", self.refuse(ENVIRONMENT, "compare", good, checkpoint))
        self.assertIn("is damaged", self.refuse(ENVIRONMENT, "compare", checkpoint, checkpoint))
        (self.folder / "readme.txt").write_text("neither of the two")
        self.assertIn("neither a safetensors file nor one of torch.save",
                      self.refuse(ENVIRONMENT, "compare", good, self.folder / "readme.txt"))


def rounded(values, dtype):
    """float64 values rounded once, ties to even, all of them normal in `dtype`. torch rounds to float32 first."""
    if dtype == torch.bfloat16:
        bits = numpy.atleast_1d(values).view(numpy.uint64)
        bits = bits + numpy.uint64((1 << 44) - 1) + (bits >> numpy.uint64(45) & numpy.uint64(1))
        values = (bits >> numpy.uint64(45) << numpy.uint64(45)).view(numpy.float64).reshape(values.shape)
    if dtype == torch.float16:
        values = values.astype(numpy.float16)
    return torch.from_numpy(values).to(dtype)


class Average(Tool):
    def mean(self, contents):
        """In float64, in this order; of complex numbers by parts."""
        expected = {}
        for name, last in contents[-1].items():
            parts = [torch.view_as_real(content[name]) if last.is_complex() else content[name] for content in contents]
            if not parts[0].is_floating_point():
                expected[name] = last
                continue
            total = parts[0].double().numpy().copy()
            for part in parts[1:]:
                total = total + part.double().numpy()
            mean = rounded(numpy.asarray(total / len(parts)), parts[0].dtype).reshape(parts[0].shape)
            expected[name] = torch.view_as_complex(mean) if last.is_complex() else mean
        return expected

    def test_is_the_rounded_mean_and_the_last_whole_numbers(self):
        contents = [tensors(seed) for seed in (1, 2, 3)]
        inputs = [self.save("1.safetensors", contents[0]), self.save("2.pth", contents[1]),
                  write_checkpoint(self.folder / "run", 3, {"model": contents[2], "other": {"x": torch.ones(1)}})]
        output = self.folder / "mean.safetensors"
        found = self.json("average", output, *inputs)
        self.assertEqual(found, {"inputs": list(map(str, inputs)), "output": str(output), "tensors": 10,
                                 "bytes": output.stat().st_size})
        self.require_equal(output, self.mean(contents))

    def test_takes_the_part_that_is_named(self):
        inputs = [write_checkpoint(self.folder / "run", step, {"model": tensors(1), "ema": {"x": torch.ones(1) * step}})
                  for step in (1, 2)]
        output = self.folder / "mean.safetensors"
        self.lines("average", output, *inputs, "--part", "ema")
        self.require_equal(output, {"x": torch.tensor([1.5])})

    def test_a_folder_of_a_model_has_no_other_part(self):
        folder = self.folder / "model"
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        weights = self.save("model/model.safetensors", tensors(1))
        checkpoint = write_checkpoint(self.folder / "run", 1, {"model": tensors(1), "ema": tensors(2)})
        output = self.folder / "out.safetensors"
        self.lines("convert", folder, output, "--part", "model")
        self.require_equal(output, tensors(1))
        for arguments in (("convert", folder, output, "--force"), ("compare", checkpoint, folder),
                          ("average", output, folder, folder, "--force")):
            self.assertIn(f"has no part 'ema'. Leave out --part, or give '{weights}'",
                          self.refuse(USAGE, *arguments, "--part", "ema"))
        self.json("compare", checkpoint, weights, "--part", "ema", exit_code=DIFFERENT)

    def test_needs_files_of_one_model(self):
        output = self.folder / "mean.safetensors"
        good = self.save("good.safetensors", {"x": torch.ones(2)})
        for other, reason in (({"y": torch.ones(2)}, "has no tensor"), ({"x": torch.ones(3)}, "F32 of shape [2]"),
                              ({"x": torch.ones(2), "y": torch.ones(2)}, "has no tensor 'y'"),
                              ({"x": torch.ones(2).double()}, "F64 of shape [2]")):
            self.assertIn(reason, self.refuse(USAGE, "average", output, good, self.save("other.safetensors", other)))
        more = self.save("more.safetensors", {"x": torch.ones(2), "y": torch.ones(2)})
        self.assertIn("only the first has a tensor 'y'", self.refuse(USAGE, "average", output, more, good))
        scaled = self.save("scaled.safetensors", {"x": torch.ones(2).to(torch.float8_e4m3fn)})
        self.assertIn("depend on scales in other tensors", self.refuse(USAGE, "average", output, scaled, scaled))
        self.assertIn("At least 2 required", self.refuse(USAGE, "average", output, good))
        self.assertFalse(output.exists())

    def test_does_not_take_an_input_for_the_output(self):
        inputs = [self.save(f"{number}.safetensors", tensors(number)) for number in (1, 2, 3)]
        before = inputs[0].read_bytes()
        self.assertIn("exists. Give another name, or --force", self.refuse(USAGE, "average", *inputs))
        self.assertEqual(inputs[0].read_bytes(), before)


class Convert(Tool):
    def test_gives_the_bytes_of_pythons_writer(self):
        content = tensors(4)
        expected = self.folder / "expected.safetensors"
        save_file(content, expected, {"format": "pt"})
        output = self.folder / "out.safetensors"
        self.assertEqual(self.json("convert", self.save("in.pth", content), output),
                         {"infinite": {}, "output": str(output), "tensors": 10, "bytes": expected.stat().st_size})
        self.assertEqual(output.read_bytes(), expected.read_bytes())
        checkpoint = write_checkpoint(self.folder / "run", 1, {"model": content})
        self.assertEqual(self.lines("convert", checkpoint, output, "--force"),
                         [f"wrote {output}, tensors 10, bytes {expected.stat().st_size}"])
        self.assertEqual(output.read_bytes(), expected.read_bytes())

    def test_keeps_what_a_file_says_of_itself(self):
        save_file({"x": torch.ones(1)}, self.folder / "in.safetensors", {"format": "pt", "author": "ünïcode"})
        output = self.folder / "out.safetensors"
        self.lines("convert", self.folder / "in.safetensors", output)
        with safe_open(output, "pt") as file:
            self.assertEqual(file.metadata(), {"format": "pt", "author": "ünïcode"})

    def test_renames(self):
        content = {"model": {"module.a": torch.ones(1), "module.b.c": torch.ones(2), "d": torch.ones(3)},
                   "optimizer": {"a": torch.ones(4)}, "epoch": 3}
        output = self.folder / "out.safetensors"
        self.lines("convert", self.save("in.pth", content), output, "--prefix", "model.", "--rename", "module.=",
                   "--rename", "=head.")
        self.require_equal(output, {"a": torch.ones(1), "b.c": torch.ones(2), "head.d": torch.ones(3)})

    def test_rounds_floating_point_tensors(self):
        content = tensors(5)
        source = self.save("in.safetensors", content)
        output = self.folder / "out.safetensors"
        for name in ("float16", "bfloat16", "float32"):
            dtype = getattr(torch, name)
            self.lines("convert", source, output, "--dtype", name, "--force")
            self.require_equal(output, {name: rounded(tensor.double().numpy(), dtype) if tensor.is_floating_point()
                                        else tensor for name, tensor in content.items()})

    def test_reports_values_that_become_infinite(self):
        source = self.save("in.safetensors", {"big": torch.tensor([1.0, 7e4, -1e30]), "inf": torch.tensor([torch.inf])})
        output = self.folder / "out.safetensors"
        self.assertEqual(self.json("convert", source, output, "--dtype", "float16")["infinite"], {"big": 2})
        self.assertEqual(self.lines("convert", source, output, "--dtype", "float16", "--force")[0],
                         "warning: big has 2 values that are infinite as F16")

    def test_refuses_other_pickles_and_other_names(self):
        output = self.folder / "out.safetensors"
        with self.subTest("code"):
            self.assertIn("needs 'torch.nn.modules.linear.Linear', which is code",
                          self.refuse(ENVIRONMENT, "convert", self.save("model.pth", torch.nn.Linear(1, 1)), output))
        source = self.save("in.pth", {"a.x": torch.ones(1), "b.x": torch.ones(1)})
        for message, arguments in (("no tensors whose names begin with 'c.'", ["--prefix", "c."]),
                                   ("are both called 'x'", ["--rename", "a.=", "--rename", "b.="]),
                                   ("must be FROM=TO", ["--rename", "a."]), ("--dtype", ["--dtype", "int8"])):
            self.assertIn(message, self.refuse(USAGE, "convert", source, output, *arguments))
        self.assertIn("ends in .safetensors", self.refuse(USAGE, "convert", source, self.folder / "out.pth"))
        self.assertIn("has no tensors", self.refuse(USAGE, "convert", self.save("none.pth", {"epoch": 1}), output))
        self.assertIn("No such file", self.refuse(ENVIRONMENT, "convert", source, self.folder / "none/x.safetensors"))
        self.assertFalse(output.exists())


class OlderOutput(Tool):
    """A file that was there before stays as it is unless the new one is complete."""

    def setUp(self):
        super().setUp()
        self.source = self.save("in.safetensors", {"x": torch.ones(100000)})
        self.output = self.save("out.safetensors", {"old": torch.ones(1)})
        self.before = self.output.read_bytes()
        self.names = set(self.folder.iterdir())

    def require_unharmed(self):
        self.assertEqual(self.output.read_bytes(), self.before)
        self.assertEqual(set(self.folder.iterdir()), self.names)

    def test_is_not_replaced_without_force(self):
        self.assertIn("--force", self.refuse(USAGE, "convert", self.source, self.output))
        self.assertIn("--force", self.refuse(USAGE, "average", self.output, self.source, self.source))
        self.require_unharmed()

    def test_survives_a_full_disk(self):
        for arguments in (["convert", self.source, self.output], ["average", self.output, self.source, self.source]):
            job = jobs.run(["bash", "-c", 'ulimit -f 100; exec "$@"', "bash", jobs.program("libtrain-checkpoint"),
                            *arguments, "--force"])
            self.assertEqual((job.exit_code, job.stdout, len(job.stderr.splitlines())), (ENVIRONMENT, "", 1), job)
            self.assertIn(f"Cannot write '{self.output}'", job.stderr)
            self.require_unharmed()

    def test_survives_damaged_inputs(self):
        damaged = self.save("damaged.pth", {"x": torch.ones(100000)})
        flip(damaged, damaged.stat().st_size // 2)
        self.names.add(damaged)
        self.assertIn("CRC-32", self.refuse(ENVIRONMENT, "convert", damaged, self.output, "--force"))
        self.assertIn("CRC-32", self.refuse(ENVIRONMENT, "average", self.output, self.source, damaged, "--force"))
        self.require_unharmed()

    def test_is_replaced_with_force_also_if_it_is_the_input(self):
        self.lines("convert", self.source, self.output, "--force")
        self.require_equal(self.output, {"x": torch.ones(100000)})
        self.lines("convert", self.output, self.output, "--force", "--dtype", "float16")
        self.require_equal(self.output, {"x": torch.ones(100000).half()})


class Program(Tool):
    def test_explains_each_command(self):
        for command in ("list", "verify", "compare", "average", "convert", "export-onnx"):
            job = tool(command, "--help")
            self.assertEqual((job.exit_code, job.stderr), (0, ""), job)
            self.assertIn("--json", job.stdout)
            self.assertIn(f"  {command} ", tool("--help").stdout)

    def test_refuses_wrong_commands(self):
        self.assertIn("subcommand is required", self.refuse(USAGE))
        self.refuse(USAGE, "lists", self.folder)
        self.refuse(USAGE, "list", self.folder, "--jsn")

    def test_needs_memory_for_one_tensor(self):
        """So that it is the same for two tensors and for sixteen."""
        def peaks(count):
            content = {f"{number}": torch.ones(2 << 20) for number in range(count)}
            files = [self.save("a.safetensors", content), self.save("b.pth", content)]
            output = self.folder / "out.safetensors"
            return [peak_kib(*arguments) for arguments in (
                ["verify", *files], ["compare", *files], ["average", output, *files, "--force"],
                ["convert", files[1], output, "--dtype", "bfloat16", "--force"])]

        for few, many in zip(peaks(2), peaks(16)):
            self.assertLess(many, 1.5 * few)


if __name__ == "__main__":
    jobs.require_programs("libtrain-checkpoint")
    unittest.main()
