"""One step of fine-tuning RoBERTa with transformers and DDP (gloo, CPU) under torchrun: the peer of
train_text_classification in bench/compare_start_up.py. With --make it writes the weights that both load.

torchrun --standalone --local-addr 127.0.0.1 --nproc-per-node 2 bench/peers/text_start_up.py --weights FOLDER --data TSV
"""

import argparse
import csv
import json
import os
import pathlib
import shutil
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from transformers import AutoModelForSequenceClassification, AutoTokenizer

CLASSES = ("negative", "positive")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--make", metavar="TOKENIZER", type=pathlib.Path,
                        help="write random weights to --weights with the tokenizer of this folder, and end")
    parser.add_argument("--size", choices=("base", "tiny"), default="base", help="with --make (default: base)")
    parser.add_argument("--weights", type=pathlib.Path, required=True, help="folder")
    parser.add_argument("--data", type=pathlib.Path, help="TSV file with the columns sentence and label")
    parser.add_argument("--batch-size", type=int, default=8, help="texts per rank (default: 8)")
    parser.add_argument("--json", type=pathlib.Path, help="file for the record")
    return parser.parse_args()


def make_weights(options):
    from roberta import SIZES, make_config
    from transformers import RobertaForSequenceClassification

    torch.manual_seed(1)
    config = make_config(id2label=dict(enumerate(CLASSES)), **SIZES[options.size] | {"vocab_size": 50265})
    RobertaForSequenceClassification(config).save_pretrained(options.weights)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(options.make / name, options.weights)


def make_loader(options):
    tokenizer = AutoTokenizer.from_pretrained(options.weights)
    with open(options.data, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))

    def collate(batch):
        inputs = tokenizer([row["sentence"] for row in batch], truncation=True, padding=True, return_tensors="pt")
        return inputs | {"labels": torch.tensor([CLASSES.index(row["label"]) for row in batch])}

    return DataLoader(rows, options.batch_size, sampler=DistributedSampler(rows), collate_fn=collate)


def main():
    options = parse_arguments()
    if options.make:
        make_weights(options)
        return
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo")
    loader = make_loader(options)
    model = AutoModelForSequenceClassification.from_pretrained(options.weights).train()
    replica = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(replica.parameters(), lr=1e-5, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.1)
    began = time.time()
    batch = next(iter(loader))
    replica(**batch).loss.backward()
    optimizer.step()
    ended = time.time()
    if dist.get_rank() == 0:
        record = {"first_step_began": began, "first_step_ended": ended}
        options.json.write_text(json.dumps(record), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
