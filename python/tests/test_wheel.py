"""The installed wheel: the command, the launcher and the module, used as a person would (python/test.sh).

It runs in an environment with the wheel, PyTorch 2.11, NumPy, pandas and safetensors. CANONC_BARE names an environment
with the wheel alone. Nothing here is run from the clone.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
import zipfile
from pathlib import Path

import canonc

BARE = Path(os.environ["CANONC_BARE"])
WHEEL = Path(os.environ["CANONC_WHEEL"])
HERE = Path(sys.prefix)

#: A run of a few seconds: the recipe of `canonc new`, shorter.
SHORT = [("steps = 600", "steps = 6"), ("warmup = 60", "warmup = 2"), ("every = 100", "every = 3")]


def clean() -> dict[str, str]:
    """No variable that could lead to another PyTorch or to the clone."""
    hidden = ("LD_LIBRARY_PATH", "PYTHONPATH", "CANONC_TORCH", "CANONC_PYTHON", "LIBTORCH")
    return {name: value for name, value in os.environ.items() if name not in hidden}


def command(environment: Path, *words: str, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    program = str(environment / "bin" / "canonc")
    return subprocess.run(
        [program, *words], cwd=cwd, env={**clean(), **variables}, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )


def python(environment: Path, script: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    words = [str(environment / "bin" / "python"), "-W", "error", "-c", textwrap.dedent(script)]
    return subprocess.run(words, cwd=cwd, env=clean(), capture_output=True, text=True)


class Project(unittest.TestCase):
    """A new project with a finished run, made once."""

    folder: tempfile.TemporaryDirectory[str]
    project: Path

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory()
        cls.project = Path(cls.folder.name) / "project"
        created = command(HERE, "new", str(cls.project))
        assert created.returncode == 0, created.stderr
        for recipe in (cls.project / "recipes").glob("depo_*.toml"):
            text = recipe.read_text()
            for old, new in SHORT:
                text = text.replace(old, new)
            recipe.write_text(text + "\n[checkpoint]\nevery = 3\n")
        cls.before = os.getcwd()
        os.chdir(cls.project)
        canonc.build("recipes/depo.toml", "recipes/depo_first.toml", "recipes/depo_firstcanon.toml", "arch/first.canon")
        ran = command(HERE, "run", "--lock", "lockfiles/depo_first.lock", cwd=cls.project)
        assert ran.returncode == 0, ran.stderr

    before: str

    @classmethod
    def tearDownClass(cls) -> None:
        os.chdir(cls.before)
        cls.folder.cleanup()


class Command(Project):
    def test_the_module_is_the_installed_one(self) -> None:
        self.assertTrue(Path(canonc.__file__).is_relative_to(HERE), canonc.__file__)

    def test_doctor_names_the_pytorch_of_this_environment(self) -> None:
        done = command(HERE, "doctor", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        facts = {fact["name"]: fact for fact in json.loads(done.stdout)["facts"]}
        self.assertEqual(facts["torch"]["state"], "has")
        self.assertRegex(facts["torch"]["value"], r"^2\.11\.0, ")
        self.assertRegex(facts["GPU ranks"]["value"], r"canonc/bin/libcanonc_nccl\.so$")
        folder = facts["torch"]["value"].split(", from ")[1]
        self.assertTrue(Path(folder).resolve().is_relative_to(HERE.resolve()), folder)

    def test_an_environment_without_pytorch(self) -> None:
        said = command(BARE, "run", "--lock", "lockfiles/depo_first.lock", cwd=self.project)
        self.assertEqual(said.returncode, 3)
        self.assertIn("this command computes with PyTorch, and", said.stderr)
        self.assertIn(f"`{BARE}/bin/python", said.stderr)
        self.assertIn("-m pip install torch==2.11.0", said.stderr)
        for words in (["build", "--check"], ["verify", "runs/depo_first"], ["doctor"]):
            done = command(BARE, *words, cwd=self.project)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("pip install torch==2.11.0", command(BARE, "doctor").stdout)

    def test_another_pytorch_is_refused_with_both_versions(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "lib").mkdir()
            (Path(folder) / "lib" / "libtorch_cpu.so").touch()
            (Path(folder) / "version.py").write_text("__version__ = '2.10.0+cpu'\n")
            said = command(HERE, "generate", "runs/none", CANONC_TORCH=folder)
        self.assertEqual(said.returncode, 3)
        self.assertIn("is 2.10.0+cpu, and this canonc works with 2.11", said.stderr)

    def test_a_person_names_the_pytorch(self) -> None:
        torch = next(HERE.glob("lib/python3*/site-packages/torch"))
        done = command(BARE, "doctor", CANONC_TORCH=str(torch))
        self.assertIn(f"from {torch}", done.stdout)

    def test_a_launcher_below_another_one_uses_its_own_environment(self) -> None:
        torch = next(HERE.glob("lib/python3*/site-packages/torch"))
        done = command(BARE, "doctor", CANONC_TORCH=str(torch), CANONC_PYTHON=str(HERE / "bin" / "python"))
        self.assertIn(f"{BARE}/bin/python", done.stdout)

    def test_the_launcher_imports_no_package(self) -> None:
        script = """
            import sys
            from canonc import _launch
            _launch.environment()
            print(*sorted(name for name in sys.modules if name.split(".")[0] in ("torch", "numpy", "subprocess", "json")))
        """
        done = python(HERE, script, self.project)
        self.assertEqual((done.returncode, done.stdout), (0, "\n"), done.stderr)

    def test_the_module_can_be_run(self) -> None:
        done = subprocess.run([sys.executable, "-m", "canonc", "--version"], env=clean(), capture_output=True, text=True)
        self.assertRegex(done.stdout, r"^canonc \d+\.\d+\.\d+\n$")

    def test_a_signal_reaches_the_program(self) -> None:
        text = Path("recipes/depo_first.toml").read_text().replace("steps = 6", "steps = 60000")
        Path("recipes/long.toml").write_text(text)
        canonc.build("recipes/long.toml")
        words = [str(HERE / "bin" / "canonc"), "run", "--lock", "lockfiles/long.lock"]
        with subprocess.Popen(words, env=clean(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            while not Path("runs/long/metrics.jsonl").exists() or len(list(canonc.load("long").records())) < 3:
                self.assertIsNone(process.poll())
                time.sleep(0.05)
            process.terminate()
            self.assertEqual(process.wait(), 75)
            assert process.stderr is not None
            process.stderr.close()
        logged = [record["step"] for record in canonc.load("long").records() if "step" in record]
        self.assertEqual(canonc.load("long").steps[-1], logged[-1])
        self.assertIsNone(canonc.load("long").attestation)

    def test_contents_of_the_wheel(self) -> None:
        self.assertRegex(WHEEL.name, r"^canonc-[0-9.]+-py3-none-manylinux_2_\d+_x86_64\.whl$")
        with zipfile.ZipFile(WHEEL) as archive:
            names = archive.namelist()
            self.assertEqual([name for name in names if ".so" in name], ["canonc/bin/libcanonc_nccl.so"])
            self.assertEqual({info.date_time for info in archive.infolist()}, {archive.infolist()[0].date_time})
            for name in ("canonc/py.typed", "canonc/bin/canonc", "canonc/bin/canonc-torch"):
                self.assertIn(name, names)
            for name in ("LICENSE", "NOTICE", "THIRD-PARTY.txt"):
                self.assertTrue([path for path in names if path.endswith(f".dist-info/licenses/{name}")], names)
            for program in ("canonc", "canonc-torch"):
                content = archive.read(f"canonc/bin/{program}")
                self.assertEqual(b"libtorch_cpu.so" in dynamic_names(content), program == "canonc-torch")


def dynamic_names(content: bytes) -> list[bytes]:
    """The libraries that a program names, as whole strings."""
    return re.findall(rb"\0(lib[a-z_0-9]+\.so[.0-9]*)(?=\0)", content)


class Module(Project):
    def test_build(self) -> None:
        built = canonc.build("recipes/depo_first.toml", "arch/first.canon", check=True)
        self.assertEqual([lock.path for lock in built], [Path("lockfiles/depo_first.lock"), Path("lockfiles/first.lock")])
        self.assertEqual([lock.kind for lock in built], ["experiment", "arch"])
        self.assertEqual({lock.state for lock in built}, {"up to date"})
        recipe = Path("recipes/other.toml")
        recipe.write_text(Path("recipes/depo_first.toml").read_text())
        try:
            self.assertEqual(canonc.build(recipe, check=True)[0].state, "missing")
            self.assertEqual(canonc.build(recipe)[0].state, "wrote")
            recipe.write_text(recipe.read_text().replace("lr = 0.003", "lr = 0.002"))
            self.assertEqual(canonc.build(recipe, check=True)[0].state, "stale")
        finally:
            recipe.unlink()
            Path("lockfiles/other.lock").unlink(missing_ok=True)

    def test_build_checks_every_lock(self) -> None:
        built = {lock.path.name: lock.state for lock in canonc.build(check=True)}
        self.assertEqual(built["depo_first.lock"], "up to date")
        self.assertEqual(set(built), {file.name for file in Path("lockfiles").glob("*.lock")})
        with self.assertRaises(canonc.Error) as raised:
            canonc.build()
        self.assertEqual(raised.exception.exit_code, 2)

    def test_build_of_confounded_arms_is_an_error(self) -> None:
        recipe = Path("recipes/depo_first.toml")
        before = recipe.read_text()
        recipe.write_text(before.replace("lr = 0.003", "lr = 0.002"))
        try:
            for check in (True, False):
                with self.assertRaisesRegex(canonc.Error, "differs from the base in more than its treatment") as raised:
                    canonc.build("recipes/depo.toml", check=check)
                self.assertEqual(raised.exception.exit_code, 1)
        finally:
            recipe.write_text(before)
            canonc.build("recipes/depo.toml")

    def test_an_error_has_the_message_and_the_exit_code(self) -> None:
        with self.assertRaises(canonc.Error) as raised:
            canonc.build("recipes/nothing.toml")
        self.assertEqual(raised.exception.exit_code, 2)
        said = command(HERE, "build", "recipes/nothing.toml", cwd=self.project)
        self.assertEqual(raised.exception.message, said.stderr.strip())
        self.assertIn("recipes/nothing.toml", str(raised.exception))
        again = pickle.loads(pickle.dumps(raised.exception))
        self.assertEqual((again.message, again.exit_code), (raised.exception.message, 2))
        with self.assertRaises(canonc.Error):
            canonc.build("--help")  # a file of that name, and not an option

    def test_diff(self) -> None:
        a, b = "lockfiles/depo_first.lock", "lockfiles/depo_firstcanon.lock"
        verdict = canonc.diff(a, b, treatment="canon")
        self.assertTrue(verdict)
        self.assertEqual((verdict.verdict, verdict.controlled), ("controlled", True))
        confounded = canonc.diff(a, b)
        self.assertFalse(confounded)
        self.assertTrue(all(one.path.startswith("arch.") for one in confounded.confounds), confounded.confounds)
        self.assertRegex(confounded.confounds[0].at_b or "", r"depo_firstcanon\.lock:\d+$")
        with self.assertRaisesRegex(canonc.Error, "nonsense"):
            canonc.diff(a, b, treatment=["canon", "nonsense"])

    def test_a_problem_has_its_place(self) -> None:
        broken = Path("arch/broken.canon")
        broken.write_text(Path("arch/first.canon").read_text().replace("swiglu", "swigloo"))
        try:
            checked = canonc.check("arch")
        finally:
            broken.unlink()
        self.assertFalse(checked)
        self.assertEqual((checked.files, checked.archs), (3, 2))
        [problem] = checked.problems
        self.assertEqual(str(problem.places[0]), "arch/broken.canon:7:11")
        self.assertEqual((problem.severity, problem.help), ("error", ["did you mean `swiglu`?"]))
        [unread] = canonc.check("arch/nothing.canon").problems
        self.assertEqual((unread.code, unread.places), (None, []))
        self.assertIn("arch/nothing.canon", unread.message)

    def test_show(self) -> None:
        for path in ("arch/first.canon", "lockfiles/depo_first.lock", "runs/depo_first"):
            [arch] = canonc.show(path, seq_len=128)
            self.assertEqual((arch.name, arch.layers, arch.seq_len), ("first", 2, 128))
            owned = [parameter.count * len(part.layers or [0]) for part in arch.tables for parameter in part.parameters]
            self.assertEqual(sum(owned), arch.parameters)
        with self.assertRaisesRegex(canonc.Error, "for archs, but `attention` is a name"):
            canonc.show("attention")
        self.assertIn("attention", canonc.command("show", "attention", progress=False))

    def test_audit(self) -> None:
        fine = canonc.audit("lockfiles/depo_first.lock", "lockfiles/depo_firstcanon.lock")
        self.assertTrue(fine)
        self.assertEqual((fine.experiments, fine.pairs), (2, [("depo_first", "depo_firstcanon", True)]))
        published = canonc.audit(published=True)
        self.assertFalse(published)
        self.assertEqual(published.experiments, 64)
        first = published.findings[0]
        self.assertIn(first.severity, ("error", "confound"))
        self.assertIn(f"{first.severity}[{first.rule}]: {first.message}", repr(published))

    def test_a_run_is_trained_and_continued(self) -> None:
        lines: list[str] = []
        before = canonc.estimate("lockfiles/depo_firstcanon.lock")
        self.assertEqual((before.state, before.steps), ("new", 6))
        lock, folder = "lockfiles/depo_firstcanon.lock", "runs/stopped"
        stopped = canonc.run(lock, dir=folder, stop_after_step=2, progress=lines.append)
        self.assertEqual((stopped.steps, stopped.attestation), ([2], None))
        self.assertRegex(lines[0], r"^depo_firstcanon: 6 steps of .*, in runs/stopped$")
        self.assertIsNotNone(canonc.run(lock, dir=folder, progress=lines.append).attestation)
        self.assertIn("going on after step 2", lines)

    def test_an_interrupt_leaves_a_checkpoint(self) -> None:
        text = Path("recipes/depo_first.toml").read_text().replace("steps = 6", "steps = 60000")
        Path("recipes/endless.toml").write_text(text + "\n[log]\nevery = 1\n")
        canonc.build("recipes/endless.toml")

        def press(line: str) -> None:
            if line.startswith("step "):
                signal.raise_signal(signal.SIGINT)

        with self.assertRaisesRegex(canonc.Error, "^interrupted after step [0-9]+, with a checkpoint") as raised:
            canonc.run("lockfiles/endless.lock", progress=press)
        self.assertEqual(raised.exception.exit_code, 75)
        self.assertIn(f"after step {canonc.load('endless').steps[-1]},", raised.exception.message)

    def test_compare(self) -> None:
        comparison = canonc.compare("lockfiles/depo.lock", progress=False)
        self.assertTrue(comparison.controlled and comparison.page.is_file())
        self.assertEqual([(arm.name, arm.role) for arm in comparison.arms][0], ("first", "base"))
        row = comparison.pairs[0].row("eval_loss")
        assert row.interval is not None and row.difference is not None
        self.assertTrue(row.interval.low < row.difference < row.interval.high)
        self.assertIsNotNone(row.effect)
        self.assertEqual(len(comparison.table()), len(comparison.pairs[0].rows))
        for text in (repr(comparison), comparison._repr_html_()):
            self.assertIn("eval_loss", text)
            self.assertIn(f"{row.difference:.4g}", text)
        with self.assertRaisesRegex(KeyError, "nothing; there are: .*eval_loss"):
            comparison.pairs[0].row("nothing")

    def test_export(self) -> None:
        files = canonc.export("runs/depo_first", to="torch", out="exported", progress=False)
        self.assertEqual(files, [Path("exported/model.py"), Path("exported/model.safetensors")])
        self.assertTrue(all(file.is_file() for file in files))
        with self.assertRaisesRegex(canonc.Error, "it already exists") as raised:
            canonc.export("runs/depo_first", to="torch", out="exported", progress=False)
        self.assertEqual(raised.exception.exit_code, 2)

    def test_a_run(self) -> None:
        run = canonc.load("depo_first")
        self.assertEqual(canonc.load(Path("runs/depo_first")).path, run.path)
        self.assertEqual(run.name, "depo_first")
        self.assertEqual(run.config["optimizer"]["lr"], 0.003)
        self.assertEqual(run.config["budget"]["steps"], 6)
        self.assertEqual(run.config["evaluation"]["every"], 3)
        self.assertIn("arch first {", run.arch)
        attestation = run.attestation
        assert attestation is not None
        self.assertEqual(attestation["steps"], 6)

    def test_metrics(self) -> None:
        run = canonc.load("depo_first")
        metrics = run.metrics()
        self.assertEqual(list(metrics.index), [1, 2, 3, 4, 5, 6])
        logged = [record["loss"] for record in run.records() if record["kind"] == "step"]
        self.assertEqual(list(metrics["loss"]), logged)
        self.assertEqual({str(metrics[name].dtype) for name in ("loss", "grad_norm", "lr")}, {"float64"})
        self.assertFalse({"chain", "batch", "kind"} & set(metrics.columns))
        evaluations = run.evaluations()
        self.assertEqual(evaluations.index[-1], 6)
        last = [record for record in run.records() if record["kind"] == "eval"][-1]
        right = last["exact_match"]["2"]
        self.assertEqual(evaluations["exact_match.2"].iloc[-1], right["right"] / right["of"])
        self.assertEqual(evaluations["eval_loss"].iloc[-1], last["eval_loss"])

    def test_weights(self) -> None:
        run = canonc.load("depo_first")
        weights = run.weights()
        self.assertEqual(weights["embed"].shape, (64, 64))
        self.assertEqual({str(array.dtype) for array in weights.values()}, {"float32"})
        done = command(HERE, "show", "arch/first.canon", "--json", cwd=self.project)
        total = json.loads(done.stdout)["archs"][0]["parameters"]["total"]
        self.assertEqual(sum(array.size for array in weights.values()), total)
        earlier = run.weights(run.steps[0])
        self.assertEqual(set(earlier), set(weights))
        self.assertGreater(len(run.steps), 1)
        self.assertFalse((earlier["embed"] == weights["embed"]).all())
        with self.assertRaisesRegex(canonc.Error, "no checkpoint of step 5; it has: 3, 6"):
            run.weights(5)

    def test_verify(self) -> None:
        run = canonc.load("depo_first")
        self.assertTrue(run.verify())
        replayed = run.verify(replay="all")
        self.assertTrue(replayed.holds, replayed.json)
        copy = Path("runs/copy")
        subprocess.run(["cp", "-r", run.path, copy], check=True)
        log = copy / "metrics.jsonl"
        log.write_text(log.read_text().replace('"counted":', '"counted":1', 1))
        verification = canonc.load("copy").verify()
        self.assertFalse(verification)
        self.assertTrue(verification.broken)

    def test_a_folder_without_a_run_is_refused(self) -> None:
        with self.assertRaisesRegex(canonc.Error, "`nowhere` is not a run") as raised:
            canonc.load("nowhere")
        self.assertEqual(raised.exception.exit_code, 2)

    def test_a_missing_package_is_named_with_its_command(self) -> None:
        script = """
            import canonc
            run = canonc.load("depo_first")
            assert canonc.diff("lockfiles/depo_first.lock", "lockfiles/depo_first.lock").verdict == "identical"
            for call, packages in [(run.metrics, "pandas"), (run.weights, "numpy safetensors")]:
                try:
                    call()
                except canonc.Error as error:
                    assert error.exit_code == 3 and f"pip install {packages}`" in error.message, error.message
                else:
                    raise AssertionError(packages)
        """
        done = python(BARE, script, self.project)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
