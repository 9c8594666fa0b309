"""The list of runs at a terminal: in colours, one line each."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from isobit.cli.words import COLOURS


def paint(lines: Sequence[tuple[str, str]], hidden: int) -> None:
    """Print lines with the status that each shows, after a word on those that are hidden."""
    console = Console(highlight=False, width=shutil.get_terminal_size().columns)
    if hidden:
        console.print(f"… {hidden} more; --all shows them, -n N the last N", style="dim")
    for line, status in lines:
        console.print(_painted(line, status), overflow="ellipsis", no_wrap=True)


def _painted(line: str, status: str) -> Text:
    """A line for the terminal, its status in the colour it has."""
    text = Text(line, style="" if status else "bold")
    if status:
        text.highlight_regex(rf"(?<=  ){status}\b", COLOURS.get(status, "default"))
    return text
