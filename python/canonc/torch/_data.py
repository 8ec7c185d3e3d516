"""The windows of a lock: each rank's part of every step, from `canonc data stream`."""

from __future__ import annotations

import subprocess
import zlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import IterableDataset

from ._lock import Error, Lock, program

_HEADER, _STEP = 64, 56


@dataclass(frozen=True)
class Micro:
    """A micro-batch, or this rank's rows of it."""

    #: Token ids and targets [rows, seq_len] in int64; -100 is not counted.
    tokens: torch.Tensor
    targets: torch.Tensor
    #: The number of each row's window [rows].
    windows: torch.Tensor
    #: Targets that count in the whole step, of all ranks.
    counted: int
    #: Whether it is this rank's last one of the step.
    last: bool

    def to(self, device: torch.device | str) -> Micro:
        """The same on a device."""
        tokens, targets, windows = (x.to(device, non_blocking=True) for x in (self.tokens, self.targets, self.windows))
        return Micro(tokens, targets, windows, self.counted, self.last)


@dataclass(frozen=True)
class Step:
    """This rank's part of a step."""

    #: From 1.
    number: int
    #: Targets that count in the whole step, of all ranks.
    counted: int
    #: The learning rate.
    rate: float
    #: The digest of the step's windows, in hexadecimal digits; None where it was not computed.
    digest: str | None
    micro: list[Micro]

    def __iter__(self) -> Iterator[Micro]:
        return iter(self.micro)


class Windows(IterableDataset):
    """The steps of a lock from `start` + 1 on. `steps()` gives whole steps; iteration gives micro-batches as dictionaries.

    Its state is the number of steps that were read, so any number of ranks continues from any step. Another process
    makes the windows: use no workers.
    """

    def __init__(self, lock: Lock, rank: int = 0, world: int = 1, start: int = 0, *, digest: bool | None = None) -> None:
        super().__init__()
        self.lock, self.rank, self.world, self.step = lock, rank, world, start
        #: Whether the digests of whole steps are computed: by rank 0 by default.
        self.digest = rank == 0 if digest is None else digest

    def state_dict(self) -> dict[str, int]:
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.step = state["step"]

    def steps(self) -> Generator[Step, None, None]:
        """Each step that is left, up to the lock's last one."""
        if self.step >= self.lock.steps:
            return
        name, environment = program()
        words = [name, "data", "stream", str(self.lock.path), f"--rank={self.rank}", f"--of={self.world}"]
        words += [f"--from-step={self.step + 1}"] + (["--digest"] if self.digest else [])
        words += [] if self.lock.data is None else [f"--data={self.lock.data}"]
        # In a session of its own, it is not stopped by the signals that ask this process to save and stop.
        try:
            process = subprocess.Popen(
                words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
            )
        except OSError as error:
            raise Error(f"`{name}` cannot be started: {error.strerror}; CANONC is the path of the program", 3) from error
        try:
            yield from self._read(process)
        finally:
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
            process.kill()
            process.wait()

    def _read(self, process: subprocess.Popen[bytes]) -> Iterator[Step]:
        header = _take(process, _HEADER)
        if header[:12] != b"canonc s\1\0\0\0":
            raise Error("`canonc data stream` wrote another format: install the program and this package of one version")
        if header[12:44].hex() != self.lock.id:
            raise Error(f"`{self.lock.path}` is lock {header[12:44].hex()[:12]}, and params.toml beside it is of {self.lock.id[:12]}")
        seq_len, rows, count = (int.from_bytes(header[i : i + 4], "little") for i in range(44, 56, 4))
        size = _STEP + count * (8 + 8 * rows * seq_len)
        while self.step < self.lock.steps:
            frame = _take(process, size + 4)
            if zlib.crc32(memoryview(frame)[:size]) != int.from_bytes(frame[size:], "little"):
                raise Error(f"the windows of step {self.step + 1} were damaged between `canonc data stream` and this process")
            yield self._step(frame, (count, rows, seq_len))
            self.step += 1

    def _step(self, frame: bytearray, shape: tuple[int, int, int]) -> Step:
        count, rows, seq_len = shape
        counted = int.from_bytes(frame[8:16], "little")
        micro = []
        for i in range(count):
            at = _STEP + i * (8 + 8 * rows * seq_len)
            first = int.from_bytes(frame[at : at + 8], "little")
            ids = torch.frombuffer(frame, dtype=torch.int32, count=2 * rows * seq_len, offset=at + 8)
            tokens, targets = ids.view(2, rows, seq_len).long().unbind()
            windows = torch.arange(first, first + rows)
            micro.append(Micro(tokens, targets, windows, counted, i == count - 1))
        return Step(
            number=int.from_bytes(frame[:8], "little"),
            counted=counted,
            rate=torch.frombuffer(frame, dtype=torch.float64, count=1, offset=16).item(),
            digest=bytes(frame[24:56]).hex() if self.digest else None,
            micro=micro,
        )

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for step in self.steps():
            for micro in step:
                yield {
                    "tokens": micro.tokens,
                    "targets": micro.targets,
                    "windows": micro.windows,
                    "counted": micro.counted,
                    "last": micro.last,
                }


def _take(process: subprocess.Popen[bytes], size: int) -> bytearray:
    """The next bytes of the stream."""
    assert process.stdout is not None and process.stderr is not None
    data = bytearray(size)
    view, filled = memoryview(data), 0
    while filled < size:
        count = process.stdout.readinto(view[filled:])  # type: ignore[attr-defined]
        if not count:
            message = process.stderr.read().decode(errors="replace").strip()
            code = process.wait()
            raise Error(message or f"`canonc data stream` ended early with exit code {code}")
        filled += count
    return data


def windows(lock: Lock, rank: int = 0, world: int = 1, start: int = 0) -> Windows:
    """The windows that a rank trains on, after `start` steps."""
    return Windows(lock, rank, world, start)
