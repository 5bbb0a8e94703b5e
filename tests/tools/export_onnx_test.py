"""libtrain-checkpoint export-onnx: onnxruntime's logits of the exported files, beside those of torchvision's ResNets
and transformers' RoBERTa with the same weights.

Runs itself with the project's Python, which has these packages.
"""

import json
import sys
import unittest
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1] / "support")]
import jobs

jobs.require_packages("numpy", "onnxruntime", "safetensors", "torch", "torchvision", "transformers")

import onnxruntime
import torch
from safetensors.torch import save_file
from torchvision.models import resnet
from torchvision.models.resnet import BasicBlock, Bottleneck
from transformers import RobertaConfig, RobertaForSequenceClassification
from transformers.utils.logging import disable_progress_bar

from checkpoint_tool_test import ENVIRONMENT, USAGE, Tool, peak_kib, write_checkpoint

SIZES = ((2, 64, 64), (3, 97, 70))  # N, H, W


class Narrow(torch.nn.Module):
    """A ResNet of torchvision's blocks with the sizes that torchvision's own class does not have."""

    def __init__(self, block, layers, width, *, small=True, channels=3, classes=10, groups=1, group_width=64):
        super().__init__()
        self.small = small
        self.conv1 = torch.nn.Conv2d(channels, width, 3 if small else 7, 1 if small else 2, 1 if small else 3,
                                     bias=False)
        self.bn1 = torch.nn.BatchNorm2d(width)
        features = width
        for stage, blocks in enumerate(layers):
            planes, stage_blocks = width << stage, []
            for number in range(blocks):
                stride = 2 if stage > 0 and number == 0 else 1
                shortcut = None
                if stride != 1 or features != planes * block.expansion:
                    shortcut = torch.nn.Sequential(resnet.conv1x1(features, planes * block.expansion, stride),
                                                   torch.nn.BatchNorm2d(planes * block.expansion))
                stage_blocks.append(block(features, planes, stride, shortcut, groups, group_width))
                features = planes * block.expansion
            self.add_module(f"layer{stage + 1}", torch.nn.Sequential(*stage_blocks))
        self.fc = torch.nn.Linear(features, classes)

    def forward(self, x):
        x = self.bn1(self.conv1(x)).relu()
        if not self.small:
            x = torch.nn.functional.max_pool2d(x, 3, 2, 1)
        for name, module in self.named_children():
            if name.startswith("layer"):
                x = module(x)
        return self.fc(x.mean((2, 3)))


def randomized(model, seed=1):
    """With norms that are no identities. Those at the end of a block are small, as in trained networks."""
    torch.manual_seed(seed)
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        if isinstance(module, torch.nn.BatchNorm2d):
            block = model.get_submodule(name.rpartition(".")[0])
            last = "bn3" if isinstance(block, Bottleneck) else "bn2"
            scale = 0.2 if name.endswith(last) and isinstance(block, (BasicBlock, Bottleneck)) else 1
            torch.nn.init.uniform_(module.weight, 0.5 * scale, 1.5 * scale)
            torch.nn.init.normal_(module.bias, std=0.2)
            torch.nn.init.normal_(module.running_mean, std=0.2)
            torch.nn.init.uniform_(module.running_var, 0.5, 1.5)
            module.num_batches_tracked.fill_(7)
    return model.eval()


class Export(Tool):
    def setUp(self):
        super().setUp()
        self.output = self.folder / "model.onnx"

    def session(self):
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # what fails is raised, too
        options.intra_op_num_threads = 1
        return onnxruntime.InferenceSession(self.output, options, providers=["CPUExecutionProvider"])

    def require_logits_of(self, model, channels=3, sizes=SIZES):
        session = self.session()
        for count, height, width in sizes:
            images = torch.randn(count, channels, height, width, generator=torch.Generator().manual_seed(height))
            (logits,) = session.run(["logits"], {"images": images.numpy()})
            with torch.no_grad():
                expected = model(images)
            self.assertEqual(logits.shape, tuple(expected.shape))
            self.assertGreater(expected.std(), 0.05)  # so that 1e-4 is a small difference
            self.assertLess(expected.abs().max(), 30)
            self.assertLess((torch.from_numpy(logits) - expected).abs().max(), 1e-4)

    def export(self, model, *arguments):
        self.lines("export-onnx", self.save("model.pth", model.state_dict()), self.output, *arguments)


class Logits(Export):
    def test_of_resnet18(self):
        model = randomized(resnet.resnet18())
        self.export(model)
        self.require_logits_of(model, sizes=(*SIZES, (1, 224, 224)))

    def test_of_resnet50(self):
        model = randomized(resnet.resnet50(num_classes=200))
        self.export(model)
        self.require_logits_of(model)

    def test_of_resnext50(self):
        model = randomized(resnet.resnext50_32x4d())
        self.export(model)
        self.require_logits_of(model)

    def test_of_wide_resnet50(self):
        model = randomized(resnet.wide_resnet50_2())
        self.export(model)
        self.require_logits_of(model)

    def test_of_small_networks(self):
        for options in (dict(block=BasicBlock, layers=[1], width=8),
                        dict(block=BasicBlock, layers=[2, 1], width=16, channels=1, classes=3),
                        dict(block=BasicBlock, layers=[1, 11, 1], width=4, small=False, channels=4),
                        dict(block=Bottleneck, layers=[1, 2, 1, 1], width=8),
                        dict(block=Bottleneck, layers=[2, 1, 3], width=16, groups=4, group_width=32, small=False),
                        # The inner widths are 3, 6, 12 and 25: rounded down, not doubled.
                        dict(block=Bottleneck, layers=[1, 1, 1, 1], width=10, group_width=20)):
            with self.subTest(**options):
                model = randomized(Narrow(**options))
                self.export(model, "--force")
                self.require_logits_of(model, options.get("channels", 3))

    def test_of_rounded_weights(self):
        for dtype in (torch.float16, torch.bfloat16, torch.float64):
            with self.subTest(dtype):
                model = randomized(Narrow(BasicBlock, [1, 1], 8)).to(dtype)
                self.export(model, "--force")
                self.require_logits_of(model.float())


class File(Export):
    """What else is in it, and where it comes from."""

    def setUp(self):
        super().setUp()
        self.model = randomized(Narrow(BasicBlock, [1, 1], 8))
        self.state = self.model.state_dict()

    def test_says_what_it_takes_and_gives(self):
        self.export(self.model)
        session = self.session()
        (images,), (logits,) = session.get_inputs(), session.get_outputs()
        self.assertEqual((images.name, images.type, images.shape), ("images", "tensor(float)", ["N", 3, "H", "W"]))
        self.assertEqual((logits.name, logits.type, logits.shape), ("logits", "tensor(float)", ["N", 10]))
        self.assertEqual(session.get_modelmeta().producer_name, "libtrain")
        self.assertEqual(session.get_modelmeta().custom_metadata_map, {})

    def test_has_what_the_weights_say_of_themselves(self):
        weights = self.folder / "weights.safetensors"
        save_file(self.state, weights, {"format": "pt", "classes": '["cat", "dög"]', "empty": ""})
        self.lines("export-onnx", weights, self.output)
        self.assertEqual(self.session().get_modelmeta().custom_metadata_map, {"classes": '["cat", "dög"]', "empty": ""})
        self.require_logits_of(self.model)

    def test_comes_from_a_part_of_a_checkpoint(self):
        average = {f"average.{name}": tensor for name, tensor in self.state.items()}
        checkpoint = write_checkpoint(self.folder / "run/checkpoints", 1, {"model": self.state, "ema": average})
        expected = {"infinite": {}, "output": str(self.output), "tensors": 32}
        found = self.json("export-onnx", checkpoint, self.output)
        self.assertEqual(found, expected | {"bytes": self.output.stat().st_size})
        self.require_logits_of(self.model)
        self.output.unlink()
        self.lines("export-onnx", checkpoint, self.output, "--part", "ema", "--prefix", "average.")
        self.require_logits_of(self.model)
        self.assertIn(f"such as '{checkpoint}'", self.refuse(USAGE, "export-onnx", self.folder / "run", self.output,
                                                             "--force"))

    def test_comes_from_names_that_are_changed(self):
        source = self.save("run.pth", {"epoch": 3, "model": {f"module.{name}": tensor
                                                             for name, tensor in self.state.items()}})
        self.assertIn("begin with 'model.module.': give it as --prefix.",
                      self.refuse(USAGE, "export-onnx", source, self.output))
        self.lines("export-onnx", source, self.output, "--prefix", "model.", "--rename", "module.=")
        self.require_logits_of(self.model)

    def test_does_not_need_num_batches_tracked(self):
        state = {name: tensor for name, tensor in self.state.items() if not name.endswith("num_batches_tracked")}
        self.lines("export-onnx", self.save("old.pth", state), self.output)
        self.require_logits_of(self.model)

    def test_reports_values_that_become_infinite(self):
        self.state["fc.bias"] = self.state["fc.bias"].double().fill_(1e300)
        source = self.save("large.pth", self.state)
        self.assertEqual(self.lines("export-onnx", source, self.output)[0],
                         "warning: fc.bias has 10 values that are infinite as F32")
        self.assertEqual(self.json("export-onnx", source, self.output, "--force")["infinite"], {"fc.bias": 10})


    def test_needs_memory_for_one_tensor(self):
        """So that it is the same for one block and for sixteen, which have 75 MB."""
        def peak(blocks):
            weights = self.save("weights.safetensors", Narrow(BasicBlock, [blocks], 256).state_dict())
            return peak_kib("export-onnx", weights, self.output, "--force")

        few = peak(1)
        self.assertLess(peak(16), 1.5 * few)


class Refusal(Export):
    def setUp(self):
        super().setUp()
        self.state = Narrow(BasicBlock, [1, 1], 8).state_dict()

    def refusal(self, state):
        message = self.refuse(USAGE, "export-onnx", self.save("weights.pth", state), self.output)
        self.assertFalse(self.output.exists())
        return message

    def test_of_another_network(self):
        message = self.refusal(torch.nn.Sequential(torch.nn.Linear(2, 3)).state_dict())
        self.assertIn("weights.pth' does not have the weights of a ResNet: none of its 2 tensors, such as '0.bias', is "
                      "called 'conv1.weight'. Give the weights of a ResNet by torchvision's names", message)

    def test_names_the_first_of_each_kind(self):
        for name in ("bn1.running_mean", "bn1.running_var", "layer1.0.conv2.weight", "fc.bias"):
            del self.state[name]
        self.assertIn("is called 'layer1.0.conv2.weight'", self.refusal(self.state))
        self.state |= {"layer1.0.conv2.weight": torch.ones(8, 8, 5, 5), "layer1.0.se.weight": torch.ones(1),
                       "fc.weight": torch.ones(10, 99), "layer1.0.se.bias": torch.ones(1)}
        self.assertIn("does not have the weights of a ResNet: 'bn1.running_mean' is missing (and 2 more), "
                      "'layer1.0.se.bias' is unexpected (and 1 more), 'layer1.0.conv2.weight' is F32 of shape "
                      "[8, 8, 5, 5] instead of [8, 8, 3, 3] (and 1 more). ", self.refusal(self.state))

    def test_of_other_arguments(self):
        source = self.save("weights.pth", self.state)
        self.assertIn("ends in .onnx", self.refuse(USAGE, "export-onnx", source, self.folder / "model.pb"))
        self.assertIn("No such file", self.refuse(ENVIRONMENT, "export-onnx", source, self.folder / "none/model.onnx"))
        self.output.write_bytes(b"older")
        self.assertIn("--force", self.refuse(USAGE, "export-onnx", source, self.output))
        self.assertEqual(self.output.read_bytes(), b"older")

    def test_leaves_the_older_file(self):
        """Of a full disk, and of a damaged input."""
        self.output.write_bytes(b"older")
        source = self.save("weights.pth", self.state)
        names = set(self.folder.iterdir())
        job = jobs.run(["bash", "-c", 'ulimit -f 4; exec "$@"', "bash", jobs.program("libtrain-checkpoint"),
                        "export-onnx", source, self.output, "--force"])
        self.assertEqual((job.exit_code, job.stdout, len(job.stderr.splitlines())), (ENVIRONMENT, "", 1), job)
        self.assertIn(f"Cannot write '{self.output}'", job.stderr)
        damaged = bytearray(source.read_bytes())
        damaged[damaged.index(self.state["fc.weight"].numpy().tobytes()) + 5] ^= 16
        source.write_bytes(damaged)
        self.assertIn("CRC-32", self.refuse(ENVIRONMENT, "export-onnx", source, self.output, "--force"))
        self.assertEqual((self.output.read_bytes(), set(self.folder.iterdir())), (b"older", names))


def roberta(seed=1, **options):
    """With random norms and biases, and logits and states that are neither constant nor huge."""
    settings = dict(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
                    max_position_embeddings=40, type_vocab_size=1, layer_norm_eps=1e-5)
    torch.manual_seed(seed)
    model = RobertaForSequenceClassification(RobertaConfig(**(settings | options)))
    for name, parameter in model.named_parameters():
        if name.endswith("LayerNorm.weight"):
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
        elif name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.2)
        else:  # also the embedding of padding, which is 0 in a new model
            torch.nn.init.normal_(parameter, std=1 if "embeddings" in name else 2 * parameter.shape[-1] ** -0.5)
    return model.eval()


class RobertaExport(Export):
    def setUp(self):
        super().setUp()
        self.model_folder = self.folder / "classifier"

    def export_roberta(self, model, *arguments):
        model.save_pretrained(self.model_folder)
        self.lines("export-onnx", self.model_folder, self.output, "--force", *arguments)

    def change_config(self, **values):
        path = self.model_folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    def require_logits_of_roberta(self, model, sizes=((1, 1), (3, 7), (5, 38))):
        """Of batches of texts that have different lengths and are padded on the right, and on the left."""
        session = self.session()
        pad = model.config.pad_token_id
        for count, longest in sizes:
            generator = torch.Generator().manual_seed(longest)
            ids = torch.randint(pad + 1, model.config.vocab_size, (count, longest), generator=generator)
            mask = torch.ones_like(ids)
            for text in range(1, count):
                length = max(1, longest * text // count)
                padding = slice(longest - length) if text == 2 else slice(length, None)
                ids[text, padding], mask[text, padding] = pad, 0
            (logits,) = session.run(["logits"], {"input_ids": ids.numpy(), "attention_mask": mask.numpy()})
            with torch.no_grad():
                expected = model(ids, attention_mask=mask).logits
            self.assertEqual(logits.shape, tuple(expected.shape))
            self.assertGreater(expected.abs().mean(), 0.1)  # so that 1e-4 is a small difference
            self.assertLess((torch.from_numpy(logits) - expected).abs().max(), 1e-4)


class RobertaLogits(RobertaExport):
    def test_of_several_sizes(self):
        for options in (dict(),
                        dict(num_hidden_layers=1, num_labels=1),
                        dict(num_hidden_layers=12, hidden_size=48, num_attention_heads=3, num_labels=3),
                        dict(num_attention_heads=1, type_vocab_size=2, layer_norm_eps=1e-12),
                        dict(num_attention_heads=32, hidden_act="gelu", intermediate_size=7, layer_norm_eps=0.1),
                        dict(pad_token_id=5, max_position_embeddings=44),
                        dict(pad_token_id=0, max_position_embeddings=39)):
            with self.subTest(**options):
                model = roberta(**options)
                self.export_roberta(model)
                self.require_logits_of_roberta(model)

    def test_of_rounded_weights(self):
        for dtype in (torch.float16, torch.bfloat16):
            with self.subTest(dtype):
                model = roberta().to(dtype)
                self.export_roberta(model)
                self.require_logits_of_roberta(model.float())

    def test_of_masked_tokens(self):
        """That are no padding have positions, and padding that is not masked has the position of padding."""
        model = roberta()
        self.export_roberta(model)
        ids = torch.arange(2, 22).view(2, 10)
        mask = torch.ones_like(ids)
        mask[0, 3:5] = 0
        ids[1, 6:8] = model.config.pad_token_id
        inputs = {"input_ids": ids, "attention_mask": mask}
        (logits,) = self.session().run(["logits"], {name: values.numpy() for name, values in inputs.items()})
        with torch.no_grad():
            expected, unmasked = model(**inputs).logits, model(ids).logits
        self.assertLess((torch.from_numpy(logits) - expected).abs().max(), 1e-4)
        self.assertGreater((unmasked - expected)[0].abs().max(), 1e-2)


class RobertaFile(RobertaExport):
    def test_says_what_it_takes_and_gives(self):
        self.export_roberta(roberta(id2label={0: "no", 1: "jä", 2: "maybe"}, problem_type="multi_label_classification"))
        session = self.session()
        self.assertEqual([(value.name, value.type, value.shape) for value in session.get_inputs()],
                         [("input_ids", "tensor(int64)", ["N", "S"]), ("attention_mask", "tensor(int64)", ["N", "S"])])
        (logits,) = session.get_outputs()
        self.assertEqual((logits.name, logits.type, logits.shape), ("logits", "tensor(float)", ["N", 3]))
        metadata = session.get_modelmeta().custom_metadata_map
        self.assertEqual(json.loads(metadata.pop("classes")), ["no", "jä", "maybe"])
        self.assertEqual(metadata, {"problem_type": "multi_label_classification", "max_tokens": "38"})

    def test_has_no_names_if_there_are_none(self):
        self.export_roberta(roberta(num_labels=1))
        self.assertEqual(self.session().get_modelmeta().custom_metadata_map,
                         {"problem_type": "regression", "max_tokens": "38"})

    def test_takes_texts_of_max_tokens(self):
        self.export_roberta(roberta())
        session = self.session()
        ids = torch.full((1, 39), 7).numpy()
        session.run(["logits"], {"input_ids": ids[:, 1:], "attention_mask": ids[:, 1:]})
        with self.assertRaisesRegex(Exception, "out of data bounds"):
            session.run(["logits"], {"input_ids": ids, "attention_mask": ids})

    def test_comes_from_a_file_of_torch(self):
        model = roberta()
        model.save_pretrained(self.model_folder)
        (self.model_folder / "model.safetensors").unlink()
        torch.save(model.state_dict(), self.model_folder / "pytorch_model.bin")
        for source in (self.model_folder, self.model_folder / "pytorch_model.bin"):
            self.lines("export-onnx", source, self.output, "--force")
            self.require_logits_of_roberta(model)

    def test_comes_from_a_checkpoint_with_the_configuration(self):
        """Beside its weights, and with names that are changed."""
        model = roberta()
        state = {f"module.{name}": tensor for name, tensor in model.state_dict().items()}
        checkpoint = write_checkpoint(self.folder / "checkpoints", 1, {"model": state})
        model.config.save_pretrained(checkpoint)
        self.assertIn("begin with 'module.': give it as --prefix.",
                      self.refuse(USAGE, "export-onnx", checkpoint, self.output))
        self.lines("export-onnx", checkpoint, self.output, "--prefix", "module.")
        self.require_logits_of_roberta(model)

    def test_does_not_need_what_a_classifier_does_not_use(self):
        """As in files of older versions of transformers, and of pretraining."""
        model = roberta()
        model.save_pretrained(self.model_folder)
        save_file(model.state_dict() | {"roberta.embeddings.position_ids": torch.arange(40)[None],
                                        "roberta.pooler.dense.weight": torch.ones(32, 32),
                                        "lm_head.bias": torch.ones(99)},
                  self.model_folder / "model.safetensors", {"format": "pt", "language": "Latin"})
        self.lines("export-onnx", self.model_folder, self.output)
        self.assertEqual(self.session().get_modelmeta().custom_metadata_map["language"], "Latin")
        self.require_logits_of_roberta(model)

    def test_has_a_folder_that_other_commands_take(self):
        model = roberta()
        model.save_pretrained(self.model_folder)
        copy = self.folder / "copy"
        copy.mkdir()
        model.config.save_pretrained(copy)
        self.lines("convert", self.model_folder, copy / "model.safetensors")
        checkpoint = write_checkpoint(self.folder / "checkpoints", 1, {"model": model.state_dict()})
        for other in (copy, copy / "model.safetensors", checkpoint):
            self.lines("compare", self.model_folder, other)
        self.lines("average", self.folder / "mean.safetensors", self.model_folder, copy)


class RobertaRefusal(RobertaExport):
    def setUp(self):
        super().setUp()
        self.model = roberta()
        self.model.save_pretrained(self.model_folder)
        self.weights = self.model_folder / "model.safetensors"

    def refusal(self, exit_code=USAGE):
        message = self.refuse(exit_code, "export-onnx", self.model_folder, self.output)
        self.assertFalse(self.output.exists())
        return message

    def test_names_the_first_of_each_kind(self):
        state = self.model.state_dict()
        for name in ("roberta.encoder.layer.1.output.dense.bias", "classifier.dense.bias"):
            del state[name]
        scope = "roberta.encoder.layer.0.attention.self."
        state |= {scope + "distance.weight": torch.ones(3), scope + "query.weight": torch.ones(32, 31)}
        save_file(state, self.weights)
        self.assertIn(f"'{self.weights}' does not have the weights of the RoBERTa classifier that its config.json "
                      "describes: 'roberta.encoder.layer.1.output.dense.bias' is missing (and 1 more), "
                      f"'{scope}distance.weight' is unexpected, '{scope}query.weight' is F32 of shape [32, 31] instead "
                      "of [32, 32]. Give the weights and the config.json of one RobertaForSequenceClassification",
                      self.refusal())

    def test_of_a_configuration_of_another_model(self):
        layer = "'roberta.encoder.layer."
        for values, message in (
                (dict(num_hidden_layers=1), f"{layer}1.attention.output.LayerNorm.bias' is unexpected (and 15 more). "),
                (dict(num_hidden_layers=1000), f"{layer}2.attention.self.query.weight' is missing (and "),
                (dict(vocab_size=98), "is F32 of shape [99, 32] instead of [98, 32]. "),
                (dict(id2label={"0": "a", "1": "b", "2": "c"}),
                 "'classifier.out_proj.weight' is F32 of shape [2, 32] instead of [3, 32] (and 1 more)")):
            with self.subTest(**values):
                self.model.save_pretrained(self.model_folder)
                self.change_config(**values)
                self.assertIn(message, self.refusal())

    def test_of_a_wrong_configuration(self):
        for values, message in (
                (dict(model_type="bert"), """config.json' has "model_type": "bert". Expected "roberta"."""),
                (dict(num_attention_heads=5), """"hidden_size": 32. Expected a multiple of "num_attention_heads", 5."""),
                (dict(num_hidden_layers=1 << 30), """: 1073741824. Expected a whole number from 1 to 1000."""),
                (dict(hidden_act="relu"), """config.json' has "hidden_act": "relu". """)):
            with self.subTest(**values):
                self.model.save_pretrained(self.model_folder)
                self.change_config(**values)
                self.assertIn(message, self.refusal(ENVIRONMENT))

    def test_of_a_missing_configuration(self):
        config = self.model_folder / "config.json"
        config.unlink()
        self.assertIn(f"'{config}' cannot be read: No such file or directory. ",
                      self.refuse(ENVIRONMENT, "export-onnx", self.weights, self.output))
        self.assertIn(f"'{self.model_folder}' is a folder without checkpoints. Give a checkpoint, a file, or a folder "
                      "with a config.json and a model.safetensors.", self.refusal(ENVIRONMENT))

    def test_of_a_network_without_a_classifier(self):
        save_file({name: tensor for name, tensor in self.model.state_dict().items() if name.startswith("roberta.")},
                  self.weights)
        self.assertIn("'classifier.dense.weight' is missing (and 3 more). ", self.refusal())


if __name__ == "__main__":
    torch.set_num_threads(1)
    disable_progress_bar()
    jobs.require_programs("libtrain-checkpoint")
    unittest.main()
