"""Parquet files against pyarrow, and the order of image folders against torchvision, on random files.

Runs itself with the project's Python, which has both.
"""

import math
import os
import random
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
import jobs

LIMIT = 1 << 30
ENVIRONMENT_ERROR = 3
BYTES, INTEGER, REAL, OTHER = range(4)
WORDS = ["", "a", "label", "ünï/中文 🙂", "line\nbreak", "x" * 300]

jobs.require_packages("pyarrow", "torchvision")

import pyarrow as pa
import pyarrow.parquet as pq

INTEGERS = {"int8": (pa.int8(), -2**7, 2**7 - 1), "uint8": (pa.uint8(), 0, 2**8 - 1),
            "int16": (pa.int16(), -2**15, 2**15 - 1), "uint16": (pa.uint16(), 0, 2**16 - 1),
            "int32": (pa.int32(), -2**31, 2**31 - 1), "uint32": (pa.uint32(), 0, 2**32 - 1),
            "int64": (pa.int64(), -2**63, 2**63 - 1), "uint64": (pa.uint64(), 0, 2**63 - 1)}
TEXTS = {"string": pa.string(), "large_string": pa.large_string()}
BINARIES = {"binary": pa.binary(), "large_binary": pa.large_binary()}
REALS = {"float": pa.float32(), "double": pa.float64()}


def written(value):
    """As parquet_program writes a value."""
    if value is None:
        return "null"
    if isinstance(value, list):
        return "[" + "".join(written(item) + "," for item in value) + "]"
    if isinstance(value, str):
        return "=" + value.encode("utf-8").hex()
    if isinstance(value, bytes):
        return "=" + value.hex()
    if isinstance(value, float):
        return "%.17g" % value
    return str(int(value))


def column(rng, rows, draw, nulls=True):
    share = rng.choice([0, 0.3, 1]) if nulls else 0
    return [None if rng.random() < share else draw() for _ in range(rows)]


def flat_table(rng, rows):
    columns = {}
    for name, (kind, low, high) in INTEGERS.items():
        columns[name] = pa.array(column(rng, rows, lambda: rng.choice([low, high, 0, rng.randint(low, high)])), kind)
    columns["bool"] = pa.array(column(rng, rows, lambda: rng.random() < 0.5), pa.bool_())
    for name, kind in REALS.items():
        reals = [0.0, -0.0, math.inf, -math.inf, 0.1, rng.gauss(0, 1e6), rng.gauss(0, 1e-6)]
        columns[name] = pa.array(column(rng, rows, lambda: rng.choice(reals)), kind)
    for name, kind in TEXTS.items():
        columns[name] = pa.array(column(rng, rows, lambda: rng.choice(WORDS)), kind)
    for name, kind in BINARIES.items():
        columns[name] = pa.array(column(rng, rows, lambda: rng.randbytes(rng.choice([0, 1, 7, 500]))), kind)
    columns["fixed"] = pa.array(column(rng, rows, lambda: rng.randbytes(16)), pa.binary(16))
    columns["words"] = pa.array(column(rng, rows, lambda: rng.choice(WORDS)), pa.string()).dictionary_encode()
    return pa.table(columns)


class ParquetPeer(unittest.TestCase):
    maxDiff = 4000

    def setUp(self):
        self.folder = jobs.temporary_directory(self)

    def output(self, *words):
        job = jobs.run([jobs.program("parquet_program"), *words])
        self.assertEqual((job.exit_code, job.left_over), (0, ()), job)
        return job.stdout.splitlines()

    def refusal(self, *words):
        job = jobs.run([jobs.program("parquet_program"), *words])
        self.assertEqual(job.exit_code, ENVIRONMENT_ERROR, job)
        return job.stderr

    def check(self, path, expected, group_rows):
        """That the columns in the table `expected` are read back from `path`."""
        columns = [expected.column(name).to_pylist() for name in expected.column_names]
        lines = [" ".join([str(row // group_rows), *(written(values[row]) for values in columns)])
                 for row in range(expected.num_rows)]
        self.assertEqual(self.output("read", path, LIMIT, *expected.column_names), lines, path)

    def test_values_of_all_types_are_those_that_were_written(self):
        seed = 0
        for compression in ["none", "snappy", "zstd", "gzip", "lz4", "brotli"]:
            for dictionary in [True, False]:
                rng = random.Random(seed)
                seed += 1
                table = flat_table(rng, rng.randint(1, 300))
                group_rows = rng.randint(1, 120)
                path = self.folder / f"{seed}.parquet"
                pq.write_table(table, path, row_group_size=group_rows, compression=compression,
                               use_dictionary=dictionary, data_page_version=rng.choice(["1.0", "2.0"]),
                               data_page_size=rng.choice([100, 1 << 20]), store_schema=rng.random() < 0.5,
                               write_page_checksum=rng.random() < 0.5)
                names = table.column_names
                rng.shuffle(names)
                self.check(path, table.select(names), group_rows)

    def test_columns_and_rows_are_known_before_they_are_read(self):
        path = self.folder / "columns.parquet"
        table = pa.table({"text": ["a", "b", "c"], "number": pa.array([1, 2, 3], pa.uint16()), "real": [0.5, 1, 2],
                          "boxes": [[1.0], [], [2.0]], "image": [{"bytes": b"1", "path": "a.jpg"}] * 3,
                          "date": pa.array([0, 1, 2], pa.date32()), "deep": [[[1]], [], [[2]]],
                          "objects": [[{"a": 1}], [], []]})
        pq.write_table(table, path, row_group_size=2)
        self.assertEqual(self.output("columns", path),
                         [f"text {BYTES} 0", f"number {INTEGER} 0", f"real {REAL} 0", f"boxes {REAL} 1",
                          f"image.bytes {BYTES} 0", f"image.path {BYTES} 0", f"date {OTHER} 0",
                          f"deep {OTHER} 0", f"objects {OTHER} 0", "rows 3 2 1"])

    def test_images_are_read_as_hugging_face_writes_them(self):
        rng = random.Random(7)
        images = [None if rng.random() < 0.2 else
                  {"bytes": rng.choice([None, rng.randbytes(1000)]), "path": rng.choice([None, "a.jpg"])}
                  for _ in range(50)]
        labels = [rng.randrange(1000) for _ in images]
        kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
        path = self.folder / "images.parquet"
        pq.write_table(pa.table({"image": pa.array(images, kind), "label": labels}), path, row_group_size=20)
        expected = pa.table({"label": labels,
                             "image.bytes": pa.array([image and image["bytes"] for image in images], pa.binary()),
                             "image.path": pa.array([image and image["path"] for image in images], pa.string())})
        self.check(path, expected, 20)

    def test_lists_are_those_that_were_written(self):
        rng = random.Random(8)

        def lists(draw):
            return column(rng, 90, lambda: [draw() for _ in range(rng.choice([0, 1, 2, 9]))])

        table = pa.table({"numbers": pa.array(lists(lambda: rng.randint(-9, 9)), pa.list_(pa.int16())),
                          "boxes": pa.array(lists(lambda: rng.gauss(0, 1)), pa.large_list(pa.float64())),
                          "words": pa.array(lists(lambda: rng.choice(WORDS)), pa.list_(pa.string())),
                          "points": pa.array([[float(i), 0.5] for i in range(90)], pa.list_(pa.float32(), 2))})
        path = self.folder / "lists.parquet"
        pq.write_table(table, path, row_group_size=40)
        self.check(path, table, 40)

    def test_what_cannot_be_read_is_refused_with_its_place(self):
        path = self.folder / "refused.parquet"
        table = pa.table({"big": pa.array([1, 2, 2**63], pa.uint64()), "holes": [[1], [2, None], []],
                          "date": pa.array([0, 1, 2], pa.date32()), "text": ["a" * 1000, "b", "c"]})
        pq.write_table(table, path, row_group_size=3, use_dictionary=False)
        for name, *expected in [("big", "row group 0", "row 2 of the group"),
                                ("holes", "row group 0", "row 1 of the group"), ("date", "row group 0", "date32"),
                                ("missing", "found the columns big, holes, date, text")]:
            message = self.refusal("read", path, LIMIT, name)
            for part in [str(path), f"'{name}'", *expected]:
                self.assertIn(part, message)
        self.assertIn("at most 500 bytes", self.refusal("read", path, 500, "text"))
        self.assertIn("empty.parquet", self.refusal("columns", self.written_bytes("empty.parquet", b"")))
        self.assertIn("text.parquet", self.refusal("columns", self.written_bytes("text.parquet", b"no Parquet " * 9)))

    def written_bytes(self, name, content):
        path = self.folder / name
        path.write_bytes(content)
        return path

    def test_damaged_files_are_read_or_refused(self):
        rng = random.Random(9)
        table = flat_table(rng, 40).append_column("lists", pa.array([[1, 2]] * 40))
        paths = []
        for compression in ["none", "snappy"]:
            whole = self.folder / f"{compression}.parquet"
            pq.write_table(table, whole, row_group_size=15, compression=compression, write_page_checksum=False)
            for number in range(100):
                content = bytearray(whole.read_bytes())
                for _ in range(rng.randint(1, 4)):
                    # Half of all damage to the description at the end, which says where everything is.
                    begin = rng.choice([0, len(content) // 2])
                    content[rng.randrange(begin, len(content))] = rng.randrange(256)
                if rng.random() < 0.2:
                    del content[rng.randrange(len(content)):]
                paths.append(self.written_bytes(f"{compression}_{number}.parquet", content))
        lines = self.output("survive", *paths)
        self.assertEqual(len(lines), len(paths))
        for path, line in zip(paths, lines):
            self.assertTrue(line == "read" or line.startswith("refused ") and str(path) in line, line)
        self.assertGreater(sum(line != "read" for line in lines), 20)

    def test_flipped_bits_do_not_pass_a_checksum(self):
        path = self.folder / "checked.parquet"
        values = [b"%08d" % number for number in range(1000)]
        pq.write_table(pa.table({"values": values}), path, use_dictionary=False, compression="none",
                       write_page_checksum=True)
        content = path.read_bytes().replace(b"00000500", b"00000501")
        message = self.refusal("read", self.written_bytes("flipped.parquet", content), LIMIT, "values")
        self.assertIn("column 'values'", message)

    def test_image_folder_order_is_torchvisions(self):
        from torchvision.datasets import ImageFolder

        names = ["a", "a-b", "a b", "A", "Z9", "é", "中", "🙂", "a.b", "n01440764", "10", "9", "_"]
        for seed in range(6):
            rng = random.Random(seed)
            root = self.folder / f"images_{seed}"
            for class_name in rng.sample(names, rng.randint(1, len(names))):
                for _ in range(rng.randint(1, 12)):
                    folder = root / class_name / Path(*rng.choices(names, k=rng.choice([0, 0, 1, 2])))
                    folder.mkdir(parents=True, exist_ok=True)
                    (folder / (rng.choice(names) + rng.choice([".jpg", ".JPEG", ".png", ".txt"]))).touch()
                (root / class_name / "1.Jpg").touch()
            (root / "loose.jpg").touch()
            expected = ImageFolder(str(root))
            lines = [f"class {written(name)}" for name in expected.classes]
            lines += [f"image {label} {written(os.path.relpath(path, root))}" for path, label in expected.samples]
            self.assertEqual(self.output("folder", root), lines, root)


if __name__ == "__main__":
    jobs.require_programs("parquet_program")
    unittest.main()
