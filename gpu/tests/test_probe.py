"""gpu/probe.py without a GPU: its launches against the manifest, and all of it with stand-ins for torch and the driver."""

import contextlib
import ctypes
import io
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest.mock import MagicMock

from gpu import probe

GPU = Path(__file__).resolve().parents[1]
MANIFEST = probe.Manifest(GPU)


class Tensor:
    """Takes part in any expression."""

    shape, device = (4, 4096, 2048), "cuda"

    def data_ptr(self):
        return 1 << 40

    def __getattr__(self, name):
        if name == "kind" or name.startswith("__"):
            raise AttributeError(name)
        return lambda *words, **named: self

    def sort(self, stable):
        return self, self

    def same(self, *_):
        return self

    __add__ = __radd__ = __sub__ = __mul__ = __truediv__ = __getitem__ = same

    def __float__(self):
        return 1.0


def torch(event_ms=2.0):
    tensor = Tensor()
    made = MagicMock()
    for name in ("empty", "randn", "randint", "zeros", "stack", "mm"):
        getattr(made, name).return_value = tensor
    made.autograd.grad.return_value = (tensor, tensor)
    made.nn.functional = MagicMock()
    for name in ("rms_norm", "pad", "silu", "cross_entropy"):
        getattr(made.nn.functional, name).return_value = tensor
    for name in ("_flash_attention_forward", "_scaled_dot_product_cudnn_attention"):
        getattr(made.ops.aten, name).return_value = (tensor,) * 9
    for name in ("_flash_attention_backward", "_scaled_dot_product_cudnn_attention_backward"):
        getattr(made.ops.aten, name).return_value = (tensor,) * 3
    made.cuda.Event.return_value.elapsed_time.return_value = event_ms
    made.OutOfMemoryError = MemoryError
    return made


class Driver:
    """Records launches; one kernel fails."""

    def __init__(self, fails=None):
        self.fails, self.launched = fails, []

    def launch(self, launch, stream):
        if launch.kernel["name"] == self.fails:
            raise RuntimeError("cuLaunchKernel: 700")
        self.launched.append(launch.kernel["name"])


class Probe(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = Path(folder.name)

    def lab(self, driver, made):
        lab = object.__new__(probe.Lab)
        record = probe.Record(self.out)
        self.addCleanup(record.file.close)
        lab.manifest, lab.record, lab.torch, lab.skip, lab.driver = MANIFEST, record, made, set(), driver
        lab.kinds, lab.flush = dict.fromkeys(probe.BYTES), Tensor()
        return lab

    def run_kernels(self, driver, made=None):
        with contextlib.redirect_stdout(io.StringIO()):
            probe.kernels(self.lab(driver, made or torch()), 16384)

    def rows(self):
        rows = [json.loads(line) for line in (self.out / "probe.jsonl").read_text().splitlines()]
        return [row for row in rows if "begin" not in row]

    def test_every_launch_fits_the_manifest(self):
        words = [sys.executable, str(GPU / "probe.py"), "--gpu", str(GPU), "--dry"]
        done = subprocess.run(words, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in (
            "rms_norm_forward", "rms_norm_backward", "sum_rows", "causal_conv_forward", "causal_conv_backward",
            "conv_swiglu_forward", "conv_swiglu_backward", "swiglu_forward", "swiglu_backward", "rope",
            "cross_entropy", "adamw", "square_sums", "embed_backward",
        ):  # fmt: skip
            self.assertIn(f": {name}, aligned, grid (", done.stdout)

    def test_a_launch_with_other_arguments_is_refused(self):
        lab, x = probe.DryLab(MANIFEST), probe.Stand(512, (4, 64), "f32")
        given = {"x": x, "out": x, "rows": 4, "width": 64, "chunk": 4, "x_row": 64}
        lab.launch("sum_rows", {"dtype": "f32"}, **given)
        for change, said in (
            ({"row": 1}, "unknown {'row'}"),
            ({"x": probe.Stand(512, (4, 64), "bf16")}, "x is \\*f32"),
            ({"x": 512}, "x is \\*f32"),
            ({"rows": 1 << 31}, "beyond 32 bits"),
            ({"rows": 0}, "the grid"),
        ):
            with self.assertRaisesRegex(ValueError, said):
                lab.launch("sum_rows", {"dtype": "f32"}, **{**given, **change})
        del given["x_row"]
        with self.assertRaisesRegex(ValueError, "missing {'x_row'}"):
            lab.launch("sum_rows", {"dtype": "f32"}, **given)
        with self.assertRaisesRegex(ValueError, "0 kernels sum_row "):
            lab.launch("sum_row", {"dtype": "f32"}, **given)

    def test_a_plain_image_is_refused_where_the_aligned_one_is_meant(self):
        lab, x = probe.DryLab(MANIFEST), probe.Stand(512 + 4, (4, 64), "f32")
        given = {"x": x, "out": x, "rows": 4, "width": 64, "chunk": 4, "x_row": 64}
        with self.assertRaisesRegex(ValueError, "plain image"), contextlib.redirect_stdout(io.StringIO()):
            lab.measure("sums", lambda: lab.launch("sum_rows", {"dtype": "f32"}, **given))

    def test_arguments_are_passed_in_the_manifests_order_and_types(self):
        given = {"x": probe.Stand(512, (4, 64), "f32"), "out": None, "rows": 4, "width": 64, "chunk": 2, "x_row": 96}
        launch = probe.prepare(MANIFEST.kernel("sum_rows", {"dtype": "f32"}), given)
        passed = [(type(value), value.value) for value in launch.arguments]
        i32, i64, pointer = ctypes.c_int32, ctypes.c_int64, ctypes.c_uint64
        wanted = [(pointer, 512), (pointer, 0), (i32, 4), (i32, 64), (i32, 2), (i64, 96), (pointer, 0), (pointer, 0)]
        self.assertEqual(passed, wanted)
        self.assertEqual(launch.grid, (2, 1, 1))

    def test_half_a_line_of_an_earlier_run_is_passed_over(self):
        path = self.out / "probe.jsonl"
        path.write_text('{"name": "a", "ms": 1}\n{"name": "b", "m')
        record = probe.Record(self.out)
        self.addCleanup(record.file.close)
        self.assertEqual(record.done, {"a"})
        record.begin("c")
        self.assertEqual(json.loads(path.read_text().splitlines()[-1]), {"name": "c", "begin": True})

    def test_every_entry_is_measured_and_not_twice(self):
        driver = Driver()
        self.run_kernels(driver)
        with contextlib.redirect_stdout(io.StringIO()):
            probe.ceilings(self.lab(driver, torch()), 16384)
        rows = self.rows()
        self.assertEqual([row for row in rows if "error" in row], [])
        self.assertGreater(len(rows), 50)
        names = [row["name"] for row in rows]
        self.assertEqual(len(names), len(set(names)))
        self.run_kernels(driver)
        self.assertEqual(len(self.rows()), len(rows))

    def test_a_lost_context_ends_the_process_and_the_next_goes_on(self):
        made = torch()
        made.cuda.synchronize.side_effect = [None, None, RuntimeError("sticky")]
        with self.assertRaises(SystemExit) as ended:
            self.run_kernels(Driver(fails="causal_conv_forward"), made)
        self.assertEqual(ended.exception.code, probe.LOST)
        self.assertEqual(self.rows()[-1]["CONTEXT_LOST"], "sticky")
        self.assertEqual(self.rows()[-1]["name"], "causal_conv_forward 2048")
        self.run_kernels(Driver())
        self.assertIn("embed_backward", [row["name"] for row in self.rows()])

    def test_an_entry_that_did_not_come_back_is_left_out_next_time(self):
        (self.out / "probe.jsonl").write_text('{"name": "embed_backward", "begin": true}\n')
        driver = Driver()
        self.run_kernels(driver)
        self.assertNotIn("embed_backward", driver.launched)
        self.assertEqual(self.rows()[0], {"name": "embed_backward", "error": "it did not come back"})

    def test_a_result_that_is_far_off_is_marked(self):
        lab = self.lab(Driver(), torch())
        with contextlib.redirect_stdout(io.StringIO()):
            for name, off in (("right", 0.003), ("wrong", 0.5), ("not finite", float("nan"))):
                lab.measure(name, lambda: None, check=lambda off=off: {"y": off})
        self.assertEqual(["BAD" in row for row in self.rows()], [False, True, True])


if __name__ == "__main__":
    unittest.main()
