"""The Python of README.md, block after block in an empty folder, as in a notebook: it runs, and shows what the page says."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import tempfile
import unittest
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"

#: The recipes of `canonc new`, shorter.
SHORT = [("steps = 600", "steps = 4"), ("warmup = 60", "warmup = 2"), ("every = 100", "every = 4")]


def shown_after(lines: list[str]) -> str:
    """The comment at the beginning of some lines."""
    comment = []
    for line in lines:
        if not line.startswith("# "):
            break
        comment.append(line[2:])
    return "\n".join(comment)


class Readme(unittest.TestCase):
    def cell(self, text: str, names: dict[str, object]) -> None:
        """Runs a block, and compares each value or print with the comment below it; `…` stands for anything."""
        lines = text.splitlines()
        for statement in ast.parse(text).body:
            code = "\n".join(lines[statement.lineno - 1 : statement.end_lineno])
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
                value = None
                if isinstance(statement, ast.Expr):
                    value = eval(code, names)
                else:
                    exec(code, names)
            expected = shown_after(lines[statement.end_lineno or 0 :])
            if expected:
                shown = printed.getvalue().rstrip("\n") or repr(value)
                pattern = ".*".join(map(re.escape, expected.split("…")))
                self.assertRegex(shown, re.compile(f"\\A{pattern}\\Z", re.DOTALL), code)

    def test_the_blocks_in_order(self) -> None:
        blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
        names: dict[str, object] = {}
        before = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                for block in blocks:
                    self.cell(block, names)
                    for recipe in Path("recipes").glob("depo_*.toml"):
                        text = recipe.read_text()
                        for old, new in SHORT:
                            text = text.replace(old, new)
                        recipe.write_text(text)
            finally:
                os.chdir(before)
        self.assertGreater(len(blocks), 4)


if __name__ == "__main__":
    unittest.main()
