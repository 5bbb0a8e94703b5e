"""Shards that Python wrote, read by libtrain, and the reverse: TFRecord, tf.train.Example, tar, WebDataset.

TFRecord files and examples are written and read here by code of this file alone, tar archives by the tarfile module.
"""

import gzip
import io
import random
import re
import struct
import sys
import tarfile
import unittest
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
import jobs


def crc_table():
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        yield byte


TABLE = tuple(crc_table())


def masked_crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def framed(data):
    length = struct.pack("<Q", len(data))
    return (length + struct.pack("<I", masked_crc32c(length)) + data + struct.pack("<I", masked_crc32c(data)))


def records_in(file):
    offset = 0
    while offset < len(file):
        length, crc = struct.unpack_from("<QI", file, offset)
        assert crc == masked_crc32c(file[offset:offset + 8])
        data = file[offset + 12:offset + 12 + length]
        assert struct.unpack_from("<I", file, offset + 12 + length) == (masked_crc32c(data),)
        yield data
        offset += 16 + length


def varint(number):
    number &= (1 << 64) - 1
    groups = bytearray()
    while number >= 0x80:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(groups) + bytes([number])


def delimited(field, content):
    return varint(field << 3 | 2) + varint(len(content)) + content


def list_message(kind, values, packed):
    """The BytesList, FloatList or Int64List, and the number of its field in Feature."""
    if kind == "bytes":
        return 1, b"".join(delimited(1, value) for value in values)
    encode, wire = ((lambda value: struct.pack("<I", value)), 5) if kind == "float" else (varint, 0)
    if packed:
        return (2 if kind == "float" else 3), delimited(1, b"".join(map(encode, values)))
    return (2 if kind == "float" else 3), b"".join(varint(1 << 3 | wire) + encode(value) for value in values)


def example_message(features, packed, noise=b""):
    """`features`: name to (kind, values), floats as their bits. `noise`: unknown fields, put in everywhere."""
    entries = b""
    for name, (kind, values) in features.items():
        number, content = list_message(kind, values, packed)
        feature = noise + delimited(number, noise + content)
        entries += delimited(1, delimited(1, name) + noise + delimited(2, feature))
    return noise + delimited(1, entries + noise)


def read_varint(data, at):
    number = shift = 0
    while True:
        number |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return number, at


def fields_of(data):
    """(number, value) pairs of a message whose fields are all delimited by their lengths."""
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        assert tag & 7 == 2, tag
        length, at = read_varint(data, at)
        yield tag >> 3, data[at:at + length]
        at += length


def packed_varints(data):
    at = 0
    while at < len(data):
        number, at = read_varint(data, at)
        yield number - (1 << 64) if number >> 63 else number


def parse_example(data):
    """The reverse of example_message(), for packed integers, features without a list, and nothing unknown."""
    features = {}
    ((number, entries),) = fields_of(data)
    assert number == 1
    for _, entry in fields_of(entries):
        fields = dict(fields_of(entry))
        features[fields[1]] = ("none", [])
        for kind, content in fields_of(fields[2]):
            values = [value for _, value in fields_of(content)]
            if kind == 3:
                values = [number for value in values for number in packed_varints(value)]
            features[fields[1]] = ({1: "bytes", 3: "int64"}[kind], values)
    return features


def without_floats(features):
    """What libtrain keeps of an example: it skips lists of floats."""
    return {name: ("none", []) if kind == "float" else (kind, values) for name, (kind, values) in features.items()}


def random_features(source):
    features = {b"image/encoded": ("bytes", [source.randbytes(source.choice([0, 1, 300, 5000]))])}
    for i in range(source.randrange(6)):
        kind = source.choice(["bytes", "float", "int64"])
        count = source.randrange(1, 20)
        make = {"bytes": lambda: source.randbytes(source.randrange(50)), "float": lambda: source.getrandbits(32),
                "int64": lambda: source.getrandbits(64) - (1 << 63) >> source.randrange(64)}[kind]
        features[f"feature/{i}/ä".encode()] = (kind, [make() for _ in range(count)])
    return features


def plain(word):
    """The bytes that the program printed."""
    assert word.startswith("="), word
    return bytes.fromhex(word[1:])


class Shards(unittest.TestCase):
    def setUp(self):
        self.folder = jobs.temporary_directory(self)

    def run_program(self, *words):
        job = jobs.run([jobs.program("shards_program"), *words])
        self.assertEqual(job.exit_code, 0, job)
        return [line.split(" ") for line in job.stdout.splitlines()]

    def refusal(self, *words):
        job = jobs.run([jobs.program("shards_program"), *words])
        self.assertEqual(job.exit_code, 3, job)
        return job.stderr


class TfRecords(Shards):
    def setUp(self):
        super().setUp()
        source = random.Random(7)
        examples = [random_features(source) for _ in range(60)]
        noise = delimited(100, b"unknown") + varint(101 << 3) + varint(5) + varint(102 << 3 | 5) + b"abcd"
        self.records = [example_message(features, packed=i % 2 == 0, noise=noise if i % 3 == 0 else b"")
                        for i, features in enumerate(examples)]
        self.examples = list(map(without_floats, examples))
        self.bytes = b"".join(map(framed, self.records))

    def read(self, path):
        """Data and examples as the program reads them."""
        records, examples = [], []
        for kind, first, *rest in self.run_program("dump-records", path):
            if kind == "record":
                records.append(plain(rest[0]))
                examples.append({})
                continue
            name, values = rest[0], rest[1:]
            examples[-1][plain(first)] = (name, [plain(value) if name == "bytes" else int(value) for value in values])
        return records, examples

    def test_reads_what_python_wrote(self):
        path = self.folder / "train.tfrecord"
        path.write_bytes(self.bytes)
        self.assertEqual(self.read(path), (self.records, self.examples))

    def test_reads_files_compressed_as_a_whole(self):
        (self.folder / "train.gz").write_bytes(gzip.compress(self.bytes))
        (self.folder / "train.zlib").write_bytes(zlib.compress(self.bytes))
        for name in ("train.gz", "train.zlib"):
            self.assertEqual(self.read(self.folder / name), (self.records, self.examples))

    def test_is_read_by_python(self):
        (self.folder / "from").write_bytes(self.bytes)
        self.run_program("copy-records", self.folder / "from", self.folder / "to")
        written = [parse_example(record) for record in records_in((self.folder / "to").read_bytes())]
        self.assertEqual(written, self.examples)

    def test_names_the_offset_of_damage(self):
        damaged = bytearray(self.bytes)
        damaged[len(framed(self.records[0])) + 3] ^= 1
        (self.folder / "damaged").write_bytes(damaged)
        self.assertIn(f"byte offset {len(framed(self.records[0]))}:",
                      self.refusal("dump-records", self.folder / "damaged"))


NAMES = ["000/17.jpg", "000/17.cls", "000/18.jpg", "long/" + "n" * 90 + "/" + "m" * 80 + ".jpg", "x" * 100, "y" * 101,
         "deep/" * 60 + "file.seg.png", "umlaut/ä.jpg", "p" * 155 + "/" + "q" * 100]
FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


def fits(name, kind):
    """Whether ustar can hold the name."""
    try:
        tarfile.TarInfo(name).tobuf(FORMATS[kind], "utf-8", "strict")
        return True
    except ValueError:
        return False


class TarArchives(Shards):
    def write(self, path, kind, mode="w"):
        """An archive of NAMES, with folders and hard links in between; returns its members."""
        source = random.Random(kind)
        members = []
        with tarfile.open(path, mode, format=FORMATS[kind], encoding="utf-8") as archive:
            for name in filter(lambda name: fits(name, kind), NAMES):
                folder = tarfile.TarInfo("folder" + "/long" * 10)
                folder.type = tarfile.DIRTYPE
                archive.addfile(folder)
                # The field for the name of a link takes 100 bytes; ustar has no other place for it.
                targets = [member for member in members
                           if member[0] != "link" and (kind != "ustar" or len(member[0].encode()) <= 100)]
                if targets:
                    link = tarfile.TarInfo("link")
                    link.type = tarfile.LNKTYPE
                    link.linkname, content = source.choice(targets)
                    archive.addfile(link)
                    members.append(("link", content))
                data = source.randbytes(source.choice([0, 1, 511, 512, 513, 20_000]))
                info = tarfile.TarInfo(name)
                info.size, info.mtime = len(data), 1_700_000_000
                info.uid = 3_000_000 if kind == "gnu" else 1000  # in base 256
                archive.addfile(info, io.BytesIO(data))
                members.append((name, data))
        return members

    def read(self, path):
        return [(plain(name).decode(), plain(content))
                for _, name, _, content in self.run_program("dump-members", path)]

    def test_reads_what_python_wrote_in_every_format(self):
        for kind in FORMATS:
            members = self.write(self.folder / kind, kind)
            self.assertGreaterEqual(len(members), 6)
            self.assertEqual(self.read(self.folder / kind), members, kind)

    def test_reads_offsets_that_python_finds_too(self):
        self.write(self.folder / "pax", "pax")
        with tarfile.open(self.folder / "pax") as archive:
            members = {member.name: member for member in archive.getmembers() if member.isreg()}
            expected = [(member.name, members[member.linkname if member.islnk() else member.name].offset_data)
                        for member in archive if member.isreg() or member.islnk()]
        found = [(plain(name).decode(), int(offset))
                 for _, name, offset, _ in self.run_program("dump-members", self.folder / "pax")]
        self.assertEqual(found, expected)

    def test_reads_archives_in_gzip(self):
        members = self.write(self.folder / "a.tar.gz", "pax", "w:gz")
        self.assertEqual(self.read(self.folder / "a.tar.gz"), members)

    def test_is_read_by_python(self):
        members = self.write(self.folder / "from", "pax")
        for copy in ("first", "second"):
            self.run_program("copy-members", self.folder / "from", self.folder / copy)
        self.assertEqual((self.folder / "first").read_bytes(), (self.folder / "second").read_bytes())
        with tarfile.open(self.folder / "first", encoding="utf-8") as archive:
            infos = archive.getmembers()
            self.assertEqual([(info.name, archive.extractfile(info).read()) for info in infos], members)
            self.assertEqual({(info.mtime, info.uid, info.gid, info.mode, info.uname) for info in infos},
                             {(0, 0, 0, 0o644, "")})

    def test_refuses_an_archive_that_is_cut_short(self):
        self.write(self.folder / "whole", "gnu")
        whole = (self.folder / "whole").read_bytes()
        (self.folder / "cut").write_bytes(whole[:5000])
        self.assertIn("truncated", self.refusal("dump-members", self.folder / "cut"))


def web_dataset_samples(members):
    """The grouping of WebDataset's tariterators.py (group_by_keys with base_plus_ext), written from its rules."""
    samples = []
    for name, data in members:
        match = re.match(r"^((?:.*/|)[^./]+)[.]([^/]*)$", name)
        if re.match(r"__[^/]*__($|/)", name) or not match:
            continue
        key, extension = match.group(1), match.group(2).lower()
        if not samples or samples[-1][0] != key:
            samples.append((key, []))
        samples[-1][1].append((extension, data))
    return samples


class WebDatasetShards(Shards):
    def test_groups_members_by_the_rule_of_web_dataset(self):
        source = random.Random(3)
        members = [("__info__", b"skipped"), ("__meta__/x.json", b"skipped"), ("README", b"skipped")]
        for i in range(100):
            prefix = source.choice(["", "train/", "a.b/c/"])
            for extension in source.sample(["jpg", "JSON", "cls", "seg.PNG", "txt"], source.randrange(1, 5)):
                members.append((f"{prefix}{i:05d}.{extension}", source.randbytes(20)))
        members += [("00001.jpg", b"a key that comes back"), ("no_extension", b"skipped"), ("00001.cls", b"its label")]
        with tarfile.open(self.folder / "shard.tar", "w") as archive:
            for name, data in members:
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        samples = []
        for kind, *words in self.run_program("dump-samples", self.folder / "shard.tar"):
            if kind == "sample":
                samples.append((plain(words[0]).decode(), []))
            else:
                samples[-1][1].append((plain(words[0]).decode(), plain(words[1])))
        self.assertEqual(samples, web_dataset_samples(members))


if __name__ == "__main__":
    jobs.require_programs("shards_program")
    unittest.main()
