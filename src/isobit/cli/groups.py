"""The commands by name, each with the module that it stands in, which is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from isobit.cli.options import SCRIPT_FIRST, Command

_SCRIPTS, _JUDGE, _RECORDS, _STORE = (f"isobit.cli.commands_{name}" for name in ("runs", "judge", "records", "store"))
HOMES: Mapping[str, str] = {
    "run": _SCRIPTS,
    "replay": _JUDGE,
    "check": _JUDGE,
    "runs": "isobit.cli.commands_listing",
    "show": _RECORDS,
    "compare": "isobit.cli.commands_compare",
    "report": "isobit.cli.commands_report",
    "bundle": _RECORDS,
    "checkout": _STORE,
    "rm": _STORE,
    "gc": _STORE,
}
_SCRIPT_COMMANDS = frozenset({"run", "check"})


class Commands(TyperGroup):
    """A group that loads a command when it is used: a list of runs waits neither for NumPy nor for templates."""

    def __init__(self, **attrs: Any) -> None:
        super().__init__(**attrs)
        names: dict[str, Any] = dict.fromkeys(HOMES)  # without the commands: what it offers after a slip of the pen
        self.commands = names

    def list_commands(self, ctx: Any) -> list[str]:
        """All names, in the order of the help."""
        return list(HOMES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name, or None."""
        if cmd_name not in HOMES:
            return None
        alone = typer.Typer(add_completion=False)
        settings = SCRIPT_FIRST if cmd_name in _SCRIPT_COMMANDS else None
        function = getattr(import_module(HOMES[cmd_name]), cmd_name)
        alone.command(cmd_name, cls=Command, context_settings=settings)(function)
        return typer.main.get_command(alone)
