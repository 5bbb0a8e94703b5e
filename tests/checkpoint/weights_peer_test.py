"""Weights that Python wrote, read by libtrain, and the reverse: safetensors and torch.save, good and bad files."""

import json
import os
import random
import struct
import sys
import unittest
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import jobs

# The types that both libraries have.
DTYPES = {"BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "U16": "uint16", "F16": "float16",
          "BF16": "bfloat16", "I32": "int32", "U32": "uint32", "F32": "float32", "F64": "float64", "I64": "int64",
          "U64": "uint64", "C64": "complex64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
          "F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz"}


def crc_table():
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        yield byte


TABLE = tuple(crc_table())


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def random_tensors():
    """Every dtype, as scalar, empty, matrix, and under names of all kinds."""
    import torch
    generator = torch.Generator().manual_seed(3)
    tensors = {}
    for code, name in DTYPES.items():
        dtype = getattr(torch, name)
        for number, shape in enumerate(((), (0, 7), (3, 5), (1, 2, 1, 3))):
            size = torch.empty(shape, dtype=dtype).nbytes
            raw = torch.randint(0, 2 if code == "BOOL" else 256, (size,), dtype=torch.uint8, generator=generator)
            tensors[f"{name}.{number}"] = raw.view(dtype).reshape(shape)
    for name in ("", "ünïcode.名前.😀", "a\"b\\c\n", "with space", "x" * 4096):
        tensors[name] = torch.arange(4.0)
    return tensors


def describe(tensors):
    """What `weights_program show` prints."""
    import torch
    codes = {getattr(torch, name): code for code, name in DTYPES.items()}
    codes[torch.complex128] = "C128"
    return {name: {"name": name, "dtype": codes[tensor.dtype], "shape": list(tensor.shape),
                   "crc32c": crc32c(bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy()))}
            for name, tensor in tensors.items()}


def flat(value, prefix=""):
    """The names that libtrain gives to tensors in dicts, lists and tuples."""
    import torch
    if isinstance(value, torch.Tensor):
        yield prefix[:-1], value
    elif isinstance(value, (dict, list, tuple)):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from flat(inner, f"{prefix}{key}.")


def write_samples(folder):
    """Files of both kinds, and their descriptions beside them."""
    import safetensors.torch
    import torch
    tensors = random_tensors()
    safetensors.torch.save_file(tensors, folder / "all.safetensors")
    torch.save(tensors, folder / "all.pth")
    base = torch.arange(24.0)
    views = {"whole": base, "part": base[3:9], "transposed": base.view(4, 6).t(), "expanded": base[5].expand(3, 2),
             "every_third": base[::3], "complex128": torch.ones(2, dtype=torch.complex128)}
    torch.save(views, folder / "views.pth")
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(4, 2)).sum().backward()
    optimizer.step()
    nested = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "best": 0.5, "none": None,
              "shape": torch.Size([1, 2]), "dtype": torch.float16, "big": 1 << 70, "list": [torch.ones(1), (2, "x")],
              "parameter": torch.nn.Parameter(torch.ones(2)), "": {"": torch.zeros(1)}}
    torch.save(nested, folder / "nested.pth")
    torch.save(nested, folder / "protocol4.pth", pickle_protocol=4)
    torch.serialization.set_crc32_options(False)
    torch.save(nested, folder / "without_checksums.pth")
    torch.serialization.set_crc32_options(True)
    for name, content in {"all.safetensors": tensors, "all.pth": tensors, "views.pth": views, "nested.pth": nested,
                          "protocol4.pth": nested, "without_checksums.pth": nested}.items():
        (folder / f"{name}.json").write_text(json.dumps(describe(dict(flat(content)))))


def write_models(folder):
    """State dicts of torchvision, as they are published."""
    import torch
    import torchvision
    torch.manual_seed(1)
    for name, model in (("resnet50", torchvision.models.resnet50(weights=None)),
                        ("maskrcnn", torchvision.models.detection.maskrcnn_resnet50_fpn(
                            weights=None, weights_backbone=None))):
        torch.save(model.state_dict(), folder / f"{name}.pth")


def compare(first, second):
    """Whether two files of either kind have equal tensors under equal names."""
    import safetensors.torch
    import torch
    contents = [safetensors.torch.load_file(path) if path.endswith(".safetensors") else dict(flat(torch.load(path)))
                for path in (first, second)]
    if list(map(set, contents))[0] != set(contents[1]):
        sys.exit(f"names differ: {set(contents[0]) ^ set(contents[1])}")
    for name, tensor in contents[0].items():
        other = contents[1][name]
        as_bytes = [each.contiguous().reshape(-1).view(torch.uint8) for each in (tensor, other)]
        if tensor.dtype != other.dtype or tensor.shape != other.shape or not torch.equal(*as_bytes):
            sys.exit(f"{name} differs")
    print(len(contents[0]))


def verdicts(listed):
    """Whether Python's safetensors reads each of the files, one a line."""
    import safetensors
    for path in Path(listed).read_text().splitlines():
        try:
            with safetensors.safe_open(path, "numpy") as file:
                file.keys()
            print("read")
        except Exception:  # SafetensorError, and what it wraps
            print("refused")


def write_other_pickles(folder):
    """Files of torch.save whose pickles name other globals, each with the name that the error must have."""
    import argparse
    import collections

    import numpy
    import torch
    values = {"posix.system": None,
              "torch.nn.modules.linear.Linear": torch.nn.Linear(1, 1),
              "argparse.Namespace": {"model": {"w": torch.ones(1)}, "args": argparse.Namespace(lr=1)},
              "collections.defaultdict": collections.defaultdict(list),
              "torch.device": {"device": torch.device("cpu")},
              "torch._utils._rebuild_sparse_tensor": torch.eye(2).to_sparse(),
              "torch._utils._rebuild_qtensor": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
              "_codecs.encode": {"bytes": b"abc"},
              "numpy._core.multiarray.scalar": {"loss": numpy.float64(1)}}

    class Attack:
        def __reduce__(self):
            return os.system, (f"touch {folder}/executed",)

    values["posix.system"] = {"w": torch.ones(1), "x": Attack()}
    for number, (name, value) in enumerate(values.items()):
        torch.save(value, folder / f"{number}.pth")
        (folder / f"{number}.name").write_text(name)


# What needs torch runs in the environment's Python: this file with a command, and a folder.
COMMANDS = {"samples": write_samples, "models": write_models, "pickles": write_other_pickles}


def safetensors_bytes(header, data=b""):
    text = header if isinstance(header, bytes) else (header if isinstance(header, str) else json.dumps(header)).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype="U8", shape=(2,), offsets=(0, 2), **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets), **more}


def bad_safetensors():
    """Files with one fault each, most of which the format's reader names."""
    good = {"a": entry(), "b": entry(offsets=(2, 4))}
    whole = safetensors_bytes(good, b"wxyz")
    yield from (whole[:cut] for cut in range(len(whole)))
    yield from (whole + extra for extra in (b"\0", b"PK\3\4", whole))
    for length in (0, 1, 7, 100_000_000, 100_000_001, 1 << 32, 1 << 63, (1 << 64) - 1, (1 << 64) - 8):
        yield struct.pack("<Q", length) + whole[8:]
    for offsets in ((0, 2), (1, 3), (2, 3), (3, 5), (4, 2), (2, 5), (2, 1 << 40), (1 << 63, 1 << 63),
                    (1 << 64, 1 << 64), (-2, 0), (2,), (2, 4, 6), (2.0, 4.0), ("2", "4"), (None, 4), ()):
        yield safetensors_bytes({"a": entry(), "b": entry(offsets=offsets)}, b"wxyz")
    for shape in ((3,), (1,), (-2,), (2, 2), (1 << 62, 8), (1 << 32, 1 << 32), (1 << 63, 2), (1 << 64,), (2.0,), ("2",),
                  (None,), ([2],), (True, 2)):
        yield safetensors_bytes({"a": entry(shape=shape)}, b"xy")
    for dtype in ("u8", "U7", "", "F31", "C128", None, 8, ["U8"], {"U8": 1}, "F4", "F6_E2M3", "F32", "I16 "):
        yield safetensors_bytes({"a": entry(dtype=dtype)}, b"xy")
    yield safetensors_bytes({"a": entry(dtype="F4", shape=(3,))}, b"xy")
    for field in ("dtype", "shape", "data_offsets"):
        yield safetensors_bytes({"a": {key: value for key, value in entry().items() if key != field}}, b"xy")
    for value in (1, None, "x", [], True, 1.5, {}):
        yield safetensors_bytes({"a": value})
        yield safetensors_bytes({"__metadata__": value, **{"a": entry()}}, b"xy")
        yield safetensors_bytes({"__metadata__": {"k": value}, **{"a": entry()}}, b"xy")
        yield safetensors_bytes(json.dumps(value))
    text = json.dumps({"a": entry()})
    for header in (text[:-1], text + "x", text + "\0", text + "}", "\ufeff" + text, "", "{", "[]", "{" + text,
                   text.replace('"a"', '"a'), text.replace(":", "=", 1), text.replace('"', "'"),
                   text.replace('"a"', "a"), text[:-1] + ",}",
                   text.replace("[2]", "[02]"), text.replace("[2]", "[+2]"), text.replace("[2]", "[2,]"),
                   text.replace("[2]", "[2e0]"), text.replace("[2]", "[0x2]"), text.replace("[2]", "[NaN]"),
                   text.replace('"a"', '"\\ud800"'), text.replace('"a"', '"\\u12"'), text.replace('"a"', '"\\x"'),
                   text.replace('"a"', '"\n"'), "/**/" + text, "[" * 200 + text):
        yield safetensors_bytes(header, b"xy")
    for broken in (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82"):
        yield safetensors_bytes(text.encode().replace(b"a\"", broken + b"\"", 1), b"xy")
    yield safetensors_bytes('{"a":' + json.dumps(entry())[:-1] + ',"shape":[2]}}', b"xy")


def mutated(source, whole):
    """A copy with a few bytes of the header or of its length changed, removed, added or repeated."""
    data = bytearray(whole)
    for _ in range(source.randrange(1, 4)):
        at = source.randrange(min(len(data), 8 + struct.unpack_from("<Q", whole)[0]))
        action = source.randrange(5)
        if action == 0:
            data[at] ^= 1 << source.randrange(8)
        elif action == 1:
            del data[at:at + source.randrange(1, 8)]
        elif action == 2:
            data[at:at] = source.choice((b"0", b"1", b"[", b"]", b"{", b"}", b",", b'"', b"\\", b"-", b" ", b"\xff",
                                         b"\0"))
        elif action == 3:
            data[at:at] = data[at:at + source.randrange(1, 60)]
        else:
            data[at:at + 1] = source.choice((b"0", b"9", b"-", b".", b"e", b'"', b":", b","))
        if len(data) < 9:
            break
    return bytes(data)


def python(*words):
    """What this file prints with a command, in the environment's Python."""
    job = jobs.run([jobs.PYTHON, __file__, *words], time_limit=240)
    if job.exit_code != 0:
        raise AssertionError(job)
    return job.stdout


class Weights(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = jobs.temporary_directory(cls)

    def run_program(self, *words):
        job = jobs.run([jobs.program("weights_program"), *words], time_limit=240)
        self.assertEqual(job.exit_code, 0, job)
        return job.stdout

    def refusal(self, path):
        job = jobs.run([jobs.program("weights_program"), "show", path])
        self.assertEqual(job.exit_code, 3, job)
        return job.stderr

    def show(self, path):
        return {line["name"]: line for line in map(json.loads, self.run_program("show", path).splitlines())}

    def results_for(self, files):
        """Of files given as bytes: what libtrain says, and what Python's safetensors says."""
        paths = []
        for number, data in enumerate(files):
            paths.append(self.folder / f"{number}.safetensors")
            paths[-1].write_bytes(data)
        listed = self.folder / "list"
        listed.write_text("".join(f"{path}\n" for path in paths))
        ours = self.run_program("check", listed).splitlines()
        theirs = python("verdicts", listed).splitlines()
        self.assertEqual((len(ours), len(theirs)), (len(paths), len(paths)))
        return paths, ours, theirs


class FilesOfPython(Weights):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        python("samples", cls.folder)

    def test_are_read_with_every_dtype_shape_and_name(self):
        descriptions = list(self.folder.glob("*.json"))
        self.assertEqual(len(descriptions), 6)
        for description in descriptions:
            expected = json.loads(description.read_text())
            self.assertGreaterEqual(len(expected), 6)
            self.assertEqual(self.show(description.with_suffix("")), expected, description.name)

    def test_are_the_same_when_libtrain_has_copied_them(self):
        for name in ("all.safetensors", "all.pth"):
            copied = self.folder / "copied.safetensors"
            self.run_program("copy", self.folder / name, copied)
            self.assertEqual(int(python("compare", self.folder / name, copied)), 4 * len(DTYPES) + 5)
        self.assertEqual(copied.read_bytes(), (self.folder / "all.safetensors").read_bytes())

    def test_of_torchvision_are_loaded_into_models(self):
        python("models", self.folder)
        for name, tensors in (("resnet50", 320), ("maskrcnn", 360)):
            copied = self.folder / f"{name}.safetensors"
            self.run_program("copy", self.folder / f"{name}.pth", copied)
            self.assertEqual(int(python("compare", self.folder / f"{name}.pth", copied)), tensors)
        loaded = self.folder / "loaded.safetensors"
        self.run_program("resnet50", self.folder / "resnet50.pth", loaded)
        self.assertEqual(int(python("compare", self.folder / "resnet50.pth", loaded)), 320)

    def test_that_name_other_globals_are_refused_and_run_nothing(self):
        python("pickles", self.folder)
        names = list(self.folder.glob("*.name"))
        self.assertEqual(len(names), 9)
        for name in names:
            self.assertIn(f"needs '{name.read_text()}', which is code", self.refusal(name.with_suffix(".pth")))
        self.assertFalse((self.folder / "executed").exists())

    def test_that_were_deflated_again_or_cut_are_refused(self):
        whole = self.folder / "nested.pth"
        deflated = self.folder / "deflated.pth"
        with zipfile.ZipFile(whole) as source, zipfile.ZipFile(deflated, "w", zipfile.ZIP_DEFLATED) as target:
            for member in source.infolist():
                target.writestr(member.filename, source.read(member))
        self.assertIn("is compressed or encrypted", self.refusal(deflated))
        data = whole.read_bytes()
        cut = self.folder / "cut.pth"
        for part in range(1, 20):
            cut.write_bytes(data[:len(data) * part // 20])
            self.assertIn("the end of the zip archive is missing", self.refusal(cut))


class DamagedSafetensors(Weights):
    def expect_no_more_tolerance(self, files):
        """libtrain refuses what Python refuses; returns the files that it alone refuses, with its errors."""
        paths, ours, theirs = self.results_for(files)
        self.assertIn("refused", theirs)
        for path, our, their in zip(paths, ours, theirs):
            self.assertFalse(our == "read" and their == "refused", path.read_bytes())
        return [(path.read_bytes(), our) for path, our, their in zip(paths, ours, theirs)
                if our != "read" and their == "read"]

    def test_are_refused_like_pythons_reader_does(self):
        files = list(bad_safetensors())
        stricter = self.expect_no_more_tolerance(files)
        # Beyond Python's reader: sub-byte types that LibTorch lacks, null metadata, structures as arrays.
        self.assertLess(len(stricter), 12, stricter)

    def test_are_refused_like_pythons_reader_does_when_mutated(self):
        seed = int(os.environ.get("LIBTRAIN_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
        print(f"LIBTRAIN_TEST_SEED={seed}")
        source = random.Random(seed)
        header = {"__metadata__": {"format": "pt"}, "weight": entry("F32", (2, 3), (0, 24)),
                  "empty": entry("I64", (0,), (24, 24)), "bias": entry("BF16", (2,), (24, 28))}
        whole = safetensors_bytes(header, bytes(28))
        self.expect_no_more_tolerance([whole, *(mutated(source, whole) for _ in range(3000))])


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in COMMANDS:
        COMMANDS[sys.argv[1]](Path(sys.argv[2]))
    elif len(sys.argv) > 1 and sys.argv[1] == "compare":
        compare(*sys.argv[2:])
    elif len(sys.argv) > 1 and sys.argv[1] == "verdicts":
        verdicts(sys.argv[2])
    else:
        unittest.main()
