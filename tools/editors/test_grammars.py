"""The grammar for tree-sitter reads every committed `.canon` file and the valid examples of LANGUAGE.md.

The C compiler compiles the generated parser here. A file without a tree, or with an error in it, fails; so does a query
that names nothing of the grammar.
"""

import ctypes
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from tree_sitter import Language, Parser, Query, QueryCursor

ROOT = Path(__file__).resolve().parents[2]
GRAMMAR = ROOT / "tools/editors/tree-sitter-canon"


def language(folder: str) -> Language:
    library = Path(folder) / "canon.so"
    source = GRAMMAR / "src"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O1", "-I", source, source / "parser.c", "-o", library], check=True
    )
    function = ctypes.cdll.LoadLibrary(str(library)).tree_sitter_canon
    function.restype = ctypes.c_void_p
    ctypes.pythonapi.PyCapsule_New.restype = ctypes.py_object
    ctypes.pythonapi.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return Language(ctypes.pythonapi.PyCapsule_New(function(), b"tree_sitter.Language", None))


def documented() -> list[str]:
    """The examples of LANGUAGE.md that are valid."""
    text = (ROOT / "dsl/LANGUAGE.md").read_text()
    return re.findall(r"^```canon\n(.*?)^```$", text, re.M | re.S)


class Grammar(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.language = language(cls.folder.name)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def wrong(self, text: str) -> str | None:
        tree = Parser(self.language).parse(text.encode())
        if not tree.root_node.has_error:
            return None
        nodes = [tree.root_node]
        while nodes:
            node = nodes.pop()
            if node.is_error or node.is_missing:
                row = node.start_point[0]
                return f"line {row + 1}: {text.splitlines()[row]}"
            nodes += node.children
        return "somewhere"

    def test_every_file_has_a_tree(self):
        names = subprocess.run(
            ["git", "ls-files", "*.canon"], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout.split()
        self.assertGreater(len(names), 80)
        # Inputs of the tests of errors are wrong on purpose.
        names = [name for name in names if not name.startswith(("tests/cases", "tools/fuzz/"))]
        errors = {name: self.wrong((ROOT / name).read_text()) for name in names}
        self.assertEqual({name: error for name, error in errors.items() if error}, {})

    def test_every_example_has_a_tree(self):
        examples = documented()
        self.assertGreater(len(examples), 8)
        self.assertEqual([error for error in map(self.wrong, examples) if error], [])

    def test_an_error_is_seen(self):
        self.assertIsNotNone(self.wrong("block f(x) { = }"))
        self.assertIsNotNone(self.wrong("arch a { vocab }"))

    def test_the_queries_colour(self):
        query = Query(self.language, (GRAMMAR / "queries/highlights.scm").read_text())
        text = (ROOT / "std/attention.canon").read_text().encode()
        tree = Parser(self.language).parse(text)
        captures = QueryCursor(query).captures(tree.root_node)
        words = {name: {text[n.start_byte : n.end_byte].decode() for n in nodes} for name, nodes in captures.items()}
        self.assertIn("attention", words["function"])
        self.assertIn("linear", words["function.call"])
        self.assertIn("wq", words["property"])
        self.assertIn("B", words["constant"])
        self.assertIn("mixer", words["keyword"])


if __name__ == "__main__":
    unittest.main()
