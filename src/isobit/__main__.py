"""``python -m isobit`` is the ``isobit`` command."""

import runpy

runpy.run_module("isobit.cli.main", run_name="__main__", alter_sys=True)
