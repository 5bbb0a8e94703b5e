"""libtrain and Pillow decode the same files to the same pixels: whole, grey, scaled and cropped.

The files are written by Pillow, by this script (interlaced and 16-bit PNGs) and by libjpeg and libspng through
decode_program, which knows samplings and colour spaces that Pillow cannot write.

Pillow brings a newer libjpeg-turbo (3.2) than Debian 12 has (2.1.5). Between them one change alters pixels: 3.0.1, item
2 of the change log, corrected the smoothing across blocks of progressive files that end before their last scan, near
the borders of the picture. Such a file ("DC only") is not compared. All others are compared exactly.
"""

import json
import random
import struct
import subprocess
import sys
import unittest
import warnings
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
import jobs

PYTHON = jobs.ROOT / ".deps/bin/python"
SIZES = [(500, 375), (97, 61), (64, 48), (33, 17), (16, 16), (7, 5), (1, 1)]


def picture(mode, size, seed):
    """Smooth, with noise, different in every channel."""
    from PIL import Image, ImageChops

    def band(number):
        ramp = Image.linear_gradient("L").rotate(90 * number).resize(size, Image.Resampling.BILINEAR)
        generator = random.Random(seed * 100 + number)
        noise = Image.frombytes("L", size, bytes(generator.randrange(60) for _ in range(size[0] * size[1])))
        return ImageChops.add(ramp, noise)

    bands = [band(number) for number in range(len(Image.new(mode, (1, 1)).getbands()))]
    return bands[0] if len(bands) == 1 else Image.merge(mode, bands)


def write_jpegs(folder):
    for number, size in enumerate(SIZES):
        for subsampling in ("4:4:4", "4:2:2", "4:2:0"):
            for progressive in (False, True):
                kind = "progressive" if progressive else "baseline"
                picture("RGB", size, number).save(
                    folder / f"rgb_{subsampling.replace(':', '')}_{kind}_{size[0]}x{size[1]}.jpg",
                    subsampling=subsampling, progressive=progressive, quality=(60, 90, 95)[number % 3])
        picture("L", size, number).save(folder / f"grey_{size[0]}x{size[1]}.jpg", quality=90)
        picture("CMYK", size, number).save(folder / f"cmyk_{size[0]}x{size[1]}.jpg", quality=92)
    size = SIZES[1]
    picture("CMYK", size, 20).save(folder / "cmyk_progressive.jpg", progressive=True)
    picture("L", size, 21).save(folder / "grey_progressive.jpg", progressive=True, optimize=True)
    picture("RGB", size, 22).save(folder / "rgb_kept.jpg", keep_rgb=True)
    picture("RGB", size, 23).save(folder / "optimized.jpg", optimize=True, subsampling="4:2:0")
    picture("RGB", size, 24).save(folder / "restart_blocks.jpg", subsampling="4:2:0", restart_marker_blocks=3)
    picture("RGB", size, 25).save(folder / "restart_rows.jpg", subsampling="4:2:0", restart_marker_rows=1)
    picture("RGB", size, 26).save(folder / "worst.jpg", quality=1)
    turned = picture("RGB", size, 27)
    exif = turned.getexif()
    exif[0x0112] = 6  # orientation, which both ignore
    turned.save(folder / "turned.jpg", exif=exif, icc_profile=b"not a profile" * 9000, comment=b"a comment")


def write_pngs(folder):
    from PIL import Image

    size = SIZES[1]
    color = picture("RGB", size, 30)
    for mode in ("L", "LA", "RGB", "RGBA"):
        picture(mode, size, 31).save(folder / f"{mode}.png")
    color.convert("1").save(folder / "1.png")
    color.quantize(256).save(folder / "P.png")
    color.quantize(100).save(folder / "P_few.png", transparency=bytes(range(100)))
    for bits in (1, 2, 4):
        color.quantize(2 ** bits).save(folder / f"P_{bits}.png", bits=bits)
    values = random.Random(32)
    deep = b"".join(struct.pack("<H", values.randrange((256, 65536)[i % 2])) for i in range(size[0] * size[1]))
    Image.frombytes("I;16", size, deep).save(folder / "I16.png")
    color.save(folder / "transparent.png", transparency=color.getpixel((0, 0)))
    for depth, color_type, channels in ((8, 2, 3), (16, 0, 1), (16, 2, 3), (16, 4, 2), (16, 6, 4), (8, 6, 4)):
        write_interlaced(folder / f"interlaced_{depth}_{color_type}.png", (21, 19), depth, color_type, channels)


def write_interlaced(path, size, depth, color_type, channels):
    """A PNG in the seven passes of Adam7, by hand: Pillow reads them but does not write them."""
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    width, height = size
    generator = random.Random(depth * 10 + color_type)
    pixel = channels * depth // 8
    rows = [generator.randbytes(pixel * width) for _ in range(height)]
    passes = b""
    for x0, y0, dx, dy in ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
                           (0, 1, 1, 2)):
        for row in rows[y0::dy]:
            pixels = b"".join(row[x * pixel:(x + 1) * pixel] for x in range(x0, width, dx))
            passes += b"\0" + pixels
    header = struct.pack(">IIBBBBB", width, height, depth, color_type, 0, 0, 1)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(passes)) +
                     chunk(b"IEND", b""))


def jobs_for(path, size, is_jpeg, seed):
    """(channels, scale denominator, crop or None) to decode a file with."""
    width, height = size
    yield 3, 1, None
    yield 1, 1, None
    scales = [scale for scale in (2, 4, 8) if is_jpeg and min(size) >= 8]
    for scale in scales:
        yield 3, scale, None
    generator = random.Random(f"{path.name} {seed}")
    for scale in [1, 1, 1] + scales:
        columns, rows = -(-width // scale), -(-height // scale)
        x, y = generator.randrange(columns), generator.randrange(rows)
        yield 3, scale, (x, y, generator.randint(1, columns - x), generator.randint(1, rows - y))


def decode_with_pillow(path, channels, scale, crop):
    from PIL import Image

    image = Image.open(path)
    if scale > 1:
        image.draft(None, (image.width // scale, image.height // scale))
    image = image.convert("RGB" if channels == 3 else "L")
    if crop:
        x, y, width, height = crop
        image = image.crop((x, y, x + width, y + height))
    return f"{image.mode} {image.width} {image.height}\n".encode() + image.tobytes()


def run_pillow(folder):
    """Writes the pictures and, for those and whatever else is in `folder`, what Pillow makes of them, and the jobs."""
    from PIL import Image, features

    warnings.simplefilter("ignore")
    write_jpegs(folder)
    write_pngs(folder)
    lines, written, unreadable = [], [], []
    for path in sorted([*folder.glob("*.jpg"), *folder.glob("*.png")]):
        with Image.open(path) as image:
            size = image.size
        for number, job in enumerate(jobs_for(path, size, path.suffix == ".jpg", 1)):
            try:
                pixels = decode_with_pillow(path, *job)
            except OSError as error:
                unreadable.append(f"{path.name}: {error}")
                continue
            expected = folder / f"{path.name}.{number}.pillow"
            expected.write_bytes(pixels)
            channels, scale, crop = job
            lines.append("\t".join(map(str, [channels, scale, *(crop or (0, 0, 0, 0)), path,
                                             folder / f"{path.name}.{number}.libtrain"])))
            written.append([path.name, number, repr(job)])
    (folder / "jobs").write_text("".join(line + "\n" for line in lines))
    (folder / "written.json").write_text(json.dumps({
        "written": written, "unreadable": unreadable, "libjpeg_turbo": features.version_feature("libjpeg_turbo")}))


@unittest.skipUnless(PYTHON.exists(), "this environment has no Python with Pillow")
class PillowDecode(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = jobs.temporary_directory(cls)
        program = jobs.program("decode_program")
        ours = cls.run_command([program, "--write", cls.folder])
        cls.names = dict(line.split("\t", 1) for line in ours.splitlines())
        cls.run_command([PYTHON, Path(__file__).resolve(), "--pillow", cls.folder])
        cls.run_command([program, "--decode", cls.folder / "jobs"])
        cls.report = json.loads((cls.folder / "written.json").read_text())

    @staticmethod
    def run_command(words):
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=240)
        if done.returncode != 0:
            raise AssertionError(f"{words}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def is_compared(self, name):
        return not self.names.get(name, "").startswith("DC only")

    def test_every_picture_is_decoded_by_both(self):
        # A Pillow without arithmetic decoding may not read those files.
        unexpected = [line for line in self.report["unreadable"]
                      if not self.names.get(line.split(":")[0], "").startswith("arithmetic")]
        self.assertEqual(unexpected, [])
        by_pillow = {name for name, _, _ in self.report["written"] if not name.startswith("ours_")}
        self.assertGreaterEqual(len(by_pillow), 30)

    def test_pixels_are_equal(self):
        different = []
        for name, number, job in self.report["written"]:
            wanted = (self.folder / f"{name}.{number}.pillow").read_bytes()
            found = (self.folder / f"{name}.{number}.libtrain").read_bytes()
            if found != wanted and self.is_compared(name):
                count = sum(a != b for a, b in zip(found, wanted)) if len(found) == len(wanted) else "all"
                different.append(f"{name} ({self.names.get(name, 'by Pillow')}), channels, scale, crop {job}: "
                                 f"{count} bytes of {len(wanted)}")
        self.assertEqual(different, [], f"against libjpeg-turbo {self.report['libjpeg_turbo']}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--pillow"]:
        run_pillow(Path(sys.argv[2]))
    else:
        unittest.main()
