"""Makes the expected requests and scores of the suite `release` with EleutherAI's lm-evaluation-harness 0.4.7.

    pip install lm_eval==0.4.7 torch transformers
    python make.py            # writes questions/*.jsonl and expected.json beside this file

The questions are invented here. Log-likelihoods are a function of the request's text, so no model is needed: the test
computes the same ones.
"""
import copy
import hashlib
import json
import os
import pathlib

import lm_eval
from lm_eval import utils
from lm_eval.api.task import ConfigurableTask

HERE = pathlib.Path(__file__).parent
TASKS = pathlib.Path(lm_eval.__file__).parent / "tasks"

QUESTIONS = {
    "lambada_openai": [
        {"text": "The sailor looked at the grey sea and thought of his distant home"},
        {"text": "“Why,” she asked, “must it be so  quiet?” He only smiled."},
        {"text": "Two words"},
    ],
    "piqa": [
        {"goal": "To open a jar,", "sol1": "turn the lid.", "sol2": "turn the table around it, slowly.", "label": 0},
        {"goal": "Étape: dry a cup", "sol1": "use water", "sol2": "use a cloth", "label": 1},
        {"goal": "x", "sol1": "same", "sol2": "same", "label": 1},
        {"goal": "Peel  an egg ", "sol1": " with a spoon", "sol2": "with a car", "label": 0},
    ],
    "hellaswag": [
        {"activity_label": "Making tea", "ctx_a": "A man fills a kettle. [title] He waits.", "ctx_b": "the Man", "endings": ["pours [step] water.", "sings  a song", "flies", "sleeps [title] now"], "label": "0"},
        {"activity_label": "Running", "ctx_a": "[header] How to run ", "ctx_b": "", "endings": ["Run [a] [b] fast.", "Do  not.", " Eat", "Stop"], "label": "3"},
    ],
    "winogrande": [
        {"sentence": "The trophy did not fit in the case because the _ was too big.", "option1": "trophy", "option2": "case", "answer": "1"},
        {"sentence": "_ is what Anna gave to_Ben.", "option1": "A book", "option2": "A pen", "answer": "2"},
    ],
    "arc_easy": [
        {"question": "What is ice?", "choices": {"text": ["Frozen water", "Hot air", "A stone"], "label": ["A", "B", "C"]}, "answerKey": "A"},
        {"question": "2 + 2?", "choices": {"text": ["3", "4"], "label": ["1", "2"]}, "answerKey": "2"},
    ],
    "arc_challenge": [
        {"question": "Which {{ is }} 'odd'?", "choices": {"text": ["{% raw %}", "\\n", "a\"b", "d"], "label": ["A", "B", "C", "D"]}, "answerKey": "D"},
    ],
    "social_iqa": [
        {"context": "Kai gave Jo a coat.", "question": "Why?", "answerA": "It was cold", "answerB": "It was hot", "answerC": "No reason", "label": "1"},
        {"context": "Jo ran.", "question": "What next?", "answerA": "rest", "answerB": "swim", "answerC": "eat", "label": "3"},
    ],
    "boolq": [
        {"passage": "Water is wet.\nSo they say.", "question": "is water wet", "label": 1},
        {"passage": "Fire is hot.", "question": "is fire cold", "label": 0},
    ],
    "copa": [
        {"premise": "The man slipped. ", "choice1": "The floor was wet.", "choice2": "He sang.", "question": "cause", "label": 0},
        {"premise": "I opened the window.", "choice1": "It got dark.", "choice2": "Air came in.", "question": "effect", "label": 1},
    ],
    "openbookqa": [
        {"question_stem": "The sun is", "choices": {"text": ["a star", "a planet", "cold", "flat"], "label": ["A", "B", "C", "D"]}, "answerKey": " A"},
    ],
    "race": [
        {"article": "Once there was a fox.\nIt ran.", "problems": str([
            {"question": "Who ran?", "options": ["Fox", "Dog", "Cat", "It's me"], "answer": "A"},
            {"question": "The fox is  _  .", "options": ["red", "blue", "\"odd\"", "gone"], "answer": "C"},
            {"question": "What was it?\\", "options": ["a fox", "a dog", "it's", "é\n"], "answer": "D"},
        ])},
        {"article": "Short.", "problems": str([{"question": "What?", "options": ["a", "b", "c", "d"], "answer": "B"}])},
    ],
    "commonsense_qa": [
        {"question": " Where do fish live? ", "choices": {"text": ["sea", "sky", "sand", "fire", "car"], "label": ["A", "B", "C", "D", "E"]}, "answerKey": "A"},
        {"question": "What is round?", "choices": {"text": ["box", "ball", "book", "bed", "bar"], "label": ["A", "B", "C", "D", "E"]}, "answerKey": "B"},
    ],
    "mmlu": [
        {"question": " Which bone is in the arm?\n", "subject": "anatomy", "choices": ["radius", "tibia", "femur", "skull"], "answer": 0},
        {"question": "Which bone is in the leg?", "subject": "anatomy", "choices": ["radius", "tibia", "ulna", "skull"], "answer": 1},
        {"question": "Which is a cell of blood?", "subject": "anatomy", "choices": ["red", "blue", "green", "pink"], "answer": 0},
    ],
    "wikitext": [
        {"page": " = Title = \n\n The  word ( here ) , and \" there \" ; it 's 10 @,@ 000 @.@ 5 @-@ fold . \n = = Part = = \n = = = Sub = = = \n = = = = Deep = = = = \n [ a ] { b } ' c ' 20 ° N of s ' it ! yes ? no : end /' 5/ \n"},
        {"page": "Plain text without marks"},
    ],
    "shots": [
        {"q": f"{a} plus {b}?", "a": str(a + b)} for a in range(4) for b in range(4)
    ],
    "shots_of": [{"q": f"{a} minus 1?", "a": str(a - 1)} for a in range(30)],
    "answers": [
        {"question": "Capital of France", "answers": ["Paris", "paris, france"]},
        {"question": "Largest planet", "answers": ["Jupiter"]},
        {"question": "Sum of 1 and 2", "answers": ["3", "Three!"]},
        {"question": "Nothing", "answers": ["x"]},
    ],
}
FILES = {
    "lambada_openai": "lambada/lambada_openai.yaml", "piqa": "piqa/piqa.yaml", "hellaswag": "hellaswag/hellaswag.yaml",
    "winogrande": "winogrande/default.yaml", "arc_easy": "arc/arc_easy.yaml", "arc_challenge": "arc/arc_challenge.yaml",
    "social_iqa": "siqa/siqa.yaml", "boolq": "super_glue/boolq/default.yaml", "copa": "super_glue/copa/default.yaml",
    "openbookqa": "openbookqa/openbookqa.yaml", "race": "race/race.yaml", "commonsense_qa": "commonsense_qa/default.yaml",
    "mmlu": "mmlu/default/mmlu_anatomy.yaml", "wikitext": "wikitext/wikitext.yaml",
}
# Tasks of own suites, as the harness's settings; `own.toml` beside this file says the same.
OWN = {
    "shots": {"output_type": "generate_until", "doc_to_text": "Q: {{q}}\nA:", "doc_to_target": "{{a}}", "fewshot": 3,
              "generation_kwargs": {"until": ["\n"], "do_sample": False}, "metric_list": [{"metric": "exact_match"}]},
    "shots_of": {"output_type": "multiple_choice", "doc_to_text": "Q: {{q}}\nA:", "doc_to_choice": ["yes", "no"],
                 "doc_to_target": 1, "fewshot": 2, "description": "Say yes or no.\n\n",
                 "metric_list": [{"metric": "acc"}], "questions": "shots", "fewshot_from": "shots_of"},
    "answers": {"output_type": "generate_until", "doc_to_text": "Question: {{question}}?\nAnswer:", "doc_to_target": "{{answers}}",
                "generation_kwargs": {"until": ["\n", ".", ","], "do_sample": False, "temperature": 0.0},
                "filter_list": [{"name": "remove_whitespace", "filter": [{"function": "remove_whitespace"}, {"function": "take_first"}]}],
                "metric_list": [{"metric": "exact_match", "ignore_case": True, "ignore_punctuation": True}]},
}
# What a model "writes": by the number of the question.
TEXTS = [" PARIS!\nQ", "Jupiter", " three. And", "y"]


def likelihood(*words):
    """A log-likelihood from 0 to -1000 with ties, by digest of the text."""
    digest = hashlib.sha256("\x1f".join(words).encode()).digest()
    return -float(digest[0] % 16) * 4, digest[1] % 2 == 0


FOLDER = HERE / "questions"


def write(name):
    folder = FOLDER
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in QUESTIONS[name]))
    return str(path)


def invented(kind, words, number):
    """The reply of no model."""
    if kind == "generate_until":
        return TEXTS[number % len(TEXTS)]
    value = likelihood(*words)
    return value[0] if kind == "loglikelihood_rolling" else value


def made(name, config):
    """The harness's task on our questions, its requests built."""
    config = copy.deepcopy(config)
    shots, source = config.pop("fewshot", 0), config.pop("questions", name)
    shots_from = config.pop("fewshot_from", None)
    for key in ["dataset_kwargs", "group", "tag", "task_alias", "training_split", "validation_split", "fewshot_split", "fewshot_config"]:
        config.pop(key, None)
    files = {"test": write(source)}
    config.update(task=name, dataset_path="json", dataset_name=None, test_split="test")
    if shots_from:
        files["few"] = write(shots_from)
        config.update(fewshot_split="few")
    elif shots:
        config.update(fewshot_split="test")
    config["dataset_kwargs"] = {"data_files": files}
    task = ConfigurableTask(config=config)
    task.config.num_fewshot = shots
    task.set_fewshot_seed(1234)
    task.build_all_requests(limit=None, rank=0, world_size=1)
    return task


def scored(task, replies):
    """The task's scores for replies to its instances, in their order."""
    by_doc = {}
    for instance, reply in zip(task.instances, replies):
        if instance.request_type == "generate_until":
            for stop in instance.args[1]["until"]:
                reply = reply.split(stop)[0]
        instance.resps = [reply]
        by_doc.setdefault(instance.doc_id, []).append(instance)
    task.apply_filters()
    parts = {}
    docs = list(task.test_docs())
    for number, instances in sorted(by_doc.items()):
        instances.sort(key=lambda instance: instance.idx)
        key = list(instances[0].filtered_resps)[0]
        found = task.process_results(docs[number], [instance.filtered_resps[key] for instance in instances])
        for metric, value in found.items():
            parts.setdefault(metric, []).append(value)
    return {metric: float(task.aggregation()[metric](values)) for metric, values in parts.items()}


def tasks():
    """(name, task) of every task of the suites `release` and `own.toml`."""
    for name, path in FILES.items():
        here = os.getcwd()
        os.chdir(TASKS / pathlib.Path(path).parent)
        config = utils.load_yaml_config(str(TASKS / path), mode="full")
        os.chdir(here)
        yield name, made(name, config)
    for name, config in OWN.items():
        yield name, made(name, config)


def main():
    expected = {}
    for name, task in tasks():
        requests, replies = [], []
        for instance in task.instances:
            kind = instance.request_type
            requests.append(list(instance.args[:1] if kind == "generate_until" else instance.args))
            replies.append(invented(kind, instance.args, instance.doc_id))
        expected[name] = {"requests": requests, "scores": scored(task, replies)}
    (HERE / "expected.json").write_text(json.dumps(expected, ensure_ascii=False, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
