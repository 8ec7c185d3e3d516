"""A run's folder as canonc reads it back: log, checkpoints and the record of what trained (`canonc.external.v1`).

docs/files.md of canonc has the format. `canonc record FOLDER` computes the evaluations and attests the run.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import platform
import re
import socket
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import torch
import torch.distributed as dist
from torch import nn

from . import _hash, _kernels, _model
from ._data import Step
from ._lock import Error, Lock
from ._optim import Updates

_CHAIN = "canonc.external.v1"
_PARTS = ("weights", "first_moment", "second_moment")
#: Kernels of packages whose products of f32 are TF32 on GPUs.
_TF32 = ("fla ", "mamba_ssm ")
#: Environment variables that can change results or speed. Only values of words, numbers, commas and colons are recorded: a run is published.
_ENVIRONMENT = ("NCCL_ALGO", "NCCL_PROTO", "NVIDIA_TF32_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG", "OMP_NUM_THREADS", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "FLA_USE_TMA")
_SETTING = re.compile(r"[,:;^]*(?:[A-Za-z0-9]{1,13}(?:[,:;^]+|$)){0,8}")


def trainer(lock: Lock, model: Any, updates: Updates, **more: Any) -> dict[str, Any]:
    """The record of what trains: engine, versions, kernels, dtypes, ranks, machine. `more` adds or replaces keys.

    `script` is the digest of this package's files; a loop of your own may give one with its own text: `tagged("canonc.script.v1", …)`.
    """
    world = dist.get_world_size() if dist.is_initialized() else 1
    device = _model.device_of(model)
    sharding = getattr(model, "sharding", {"parallel": "none", "mesh": "none", "precision": "f32", "compile": "none", "checkpointing": "none", "reshard": False})
    precision = sharding["precision"]
    micro_batches = lock.training["micro_batches"]
    # Of products of f32 on GPUs.
    asked = torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32
    of_kernels = precision == "f32" and any(kernel.startswith(_TF32) for kernel in model.kernels.values())
    tf32 = device.type == "cuda" and (asked or of_kernels)
    known: dict[str, Any] = {
        "engine": "pytorch",
        "engine_version": str(torch.__version__),
        "parallel": sharding["parallel"],
        "world": world,
        "mesh": sharding["mesh"],
        "division": "micro_batches" if micro_batches % world == 0 else "rows",
        "precision.compute": precision,
        "precision.reduce": "f32",
        "precision.master": "f32",
        "precision.f32_only": "f32",
        "precision.loss": "f32",
        "precision.tf32": bool(tf32),
        "precision.autocast": "none",
        "loss.terms": "canonc",
        "data.windows": "canonc",
        "compile": sharding["compile"],
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "checkpointing": sharding["checkpointing"],
        "reshard": sharding["reshard"],
        "module": _hash.tagged("canonc.module.v1", (lock.folder / "model.py").read_text(encoding="utf-8")),
        "script": script_digest(),
        "versions.python": platform.python_version(),
        "machine.cpu": _cpu(),
        "machine.hosts": _hosts(),
    }
    if hasattr(model, "drops_at"):
        known["loss.dropout"] = "canonc"
    known |= {f"kernels.{name}": kernel for name, kernel in model.kernels.items()}
    known |= updates.record()
    for package in ("triton", "fla", "mamba_ssm", "causal_conv1d", "numpy"):
        if installed := _kernels.version(package):
            known[f"versions.{package}"] = installed
    if device.type == "cuda":
        known["versions.cuda"] = str(torch.version.cuda)
        known["versions.nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        known["machine.gpu"] = torch.cuda.get_device_name(device)
        known["machine.gpus"] = world
    set_here = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    known |= {f"environment.{name}": value if _SETTING.fullmatch(value) else "not recorded" for name, value in set_here.items()}
    return known | more


def script_digest(*texts: str) -> str:
    """The digest of this package's files and of further texts."""
    files = sorted(Path(__file__).parent.glob("_*.py"))
    return _hash.tagged("canonc.script.v1", "\0".join([*(file.read_text(encoding="utf-8") for file in files), *texts]))


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _hosts() -> int:
    if not dist.is_initialized():
        return 1
    names: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(names, socket.gethostname())
    return len(set(names))


def _read(file: Path) -> dict[str, Any]:
    """The flat keys of a record."""
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Error(f"`{file}` cannot be read, and a run is not continued without its record: {error}") from error
    values.pop("version", None)
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= {f"{key}.{name}": inner for name, inner in value.items()} if isinstance(value, dict) else {key: value}
    return flat


def _text(record: dict[str, Any]) -> str:
    """The record as TOML: a line for each key, sorted."""
    lines = ["version = 1"]
    for key in sorted(record):
        value = record[key]
        if isinstance(value, bool):
            text = "true" if value else "false"
        elif isinstance(value, int):
            text = str(value)
        else:
            text = json.dumps(str(value), ensure_ascii=True)
        lines.append(f"{key} = {text}")
    return "\n".join(lines) + "\n"


def _number(value: float | None) -> float | str | None:
    """Numbers that JSON has not are words."""
    if value is None:
        return None
    return value if math.isfinite(value) else "NaN" if math.isnan(value) else "inf" if value > 0 else "-inf"


class Recorder:
    """Writes the folder of a run. Every rank makes one and makes the same calls; rank 0 writes, and holds the folder.

    `initial` is what `initialise` returned, `record` what `trainer` did. If the folder has a log of this lock and record, it is
    continued: `cut(step)` removes what was logged after a checkpoint.
    """

    def __init__(self, lock: Lock, folder: str | os.PathLike[str], *, initial: str, record: dict[str, Any]) -> None:
        self.lock, self.folder = lock, Path(folder)
        self.writes = _model.rank() == 0
        self._clock = time.monotonic()
        self._record, text = record, _text(record)
        self.trainer = _hash.tagged("canonc.trainer.v1", text)
        self.lines: list[str] = []
        self._writer: IO[str] | None = None
        _model.on_first(lambda: self._open(initial, text))

    def _open(self, initial: str, text: str) -> None:
        """Makes the folder, or reads what is there."""
        lock, record = self.lock, self._record
        self.folder.mkdir(parents=True, exist_ok=True)
        self._writer = _hold(self.folder / "writer")
        kept = self.folder / "lock"
        if kept.exists() and kept.read_text(encoding="utf-8") != lock.text:
            raise Error(f"`{self.folder}` is the folder of another lock's run: name another folder")
        if (self.folder / "attestation.toml").exists():
            raise Error(f"the run in `{self.folder}` is finished: name another folder")
        _replace(kept, lock.text.encode())
        log, kept_record = self.folder / "metrics.jsonl", self.folder / "trainer.toml"
        self.lines = _lines(log)
        if log.exists():
            _replace(log, "".join(line + "\n" for line in self.lines).encode())
        if self.lines:
            self._kept = _read(kept_record)
            for key in sorted(self._kept.keys() | record.keys()):
                if self._kept.get(key) != record.get(key) and not self._may_change(key):
                    raise Error(
                        f"the run in `{self.folder}` was begun with {key} = {self._kept.get(key)!r}, and now it is {record.get(key)!r}: "
                        "go on with the former, or train from the start in another folder"
                    )
            self.trainer = str(json.loads(self.lines[0])["trainer"])
            return
        self._kept = record
        _replace(kept_record, text.encode())
        start = {"kind": "external", "version": 1, "lock": lock.id, "eval": lock.training["eval"]}
        self._append(start | {"initial": initial, "trainer": self.trainer})

    def _may_change(self, key: str) -> bool:
        """Whether a key of the record may differ between the processes of one run."""
        names = self.lock.training["may_change"]
        return any(key.startswith(name) if name.endswith(".") else key == name for name in names)

    @property
    def head(self) -> str:
        """The chain of the last line."""
        return str(json.loads(self.lines[-1])["chain"]) if self.lines else ""

    def _append(self, record: dict[str, Any]) -> None:
        line = json.dumps(record, separators=(",", ":"))
        chain = _hash.tagged(_CHAIN, f"{self.head}\n{line}")
        line = f'{line[:-1]},"chain":"{chain}"}}'
        with open(self.folder / "metrics.jsonl", "a", encoding="utf-8") as log:
            log.write(line + "\n")
        self.lines.append(line)

    def cut(self, step: int) -> None:
        """Removes the lines after a step, which a resumed run computes again, and logs what is different about this process."""
        _model.on_first(lambda: self._cut(step))
        self._clock = time.monotonic()

    def _cut(self, step: int) -> None:
        records = [json.loads(line) for line in self.lines]
        ends = [at for at, record in enumerate(records) if record["kind"] == "step" and record["step"] == step]
        if step and not ends:
            raise Error(f"metrics.jsonl in `{self.folder}` ends before step {step}, from which the saved state goes on: restore the run's folder, or delete its saved states to begin again")
        self.lines = self.lines[: ends[0] + 1 if step else 1]
        for record in records[: len(self.lines)]:
            self._kept = self._kept | record.get("changes", {})
        _replace(self.folder / "metrics.jsonl", "".join(line + "\n" for line in self.lines).encode())
        times = self.folder / "timings.jsonl"
        if times.exists():
            kept = [line for line in _lines(times) if json.loads(line)["step"] <= step]
            _replace(times, "".join(line + "\n" for line in kept).encode())
        checkpoints = _checkpoints(self.folder)
        for number, target in checkpoints.items():
            if number > step:
                _remove(target)
        latest = self.folder / "checkpoints" / "latest"
        if left := max((number for number in checkpoints if number <= step), default=None):
            _replace(latest, f"step-{left:010}\n".encode())
        else:
            latest.unlink(missing_ok=True)
        changed = {key: self._record.get(key) for key in sorted(self._kept.keys() | self._record.keys()) if self._kept.get(key) != self._record.get(key)}
        if changed:
            self._append({"kind": "resumed", "step": step, "changes": changed})

    def close(self) -> None:
        """Lets go of the folder, as the checkpoint of the last step does, too."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def sync(self) -> None:
        """Makes the log safe before a state is saved that needs it."""
        if self.writes:
            with open(self.folder / "metrics.jsonl", "rb") as log:
                os.fsync(log.fileno())

    def step(self, step: Step, loss: float | None, norm: float, terms: dict[str, float] | None = None) -> None:
        """Logs a step: its loss before the update, None if no target counted, and the norm before clipping."""
        if not self.writes:
            return
        logged = json.loads(self.lines[-1]).get("step", 0)
        if step.number != logged + 1:
            raise Error(
                f"metrics.jsonl in `{self.folder}` ends with step {logged}, and this is step {step.number}: "
                "call `cut` with the step that training goes on from, or name another folder"
            )
        line = {"kind": "step", "step": step.number, "loss": _number(loss), "grad_norm": _number(norm), "lr": step.rate}
        line |= {"batch": step.digest, "counted": step.counted}
        self._append(line | {name: _number(value) for name, value in (terms or {}).items()})
        now = time.monotonic()
        with open(self.folder / "timings.jsonl", "a", encoding="utf-8") as times:
            times.write(json.dumps({"step": step.number, "seconds": now - self._clock}, separators=(",", ":")) + "\n")
        self._clock = now

    def due(self, step: int) -> bool:
        """Whether a checkpoint is kept after this step: as the lock says, and the step after each, so that an update can be
        checked; and the last two."""
        every, last = int(self.lock.training["checkpoint_every"]), self.lock.steps
        return step >= last - 1 or bool(every) and step > 1 and step % every in (0, 1)

    def checkpoint(self, model: nn.Module, updates: Updates, step: int) -> None:
        """Writes weights and moments in canonc's form. Every rank must call it."""
        target = self.folder / "checkpoints" / f"step-{step:010}"
        partial = target.with_name(f".{target.name}")
        if self.writes:
            partial.mkdir(parents=True, exist_ok=True)
        parts = {}
        for number, part in enumerate(_PARTS):
            parts[part] = self._part(partial / f"{part}.safetensors", model, updates, number, step)
        if self.writes:
            claims = [
                "# @generated by canonc: a state of a run. The seal is over the text above it.",
                "version = 2",
                f'lock = "{self.lock.id}"',
                f'trainer = "{self.trainer}"',
                f"step = {step}",
                f'chain = "{self.head}"',
            ]
            for part in _PARTS:
                size, file, tensors = parts[part]
                claims += ["", f"[{part}]", f"bytes = {size}", f'file = "{file}"', f'tensors = "{tensors}"']
            text = "\n".join(claims) + "\n"
            seal = _hash.tagged("canonc.external-checkpoint.v1", text)
            _replace(partial / "checkpoint.toml", f'{text}\n[seal]\ndigest = "{seal}"\n'.encode())
            if target.exists():
                _remove(target)
            partial.rename(target)
            _replace(target.parent / "latest", f"{target.name}\n".encode())
            self._prune(step)
        if step == self.lock.steps:
            self.close()

    def _part(self, file: Path, model: nn.Module, updates: Updates, number: int, step: int) -> tuple[int, str, str]:
        """One file of tensors: its size, digest, and the digest of the tensors."""
        rows, header, offset = [], {}, 0
        tensors = list(self._tensors(model, updates, number))
        for row, tensor in tensors:
            # A moment that the optimizer does not keep has no values.
            shape = [0] if tensor is None else row.shape
            size = 4 * math.prod(shape)
            header[row.path] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + size]}
            offset += size
        out = None
        if self.writes:
            head = json.dumps({"__metadata__": {"canonc": f"lock {self.lock.id} step {step}"}} | header, separators=(",", ":")).encode()
            head += b" " * (-len(head) % 8)
            out = open(file, "wb")
            out.write(len(head).to_bytes(8, "little") + head)
        for row, tensor in tensors:
            values = torch.empty(0) if tensor is None else _model.whole(tensor)
            if out is not None:
                values = values.detach().float().contiguous()
                rows.append((row.path, [0] if tensor is None else row.shape, _hash.of_tensor(values)))
                out.write(_hash.memory(values.cpu()))
        if out is None:
            return 0, "", ""
        out.flush()
        os.fsync(out.fileno())
        out.close()
        return file.stat().st_size, _hash.of_file(file), _hash.of_tensors(rows)

    def _tensors(self, model: nn.Module, updates: Updates, number: int) -> Iterator[tuple[Any, torch.Tensor | None]]:
        for row in self.lock.params:
            parameter = model.get_parameter(row.name)
            if number == 0:
                yield row, parameter
                continue
            moments = updates.moments(parameter)
            yield row, moments[number - 1] if number <= len(moments) else None

    def _prune(self, step: int) -> None:
        """Keeps as many checkpoints as the lock says, each with the step after it."""
        keep, every = int(self.lock.training["checkpoint_keep"]), int(self.lock.training["checkpoint_every"])
        all_steps = _checkpoints(self.folder)
        firsts = sorted((s for s in all_steps if every and s % every == 0), reverse=True)
        kept = {s + i for s in firsts[: max(keep, 1)] for i in (0, 1)} | {step, step - 1, self.lock.steps - 1}
        for number, target in all_steps.items():
            if number not in kept:
                _remove(target)


def _lines(file: Path) -> list[str]:
    """The complete lines of a file: a process that was killed may have left a part of one, and a power cut zeros."""
    text = file.read_text(encoding="utf-8").partition("\0")[0] if file.exists() else ""
    return text[: text.rfind("\n") + 1].splitlines()


def _hold(file: Path) -> IO[str]:
    """Takes the lock of a run's folder, as canonc does; the system releases it however the process ends."""
    writer = open(file, "a+", encoding="utf-8")
    try:
        fcntl.flock(writer, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        writer.seek(0)
        raise Error(f"`{file.parent}` is in use by {writer.read().strip() or 'another process'}: wait until it ends, or name another folder")
    writer.truncate(0)
    writer.write(f"process {os.getpid()}\n")
    writer.flush()
    return writer


def _checkpoints(folder: Path) -> dict[int, Path]:
    return {int(target.name[5:]): target for target in (folder / "checkpoints").glob("step-*") if target.name[5:].isdigit()}


def _remove(target: Path) -> None:
    for file in target.iterdir():
        file.unlink()
    target.rmdir()


def _replace(file: Path, data: bytes) -> None:
    """Writes a file that is complete or absent."""
    temporary = file.with_name(f".{file.name}.tmp")
    with open(temporary, "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(file)
