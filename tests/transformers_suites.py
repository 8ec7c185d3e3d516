"""Scores an exported folder with the real lm-evaluation-harness on the tasks of `tests/golden/suites`.

    transformers_suites.py FOLDER QUESTIONS BOS

FOLDER is as `canonc export --to hf` writes it, QUESTIONS is an empty folder for the questions, and BOS is `bos` if texts
begin with that token. It prints a line of JSON with each task's scores.
"""

import json
import os
import pathlib
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"
sys.path.insert(0, str(pathlib.Path(__file__).parent / "golden" / "suites"))

import make
import torch
from lm_eval.models.huggingface import HFLM

folder, questions, bos = sys.argv[1:]
make.FOLDER = pathlib.Path(questions)
torch.set_num_threads(1)
lm = HFLM(
    pretrained=folder, trust_remote_code=True, device="cpu", batch_size=1, dtype="float32", max_length=300,
    add_bos_token=bos == "bos",
)
scores = {}
for name, task in make.tasks():
    kind = task.instances[0].request_type
    if kind == "generate_until":
        for instance in task.instances:
            instance.args[1]["max_gen_toks"] = 12
    scores[name] = make.scored(task, getattr(lm, kind)(task.instances))
print(json.dumps(scores))
