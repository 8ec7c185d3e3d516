"""Prints the licences of everything that is compiled into the programs: `python3 tools/packaging/licences.py`.

The output is a list of crates with their licences, then every text once, with the crates that it belongs to. A crate
without a licence file gets the standard text of its licence; if that is not known, the script fails. The output depends
on Cargo.lock alone.
"""

import json
import os
import re
import subprocess
import sys
from collections import defaultdict

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TARGET = "x86_64-unknown-linux-gnu"
NAMES = re.compile(r"(?i)^(licen[cs]e|copying|copyright|notice|unlicense)([-_.].*)?$")
DEPTH = 3  # C sources inside a crate have their own files


#: For crates without a file, where no other crate has the text.
BSD_2 = """\
Redistribution and use in source and binary forms, with or without modification, are permitted provided that the
following conditions are met:

1. Redistributions of source code must retain the above copyright notice, this list of conditions and the following
   disclaimer.

2. Redistributions in binary form must reproduce the above copyright notice, this list of conditions and the following
   disclaimer in the documentation and/or other materials provided with the distribution.

THIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS AND CONTRIBUTORS “AS IS” AND ANY EXPRESS OR IMPLIED WARRANTIES,
INCLUDING, BUT NOT LIMITED TO, THE IMPLIED WARRANTIES OF MERCHANTABILITY AND FITNESS FOR A PARTICULAR PURPOSE ARE
DISCLAIMED. IN NO EVENT SHALL THE COPYRIGHT HOLDER OR CONTRIBUTORS BE LIABLE FOR ANY DIRECT, INDIRECT, INCIDENTAL,
SPECIAL, EXEMPLARY, OR CONSEQUENTIAL DAMAGES (INCLUDING, BUT NOT LIMITED TO, PROCUREMENT OF SUBSTITUTE GOODS OR
SERVICES; LOSS OF USE, DATA, OR PROFITS; OR BUSINESS INTERRUPTION) HOWEVER CAUSED AND ON ANY THEORY OF LIABILITY,
WHETHER IN CONTRACT, STRICT LIABILITY, OR TORT (INCLUDING NEGLIGENCE OR OTHERWISE) ARISING IN ANY WAY OUT OF THE USE OF
THIS SOFTWARE, EVEN IF ADVISED OF THE POSSIBILITY OF SUCH DAMAGE."""

BSD_3 = BSD_2.replace("\n\nTHIS SOFTWARE", """

3. Neither the name of the copyright holder nor the names of its contributors may be used to endorse or promote products
   derived from this software without specific prior written permission.

THIS SOFTWARE""")


def metadata() -> dict:
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", TARGET]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE)
    if done.returncode:
        sys.exit(done.returncode)
    return json.loads(done.stdout)


def linked(graph: dict) -> list[dict]:
    """The packages of other people that are in the programs: reached without build scripts, macros and tests."""
    packages = {package["id"]: package for package in graph["packages"]}
    nodes = {node["id"]: node for node in graph["resolve"]["nodes"]}
    root = next(package["id"] for package in graph["packages"] if package["name"] == "canonc")
    seen, waiting = set(), [root]
    while waiting:
        one = waiting.pop()
        kinds = {kind for target in packages[one]["targets"] for kind in target["kind"]}
        if one in seen or "proc-macro" in kinds:
            continue
        seen.add(one)
        for dependency in nodes[one]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                waiting.append(dependency["pkg"])
    own = set(graph["workspace_members"])
    foreign = [packages[one] for one in seen - own]
    return sorted(foreign, key=lambda package: (package["name"], package["version"]))


def texts(folder: str) -> dict[str, str]:
    """The licence files below a folder, by their names in it."""
    by_name = {}
    for at, folders, files in os.walk(folder):
        inside = os.path.relpath(at, folder)
        folders.sort()
        if inside.count(os.sep) + (inside != ".") >= DEPTH:
            folders.clear()
        folders[:] = [name for name in folders if name not in ("tests", "test", "benches", "examples", "target")]
        for name in sorted(files):
            path = os.path.join(at, name)
            if NAMES.match(name) and not name.endswith((".rs", ".py", ".toml", ".json")):
                with open(path, encoding="utf-8", errors="replace") as file:
                    text = "\n".join(line.rstrip() for line in file.read().strip().splitlines())
                if len(text) > 100:  # a line that points at another file is no text
                    by_name[os.path.normpath(os.path.join(inside, name))] = text
    return by_name


def choices(expression: str) -> list[str]:
    return [word for word in re.split(r"[()/\s]+|\bOR\b|\bAND\b|\bWITH\b", expression) if word and "exception" not in word]


def is_mit(text: str) -> bool:
    """Whether a file is the MIT licence and nothing else."""
    return "Permission is hereby granted, free of charge" in text and text.endswith("DEALINGS IN THE SOFTWARE.")


def main() -> None:
    packages = linked(metadata())
    with open(os.path.join(ROOT, "LICENSE"), encoding="utf-8") as file:
        standard = {"BSD-2-Clause": BSD_2, "BSD-3-Clause": BSD_3, "Apache-2.0": file.read().strip()}
    owners, without = defaultdict(list), []
    for package in packages:
        name = f"{package['name']} {package['version']}"
        files = texts(os.path.dirname(package["manifest_path"]))
        for file, text in files.items():
            owners[text].append(f"{name} ({file})")
            if is_mit(text):
                # Without the line of its owner.
                standard.setdefault("MIT", text[text.index("Permission is hereby") :])
        if not files:
            without.append((name, package["license"] or ""))
    for name, expression in without:
        usable = [choice for choice in choices(expression) if choice in standard]
        if not usable:
            sys.exit(f"error: {name} has no licence file, and no text of {expression or 'its licence'} is known\n"
                     "help: add the text to tools/packaging/licences.py, or use another crate")
        authors = ", ".join(next(p["authors"] for p in packages if f"{p['name']} {p['version']}" == name))
        owners[standard[usable[0]]].append(f"{name} (no file; {usable[0]}; by {authors or 'its authors'})")
    with open(os.path.join(ROOT, "report/page/vendor/LICENSE"), encoding="utf-8") as file:
        owners[file.read().strip()].append("uPlot (report/page/vendor)")

    print("What is compiled into `canonc` and `canonc-torch`, with licences. canonc itself: see LICENSE and NOTICE.")
    print("The Rust standard library (MIT OR Apache-2.0) is part of both programs. PyTorch is not part of them.\n")
    for package in packages:
        print(f"{package['name']} {package['version']}: {package['license'] or 'see its text'}")
    for text, names in sorted(owners.items(), key=lambda item: (item[1], item[0])):
        print("\n" + "=" * 100)
        print("\n".join(sorted(names)))
        print("-" * 100)
        print(text)


if __name__ == "__main__":
    main()
