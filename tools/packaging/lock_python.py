"""Locks the Python packages that this repository installs, with all that they need, by version and sha256.

`python3 tools/packaging/lock_python.py` resolves every requirements*.txt again and writes a *.locked.txt beside it, which
pip installs with `--require-hashes`; words name files to do alone. `--check`, offline, only compares. The hashes are those
of all wheels for Linux on x86-64 and Python 3.11 to 3.14. Exit codes: 1 if a file is older than its source, 2 for unknown
words, 3 without Python 3.11, uv or a network.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import venv

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
# uv itself comes by hash, too.
UV = "tools/packaging/requirements.locked.txt"
# What is installed with `--no-deps`: the rest is there already, or not wanted.
ALONE = ("python/requirements-torch.locked.txt", "tests/requirements-older.locked.txt")
MACHINE = "implementation_name == 'cpython' and platform_machine == 'x86_64' and sys_platform == 'linux'"


def sources():
    """The files to write, each with the one that it is made from."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*requirements*.txt"],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True,
    ).stdout.split()
    names = [name for name in listed if not name.endswith(".locked.txt") and os.path.exists(os.path.join(ROOT, name))]
    pairs = {name[: -len(".txt")] + ".locked.txt": name for name in sorted(names)}
    # For the Python at hand; libtorch.txt has the hashes of one wheel each, which is only unpacked.
    return pairs | {"python/requirements-torch.locked.txt": "runtime/libtorch.txt"}


def requirements(name):
    """The requirements of a file, and of those that it includes."""
    found = []
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        for line in file:
            words = line.split("#")[0].split()
            if words[:1] == ["-r"]:
                found += requirements(os.path.join(os.path.dirname(name), words[1]))
            elif words:
                found.append(words[0])
    return found


def heading(target, source):
    """The first line of a locked file."""
    digest = hashlib.sha256("\n".join(requirements(source)).encode()).hexdigest()[:16]
    alone = ", without what these need" if target in ALONE else ""
    return f"# {source} ({digest}) as tools/packaging/lock_python.py locked it{alone}. Do not edit.\n"


def uv():
    """The program uv, in an environment of its own."""
    with open(os.path.join(ROOT, UV), "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()[:16]
    home = os.path.join(TARGET, f"lock-env-{digest}")
    program = os.path.join(home, "bin", "uv")
    if not os.path.exists(program):
        venv.create(home, clear=True, with_pip=True)
        command = [os.path.join(home, "bin", "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        if subprocess.call([*command, "--require-hashes", "-r", os.path.join(ROOT, UV)]):
            fail("pip could not install uv (its reason stands above)", "connect to a package index and repeat", 3)
    return program


def locked(target, source, program):
    """The text of a locked file."""
    wanted = requirements(source)
    lines = [
        "[project]", 'name = "locked"', 'version = "0"', 'requires-python = ">=3.11,<3.15"',
        f"dependencies = {json.dumps(wanted)}", "[tool.uv]", f"environments = {json.dumps([MACHINE])}",
    ]
    for one in wanted if target in ALONE else []:
        name, version = one.split("==")
        lines += ["[[tool.uv.dependency-metadata]]", f'name = "{name}"', f'version = "{version}"', "requires-dist = []"]
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "pyproject.toml"), "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
            command = [program, "export", "--quiet", "--python", sys.executable, "--directory", folder]
        command += ["--no-emit-project", "--no-header", "--no-annotate", "--format", "requirements-txt"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        fail(f"uv could not lock {source} (its reason stands above)", "mend the file, or connect to a package index", 3)
    return heading(target, source) + done.stdout.replace(f" ; {MACHINE}", "").replace(f" and {MACHINE}", "")


def fail(what, cure, code):
    print(f"error: {what}\nhelp: {cure}", file=sys.stderr)
    sys.exit(code)


def main():
    if sys.version_info < (3, 11):
        fail("this needs Python 3.11 or newer", "put another one first on PATH, as python3", 3)
    pairs, words = sources(), sys.argv[1:]
    if words == ["--check"]:
        old = []
        for target, source in pairs.items():
            path = os.path.join(ROOT, target)
            first = open(path, encoding="utf-8").readline() if os.path.exists(path) else ""
            old += [target] if first != heading(target, source) else []
        if old:
            fail(f"not locked from what is there now: {', '.join(old)}", "python3 tools/packaging/lock_python.py", 1)
        return
    unknown = [word for word in words if word not in {**pairs, **{source: None for source in pairs.values()}}]
    if unknown:
        fail(f"no such file: {', '.join(unknown)}", f"one of {', '.join(pairs.values())}", 2)
    program = uv()
    for target, source in pairs.items():
        if not words or target in words or source in words:
            text = locked(target, source, program)
            with open(os.path.join(ROOT, target), "w", encoding="utf-8") as file:
                file.write(text)
            print(f"{target}: {text.count('==')} packages")


if __name__ == "__main__":
    main()
