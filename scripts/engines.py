"""The engines of this tree, in the order of src/index/engines.def."""

import pathlib
import re

_TABLE = pathlib.Path(__file__).resolve().parent.parent / "src" / "index" / "engines.def"
ENGINES = tuple(re.findall(r"(?m)^PERDURE_ENGINE\((\w+)\)$", _TABLE.read_text(encoding="utf-8")))
