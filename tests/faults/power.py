"""Cuts the power of a machine that trains, many times: power.py CANONC LOCK [--data FILE] [--cuts N] [--ranks N] [--seed N].

A run is recorded once, with every write, name and sync (shim.c). For each cut, the folder is what a disk may hold at a moment of
it: what was synced is there; of the rest each file has all, a part, nothing, zeros in its place, or some blocks of it, and
names that were not synced exist or not. Then the same command goes on, and its run must finish, have the log of a run
without a cut, and verify. Needs a C compiler and no packages.
"""

import argparse
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile

PARSER = argparse.ArgumentParser(description=__doc__.splitlines()[0])
PARSER.add_argument("canonc")
PARSER.add_argument("lock")
PARSER.add_argument("--data")
PARSER.add_argument("--cuts", type=int, default=200)
PARSER.add_argument("--ranks", type=int, default=1)
PARSER.add_argument("--seed", type=int, default=0)
ASKED = PARSER.parse_args()
HERE = os.path.dirname(os.path.abspath(__file__))
HEAD = struct.Struct("<cIIIq")


def run(root, environment=None):
    """Trains in `root`, with event files."""
    words = [ASKED.canonc, "-q", "run", ASKED.lock, "--dir", root + "/run", "--tensorboard", root + "/events"]
    if ASKED.data:
        words += ["--data", ASKED.data]
    if ASKED.ranks > 1:
        words += ["--ranks", str(ASKED.ranks)]
    ended = subprocess.run(words, env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}, capture_output=True, text=True)
    return ended.returncode, ended.stderr


def records(path, root):
    """(kind, path, second path, bytes, offset) of each operation; paths are below `root`."""
    below = lambda path: os.path.relpath(path, root)
    with open(path, "rb") as file:
        data = file.read()
    at, all_records = 0, []
    while at < len(data):
        kind, first, second, length, offset = HEAD.unpack_from(data, at)
        at += HEAD.size
        first, second, content = (data[at : at + first], data[at + first : at + first + second], data[at + first + second : at + first + second + length])
        at += len(first) + len(second) + length
        # A file that was deleted while it was open.
        if not first.endswith(b" (deleted)"):
            all_records.append((kind.decode(), below(first.decode()), below(second.decode()) if second else None, content, offset))
    return all_records


class File:
    def __init__(self):
        self.synced, self.now, self.changes = bytearray(), bytearray(), []

    def change(self, offset, content):
        put(self.now, offset, content)
        self.changes.append((offset, content))

    def sync(self):
        self.synced, self.changes = bytearray(self.now), []

    def survives(self, draw):
        """What is on the disk after the cut. `None` for content is a change of the length."""
        how = draw.choice(["all", "nothing", "part", "zeros", "some"])
        if how == "all":
            return bytes(self.now)
        data, changes = bytearray(self.synced), self.changes
        if how == "part" and changes:
            count = draw.randrange(len(changes))
            for offset, content in changes[:count]:
                put(data, offset, content)
            offset, content = changes[count]
            put(data, offset, content and content[: draw.randrange(len(content) + 1)])
        if how in ("zeros", "some"):
            put(data, len(self.now), None)
            for offset, content in changes:
                if content is not None and offset < len(data):
                    for start in range(0, len(content), 4096):
                        block = content[start : start + 4096]
                        kept = how == "some" and draw.random() < 0.5
                        put(data, offset + start, block if kept else bytes(len(block)))
            del data[len(self.now) :]
        return bytes(data)


def put(data, offset, content):
    if content is None:
        del data[offset:]
        data.extend(bytes(offset - len(data)))
        return
    data.extend(bytes(max(0, offset - len(data))))
    data[offset : offset + len(content)] = content


def change(names, operation, draw=None):
    """Does an operation on names, which maps paths to files, and folders to None."""
    kind, path, second, file = operation
    if kind == "c":
        names[path] = file
    elif kind == "m":
        names[path] = None
    elif kind == "u":
        names.pop(path, None)
    elif kind in "rl" and path in names:
        moved = {name: names[name] for name in names if name == path or name.startswith(path + "/")}
        if kind == "r":
            for name in moved:
                del names[name]
        for name in [name for name in names if name == second or name.startswith(second + "/")]:
            del names[name]
        for name, file in moved.items():
            names[second + name[len(path) :]] = file


def disk(operations, draw):
    """The files and folders after a cut behind these operations."""
    now, synced, waiting = {}, {}, []
    # Either a sync makes all earlier names durable, as in a journal, or only those of its own folder.
    strict = draw.random() < 0.5
    for kind, path, second, content, offset in operations:
        if kind in "cmurl":
            file = File() if kind == "c" else None
            operation = (kind, path, second, file)
            change(now, operation)
            waiting.append(operation)
        elif kind == "w" and now.get(path):
            now[path].change(offset, content)
        elif kind == "t" and now.get(path):
            now[path].change(offset, None)
        elif kind == "s":
            if now.get(path):
                now[path].sync()
            # A file's sync makes the file durable, and with it the name that it was made under.
            def durable(operation):
                of_folder = path in (os.path.dirname(operation[1]), os.path.dirname(operation[2] or operation[1]))
                of_file = now.get(path) is not None and operation[3] is now.get(path)
                return not strict or of_folder or of_file
            for operation in [operation for operation in waiting if durable(operation)]:
                change(synced, operation)
                waiting.remove(operation)
    # Those that wait are done in order, up to some moment; in strict mode in each folder by itself.
    ends = {}
    for operation in waiting:
        folder = os.path.dirname(operation[1]) if strict else ""
        if ends.setdefault(folder, draw.random()) > draw.random():
            change(synced, operation)
        else:
            ends[folder] = -1
    return {path: file and file.survives(draw) for path, file in synced.items()}


def write(root, files):
    for path in sorted(files):
        target = os.path.join(root, path)
        # A name in a folder whose own name is lost is lost.
        if os.path.dirname(path) and not os.path.isdir(os.path.dirname(target)):
            continue
        if files[path] is None:
            os.mkdir(target)
        else:
            with open(target, "wb") as file:
                file.write(files[path])


def read(path):
    with open(path, "rb") as file:
        return file.read()


def main():
    work = os.path.realpath(tempfile.mkdtemp(prefix="power"))
    shim = work + "/shim.so"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", shim, HERE + "/shim.c", "-ldl", "-lpthread"], check=True)
    whole = work + "/whole"
    os.mkdir(whole)
    code, said = run(whole, {"LD_PRELOAD": shim, "FAULT_UNDER": whole, "FAULT_JOURNAL": work + "/journal"})
    assert code == 0, said
    log = read(whole + "/run/metrics.jsonl")
    operations = records(work + "/journal", whole)
    assert len(operations) > 100 and any(kind == "s" for kind, *_ in operations), len(operations)
    size = lambda root: sum(os.path.getsize(os.path.join(root, "events", name)) for name in os.listdir(root + "/events"))
    failed = 0
    for number in range(ASKED.cuts):
        draw = random.Random(ASKED.seed * 1_000_003 + number)
        end = draw.randrange(len(operations) + 1)
        root = "{}/cut{}".format(work, number)
        os.mkdir(root)
        write(root, disk(operations[:end], draw))
        shutil.copytree(root, root + ".before", symlinks=True)
        code, said = run(root)
        fault = "it exits with {}: {}".format(code, said) if code else None
        if not fault and read(root + "/run/metrics.jsonl") != log:
            fault = "its log is another"
        if not fault:
            verified = subprocess.run([ASKED.canonc, "verify", root + "/run"], capture_output=True, text=True)
            if verified.returncode:
                fault = "verify exits with {}: {}".format(verified.returncode, verified.stdout + verified.stderr)
        if not fault and size(root) != size(whole):
            fault = "its event files have {} bytes, and {} without a cut".format(size(root), size(whole))
        if fault:
            failed += 1
            print("cut {} after operation {} of {}: {}\n  the folder before: {}.before".format(number, end, len(operations), fault, root))
        else:
            shutil.rmtree(root)
            shutil.rmtree(root + ".before")
    print("{} cuts, {} failed".format(ASKED.cuts, failed))
    if not failed:
        shutil.rmtree(work)
    sys.exit(1 if failed else 0)


main()
