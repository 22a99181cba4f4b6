"""Tests of truth.py with stand-ins for `butter`: `python -m unittest scripts/test_truth.py`."""

import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

SCRIPTS = Path(__file__).resolve().parent
sys.path.insert(0, str(SCRIPTS))

import torch
import truth
from safetensors.torch import load_file, save_file

MODEL = SCRIPTS.parent / "tests/data/tiny/grouped"
WINDOWS, LENGTH = 3, 40

# Takes what `butter logits` takes; BODY sees the exact `logits`, `args`, `np` and `sys`.
ENGINE = f"""#!{sys.executable}
import argparse, json, sys
import numpy as np
from safetensors.numpy import load_file, save_file
parser = argparse.ArgumentParser()
parser.add_argument("command", choices=["logits"])
parser.add_argument("model")
parser.add_argument("--tokens", required=True)
parser.add_argument("--out", required=True)
parser.add_argument("--f32", action="store_true")
args = parser.parse_args()
logits = load_file("EXACT")[str(json.load(open(args.tokens)))]
BODY
save_file({{"logits": logits}}, args.out)
"""


class TruthTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        ids = load_file(MODEL / "truth.safetensors")["long.tokens"].tolist()
        (cls.folder / "tokens.json").write_text(json.dumps(ids))
        starts = truth.window_starts(len(ids), WINDOWS, LENGTH)
        windows = [ids[start : start + LENGTH] for start in starts]
        model = truth.load_model(MODEL)
        exact = {str(window): truth.logits_of(model, window) for window in windows}
        save_file(exact, cls.folder / "exact.safetensors")

    def run_truth(self, body: str, *options: str) -> tuple[int, str, str]:
        """Exit code and output of truth.py against an engine that changes the exact logits by `body`."""
        engine = self.folder / "butter"
        engine.write_text(ENGINE.replace("EXACT", str(self.folder / "exact.safetensors")).replace("BODY", body))
        engine.chmod(0o755)
        arguments = [MODEL, "--tokens", self.folder / "tokens.json", "--windows", WINDOWS, "--length", LENGTH]
        arguments += ["--butter", engine, *options]
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.object(sys, "argv", ["truth.py", *map(str, arguments)]),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            try:
                code = truth.main()
            except SystemExit as exit:
                code = exit.code
        return code, out.getvalue(), err.getvalue()

    def test_an_exact_engine_is_within_every_bound(self):
        bounds = ("--max-abs", "1e-4", "--max-kl", "1e-9", "--min-top1", "1", "--max-perplexity-ratio", "1.00001")
        code, out, err = self.run_truth("", *bounds)
        self.assertEqual(code, 0, err)
        self.assertEqual(len(out.splitlines()), 1 + WINDOWS + 1, out)

    def test_noise_exceeds_the_bounds(self):
        noise = "logits += 0.5 * np.random.default_rng(0).standard_normal(logits.shape, np.float32)"
        bounds = ("--max-abs", "0.1", "--max-kl", "0.01", "--min-top1", "0.999", "--max-perplexity-ratio", "1.001")
        code, out, err = self.run_truth(noise, *bounds)
        self.assertEqual(code, 1, out)
        for name in ("largest difference", "mean KL", "top-1 agreement", "perplexity ratio"):
            self.assertIn(name, err)

    def test_a_constant_added_to_all_logits_moves_no_probability(self):
        code, out, err = self.run_truth("logits += 3", "--max-kl", "1e-9", "--min-top1", "1")
        self.assertEqual(code, 0, err)
        self.assertIn("3.000e+00", out)

    def test_kl_and_perplexity_of_uniform_logits_are_known(self):
        code, out, _ = self.run_truth("logits *= 0")
        entropies = []
        for logits in load_file(self.folder / "exact.safetensors").values():
            log_p = torch.log_softmax(logits.double(), -1)
            entropies.append(-(log_p.exp() * log_p).sum(-1).mean())
        kl, perplexity = (float(out.splitlines()[-1].split()[column]) for column in (2, 5))
        self.assertEqual(code, 0)
        self.assertAlmostEqual(kl, float(torch.tensor(256.0).log() - sum(entropies) / WINDOWS), places=3)
        self.assertEqual(perplexity, 256)

    def test_f32_is_passed_on(self):
        self.assertEqual(self.run_truth("assert args.f32", "--f32")[0], 0)
        self.assertEqual(self.run_truth("assert args.f32")[0], 2)

    def test_missing_positions_are_an_error(self):
        code, _, err = self.run_truth("logits = logits[1:].copy()")
        self.assertEqual(code, 2)
        self.assertIn("[39, 256], expected torch.float32 [40, 256]", err)

    def test_nan_is_an_error(self):
        code, _, err = self.run_truth("logits[0, 0] = np.nan")
        self.assertEqual(code, 2)
        self.assertIn("not finite", err)

    def test_a_failing_engine_is_quoted(self):
        code, _, err = self.run_truth("sys.exit('no such model')")
        self.assertEqual(code, 2)
        self.assertIn("no such model", err)

    def test_a_missing_engine_is_an_error(self):
        code, _, err = self.run_truth("", "--butter", "no-such-program")
        self.assertEqual(code, 2)
        self.assertIn("cannot run no-such-program", err)


if __name__ == "__main__":
    unittest.main()
