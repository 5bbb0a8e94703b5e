"""Training steps of RoBERTa in transformers: the peer of bench_roberta, and with --make its configuration and texts."""

import argparse
import contextlib
import json
import pathlib
import resource
import statistics
import time

import torch
from safetensors.torch import load_file, save_file

WORKLOADS = ("step", "mixed")
SIZES = {
    "base": {},
    "tiny": {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 512,
             "vocab_size": 1000},
}
PAD = 1
LONGEST, MEAN_OF_LOG, DEVIATION_OF_LOG = 256, 3.37, 0.8  # lengths of mean 40


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--make", metavar="FOLDER", type=pathlib.Path, help="write configuration and texts, and end")
    parser.add_argument("--size", choices=SIZES, default="base", help="of the model, with --make (default: base)")
    parser.add_argument("--texts", type=int, help="of a step, with --make (default: 8 of step, 32 of mixed)")
    parser.add_argument("--data", type=pathlib.Path, help="folder with what --make writes")
    parser.add_argument("--workload", choices=WORKLOADS, default="step")
    parser.add_argument("--precision", choices=("float32", "bf16"), default="float32", help="of the forward pass")
    parser.add_argument("--iterations", type=int, default=15, help="timed steps (default: 15)")
    parser.add_argument("--json", metavar="FILE", help="append the record to this file")
    options = parser.parse_args()
    if (options.make is None) == (options.data is None):
        parser.error("give either --make or --data")
    if options.iterations < 1:
        parser.error("--iterations must be at least 1")
    return options


def make_batch(lengths, vocabulary, generator):
    """Texts padded to the longest, between <s> and </s>."""
    ids = torch.full((len(lengths), max(lengths)), PAD)
    for row, length in zip(ids, lengths):
        row[:length] = torch.randint(4, vocabulary, (length,), generator=generator)
        row[0], row[length - 1] = 0, 2
    return {"ids": ids, "mask": (ids != PAD).long(), "labels": torch.randint(2, (len(lengths),), generator=generator)}


def mixed_lengths(texts, generator):
    """Logarithms are normal, as in collections of sentences; the longest text has LONGEST tokens."""
    logarithms = torch.randn(texts, generator=generator) * DEVIATION_OF_LOG + MEAN_OF_LOG
    return logarithms.exp().clamp(5, LONGEST).long().tolist()


def make_config(**changes):
    """Of RoBERTa base as published."""
    from transformers import RobertaConfig

    return RobertaConfig(**{"max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5,
                            "problem_type": "single_label_classification", **changes})


def make_inputs(folder, size, texts):
    config = make_config(num_labels=2, **SIZES[size])
    folder.mkdir(parents=True, exist_ok=True)
    config.save_pretrained(folder)
    generator = torch.Generator().manual_seed(2)
    lengths = {"step": [[128] * (texts or 8)] * 2, "mixed": [mixed_lengths(texts or 32, generator) for _ in range(8)]}
    for workload, batches in lengths.items():
        tensors = {}
        for number, of_batch in enumerate(batches):
            batch = make_batch(of_batch, config.vocab_size, generator)
            tensors |= {f"{name}.{number}": tensor.contiguous() for name, tensor in batch.items()}
        save_file(tensors, folder / f"{workload}.safetensors")


def load_batches(options):
    tensors = load_file(options.data / f"{options.workload}.safetensors")
    count = sum(name.startswith("ids.") for name in tensors)
    return [{name: tensors[f"{name}.{number}"] for name in ("ids", "mask", "labels")} for number in range(count)]


def time_steps(options):
    """Seconds, tokens of a step with padding, and parameters."""
    from transformers import RobertaConfig, RobertaForSequenceClassification

    model = RobertaForSequenceClassification(RobertaConfig.from_pretrained(options.data)).train()
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-5, betas=(0.9, 0.98), eps=1e-6)
    batches = load_batches(options)
    seconds, tokens = [], 0
    for step in range(-len(batches), options.iterations):
        batch = batches[(step + len(batches)) % len(batches)]
        start = time.perf_counter()
        adamw.zero_grad()
        with torch.autocast("cpu", torch.bfloat16) if options.precision == "bf16" else contextlib.nullcontext():
            loss = model(input_ids=batch["ids"], attention_mask=batch["mask"], labels=batch["labels"]).loss
        loss.backward()
        adamw.step()
        if step >= 0:
            seconds.append(time.perf_counter() - start)
            tokens += batch["ids"].numel() / options.iterations
    return seconds, tokens, sum(parameter.numel() for parameter in model.parameters())


def main():
    options = parse_arguments()
    if options.make:
        make_inputs(options.make, options.size, options.texts)
        return
    torch.manual_seed(1)
    seconds, tokens, parameters = time_steps(options)
    record = {
        "event": "roberta",
        "implementation": "transformers",
        "workload": options.workload,
        "precision": options.precision,
        "parameters": parameters,
        "tokens": tokens,
        "threads": torch.get_num_threads(),
        "iterations": len(seconds),
        "median_s": statistics.median(seconds),
        "min_s": min(seconds),
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "torch": torch.__version__,
    }
    if options.json:
        with open(options.json, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
    print(f"{options.workload}: minimum {min(seconds):.4f} s, median {statistics.median(seconds):.4f} s of {len(seconds)}, "
          f"{tokens:.0f} tokens a step, peak {record['peak_rss_bytes'] / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
