"""Python runs this at the start of every process that a script under `isobit run` starts, since its folder comes first
in PYTHONPATH. A `sitecustomize` of the user's own, which it hides, runs as ever.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [entry for entry in sys.path if entry != _HERE]

if "ISOBIT_CHILD" in os.environ:
    _HOME = os.path.dirname(os.path.dirname(_HERE))
    if _HOME not in sys.path:
        sys.path.append(_HOME)
    from isobit.startup import wait_for_imports

    wait_for_imports(os.environ["ISOBIT_CHILD"])

_spec = PathFinder.find_spec("sitecustomize", sys.path)
if _spec is not None and _spec.loader is not None:
    _module = sys.modules["sitecustomize"] = module_from_spec(_spec)
    _spec.loader.exec_module(_module)
