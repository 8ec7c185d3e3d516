"""The module `canonc` on the files of a run, written by hand: metrics of suites, and files that are damaged or missing."""

from __future__ import annotations

import json
import math
import tempfile
import unittest
from collections.abc import Callable
from pathlib import Path

import canonc

LOCK = 'version = 3\nkind = "experiment"\nname = "small"\n[arch]\ntext = "arch small {}"\n'
START = {"kind": "start", "version": 2, "lock": "0a", "eval": "0b", "initial": "0c", "chain": "0d"}
STEP = {"kind": "step", "step": 1, "loss": 2.5, "grad_norm": 1.0, "lr": 0.1, "batch": "0e", "counted": 8, "chain": "0f"}


def evaluation(step: int, **more: object) -> dict[str, object]:
    token_accuracy, exact_match = {"right": 1, "of": 4}, {"1": {"right": 0, "of": 2}}
    first = {"kind": "eval", "step": step, "eval_loss": 2.0, "counted": 4, "token_accuracy": token_accuracy}
    return {**first, "exact_match": exact_match, **more, "chain": "0a"}


def suites(acc: float, perplexity: object, **more: object) -> list[dict[str, object]]:
    lambada = f"lambada acc,perplexity 2 settings {'1' * 64} questions {'2' * 64}"
    pages = f"pages bits_per_byte 2 settings {'3' * 64} questions {'4' * 64} examples {'5' * 64}"
    return [
        {"task": lambada, "scores": {"acc": acc, "perplexity": perplexity}, **more},
        {"task": pages, "scores": {"bits_per_byte": 1.5}, **more},
    ]


class Folder(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name) / "small"
        self.write("lock", LOCK)
        self.log(START, STEP)

    def write(self, name: str, text: str | bytes) -> None:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())

    def log(self, *records: dict[str, object]) -> None:
        self.write("metrics.jsonl", "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records))

    def refused(self, pattern: str, call: Callable[[], object]) -> None:
        with self.assertRaisesRegex(canonc.Error, pattern) as raised:
            call()
        self.assertEqual(raised.exception.exit_code, 2)

    def test_metrics_of_suites_are_columns(self) -> None:
        last = {"each": {"acc": [1, 0], "perplexity": [-1.0, -3.0]}, "totals": {"bytes": 12, "words": 3}}
        self.log(START, STEP, evaluation(1, suites=suites(0.25, "inf")), evaluation(2, suites=suites(0.5, 7.25, **last)))
        frame = canonc.load(self.folder).evaluations()
        columns = ["lambada/acc", "lambada/perplexity", "pages/bits_per_byte"]
        self.assertEqual([name for name in frame.columns if "/" in name], columns)
        self.assertEqual(list(frame["lambada/acc"]), [0.25, 0.5])
        self.assertEqual(list(frame["lambada/perplexity"]), [math.inf, 7.25])
        self.assertEqual({str(dtype) for dtype in frame[columns].dtypes}, {"float64"})
        others = ["eval_loss", "counted", "token_accuracy", "exact_match.1"]
        self.assertEqual([name for name in frame.columns if "/" not in name], others)

    def test_a_lock_of_something_else_is_refused(self) -> None:
        for text in ("", "a = 1\n", LOCK.replace("experiment", "arch"), LOCK.replace("version", "edition")):
            self.write("lock", text)
            self.refused("is not the lock of an experiment", lambda: canonc.load(self.folder))
        for damaged in ("version = ", b"\xff"):
            self.write("lock", damaged)
            self.refused("small/lock` is damaged, or not a file of canonc", lambda: canonc.load(self.folder))

    def test_a_log_that_is_missing_or_damaged(self) -> None:
        run = canonc.load(self.folder)
        (self.folder / "metrics.jsonl").unlink()
        for call in (run.metrics, run.evaluations, lambda: list(run.records())):
            self.refused("metrics.jsonl` cannot be read: No such file", call)
        for damaged in (b"{", b"\xff\xff", b""):
            self.write("metrics.jsonl", json.dumps(START).encode() + b"\n" + damaged + b"\n")
            self.refused("line 2 of `.*/metrics.jsonl` is damaged", run.metrics)
        for foreign in (b"[1]", b'{"step":1}'):
            self.write("metrics.jsonl", foreign + b"\n")
            self.refused("line 1 of `.*/metrics.jsonl` is not a record of canonc", run.metrics)
        for member, value in (("exact_match", {"1": 3}), ("suites", [{"task": 3}]), ("measures", 1)):
            self.log(START, evaluation(1) | {member: value})
            self.refused("line 2 of `.*/metrics.jsonl` is not a record of canonc", run.evaluations)

    def test_a_line_that_is_being_written_is_not_read(self) -> None:
        with open(self.folder / "metrics.jsonl", "ab") as log:
            log.write(b'{"kind":"step","st')
        self.assertEqual(list(canonc.load(self.folder).metrics().index), [1])

    def test_an_attestation_that_is_damaged(self) -> None:
        run = canonc.load(self.folder)
        self.assertIsNone(run.attestation)
        self.write("attestation.toml", "version = \n")
        self.refused("attestation.toml` is damaged", lambda: run.attestation)

    def test_checkpoints(self) -> None:
        run = canonc.load(self.folder)
        self.refused("has no checkpoint yet", run.weights)
        for name in ("step-old", "step-3", "refused-step-0000000002", "step-0000000006"):
            self.write(f"checkpoints/{name}/checkpoint.toml", "")
        self.assertEqual(run.steps, [6])
        self.refused("weights.safetensors` cannot be read", run.weights)
        self.write("checkpoints/step-0000000006/weights.safetensors", "nothing")
        self.refused("weights.safetensors` cannot be read", run.weights)


if __name__ == "__main__":
    unittest.main()
