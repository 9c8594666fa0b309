"""The trace in one place: what writes it (writing.py) and what reads it (reading.py), which needs NumPy.

What must start quickly takes Step from rows.py, TraceWriter from writing.py and the last step from peek.py.
"""

from __future__ import annotations

from isobit.record.columns import number
from isobit.record.reading import Metric, Trace, open_trace, read_steps
from isobit.record.rows import FOLDER, VERSION, Logged, Step
from isobit.record.writing import TraceWriter

__all__ = [
    "FOLDER",
    "VERSION",
    "Logged",
    "Metric",
    "Step",
    "Trace",
    "TraceWriter",
    "number",
    "open_trace",
    "read_steps",
]
