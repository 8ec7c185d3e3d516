"""Cross-entropy, the squared norm, clipping and AdamW, against the CPU kernels."""

import unittest

import numpy as np

from gpu.tests.cases import KINDS, assert_close, case, launch, variant
from gpu.tests.harness import Array, round_bf16

NLL_SQUARE, Z_LOSS, SCALE = 0.01, 0.002, 0.125
# The interpreter takes whole blocks; a smaller one has several in the small cases too.
BLOCK = {"loss.small": 16, "loss.wide": 1024}


def entropy(name: str, kind: str, mode: int, over: bool = False) -> dict:
    given = case(name)
    vocab = given["logits"].shape[-1]
    rows = given["logits"].size // vocab
    extra = 0 if over else 8
    logits = Array(given["logits"].reshape(rows, vocab), kind, row=vocab + extra)
    made = {
        "nll": Array(given["nll"].reshape(rows), "f32") if mode == 1 else Array.empty((rows,), "f32"),
        "lse": Array(given["lse"].reshape(rows), "f32") if mode == 1 else Array.empty((rows,), "f32"),
        "likeliest": Array.empty((rows,), "i64") if mode == 0 else None,
        "dlogits": logits if over else Array.empty((rows, vocab), kind) if mode else None,
    }
    args = {"logits": logits, "targets": Array(given["targets"].reshape(rows), "i64"), **made}
    args |= {"rows": rows, "vocab": vocab, "logits_row": vocab + extra, "base": SCALE}
    args |= {"nll_factor": 2 * NLL_SQUARE * SCALE, "lse_factor": 2 * Z_LOSS * SCALE}
    launch("cross_entropy", {"dtype": kind, "MODE": mode, "BV": BLOCK[name]}, args)
    return made


class Step(unittest.TestCase):
    def test_cross_entropy(self):
        for name in BLOCK:
            given = case(name)
            for kind in KINDS:
                with self.subTest(case=name, dtype=kind):
                    for mode, over in ((0, False), (1, False), (2, False), (2, True)):
                        made = entropy(name, kind, mode, over)
                        assert_close(made["nll"], given["nll"], f"{name} nll {kind} {mode}")
                        assert_close(made["lse"], given["lse"], f"{name} lse {kind} {mode}")
                        if mode == 0:
                            assert_close(made["likeliest"], given["argmax"], f"{name} argmax {kind}", within=0.0)
                        else:
                            assert_close(made["dlogits"], given["dlogits"], f"{name} dlogits {kind} {mode}", kind)

    def test_a_target_outside_the_vocabulary_is_nan(self):
        logits, targets = Array(np.zeros((3, 20)), "f32"), Array([20, -1, 19], "i64")
        nll, lse, likeliest = Array.empty((3,), "f32"), Array.empty((3,), "f32"), Array.empty((3,), "i64")
        args = {"logits": logits, "targets": targets, "nll": nll, "lse": lse, "likeliest": likeliest, "dlogits": None}
        args |= {"rows": 3, "vocab": 20, "logits_row": 20, "base": 1.0, "nll_factor": 0.0, "lse_factor": 0.0}
        launch("cross_entropy", {"dtype": "f32", "MODE": 0, "BV": 32}, args)
        self.assertEqual(list(np.isnan(nll.values)), [True, True, False])

    def test_logits_of_minus_infinity(self):
        """A masked vocabulary: whole lanes see only −∞."""
        values = np.full((1, 64), -np.inf)
        values[0, [3, 40]] = [1.0, 2.0]
        nll, lse, likeliest = Array.empty((1,), "f32"), Array.empty((1,), "f32"), Array.empty((1,), "i64")
        args = {"logits": Array(values, "f32"), "targets": Array([40], "i64"), "nll": nll, "lse": lse}
        args |= {"likeliest": likeliest, "dlogits": None, "rows": 1, "vocab": 64, "logits_row": 64}
        args |= {"base": 1.0, "nll_factor": 0.0, "lse_factor": 0.0}
        launch("cross_entropy", {"dtype": "f32", "MODE": 0, "BV": 16}, args)
        assert_close(lse, np.log(np.exp([1.0]) + np.exp(2.0)), "lse")
        self.assertEqual(likeliest.values[0], 40)

    def test_the_summed_loss(self):
        for name in BLOCK:
            given = case(name)
            rows = given["nll"].size
            loss, counted = Array.empty((1,), "f64"), Array.empty((1,), "i64")
            args = {"nll": Array(given["nll"].reshape(-1), "f32"), "lse": Array(given["lse"].reshape(-1), "f32")}
            args |= {"targets": Array(given["targets"].reshape(-1), "i64"), "loss": loss, "counted": counted}
            args |= {"rows": rows, "nll_square": NLL_SQUARE, "z_loss": Z_LOSS}
            launch("loss_sum", {"LANES": 8}, args)
            assert_close(loss, given["loss"], f"{name} loss", within=1e-13)
            self.assertEqual(counted.values[0], given["counted"])

    def test_the_norm_and_the_coefficient(self):
        given = case("clip")
        sums = Array.empty((3,), "f64")
        first = 0
        for n in range(2):
            g = given[f"g{n}"].reshape(-1)
            args = {"g": Array(g, "f32"), "sums": sums, "count": g.size, "first": first}
            launch("square_sums", variant("square_sums"), args)
            first += -(-g.size // 16384)
        for most, wanted in ((1.5, given["coefficient"]), (float("inf"), 1.0), (1e9, 1.0)):
            norm, coefficient = Array.empty((1,), "f64"), Array.empty((1,), "f64")
            args = {"sums": sums, "norm": norm, "coefficient": coefficient, "blocks": 3, "most": most}
            launch("clip_coefficient", variant("clip_coefficient"), args)
            assert_close(norm, given["norm"], "norm", within=1e-14)
            assert_close(coefficient, wanted, "coefficient", within=1e-14)

    def test_adamw(self):
        given = case("adamw")
        beta1, beta2, decay, lr = 0.9, 0.95, 0.1, 1e-2
        p, g, m, v = (Array(given[f"before{n}"], "f32") for n in range(4))
        coefficient, copy = Array(given["coefficient"].reshape(1), "f64"), Array.empty(p.shape, "bf16")
        for step in (1, 2, 3):
            factors = {"keep": 1 - lr * decay, "beta1": beta1, "rest1": 1 - beta1, "beta2": beta2, "rest2": 1 - beta2}
            factors |= {"root": 1 / (1 - beta2**step) ** 0.5, "eps": 1e-8, "rate": lr / (1 - beta1**step)}
            with_copy = int(step == 2)
            args = {"p": p, "g": g, "m": m, "v": v, "copy": copy if with_copy else None}
            args |= {"coefficient": coefficient, "count": p.values.size, **factors}
            launch("adamw", variant("adamw", COPY=with_copy), args)
            for n, got in enumerate((p, m, v)):
                assert_close(got, given[f"after{step}.{n}"], f"adamw {step} {n}", within=5e-7)
            if with_copy:
                np.testing.assert_array_equal(copy.values, round_bf16(p.values))

    def test_the_copy_is_rounded_to_the_nearest_even(self):
        """An update that changes nothing: the copy is p, rounded."""
        # Halfway between two bf16, from either side; just beside it; a carry into the exponent; signs and infinity.
        bits = [0x3F808000, 0x3F818000, 0x3F808001, 0x3F817FFF, 0x3FFFFFFF, 0xBF808000, 0x7F7FFFFF, 0x7F800000]
        p = Array(np.array(bits, dtype=np.uint32).view(np.float32), "f32")
        g, m, v = (Array(np.zeros(p.shape), "f32") for _ in range(3))
        copy = Array.empty(p.shape, "bf16")
        args = {"p": p, "g": g, "m": m, "v": v, "copy": copy, "coefficient": Array([1.0], "f64")}
        args |= {"count": len(bits), "keep": 1.0, "beta1": 0.9, "rest1": 0.1, "beta2": 0.95, "rest2": 0.05}
        launch("adamw", variant("adamw", COPY=1), args | {"root": 1.0, "eps": 1e-8, "rate": 0.0})
        wanted = [0x3F80, 0x3F82, 0x3F81, 0x3F81, 0x4000, 0xBF80, 0x7F80, 0x7F80]
        got = copy.values.astype(np.float32).view(np.uint32) >> 16
        self.assertEqual([hex(n) for n in got], [hex(n) for n in wanted])


if __name__ == "__main__":
    unittest.main()
