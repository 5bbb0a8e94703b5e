"""classify prints what PyTorch computes, with torchvision's preprocessing of Pillow's images, and refuses what it
cannot use.
"""

import json
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import jobs

jobs.require_packages("PIL", "safetensors", "torch", "torchvision")

import torch
import torchvision
from PIL import Image
from safetensors.torch import save_file

USAGE, ENVIRONMENT = 2, 3
TOLERANCE = 1e-4  # of logits, relative to the largest
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


def write_image(path, size, mode="RGB", seed=0):
    """Coarse noise, which is sharp enough that another filter or crop would show."""
    generator = torch.Generator().manual_seed(seed)
    small = torch.randint(256, (size[1] // 8, size[0] // 8, 3), generator=generator, dtype=torch.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(small.numpy()).resize(size, Image.Resampling.BICUBIC).convert(mode).save(path)
    return path


def make_model(name="resnet18", seed=3, **options):
    """With running statistics that are not the initial ones."""
    torch.manual_seed(seed)
    model = torchvision.models.get_model(name, **options)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.running_mean, -0.1, 0.1)
            torch.nn.init.uniform_(module.running_var, 0.5, 1.5)
    return model.eval()


def expected_logits(model, path, *, side=224, short_side=256, mean, std):
    transforms = torchvision.transforms
    preprocess = transforms.Compose([transforms.Resize(short_side), transforms.CenterCrop(side), transforms.ToTensor(),
                                     transforms.Normalize(mean, std)])
    with Image.open(path) as image, torch.no_grad():
        return model(preprocess(image.convert("RGB"))[None])[0]


class Classify(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = jobs.temporary_directory(cls)
        cls.model = make_model()
        cls.pth = cls.folder / "resnet18.pth"
        torch.save(cls.model.state_dict(), cls.pth)
        cls.photos = [write_image(cls.folder / "photos/a.jpg", (400, 300)),
                      write_image(cls.folder / "photos/below/b.PNG", (256, 420), "RGBA", 1),
                      write_image(cls.folder / "photos/c.jpeg", (120, 90), "L", 2)]
        (cls.folder / "photos/notes.txt").write_text("not an image")

    def classify(self, *arguments, exit_code=0, directory=jobs.ROOT):
        job = jobs.run([jobs.program("classify"), *arguments], directory=directory)
        self.assertEqual(job.exit_code, exit_code, job)
        return job

    def classify_to_json(self, *arguments):
        return json.loads(self.classify("--json", *arguments).stdout)

    def refuse(self, arguments, exit_code, *words):
        job = self.classify(*arguments, exit_code=exit_code)
        lines = job.stderr.splitlines()
        self.assertEqual([line for line in lines if line.startswith("classify: ")], lines[-1:], job)
        for word in words:
            self.assertIn(str(word), lines[-1])
        self.assertEqual(job.stdout, "")

    def save(self, name, network, **metadata):
        path = self.folder / name
        save_file(network.state_dict(), path, {"format": "pt", **metadata})
        return path

    def require_logits(self, found, expected, path):
        self.assertEqual(found["image"], str(path))
        logits = torch.tensor(found["logits"])
        self.assertEqual(logits.shape, expected.shape)
        self.assertLessEqual((logits - expected).abs().max(), TOLERANCE * expected.abs().max(), path)
        self.assertAlmostEqual(found["probability"], expected.softmax(0).max().item(), delta=TOLERANCE)

    def test_gives_the_logits_of_pytorch(self):
        for name, options in (("resnet18", {}), ("resnet50", {"seed": 4}), ("resnext50_32x4d", {"seed": 5})):
            with self.subTest(name):
                model = make_model(name, **options)
                weights = self.folder / f"{name}-again.pth"
                torch.save(model.state_dict(), weights)
                found = self.classify_to_json("--model", name, "--weights", weights, self.folder / "photos")
                by_path = sorted(self.photos)  # as a folder is listed
                self.assertEqual(len(found), len(by_path))
                for row, path in zip(found, by_path):
                    self.assertEqual(list(row), ["image", "label", "probability", "logits"])
                    expected = expected_logits(model, path, **IMAGENET)
                    self.require_logits(row, expected, path)
                    self.assertEqual(row["label"], str(expected.argmax().item()))

    def test_follows_what_the_weights_say_of_the_model(self):
        model = make_model(num_classes=3)
        names = ["cat", "große Eule", 'a "b"']
        look = {"mean": (0.5, 0.4, 0.3), "std": (0.3, 0.2, 0.1)}
        weights = self.save("named.safetensors", model, model="resnet18", classes=json.dumps(names), image_side="64",
                            short_side="72", mean=json.dumps(look["mean"]), std=json.dumps(look["std"]))
        for row, path in zip(self.classify_to_json("--weights", weights, *self.photos), self.photos):
            expected = expected_logits(model, path, side=64, short_side=72, **look)
            self.require_logits(row, expected, path)
            self.assertEqual(row["label"], names[expected.argmax()])

    def test_prints_a_table(self):
        weights = self.save("table.safetensors", make_model(num_classes=2), model="resnet18",
                            classes='["ant", "elephant"]')
        rows = self.classify_to_json("--weights", weights, *self.photos)
        lines = self.classify("--weights", weights, *self.photos).stdout.splitlines()
        self.assertEqual(lines, [f"{row['label']:8}  {row['probability']:.4f}  {row['image']}" for row in rows])

    def test_classifies_more_images_than_a_batch_in_their_order(self):
        many = [path for number in range(12) for path in self.photos]
        found = self.classify_to_json("--model", "resnet18", "--weights", self.pth, *many)
        self.assertEqual([row["image"] for row in found], [str(path) for path in many])
        for index, row in enumerate(found):
            first = torch.tensor(found[index % 3]["logits"])
            torch.testing.assert_close(torch.tensor(row["logits"]), first, rtol=0, atol=TOLERANCE * first.abs().max())

    def test_reads_the_digits_that_docs_resnet_shows(self):
        folder = jobs.ROOT / "examples/classify"
        job = jobs.run([jobs.program("classify"), "--json", "--weights", folder / "digits.safetensors", folder / "digits"])
        self.assertEqual(job.exit_code, 0, job)
        self.assertEqual([(Path(each["image"]).stem, each["label"]) for each in json.loads(job.stdout)],
                         [(str(digit), str(digit)) for digit in range(10)])

    def test_takes_uris(self):
        files = (self.folder / "photos").as_uri(), self.photos[0].as_uri()
        found = self.classify_to_json("--model", "resnet18", "--weights", self.pth, *files)
        self.assertEqual(len(found), len(self.photos) + 1)
        self.assertEqual(found[0]["logits"], found[-1]["logits"])

    def test_classifies_the_others_if_images_cannot_be_read(self):
        damaged = self.folder / "damaged.jpg"
        damaged.write_bytes(self.photos[0].read_bytes()[:100])
        absent = self.folder / "absent.jpg"
        job = self.classify("--json", "--model", "resnet18", "--weights", self.pth, damaged, self.photos[0], absent,
                            exit_code=ENVIRONMENT)
        self.assertEqual([row["image"] for row in json.loads(job.stdout)], [str(self.photos[0])])
        first, second, last = job.stderr.splitlines()
        self.assertIn(str(damaged), first)
        self.assertIn(str(absent), second)
        self.assertIn("2 of 3 images cannot be read", last)
        job = self.classify("--json", "--model", "resnet18", "--weights", self.pth, absent, exit_code=ENVIRONMENT)
        self.assertEqual(json.loads(job.stdout), [])

    def test_refuses_weights_that_do_not_fit(self):
        image = self.photos[0]
        self.refuse(["--model", "resnet50", "--weights", self.pth, image], USAGE, self.pth, " missing (layer1.0.conv3",
                    " different (layer1.0.conv1.weight: shape [64, 64, 3, 3] in the file, [64, 64, 1, 1] in the")
        resnet50 = self.folder / "resnet50.pth"
        torch.save(make_model("resnet50").state_dict(), resnet50)
        self.refuse(["--model", "resnet18", "--weights", resnet50, image], USAGE, " unexpected (", "layer1.0.bn3")
        self.refuse(["--model", "resnet18", "--weights", self.pth, "--classes", 7, image], USAGE,
                    "fc.weight: shape [1000, 512] in the file, [7, 512] in the module")
        three = self.save("three.safetensors", make_model(num_classes=3), model="resnet18", classes='["cat", "dog"]')
        self.refuse(["--weights", three, image], USAGE, "fc.bias: shape [3] in the file, [2] in the module")

    def test_refuses_what_it_cannot_use(self):
        image = self.photos[0]
        empty = self.folder / "empty"
        empty.mkdir()
        damaged = self.folder / "damaged.pth"
        damaged.write_bytes(self.pth.read_bytes()[:1000])
        malformed = self.save("malformed.safetensors", self.model, model="resnet18", classes="cat, dog")
        model = ("--model", "resnet18")
        for arguments, exit_code, *words in (
                (["--weights", self.pth, image], USAGE, self.pth, "--model"),
                (["--model", "resnet19", "--weights", self.pth, image], USAGE, "resnet19", "resnet18, resnet20"),
                ([*model, "--weights", self.folder / "absent.pth", image], ENVIRONMENT, "absent.pth"),
                ([*model, "--weights", damaged, image], ENVIRONMENT, damaged),
                (["--weights", malformed, image], ENVIRONMENT, malformed, "'classes' = 'cat, dog'"),
                ([*model, "--weights", self.pth, empty], ENVIRONMENT, empty, "no .jpg, .jpeg or .png file"),
                ([*model, "--weights", self.pth, "ftp://host/a.jpg"], USAGE, "ftp")):
            with self.subTest(arguments):
                self.refuse(arguments, exit_code, *words)
        weights = ("--weights", self.pth)
        for arguments in ([*model, *weights], [*model, image], [*model, *weights, "--top", "5", image],
                          [*model, *weights, "--classes", "0", image]):
            with self.subTest(arguments):
                self.classify(*arguments, exit_code=USAGE)

    def test_a_full_disk_is_an_error(self):
        job = jobs.run(["sh", "-c", 'exec "$@" > /dev/full', "sh", jobs.program("classify"), "--model", "resnet18",
                        "--weights", self.pth, self.photos[0]])
        self.assertEqual(job.exit_code, ENVIRONMENT, job)
        self.assertIn("Cannot write the results", job.stderr)

    def test_explains_itself(self):
        self.assertIn("--weights", self.classify("--help").stdout)


if __name__ == "__main__":
    torch.set_num_threads(1)
    jobs.require_programs("classify")
    unittest.main()
