"""What build.py finds in the code and refuses, and which files it says have changed."""

import os
import unittest

from gpu import registry
from gpu.tests import harness  # noqa: F401 (switches Triton's interpreter on)

registry.load()
from gpu import build  # noqa: E402

# The builder switches the interpreter off, which the other tests need.
os.environ["TRITON_INTERPRET"] = "1"

CODE = """
  tt.func public @f(%x: !tt.ptr<f32>, %target: !tt.ptr<i64>, %lse: !tt.ptr<f32>, %row: i32) {
    %0 = tt.addptr %target, %row : !tt.ptr<i64>, i32 loc(#loc)
    %1 = tt.load %0 : !tt.ptr<i64> loc(#loc)
    %2 = tt.addptr %x, %1 : !tt.ptr<f32>, i64 loc(#loc)
    %3 = tt.splat %2 : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>> loc(#loc)
    %4 = tt.load %3 : tensor<64x!tt.ptr<f32>> loc(#loc)
    %5:2 = scf.while (%6 = %row) : (i32) -> (i32, i32) {
      %0 = tt.splat %6 : i32 -> tensor<64xi32> loc("target")
      %7 = arith.addi %0, %0 : tensor<64xi32> loc(#loc)
    }
    %8 = tt.addptr %lse, %row : !tt.ptr<f32>, i32 loc(#loc)
    tt.store %8, %1 : !tt.ptr<f32> loc(#loc)
  }
"""


class Build(unittest.TestCase):
    def test_pointers_to_blocks_are_told_from_those_to_elements(self):
        self.assertEqual(build.wide_pointers(CODE, ["x", "target", "lse"]), {"x"})
        # Where the pointer itself is stored or chosen, nothing is known.
        for line in ("tt.store %x, %lse : !tt.ptr<i64>", "%9 = arith.select %c, %lse, %x : !tt.ptr<f32>"):
            self.assertIn("lse", build.wide_pointers(f"{CODE}    {line}\n", ["lse"]))

    def test_only_pointers_to_blocks_are_multiples_of_16(self):
        specs = {spec.name: spec for spec in registry.load()}
        self.assertEqual(specs["cross_entropy"].hinted, ("logits", "dlogits", "vocab", "logits_row"))
        self.assertEqual(specs["adamw"].hinted, ("p", "g", "m", "v", "copy", "count"))

    def test_another_list_than_the_codes_is_refused(self):
        (spec,) = [spec for spec in registry.load() if spec.name == "loss_sum"]
        made = {("loss_sum", 0, 80, True): {"wide_pointers": {"nll", "lse", "targets"}}}
        build.check_scalars([spec], made)
        for wide in ({"nll", "lse"}, {"nll", "lse", "targets", "loss"}):
            made = {("loss_sum", 0, 80, True): {"wide_pointers": wide}}
            with self.assertRaisesRegex(ValueError, "loss_sum: pointers to single elements are"):
                build.check_scalars([spec], made)

    def test_files_that_changed_since_the_build_are_named(self):
        now = {"build.py": "a", "kernels/loss.py": "b", "images.bin": "c"}
        self.assertEqual(build.changed(build.sums_text(now), now), [])
        self.assertEqual(build.changed(build.sums_text(now), {**now, "kernels/loss.py": "d"}), ["kernels/loss.py"])
        self.assertEqual(build.changed(build.sums_text(now), {**now, "kernels/new.py": "d"}), ["kernels/new.py"])
        self.assertEqual(build.changed(build.sums_text({**now, "kernels/old.py": "d"}), now), ["kernels/old.py"])


if __name__ == "__main__":
    unittest.main()
