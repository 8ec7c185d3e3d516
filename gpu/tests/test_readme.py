"""The README's table of grids is the registry's."""

import re
import unittest
from pathlib import Path

from gpu import registry

README = Path(__file__).parent.parent / "README.md"


class Readme(unittest.TestCase):
    def test_every_kernel_and_its_grid_is_listed(self):
        table = README.read_text().split("## Grids")[1]
        listed = re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", table, re.M)
        made = [(spec.name, spec.grid) for spec in registry.load()]
        rows = "\n".join(f"| `{name}` | `{grid}` |" for name, grid in made)
        self.assertEqual(listed, made, f"the table should be:\n{rows}")


if __name__ == "__main__":
    unittest.main()
