"""The native audit hook: who is called, when, and that nothing of it can hurt the process. Python never lets go of a
hook, so each case has a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

HEAD = """\
import os, sys, threading
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from isobit.codegen.target import host_target
from isobit.runtime.audit import AuditError, AuditHook
heard = []
def listener(event, arguments):
    heard.append((event, arguments[0]))
def hook(listener=listener, on=True):
    made = AuditHook(("open", "os.rename"), listener, host_target(), None)
    made.switch(on)
    return made
def touch(path="/etc/passwd"):
    open(path).close()
"""

CASES = {
    "only_named_events": """
hook()
touch(); id(3); os.listdir("/"); object.__getattribute__(touch, "__code__"); sys.audit("o"); sys.audit("opened")
sys.audit("open"[:3] + "n", "made up"); sys.audit("os.rename", "a", "b")
assert heard == [("open", "/etc/passwd"), ("open", "made up"), ("os.rename", "a")], heard
""",
    "switched_off_and_on": """
h = hook(on=False); touch(); h.switch(True); touch(); h.switch(False); touch()
assert len(heard) == 1, heard
""",
    "in_threads": """
hook()
def work(n):
    for _ in range(300): touch()
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
assert len(heard) == 1200, len(heard)
""",
    "in_a_forked_child": """
hook(); touch()
child = os.fork()
if child == 0:
    touch(); os._exit(len(heard))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2 and len(heard) == 1
""",
    "called_from_inside_itself": """
def nested(event, arguments):
    listener(event, arguments)
    if len(heard) < 5: touch()
hook(nested); touch()
assert len(heard) == 5
""",
    "an_exception_comes_out": """
def refuse(event, arguments): raise KeyboardInterrupt
hook(refuse)
try: touch()
except KeyboardInterrupt: pass
else: raise AssertionError("swallowed")
""",
    "no_room_on_the_stack": """
hook()
def deep(n):
    try: return deep(n + 1)
    except RecursionError: return os.open("/etc/passwd", 0)   # a call of C code still has room here, the listener not
limit = sys.getrecursionlimit()
deep(0); sys.setrecursionlimit(limit); touch()
assert heard[-1] == ("open", "/etc/passwd")
""",
    "tracers_do_not_see_it": """
hook(); seen = []
def trace(frame, event, argument): seen.append(frame.f_code.co_name); return trace
sys.settrace(trace); touch(); sys.settrace(None)
assert len(heard) == 1 and "touch" in seen and "listener" not in seen, seen
""",
    "an_exception_under_way_stays": """
hook()
try: 1 / 0
except ZeroDivisionError as error:
    touch()
    assert sys.exc_info()[1] is error
assert len(heard) == 1
""",
    "other_interpreters_are_left_alone": """
try: import _interpreters as interpreters
except ImportError: import _xxsubinterpreters as interpreters
hook(); touch()
other = interpreters.create()
(getattr(interpreters, "run_string"))(other, "for _ in range(100): open('/etc/passwd').close()")
interpreters.destroy(other)
assert [path for event, path in heard].count("/etc/passwd") == 1, heard
""",
    "until_the_very_end": """
hook()
class Late:
    def __del__(self, open=open): open("/etc/passwd").close()
sys.late, late = Late(), Late()
threading.Thread(target=lambda: [touch() for _ in iter(int, 1)], daemon=True).start()
""",
    "a_hook_that_keeps_others_out": """
def keep_out(event, arguments):
    if event == "sys.addaudithook": raise RuntimeError
sys.addaudithook(keep_out)
try: hook()
except AuditError as error: assert "keeps new ones out" in str(error)
else: raise AssertionError("not noticed")
touch()
""",
}


@pytest.mark.parametrize("case", CASES)
def test_the_hook(case: str) -> None:
    command = [sys.executable, "-c", HEAD + CASES[case] + "\nprint('done')", str(ROOT / "src")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
