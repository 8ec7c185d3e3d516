"""Lets each operation of a command on the disk fail, one at a time: index.py CANONC FOLDER [--error NUMBER|kill] -- WORDS...

WORDS is the command, run in a copy of FOLDER. First it runs without a fault. Then, for each operation on a file of the copy
(shim.c), it runs in a new copy in which that one fails: it must end as without one or with 3, and say which error it was. Then
the same command runs again, without a fault, and must leave the same files as it does without faults, and no others.
--every K takes one operation in K, --again WORDS another command to go on with. Needs a C compiler and no packages.
"""

import argparse
import errno
import os
import shutil
import subprocess
import sys
import tempfile

PARSER = argparse.ArgumentParser(description=__doc__.splitlines()[0])
PARSER.add_argument("canonc")
PARSER.add_argument("folder")
PARSER.add_argument("--error", default="5")
PARSER.add_argument("--every", type=int, default=1)
PARSER.add_argument("--first", type=int, default=1)
PARSER.add_argument("--again", default=None)
PARSER.add_argument("--finding", action="store_true", help="the command ends with 1 without a fault")
if "--" not in sys.argv:
    PARSER.error("the command comes after `--`")
AT = sys.argv.index("--")
ASKED = PARSER.parse_args(sys.argv[1:AT])
ASKED.words = sys.argv[AT + 1 :]
HERE = os.path.dirname(os.path.abspath(__file__))
#: Files whose bytes follow from the inputs.
EQUAL = (".lock", "metrics.jsonl", ".index", ".safetensors", ".canon", ".toml.sig", "latest")
KILLED = -9


def run(words, folder, environment=None):
    ended = subprocess.run(
        [ASKED.canonc, *words], cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
    )
    return ended.returncode, ended.stdout + ended.stderr


def named(error):
    """How an error may be named."""
    return [os.strerror(error).lower()] + ["the disk is full"] * (error == errno.ENOSPC)


def tree(folder):
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            content = None
            if name.endswith(EQUAL):
                with open(path, "rb") as file:
                    content = file.read()
            found[os.path.relpath(path, folder)] = content
    return found


def main():
    work = os.path.realpath(tempfile.mkdtemp(prefix="faults"))
    shim, count = work + "/shim.so", work + "/count"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", shim, HERE + "/shim.c", "-ldl", "-lpthread"], check=True)
    here = work + "/here"
    again = ASKED.again.split() if ASKED.again else ASKED.words

    def faulty(at):
        open(count, "wb").close()
        return run(ASKED.words, here, {"LD_PRELOAD": shim, "FAULT_UNDER": here + "/", "FAULT_COUNT": count, "FAULT_AT": str(at), "FAULT_ERROR": ASKED.error})

    def begin():
        shutil.rmtree(here, ignore_errors=True)
        shutil.copytree(ASKED.folder, here, symlinks=True)

    begin()
    fine, said = faulty(0)
    if fine != (1 if ASKED.finding else 0):
        sys.exit("without a fault it ends with {}: {}".format(fine, said))
    operations = os.path.getsize(count)
    code, said = run(again, here)
    if code != fine:
        sys.exit("again, it ends with {}: {}".format(code, said))
    wanted = tree(here)
    failed = tried = 0
    for at in range(ASKED.first, operations + 1, ASKED.every):
        tried += 1
        begin()
        code, said = faulty(at)
        faults = []
        if ASKED.error == "kill":
            if code not in (fine, 3, KILLED):
                faults.append("it ends with {}: {}".format(code, said))
        elif code not in (fine, 3):
            faults.append("it ends with {}: {}".format(code, said))
        elif code == 3 and fine != 3 and not any(name in said.lower() for name in named(int(ASKED.error))):
            faults.append("it does not say which error it was: {}".format(said))
        code, said = run(again, here)
        if code != fine:
            faults.append("again, it ends with {}: {}".format(code, said))
        else:
            left = tree(here)
            for path in sorted(set(left) | set(wanted)):
                if path not in left:
                    faults.append("{} is missing".format(path))
                elif path not in wanted:
                    faults.append("{} is left".format(path))
                elif left[path] != wanted[path]:
                    faults.append("{} is another".format(path))
        if faults:
            failed += 1
            print("operation {} of {}: {}".format(at, operations, "; ".join(fault[-700:] for fault in faults)), flush=True)
    print("{} of {} operations of `{}` failed with {}: {} faults".format(tried, operations, " ".join(ASKED.words), ASKED.error, failed))
    shutil.rmtree(work)
    sys.exit(1 if failed else 0)


main()
