"""Runs lm-evaluation-harness by HTTP and with an exported folder: harness.py URL FOLDER.

Small tasks of each kind, written here: multiple choice, likelihood of a last word, perplexity, exact match of a text.
"""

import json
import math
import pathlib
import random
import sys

from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager

WORDS = "cat dog sun moon tree house river stone bird fish red blue green small large old new".split()

TASKS = {
    "choice": """
task: choice
dataset_path: json
dataset_kwargs: {data_files: {test: FILE}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: answer
target_delimiter: " "
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
  - {metric: acc_norm, aggregation: mean, higher_is_better: true}
metadata: {version: 1}
""",
    "last": """
task: last
dataset_path: json
dataset_kwargs: {data_files: {test: FILE}}
test_split: test
output_type: loglikelihood
doc_to_text: "{{question}}"
doc_to_target: " {{choices[answer]}}"
metric_list:
  - {metric: perplexity, aggregation: perplexity, higher_is_better: false}
  - {metric: acc, aggregation: mean, higher_is_better: true}
metadata: {version: 1}
""",
    "rolling": """
task: rolling
dataset_path: json
dataset_kwargs: {data_files: {test: FILE}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list:
  - {metric: word_perplexity}
  - {metric: byte_perplexity}
  - {metric: bits_per_byte}
metadata: {version: 1}
""",
    "exact": """
task: exact
dataset_path: json
dataset_kwargs: {data_files: {test: FILE}}
test_split: test
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{choices[answer]}}"
generation_kwargs: {until: ["a", "\\n\\n"], max_gen_toks: 12, do_sample: false, temperature: 0.0}
metric_list:
  - {metric: exact_match, aggregation: mean, higher_is_better: true}
metadata: {version: 1}
""",
}


def lay_out(root):
    draw = random.Random(7)
    some = lambda least, most: " ".join(draw.choice(WORDS) for _ in range(draw.randint(least, most)))
    documents = []
    for _ in range(40):
        choices = [some(1, 4) for _ in range(4)]
        documents.append(
            {"question": some(3, 40) + ":", "choices": choices, "answer": draw.randrange(4), "text": some(20, 90) + "é漢."}
        )
    file = root / "documents.jsonl"
    file.write_text("".join(json.dumps(document) + "\n" for document in documents))
    for name, text in TASKS.items():
        (root / (name + ".yaml")).write_text(text.replace("FILE", str(file)))


def evaluate(root, model, arguments, **more):
    found = simple_evaluate(
        model=model,
        model_args=arguments,
        tasks=sorted(TASKS),
        task_manager=TaskManager(include_path=str(root), include_defaults=False),
        bootstrap_iters=0,
        log_samples=True,
        **more,
    )
    return found["results"], found["samples"]


def main():
    url, folder = sys.argv[1:3]
    root = pathlib.Path("tasks").resolve()
    root.mkdir()
    lay_out(root)
    # By default, a folder's texts begin with a bos, and those by HTTP do not.
    shared = "tokenizer={},max_length=2000,add_bos_token=True".format(folder)
    served = "model=llama,base_url={}/completions,num_concurrent=8,max_retries=1,tokenizer_backend=huggingface,{}"
    ours, our_samples = evaluate(root, "local-completions", served.format(url, shared))
    theirs, their_samples = evaluate(
        root, "hf", "pretrained={},dtype=float32,max_length=2000,add_bos_token=True".format(folder), device="cpu", batch_size=4
    )
    farthest, texts = 0.0, 0
    for task in sorted(TASKS):
        for a, b in zip(our_samples[task], their_samples[task]):
            for (a,), (b,) in zip(a["resps"], b["resps"]):
                if task == "exact":
                    texts += 1
                    if a != b:
                        sys.exit("error: {}: {!r} by HTTP, {!r} with the folder".format(task, a, b))
                    continue
                # A likelihood, with whether it is the likeliest text; of a rolling one the number alone.
                (a, a_best), (b, b_best) = (a if isinstance(a, (list, tuple)) else (a, None) for a in (a, b))
                a, b = float(a), float(b)
                farthest = max(farthest, abs(a - b) / max(1.0, abs(b)))
                if str(a_best) != str(b_best):
                    sys.exit("error: {}: the likeliest text differs".format(task))
        for metric, value in sorted(ours[task].items()):
            other = theirs[task][metric]
            if metric == "alias" or "stderr" in metric:
                continue
            # The harness lists the task's name among its metrics.
            is_exact = isinstance(value, str) or metric.startswith(("acc", "exact"))
            same = value == other if is_exact else math.isclose(value, other, rel_tol=1e-5)
            print("{:8} {:20} {!r:22} {!r}".format(task, metric.replace(",none", ""), value, other))
            if not same:
                sys.exit("error: {} {} differ".format(task, metric))
    if farthest > 1e-5:
        sys.exit("error: likelihoods are off by {:.1e}".format(farthest))
    print("likelihoods differ by at most {:.1e} of their size; {} texts equal".format(farthest, texts))


main()
