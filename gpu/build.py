#!/usr/bin/env python3
"""Compiles every GPU kernel ahead of time.

In: the kernels in gpu/kernels. Out, beside this file: images.bin (machine code, one LZMA stream for the images of a
kernel for one target), kernels.json (its manifest), table.tsv (what the machine code says about each image), and
build.sha256 (digests of the sources and of these three). Must stay true: the files follow from the sources and
requirements.txt alone, so that two builds agree (`fix_addresses`); no image spills to local memory, and none uses atomics.

    build.py                 build everything, and write the files
    build.py --check         build everything, and compare with the files: exit 1 if they differ
    build.py --sample N      compare digests of sources and files with build.sha256, and N images, which follow from it,
                             with what their sources give: exit 1 if one differs
    build.py --only NAME     build the kernels with NAME in their names, print their rows of the table, write nothing
"""

import argparse
import bisect
import concurrent.futures
import ctypes
import hashlib
import json
import lzma
import os
import re
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
os.environ.pop("TRITON_INTERPRET", None)
# Without line tables the images are a third of the size, and hold no paths of this machine.
os.environ["TRITON_DISABLE_LINE_INFO"] = "1"

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from gpu import registry

FORMAT = 2
# Compute capability, and the manifest's name of its image.
TARGETS = {80: "sm_80", 90: "sm_90a", 100: "sm_100a"}
PTX = "ptx_80"
# Of a multiprocessor.
REGISTERS = 65536
# ADDR_NO_RANDOMIZE of personality(2).
FIXED = 0x0040000
# The share of images that is assembled again, and how often. If more differ, a source or the assembler is another.
MOST_UNSETTLED, TRIES = 0.1, 40
# LZMA: images of one kernel have much in common, a few at distances beyond a window of 32 KiB. The dictionary holds any
# kernel's images for one target, and is what a reader allocates.
FILTERS = [{"id": lzma.FILTER_LZMA1, "preset": 9, "dict_size": 4 << 20}]
TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
FILES = ("images.bin", "kernels.json", "table.tsv")
SUMS = "build.sha256"
COLUMNS = (
    "kernel", "constants", "target", "aligned", "warps", "registers", "shared", "wide", "tensor", "local", "stack",
    "atomics", "bytes",
)  # fmt: skip


def jobs(specs: list[registry.Spec], part: str) -> list[tuple[str, int, int, bool]]:
    """(kernel, number of its variant, compute capability, aligned) of every image of machine code."""
    return [
        (spec.name, variant, capability, aligned)
        for spec in specs
        if part in spec.name
        for variant in range(len(spec.variants))
        for aligned in spec.alignments
        for capability in TARGETS
    ]


def compile_image(job: tuple[str, int, int, bool]) -> dict:
    """One image of machine code, its PTX, and its registers and memory."""
    name, number, capability, aligned = job
    spec = SPECS[name]
    constants = spec.variants[number]
    types = spec.types_of(constants)
    constexprs = spec.constexprs_of(constants)
    signature = {
        argument: "constexpr" if argument in constexprs else registry.TYPES[types[argument]]
        for argument in spec.fn.arg_names
    }
    hinted = [place for place, argument in enumerate(spec.fn.arg_names) if aligned and argument in spec.hinted]
    attributes = {(place,): [["tt.divisibility", 16]] for place in hinted}
    source = ASTSource(spec.fn, signature, constexprs, attributes)
    warps = spec.warps_of(constants, aligned)
    # The assembler saves registers for a second program, and may spill one to do so. Then it is told how many to use.
    for registers in (None, *(n for n in (128, 168, 255) if n * warps * 32 <= REGISTERS)):
        limit = {"maxnreg": registers} if registers else {}
        options = {"num_warps": warps, "num_stages": spec.stages, **limit, **spec.options}
        made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
        if usage(made.asm["cubin"])["stack"] == 0:
            break
    if made.metadata.global_scratch_size or made.metadata.profile_scratch_size:
        raise ValueError(f"{name} {constants} needs scratch memory, which the launcher does not give")
    cubin, ptx = made.asm["cubin"], made.asm["ptx"].encode()
    return {
        "cubin": cubin,
        "ptx": ptx,
        "entry": made.metadata.name,
        "warps": made.metadata.num_warps,
        "shared": made.metadata.shared,
        "params": params(spec, constants, ptx),
        "wide_pointers": wide_pointers(made.asm["ttir"], [name for name, kind in types.items() if kind[0] == "*"]),
        **usage(cubin),
    }


def wide_pointers(ttir: str, pointers: list[str]) -> set[str]:
    """The pointers from which blocks of elements are read or written, not one element by each program."""
    wide = set()
    for name in pointers:
        scalar = {f"%{name}"}  # the pointer, and sums of it and a number
        for line in ttir.splitlines():
            if "tt.func" in line:
                continue
            made, _, rest = re.match(r"\s*(?:(%[\w$.-]+)(:\d+)? = )?(.*)", line).groups()
            used = scalar.intersection(re.findall(r"%[\w$.-]+", rest.split(" loc(")[0]))
            # A name of one region may be another value's in the next.
            scalar.discard(made)
            operation = re.match(r"tt\.(addptr|load|store) (%[\w$.-]+)", rest)
            if not used:
                continue
            if operation is None or used != {operation[2]}:
                wide.add(name)
                break
            if operation[1] == "addptr":
                scalar.add(made)
    return wide


def check_scalars(specs: list[registry.Spec], made: dict) -> None:
    """Every pointer is declared as `scalars` if no variant reads or writes blocks from it, and only then."""
    wide = {}
    for (name, *_), image in made.items():
        wide.setdefault(name, set()).update(image["wide_pointers"])
    for spec in specs:
        pointers = [name for name, kind in spec.params.items() if kind.startswith("*")]
        scalars = {name for name in pointers if name not in wide.get(spec.name, pointers)}
        if spec.name in wide and scalars != set(spec.scalars):
            raise ValueError(f"{spec.name}: pointers to single elements are {sorted(scalars)}, its spec has {spec.scalars}")


def params(spec: registry.Spec, constants: dict, ptx: bytes) -> list[dict]:
    """The manifest's list of launch parameters, checked against those that the PTX declares."""
    listed = []
    for name, kind in spec.types_of(constants).items():
        listed.append({"name": name, "type": kind, **({"divisible": 16} if name in spec.hinted else {})})
    declared = re.findall(rb"\.param \.(\w+)(?: \.ptr\s[^,\n]*)? \w+_param_\d+", ptx)
    sizes = {"i32": b"u32", "i64": b"u64", "f32": b"f32", "f64": b"f64"}
    wanted = [sizes.get(param["type"], b"u64") for param in listed]
    scratch = len(declared) - len(wanted)
    bits = [(have.lstrip(b"busf"), want.lstrip(b"busf")) for have, want in zip(declared, wanted, strict=False)]
    if scratch != 2 or any(have != want for have, want in bits):
        raise ValueError(f"{spec.name}: the PTX declares {declared}, its spec {wanted} and two scratch pointers")
    return listed + [{"name": f"scratch_{n}", "type": "scratch"} for n in range(scratch)]


def usage(cubin: bytes) -> dict:
    """Registers and memory of a thread."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [TOOLS / "cuobjdump", "--dump-resource-usage", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = dict(re.findall(r"(REG|STACK|LOCAL):(\d+)", text))
    if len(found) != 3:
        raise ValueError(f"the output of cuobjdump has changed: {text!r}")
    return {"registers": int(found["REG"]), "local": int(found["LOCAL"]), "stack": int(found["STACK"])}


def instructions(cubin: bytes) -> bytes:
    """The machine code of a cubin, an ELF file: its sections .text.*."""
    (table,) = struct.unpack_from("<Q", cubin, 40)
    size, count, names = struct.unpack_from("<HHH", cubin, 58)
    sections = [struct.unpack_from("<IIQQQQ", cubin, table + n * size) for n in range(count)]

    def name(section: tuple) -> bytes:
        start = sections[names][4] + section[0]
        return cubin[start : cubin.index(b"\0", start)]

    code = b"".join(cubin[s[4] : s[4] + s[5]] for s in sections if name(s).startswith(b".text."))
    if not code or len(code) % 16:
        raise ValueError(f"a cubin with {len(code)} bytes of instructions")
    return code


# Counts of the table, by the names of instructions.
COUNTED = {
    # Accesses of 16 bytes or more to global memory, and asynchronous copies from it.
    "wide": r"^(LDG|STG|LDGSTS)\..*\b(128|256)\b|^(UTMA|UBLKCP)",
    "tensor": r"^(HMMA|IMMA|DMMA|HGMMA|QGMMA|UTC\w*MMA|OMMA)",
    # Of any type: floats can also be added by a loop around an atomic exchange. But not the bits in shared memory by
    # which programs on sm_100a allocate tensor memory.
    "atomics": r"^(ATOM|ATOMG|ATOMS|RED|REDG|REDS|UREDG)\b(?<!ATOMS)|^ATOMS\.(?!(OR|AND)$)",
    "spills": r"^(LDL|STL)\b",
}


def count(images: list[dict], target: str) -> None:
    """Adds the counts to the images of one architecture. One disassembly for all: starting the tool takes longest."""
    starts, code = [], bytearray()
    for image in images:
        starts.append(len(code))
        code += instructions(image["cubin"])
        image |= dict.fromkeys(COUNTED, 0)
    with tempfile.NamedTemporaryFile(suffix=".bin") as file:
        file.write(code)
        file.flush()
        command = [TOOLS / "nvdisasm", "-b", target.replace("sm_", "SM"), file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^\s+/\*([0-9a-f]+)\*/\s+(?:\{\s*)?(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", text, re.M)
    if len(found) != len(code) // 16:
        raise ValueError(f"{len(code) // 16} instructions, and {len(found)} in the output of nvdisasm")
    for address, operation in found:
        image = images[bisect.bisect_right(starts, int(address, 16)) - 1]
        for key, pattern in COUNTED.items():
            image[key] += re.search(pattern, operation) is not None
    for image in images:
        image["local"] += image.pop("spills")


def start_worker() -> None:
    global SPECS
    SPECS = {spec.name: spec for spec in registry.load()}


def fix_addresses() -> None:
    """Starts this program again without random addresses, if the system lets it.

    The assembler orders some instructions by addresses of its own (seen for sm_90a and sm_100a): with random ones a
    source has two or more images. Some containers forbid this; then a build may choose others than the committed ones, and `settle`
    finds whether they are among those that the source has.
    """
    library = ctypes.CDLL(None)
    now = library.personality(0xFFFFFFFF)
    if now >= 0 and not now & FIXED and library.personality(now | FIXED) >= 0:
        os.execv(sys.executable, [sys.executable, *sys.argv])


def settle(made: dict) -> list[tuple]:
    """Assembles images that differ from the committed ones again, with random addresses, until they are equal.

    Returns the jobs whose images never were.
    """
    try:
        committed = json.loads((HERE / "kernels.json").read_text())
    except (OSError, ValueError):
        return list(made)
    digests = {
        (kernel["name"], json.dumps(kernel["constants"]), image["target"], image["aligned"]): image["sha256"]
        for kernel in committed["kernels"]
        for image in kernel["images"]
    }
    start_worker()

    def differs(job: tuple, image: dict) -> bool:
        name, number, capability, aligned = job
        constants = json.dumps(SPECS[name].variants[number])
        wanted = digests.get((name, constants, TARGETS[capability], aligned))
        return hashlib.sha256(image["cubin"]).hexdigest() != wanted

    found = [job for job, image in made.items() if differs(job, image)]
    if len(found) > MOST_UNSETTLED * len(made):
        return found
    library = ctypes.CDLL(None)
    now = library.personality(0xFFFFFFFF)
    if found and now >= 0:
        library.personality(now & ~FIXED)
    for job in found:
        for _ in range(TRIES):
            with tempfile.TemporaryDirectory(prefix="canonc-gpu-") as folder:
                os.environ["TRITON_CACHE_DIR"] = folder
                image = compile_image(job)
            if not differs(job, image):
                made[job] = image
                break
    if found:
        print(f"{len(found)} images were assembled in another order first", file=sys.stderr)
    return [job for job in found if differs(job, made[job])]


def sums() -> dict[str, str]:
    """Digests of what the images follow from, and of the files."""
    sources = sorted(path.relative_to(HERE).as_posix() for path in (HERE / "kernels").rglob("*.py"))
    names = [*FILES, "__init__.py", "build.py", "registry.py", "requirements.txt", *sources]
    return {name: hashlib.sha256((HERE / name).read_bytes()).hexdigest() for name in names}


def sums_text(digests: dict[str, str]) -> str:
    """As `sha256sum -c` reads it."""
    return "".join(f"{digest}  {name}\n" for name, digest in digests.items())


def changed(committed: str, now: dict[str, str]) -> list[str]:
    """The names whose digests are not those of build.sha256."""
    built = {name: digest for digest, name in (line.split("  ", 1) for line in committed.splitlines())}
    return [name for name in sorted({*built, *now}) if built.get(name) != now.get(name)]


def sample(number: int, workers: int) -> list[str]:
    """How the committed files differ from the build that build.sha256 is of, and machine code from what its source gives."""
    try:
        committed = (HERE / SUMS).read_text()
        found = changed(committed, sums())
    except (OSError, ValueError) as error:
        return [str(error)]
    if found:
        return [f"{name} has changed since the build" for name in found]
    # Others after each build.
    listed = sorted(jobs(registry.load(), ""), key=lambda job: hashlib.sha256(f"{committed}{job}".encode()).digest())
    with concurrent.futures.ProcessPoolExecutor(workers, initializer=start_worker) as pool:
        made = dict(zip(listed[:number], pool.map(compile_image, listed[:number]), strict=True))
    wrong = settle(made)
    if not wrong:
        print(f"no file has changed since the build, and {len(made)} of {len(listed)} images are as built again", file=sys.stderr)
    return [f"kernels.json has another digest of the image {job}" for job in wrong]


def report(found: list[str]) -> int:
    """Says what differs, if anything. Returns the exit code."""
    if not found:
        return 0
    print("error: the committed files do not follow from the sources:", file=sys.stderr)
    print("  " + "\n  ".join(found[:20]), file=sys.stderr)
    print("help: run `make gpu-kernels` and commit the result", file=sys.stderr)
    return 1


def build(part: str, workers: int, check: bool) -> tuple[bytes, dict, list[tuple], list[bytes]]:
    """images.bin, the manifest, the rows of the table, and the images, decompressed, in the manifest's order."""
    specs = registry.load()
    listed = jobs(specs, part)
    with concurrent.futures.ProcessPoolExecutor(workers, initializer=start_worker) as pool:
        made = dict(zip(listed, pool.map(compile_image, listed, chunksize=4), strict=True))
    check_scalars(specs, made)
    if check:
        settle(made)
    for capability, target in TARGETS.items():
        count([image for job, image in made.items() if job[2] == capability], target)
    rows, plain, kernels = [], [], []

    def place(image: bytes) -> dict:
        plain.append(image)
        return {"size": len(image), "sha256": hashlib.sha256(image).hexdigest()}

    for spec in specs:
        for number, constants in enumerate(spec.variants):
            if part not in spec.name:
                continue
            images = []
            for aligned in spec.alignments:
                for capability, target in TARGETS.items():
                    image = made[spec.name, number, capability, aligned]
                    shape = {"entry": image["entry"], "warps": image["warps"], "shared": image["shared"]}
                    counts = {key: image[key] for key in ("registers", "local", "stack")}
                    images.append({"target": target, "aligned": aligned, **shape, **place(image["cubin"]), **counts})
                    chosen = ",".join(f"{key}={value}" for key, value in constants.items())
                    row = {**image, "kernel": spec.name, "constants": chosen, "target": target}
                    row |= {"aligned": int(aligned), "bytes": len(image["cubin"])}
                    rows.append(tuple(row[column] for column in COLUMNS))
                lowest = made[spec.name, number, 80, aligned]
                shape = {"entry": lowest["entry"], "warps": lowest["warps"], "shared": lowest["shared"]}
                counts = {"registers": 0, "local": 0, "stack": 0}
                images.append({"target": PTX, "aligned": aligned, **shape, **place(lowest["ptx"]), **counts})
            kernels.append(
                {
                    "name": spec.name,
                    "constants": constants,
                    "params": made[spec.name, number, 80, True]["params"],
                    "grid": spec.grid,
                    "images": images,
                }
            )
    packed = pack(kernels, plain)
    manifest = {"format": FORMAT, "triton": triton.__version__, "kernels": kernels}
    return packed, manifest, rows, plain


def pack(kernels: list[dict], plain: list[bytes]) -> bytes:
    """images.bin, of the images in the manifest's order; adds their places to the manifest."""
    streams, at = {}, {}
    images = [(kernel["name"], image) for kernel in kernels for image in kernel["images"]]
    for (name, image), code in zip(images, plain, strict=True):
        stream = streams.setdefault((name, image["target"]), bytearray())
        digest = (name, image["target"], image["sha256"])
        if digest not in at:
            at[digest] = len(stream)
            stream.extend(code)
    packed, places = bytearray(), {}
    for key, stream in streams.items():
        squeezed = lzma.compress(bytes(stream), format=lzma.FORMAT_ALONE, filters=FILTERS)
        places[key] = {"offset": len(packed), "length": len(squeezed)}
        packed.extend(squeezed)
    for name, image in images:
        image |= places[name, image["target"]]
        image["start"] = at[name, image["target"], image["sha256"]]
    return bytes(packed)


def manifest_text(manifest: dict) -> str:
    """One line for each kernel variant's head and for each image, so that a difference can be read."""
    lines = [f'{{"format": {manifest["format"]}, "triton": {json.dumps(manifest["triton"])}, "kernels": [']
    for n, kernel in enumerate(manifest["kernels"]):
        head = {key: value for key, value in kernel.items() if key != "images"}
        lines.append(json.dumps(head)[:-1] + ', "images": [')
        images = [json.dumps(image) for image in kernel["images"]]
        lines.append(",\n".join(images))
        lines.append("]}" if n + 1 == len(manifest["kernels"]) else "]},")
    return "\n".join([*lines, "]}"]) + "\n"


def table_text(rows: list[tuple]) -> str:
    return "".join("\t".join(map(str, row)) + "\n" for row in [COLUMNS, *rows])


def faults(rows: list[tuple]) -> list[str]:
    """Images that may not be: those that spill, and those that use atomics."""
    found = []
    for row in rows:
        named = dict(zip(COLUMNS, row, strict=True))
        bad = {key: named[key] for key in ("local", "stack", "atomics") if named[key]}
        if bad:
            found.append(f"{named['kernel']} {named['constants']} {named['target']} aligned={named['aligned']}: {bad}")
    return found


def differences(packed: bytes, manifest: dict, rows: list[tuple], plain: list[bytes]) -> list[str]:
    """How the committed files differ from what was built. Compressed bytes may differ between versions of liblzma."""
    found = []
    try:
        committed = json.loads((HERE / "kernels.json").read_text())
        archive = (HERE / "images.bin").read_bytes()
        table = (HERE / "table.tsv").read_text()
    except (OSError, ValueError) as error:
        return [str(error)]

    def key(kernel: dict) -> str:
        return f"{kernel['name']} {json.dumps(kernel['constants'])}"

    def without_places(kernel: dict) -> dict:
        places = ("offset", "length", "start")
        images = [{k: v for k, v in image.items() if k not in places} for image in kernel["images"]]
        return {**kernel, "images": images}

    have = {key(kernel): without_places(kernel) for kernel in committed["kernels"]}
    want = {key(kernel): without_places(kernel) for kernel in manifest["kernels"]}
    if any(committed[field] != manifest[field] for field in ("format", "triton")):
        found.append("kernels.json is of another format or another Triton")
    found += [f"kernels.json lacks {name}" for name in want if name not in have]
    found += [f"kernels.json has {name}, which no source makes" for name in have if name not in want]
    found += [f"kernels.json differs in {name}" for name in want if name in have and have[name] != want[name]]
    if not found and list(have) != list(want):
        found.append("kernels.json has its kernels in another order")
    if table != table_text(rows):
        found.append("table.tsv differs")
    if not found:
        places = [image for kernel in committed["kernels"] for image in kernel["images"]]
        streams = {}
        for image, bytes_built in zip(places, plain, strict=True):
            offset, start = image["offset"], image["start"]
            if offset not in streams:
                streams[offset] = lzma.decompress(archive[offset : offset + image["length"]])
            if streams[offset][start : start + image["size"]] != bytes_built:
                found.append(f"images.bin differs at {image['offset']}, {image['entry']} {image['target']}")
        if max(image["offset"] + image["length"] for image in places) != len(archive):
            found.append("images.bin has bytes that kernels.json does not name")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Compile the GPU kernels ahead of time.")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--check", action="store_true", help="compare with the committed files, write nothing")
    action.add_argument("--sample", type=int, metavar="N", help="compare digests, and N images, from 1; write nothing")
    action.add_argument("--only", default="", help="the kernels with this in their names, write nothing")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes")
    options = parser.parse_args()
    if options.sample is not None and options.sample < 1:
        parser.error("--sample takes a number from 1")
    fix_addresses()
    start = time.monotonic()
    folder = tempfile.TemporaryDirectory(prefix="canonc-gpu-")
    if not options.only:
        # Nothing that an earlier build left behind.
        os.environ["TRITON_CACHE_DIR"] = folder.name
    if options.sample is not None:
        return report(sample(options.sample, options.workers))
    packed, manifest, rows, plain = build(options.only, options.workers, options.check)
    seconds = time.monotonic() - start
    print(f"{len(rows)} images in {seconds:.0f} s, {len(packed)} bytes compressed", file=sys.stderr)
    if options.only:
        print(table_text(rows), end="")
    bad = faults(rows)
    if bad:
        print("error: images that spill or use atomics:\n  " + "\n  ".join(bad), file=sys.stderr)
        return 1
    if options.check:
        found = differences(packed, manifest, rows, plain)
        if not found:
            print("the committed files follow from the sources", file=sys.stderr)
        return report(found)
    if not options.only:
        (HERE / "images.bin").write_bytes(packed)
        (HERE / "kernels.json").write_text(manifest_text(manifest))
        (HERE / "table.tsv").write_text(table_text(rows))
        (HERE / SUMS).write_text(sums_text(sums()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
