"""The exit codes of all commands; docs/record.md has the same table. `isobit run` exits as the script does."""

from __future__ import annotations

OK = 0  # done; replay, check: the bits are the same
DIFFERS = 1  # replay, check: they are not
NO_VERDICT = 2  # replay, check: there is nothing to judge
USAGE = 2  # a wrong command line, a record that cannot be found, read or written: nothing was run
INTERRUPTED = 130  # by Ctrl-C: 128 + SIGINT
