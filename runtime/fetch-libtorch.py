"""Fetches the lean CPU libtorch that `runtime` links: `python3 runtime/fetch-libtorch.py DEST`.

It downloads the wheels of libtorch.txt (version and sha256 of each; 544 MB) and keeps only what compiling and running on
a CPU need: DEST/torch/{include,lib} and DEST/nvidia/cu13/lib. A second call does nothing.

Everything happens in a folder beside DEST that is renamed at the end, so DEST is absent, as it was before, or complete.
pip's own settings (index, proxy, cache) decide where the wheels come from. No Python of the wheels is imported or run.
"""

import fcntl
import fnmatch
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile

WHEELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libtorch.txt")
KEEP = (
    "torch/include/*",
    "torch/lib/libc10.so",
    "torch/lib/libgomp.so.1",
    "torch/lib/libtorch.so",
    "torch/lib/libtorch_cpu.so",
    "torch/lib/libtorch_global_deps.so",
    "nvidia/cu13/lib/libcudart.so.13",
    "nvidia/cu13/lib/libcupti.so.13",
    "*.dist-info/licenses/*",
)
OLDEST_PIP = (19, 2)
NEEDED_BYTES = 1300 << 20  # the wheels and the tree are both there for a moment
OWN = (
    "or install PyTorch 2.11 yourself and `export LIBTORCH_USE_PYTORCH=1` (the one `python3` imports), "
    "or `export LIBTORCH=/path/to/libtorch`"
)


def fail(what, cure, code=3):
    sys.stderr.write("error: {}\nhelp: {}\n".format(what, cure))
    sys.exit(code)


def read_wheels(text):
    """[(requirement line, platform tag)] of libtorch.txt."""
    wheels, tag = [], None
    for line in text.splitlines():
        note = re.match(r"# platform: (\S+)$", line)
        if note:
            tag = note.group(1)
        elif line and not line.startswith("#"):
            wheels.append((line, tag))
    return wheels


def check_machine(parent):
    machine = (platform.system(), platform.machine())
    if machine != ("Linux", "x86_64"):
        fail("the pinned libtorch is for x86-64 Linux, this is {1} {0}".format(*machine), OWN[3:])
    asked = subprocess.run([sys.executable, "-m", "pip", "--version"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    if asked.returncode:
        fail(
            "{} has no pip".format(sys.executable),
            "install it (Debian, Ubuntu: `apt install python3-pip`; others: `python3 -m ensurepip --user`) and repeat, " + OWN,
        )
    version = re.match(r"pip (\d+)\.(\d+)", asked.stdout.decode())
    if version and tuple(map(int, version.groups())) < OLDEST_PIP:
        fail(
            "the pip of {} is {}, fetching wheels for another Python takes {}".format(
                sys.executable, ".".join(version.groups()), ".".join(map(str, OLDEST_PIP))
            ),
            "`{} -m pip install --user --upgrade pip` and repeat, ".format(sys.executable) + OWN,
        )
    free = shutil.disk_usage(parent).free
    if free < NEEDED_BYTES:
        fail("{} has {} MB free, fetching libtorch takes {} MB".format(parent, free >> 20, NEEDED_BYTES >> 20), "make room and repeat, " + OWN)


def download(requirement, tag, work):
    """The path of the one wheel that `requirement` names, its sha256 checked by pip."""
    name = requirement.split()[0]
    one = os.path.join(work, "wheel.txt")
    with open(one, "w") as file:
        file.write(requirement + "\n")
    before = set(os.listdir(work))
    # The version as digits and one platform at a time: every pip since OLDEST_PIP takes this form.
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--require-hashes", "--no-deps"]
    command += ["--only-binary=:all:", "--platform", tag, "--python-version", "312", "--implementation", "cp", "--abi", "cp312"]
    command += ["--dest", work, "--requirement", one]
    # pip unpacks through TMPDIR, often a small tmpfs: keep it beside the destination.
    if subprocess.call(command, env=dict(os.environ, TMPDIR=work)):
        fail(
            "pip could not fetch {} (its reason stands above)".format(name),
            "check the network or pip's index settings and repeat `make libtorch` (a hash mismatch means the index gave other bytes), " + OWN,
        )
    wheels = [file for file in set(os.listdir(work)) - before if file.endswith(".whl")]
    if len(wheels) != 1:
        fail("pip left {} wheels for {}, expected one".format(len(wheels), name), "repeat `make libtorch`, " + OWN)
    return os.path.join(work, wheels[0])


def unpack(wheel, tree):
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            if not member.endswith("/") and any(fnmatch.fnmatchcase(member, keep) for keep in KEEP):
                archive.extract(member, tree)
    os.remove(wheel)


def stamp_of(tree):
    try:
        with open(os.path.join(tree, "wheels.sha256")) as file:
            return file.read().strip()
    except OSError:
        return None


def fetch(dest):
    with open(WHEELS, "rb") as file:
        pinned = file.read()
    # What is kept decides the tree as much as what is fetched.
    want = hashlib.sha256(pinned + repr(KEEP).encode()).hexdigest()
    if stamp_of(dest) == want:
        return
    parent, base = os.path.split(dest)
    os.makedirs(parent, exist_ok=True)
    with open(os.path.join(parent, ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second `make` waits, and then finds the work done
        if stamp_of(dest) == want:
            return
        check_machine(parent)
        for entry in os.listdir(parent):  # what a killed fetch left
            if entry.startswith("." + base + "-"):
                shutil.rmtree(os.path.join(parent, entry), ignore_errors=True)
        work = os.path.join(parent, ".{}-{}".format(base, os.getpid()))
        tree = os.path.join(work, "tree")
        os.makedirs(tree)
        try:
            wheels = read_wheels(pinned.decode())
            print("fetching {} into {} (544 MB, once)".format(", ".join(w.split()[0] for w, _ in wheels), dest), flush=True)
            for requirement, tag in wheels:
                unpack(download(requirement, tag, work), tree)
            version = next(w.split()[0].split("==")[1] for w, _ in wheels if w.startswith("torch=="))
            with open(os.path.join(tree, "torch", "build-version"), "w") as file:
                file.write(version + "\n")  # torch-sys checks it against the version tch is for
            with open(os.path.join(tree, "wheels.sha256"), "w") as file:
                file.write(want + "\n")
            os.sync()
            if os.path.lexists(dest):
                os.rename(dest, os.path.join(work, "old"))
            os.rename(tree, dest)
        finally:
            shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        fail("expected one destination folder, got {} arguments".format(len(sys.argv) - 1), "python3 runtime/fetch-libtorch.py third_party/libtorch", 2)
    try:
        fetch(os.path.abspath(sys.argv[1]))
    except KeyboardInterrupt:
        fail("interrupted; nothing was left half done", "repeat `make libtorch`", 130)
    except OSError as problem:
        fail("{}".format(problem), "see that the folder is writable and has room, and repeat `make libtorch`, " + OWN)
