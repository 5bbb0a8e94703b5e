"""libtrain's RoBERTa beside transformers', with the same weights and texts: logits, losses, gradients, files in both
directions, and ten steps on two ranks beside DDP."""

import datetime
import os
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import jobs
import torch
from safetensors.torch import load_file, save_file
from transformers import RobertaConfig, RobertaForMaskedLM, RobertaForSequenceClassification

STEPS = 10
PAD = 1
LENGTHS = (19, 7, 32, 32, 5, 2, 19, 11)
NOT_MASKED = -100


def make_config(layers=2, labels=3, **changes):
    return RobertaConfig(**{
        "vocab_size": 1000, "hidden_size": 96, "num_hidden_layers": layers, "num_attention_heads": 4,
        "intermediate_size": 384, "max_position_embeddings": 66, "type_vocab_size": 1, "layer_norm_eps": 1e-5,
        "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "num_labels": labels,
        "attn_implementation": "eager", **changes})


def make_model(kind, config):
    """Random weights that keep the size of activations, so that gradients are not all alike."""
    torch.manual_seed(7)
    model = kind(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm = "LayerNorm" in name or "layer_norm" in name
            if name.endswith("bias"):
                parameter.normal_(0, 0.1)
            elif is_norm:
                parameter.uniform_(0.5, 1.5)
            else:
                parameter.normal_(0, 0.5 / config.hidden_size ** 0.5)
    return model


def make_texts(config, lengths=LENGTHS, pads_left=False):
    generator = torch.Generator().manual_seed(3)
    ids = torch.full((len(lengths), max(lengths)), PAD)
    mask = torch.zeros_like(ids)
    for row, length in enumerate(lengths):
        ids[row, :length] = torch.randint(4, config.vocab_size, (length,), generator=generator)
        ids[row, 0], ids[row, length - 1] = 0, 2
        mask[row, :length] = 1
        ids[row, length // 2] = PAD if length > 30 else ids[row, length // 2]  # a token of this id is not counted
        if pads_left:
            ids[row], mask[row] = ids[row].roll(-length), mask[row].roll(-length)
    return {"ids": ids, "mask": mask}


def masked_labels(texts):
    """The ids of about a third of the tokens."""
    generator = torch.Generator().manual_seed(4)
    chosen = (torch.rand(texts["ids"].shape, generator=generator) < 0.3) & texts["mask"].bool()
    return torch.where(chosen, texts["ids"], NOT_MASKED)


def class_labels(config, texts):
    generator = torch.Generator().manual_seed(5)
    shape = len(texts["ids"])
    if config.problem_type == "multi_label_classification":
        return torch.randint(2, (shape, config.num_labels), generator=generator).float()
    if config.problem_type == "regression":
        return torch.randn(shape, config.num_labels, generator=generator).squeeze(1)
    return torch.randint(config.num_labels, (shape,), generator=generator)


def fairseq_names(state):
    """As fairseq calls what its converter in transformers takes over. fairseq has no token types: they keep their name."""
    layer = (("attention.self.query", "self_attn.q_proj"), ("attention.self.key", "self_attn.k_proj"),
             ("attention.self.value", "self_attn.v_proj"), ("attention.output.dense", "self_attn.out_proj"),
             ("attention.output.LayerNorm", "self_attn_layer_norm"), ("intermediate.dense", "fc1"),
             ("output.dense", "fc2"), ("output.LayerNorm", "final_layer_norm"))
    encoder = "encoder.sentence_encoder"
    whole = {"roberta.embeddings.word_embeddings": f"{encoder}.embed_tokens",
             "roberta.embeddings.position_embeddings": f"{encoder}.embed_positions",
             "roberta.embeddings.LayerNorm": f"{encoder}.layernorm_embedding",
             "classifier.dense": "classification_heads.sentence_classification_head.dense",
             "classifier.out_proj": "classification_heads.sentence_classification_head.out_proj"}
    renamed = {}
    for name, tensor in state.items():
        part, kind = name.rsplit(".", 1)
        if part.startswith("roberta.encoder.layer."):
            number, part = part.removeprefix("roberta.encoder.layer.").split(".", 1)
            part = f"{encoder}.layers.{number}.{dict(layer)[part]}"
        renamed[f"{whole.get(part, part)}.{kind}"] = tensor
    return renamed


def train(model, texts, steps):
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.1)
    losses = []
    for _ in range(steps):
        loss = model(input_ids=texts["ids"], attention_mask=texts["mask"], labels=texts["labels"]).loss
        adamw.zero_grad()
        loss.backward()
        adamw.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64)


def train_as_rank(rank, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2,
                                         timeout=datetime.timedelta(seconds=60))
    texts = {name: tensor.chunk(2)[rank] for name, tensor in load_file(folder / "inputs.safetensors").items()}
    model = make_model(RobertaForSequenceClassification, make_config()).train()
    losses = train(torch.nn.parallel.DistributedDataParallel(model), texts, STEPS)
    torch.distributed.all_reduce(losses)
    if rank == 0:
        torch.save(losses / 2, folder / "losses.pt")
    torch.distributed.barrier()
    os._exit(0)  # without the interpreter's own end, in which gloo's threads can hang


class Roberta(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.deviations = {}

    def libtrain(self, config, weights, inputs, *options, ranks=None):
        config.save_pretrained(self.folder)
        save_file({name: tensor.contiguous() for name, tensor in inputs.items()}, self.folder / "inputs.safetensors")
        result = self.folder / "result.safetensors"
        job = jobs.run([jobs.program("roberta_program"), "--model", self.folder, "--weights", weights,
                        "--inputs", self.folder / "inputs.safetensors", "--result", result,
                        "--output", self.folder / "output", "--dist-backend", "gloo", *options],
                       ranks=ranks, environment={"OMP_NUM_THREADS": "1" if ranks else "2"}, time_limit=280)
        self.assertEqual(job.exit_code, 0, job)
        return load_file(result)

    def assert_close(self, actual, expected, what, tolerance, relative=False):
        self.assertEqual(actual.shape, expected.shape, what)
        difference = (actual.double() - expected.double()).abs().max().item()
        if relative:
            difference /= max(expected.double().abs().max().item(), 1e-30)
        kind = what.split(".")[0]
        self.deviations[kind] = max(self.deviations.get(kind, 0), difference)
        self.assertLessEqual(difference, tolerance, what)

    def save(self, model, config):
        """Names as model.save_pretrained() writes them."""
        model.config.architectures = [type(model).__name__]
        config.architectures = model.config.architectures
        model.save_pretrained(self.folder)
        return self.folder / "model.safetensors"

    def compare(self, kind, config, labels_of, tolerance, lengths=LENGTHS, pads_left=False):
        model = make_model(kind, config)
        weights = self.save(model, config)
        texts = make_texts(config, lengths, pads_left)
        texts["labels"] = labels_of(texts)
        is_token = texts["mask"].bool()
        found = self.libtrain(config, weights, texts)
        with torch.no_grad():
            expected = model.eval()(input_ids=texts["ids"], attention_mask=texts["mask"]).logits
        if kind is RobertaForMaskedLM:
            is_masked = texts["labels"] != NOT_MASKED
            self.assert_close(found["padded"][is_token], expected[is_token], "padded", tolerance)
            self.assertEqual(found["padded"][~is_token].abs().max(), 0)
            self.assert_close(found["packed"], expected[is_masked], "packed", tolerance)
        else:
            self.assert_close(found["padded"], expected, "padded", tolerance)
            self.assert_close(found["packed"], expected, "packed", tolerance)
        self.assert_close(found["alone"], found["packed"], "alone", 1e-5)
        loss = model.train()(input_ids=texts["ids"], attention_mask=texts["mask"], labels=texts["labels"]).loss
        loss.backward()
        gradients = dict((name, parameter.grad) for name, parameter in model.named_parameters())
        for way in ("padded", "packed"):
            self.assert_close(found[f"loss.{way}"], loss.detach(), "loss", 1e-5)
            of_way = {name: value for name, value in found.items() if name.startswith(f"gradient.{way}.")}
            self.assertEqual({name.split(".", 2)[2] for name in of_way}, set(gradients))
            for name, gradient in gradients.items():
                self.assert_close_gradient(of_way[f"gradient.{way}.{name}"], gradient, name)
        print(kind.__name__, config.num_hidden_layers, "layers:",
              ", ".join(f"{name} {value:.1e}" for name, value in self.deviations.items()))

    def assert_close_gradient(self, actual, expected, name):
        if ".self.key.bias" in name:
            # Softmax does not change with it: the gradient is rounding alone.
            self.assertLess(max(actual.abs().max(), expected.abs().max()), 1e-6, name)
            return
        self.assert_close(actual, expected, "gradient." + name, 1e-4, relative=True)

    def test_two_layers_compute_what_transformers_do(self):
        for task, labels in (("single_label_classification", 3), ("multi_label_classification", 3), ("regression", 1)):
            with self.subTest(task):
                config = make_config(labels=labels, problem_type=task)
                self.compare(RobertaForSequenceClassification, config, lambda texts: class_labels(config, texts), 1e-5)
        for pads_left in (False, True):
            self.compare(RobertaForMaskedLM, make_config(), masked_labels, 1e-5, pads_left=pads_left)

    def test_twelve_layers_compute_what_transformers_do(self):
        sizes = {"vocab_size": 5000, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072,
                 "max_position_embeddings": 514, "initializer_range": 0.02}
        lengths = (512, 37, 128, 128, 1, 64)
        config = make_config(12, **sizes)
        self.compare(RobertaForSequenceClassification, config, lambda texts: class_labels(config, texts), 1e-4, lengths)
        self.compare(RobertaForMaskedLM, make_config(12, **sizes), masked_labels, 1e-4, lengths)

    def test_files_load_in_both_directions(self):
        config = make_config(problem_type="single_label_classification", id2label={0: "no", 1: "perhaps", 2: "yes"},
                             label2id={"no": 0, "perhaps": 1, "yes": 2})
        model = make_model(RobertaForSequenceClassification, config)
        texts = make_texts(config)
        texts["labels"] = class_labels(config, texts)
        # What older files have besides, and a head that this model lacks.
        others = {"roberta.embeddings.position_ids": torch.arange(66).expand(1, -1),
                  "roberta.pooler.dense.weight": torch.zeros(96, 96), "roberta.pooler.dense.bias": torch.zeros(96),
                  "lm_head.bias": torch.zeros(1000), "lm_head.decoder.weight": torch.zeros(1000, 96)}
        torch.save({**model.state_dict(), **others}, self.folder / "pytorch_model.bin")
        saved = self.folder / "saved"
        saved.mkdir()
        found = self.libtrain(config, self.folder / "pytorch_model.bin", texts, "--save", saved)
        loaded, report = RobertaForSequenceClassification.from_pretrained(saved, output_loading_info=True)
        self.assertFalse(report["missing_keys"] or report["unexpected_keys"] or report["mismatched_keys"], report)
        self.assertEqual(loaded.config.id2label, config.id2label)
        self.assertEqual(loaded.config.problem_type, "single_label_classification")
        self.assertEqual(loaded.config.hidden_act, "gelu")
        with torch.no_grad():
            again = loaded.eval()(input_ids=texts["ids"], attention_mask=texts["mask"]).logits
        self.assert_close(found["packed"], again, "saved", 1e-5)

    def test_files_of_fairseq_load(self):
        config = make_config()
        model = make_model(RobertaForSequenceClassification, config)
        texts = make_texts(config)
        texts["labels"] = class_labels(config, texts)
        renamed = fairseq_names(model.state_dict())
        self.assertEqual([name for name in renamed if name in model.state_dict()],
                         ["roberta.embeddings.token_type_embeddings.weight"])
        renamed |= {"encoder.lm_head.bias": torch.zeros(1000), "encoder.lm_head.weight": torch.zeros(1000, 96)}
        torch.save(renamed, self.folder / "model.pt")
        found = self.libtrain(config, self.folder / "model.pt", texts)
        with torch.no_grad():
            expected = model.eval()(input_ids=texts["ids"], attention_mask=texts["mask"]).logits
        self.assert_close(found["packed"], expected, "fairseq", 1e-5)

    def test_ten_steps_on_two_ranks_are_those_of_ddp(self):
        config = make_config()
        weights = self.save(make_model(RobertaForSequenceClassification, config), config)
        texts = make_texts(config)
        texts["labels"] = class_labels(config, texts)
        found = self.libtrain(config, weights, texts, "--steps", STEPS, ranks=2)["losses"]
        again = self.libtrain(config, weights, texts, "--steps", STEPS, "--recompute-layers", ranks=2)["losses"]
        self.assertTrue(torch.equal(again, found))
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        torch.multiprocessing.spawn(train_as_rank, (self.folder,), nprocs=2)
        expected = torch.load(self.folder / "losses.pt")
        self.assertEqual(len(expected), STEPS)
        self.assertLess(expected[-1], 0.9 * expected[0])
        for actual, wanted in zip(found, expected, strict=True):
            self.assert_close(actual, wanted, "steps", 1e-4, relative=True)
        print("ten steps:", ", ".join(f"{name} {value:.1e}" for name, value in self.deviations.items()))


if __name__ == "__main__":
    torch.set_num_threads(1)
    jobs.require_programs("roberta_program")
    unittest.main()
