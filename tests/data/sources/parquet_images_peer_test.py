"""Labelled images in Parquet files that pyarrow wrote, in the layout of Hugging Face's data sets, read by libtrain.

Runs itself with the project's Python, which has pyarrow.
"""

import random
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
import jobs

ENVIRONMENT_ERROR = 3
THREADS = 4

jobs.require_packages("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq

IMAGE = pa.struct({"bytes": pa.binary(), "path": pa.string()})


def table_of(images, labels):
    """As Hugging Face's datasets writes it."""
    structs = [{"bytes": image, "path": f"{number}.jpg"} for number, image in enumerate(images)]
    return pa.table({"image": pa.array(structs, IMAGE), "label": pa.array(labels, pa.int64())})


def lines_of(path, images, labels, group_rows):
    """What parquet_images_program writes of a file."""
    return [f"{label} ={image.hex()} 0 {path}, row group {row // group_rows}, row {row % group_rows}"
            for row, (image, label) in enumerate(zip(images, labels))]


class ParquetImagesPeer(unittest.TestCase):
    maxDiff = 4000

    def setUp(self):
        self.folder = jobs.temporary_directory(self)

    def output(self, *words):
        job = jobs.run([jobs.program("parquet_images_program"), *words])
        self.assertEqual((job.exit_code, job.left_over), (0, ()), job)
        return job.stdout.splitlines()

    def refusal(self, *words):
        job = jobs.run([jobs.program("parquet_images_program"), *words])
        self.assertEqual(job.exit_code, ENVIRONMENT_ERROR, job)
        return job.stderr

    def write(self, name, rows, group_rows):
        """A file of random images; returns the lines expected of it."""
        rng = random.Random(name)
        images = [rng.randbytes(rng.choice([0, 1, 100, 3000])) for _ in range(rows)]
        labels = [rng.choice([0, 1, 999, 2**63 - 1]) for _ in range(rows)]
        path = self.folder / name
        pq.write_table(table_of(images, labels), path, row_group_size=group_rows)
        return lines_of(path, images, labels, group_rows)

    def test_images_are_those_of_all_files_in_the_order_of_their_names(self):
        second = self.write("b-00001-of-00002.parquet", 25, 10)
        first = self.write("b-00000-of-00002.parquet", 7, 7)
        third = self.write("c.parquet", 3, 1)
        self.write("bb.parquet", 0, 5)
        (self.folder / "readme.txt").write_text("no Parquet")
        lines = ["blocks 7 10 10 5 1 1 1", *first, *second, *third]
        self.assertEqual(self.output("read", self.folder, "", "image.bytes", "label"), lines)
        self.assertEqual(self.output("open", self.folder), lines)

    def test_a_prefix_chooses_a_split(self):
        self.write("test-00000-of-00001.parquet", 3, 3)
        expected = self.write("train-00000-of-00001.parquet", 4, 4)
        self.assertEqual(self.output("read", self.folder, "train-", "image.bytes", "label"), ["blocks 4", *expected])
        self.assertIn("'train_'", self.refusal("read", self.folder, "train_", "image.bytes", "label"))

    def test_columns_have_any_name_and_any_integer_type(self):
        images = [b"a", b"\0\xff", b"c" * 5000]
        labels = [0, 200, 7]
        path = self.folder / "a.parquet"
        for binary in [pa.binary(), pa.large_binary()]:
            for integer in [pa.uint8(), pa.int16(), pa.uint64()]:
                pq.write_table(pa.table({"class": pa.array(labels, integer), "other": ["x"] * 3,
                                         "jpeg": pa.array(images, binary)}), path, row_group_size=2)
                self.assertEqual(self.output("read", self.folder, "", "jpeg", "class"),
                                 ["blocks 2 1", *lines_of(path, images, labels, 2)])

    def test_a_row_that_is_no_labelled_image_is_refused_alone(self):
        path = self.folder / "a.parquet"
        pq.write_table(table_of([b"a", None, b"c", b"d", b"e"], [0, 1, None, -1, 4]), path, row_group_size=3)
        _, *lines = self.output("read", self.folder, "", "image.bytes", "label")
        self.assertEqual([line.split()[0] for line in lines], ["0", "refused", "refused", "refused", "4"])
        for line, parts in [(lines[1], ["row group 0", "'image.bytes'", "row 1 of the group", "null"]),
                            (lines[2], ["row group 0", "'label'", "row 2 of the group", "null"]),
                            (lines[3], ["row group 1", "'label'", "row 0 of the group", "0 or more", "found -1"])]:
            for part in [str(path), *parts]:
                self.assertIn(part, line)

    def test_columns_are_checked_before_anything_is_read(self):
        path = self.folder / "b.parquet"
        self.write("a.parquet", 3, 3)
        pq.write_table(pa.table({"image": pa.array([{"bytes": b"a", "path": ""}], IMAGE), "label": ["cat"],
                                 "labels": [[1]], "number": [1]}), path)
        for image, label, parts in [("image.bytes", "label", ["'label'", "integers", "string"]),
                                    ("image.bytes", "labels", ["a.parquet", "'labels'"]),
                                    ("image", "label", ["'image'", "image.bytes, image.path, label"])]:
            message = self.refusal("read", self.folder, "", image, label)
            for part in [str(self.folder), *parts]:
                self.assertIn(part, message)
        for image, label, parts in [("image.bytes", "labels", ["'labels'", "integers", "list"]),
                                    ("number", "number", ["'number'", "bytes", "int64"])]:
            message = self.refusal("read", self.folder, "b", image, label)
            for part in [str(path), *parts]:
                self.assertIn(part, message)

    def test_files_without_rows_are_refused(self):
        self.write("a.parquet", 0, 5)
        self.write("b.parquet", 0, 5)
        for part in [f"'{self.folder}/a.parquet'", "found none"]:
            self.assertIn(part, self.refusal("read", self.folder, "", "image.bytes", "label"))

    def test_a_damaged_row_group_is_refused_alone(self):
        path = self.folder / "a.parquet"
        images = [b"%08d" % number for number in range(20)]
        pq.write_table(table_of(images, range(20)), path, row_group_size=10, use_dictionary=False, compression="none",
                       write_page_checksum=True, write_statistics=False)
        path.write_bytes(path.read_bytes().replace(b"00000005", b"00000004"))
        blocks, *lines = self.output("read", self.folder, "", "image.bytes", "label")
        self.assertEqual(blocks, "blocks 10 10")
        for line in lines[:10]:
            self.assertTrue(line.startswith("refused ") and str(path) in line and "row group 0" in line, line)
        self.assertEqual(lines[10:], lines_of(path, images, range(20), 10)[10:])

    def test_threads_read_the_same_with_any_number_of_row_groups_in_memory(self):
        expected = self.write("a.parquet", 50, 4) + self.write("b.parquet", 30, 30)
        for row_groups in [1, 2, 100]:
            self.assertEqual(self.output("threads", self.folder, row_groups), expected * THREADS)

    def test_a_row_group_is_read_once_while_it_is_in_memory(self):
        rng = random.Random(3)
        images = [rng.randbytes(1000) for _ in range(20)]
        path = self.folder / "a.parquet"
        pq.write_table(table_of(images, range(20)), path, row_group_size=10, use_dictionary=False, compression="none",
                       write_statistics=False)
        for row_groups, reads in [(2, [True, False, False, True, False]), (1, [True, False, False, True, True])]:
            read = [int(line) for line in self.output("bytes", self.folder, row_groups, 0, 1, 9, 10, 0)]
            steps = [after - before for before, after in zip([0, *read], read)]
            self.assertEqual([step > 0 for step in steps], reads, steps)
            # Of a group the images with their lengths, the labels, and what Parquet has around them.
            self.assertTrue(all(10_120 <= step <= 11_000 for step in steps if step > 0), steps)

    def test_shards_of_another_kind_beside_them_are_refused(self):
        self.write("a.parquet", 3, 3)
        (self.folder / "a.tar").write_bytes(b"")
        for part in [f"'{self.folder}'", "Parquet files (1)", "tar archives (1)"]:
            self.assertIn(part, self.refusal("open", self.folder))


if __name__ == "__main__":
    jobs.require_programs("parquet_images_program")
    unittest.main()
