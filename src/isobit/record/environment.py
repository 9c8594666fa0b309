"""The environment variables that a run begins with: values of those that are known to matter, digests of the rest.

A digest is keyed with random bytes that stay in the store (``.isobit/key``, for its owner alone) and go into no bundle:
without them nobody can find out a short value by trying all. With them two runs of one store can be told apart by a
variable that neither shows. Of names that look like secrets there is the name alone.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

from blake3 import blake3

from isobit.record.errors import RecordError
from isobit.record.manifest import Environment
from isobit.record.secrets import is_secret_name, redact_text

KEY = "key"
_KEY_BYTES = 32
_SHOWN = 16  # hexadecimal digits of a digest

# Variables whose values are recorded: what Python, PyTorch, NumPy and the libraries below them read.
_KNOWN = re.compile(
    r"PYTHON.*|OMP_.*|GOMP_.*|KMP_.*|MKL_.*|OPENBLAS_.*|BLIS_.*|NUMEXPR_.*|VECLIB_.*|NPY_.*|NUMPY_.*|MALLOC_.*|DYLD_.*"
    r"|TORCH.*|PYTORCH_.*|ATEN_.*|CUBLAS_.*|CUDNN_.*|NCCL_.*|DNNL_.*|ONEDNN_.*|CUDA_(VISIBLE_DEVICES|LAUNCH_BLOCKING)"
    r"|NVIDIA_TF32_OVERRIDE|LANG|LC_[A-Z]+|TZ|ISOBIT_.*|GLIBC_TUNABLES|LD_LIBRARY_PATH|LD_PRELOAD|VIRTUAL_ENV"
    r"|CONDA_(PREFIX|DEFAULT_ENV)|HF_HOME|HF_(HUB|DATASETS)_(CACHE|OFFLINE)|HUGGINGFACE_HUB_CACHE|TRANSFORMERS_.*"
    r"|TOKENIZERS_PARALLELISM|XDG_CACHE_HOME|TMPDIR|WORLD_SIZE|RANK|LOCAL_RANK|MASTER_ADDR|MASTER_PORT"
)
# Of every process or terminal anew: a digest would only say that.
_FLEETING = re.compile(
    r"_|SHLVL|PWD|OLDPWD|WINDOWID|TERM_SESSION_ID|COLUMNS|LINES|SSH_(CLIENT|CONNECTION|TTY|AUTH_SOCK)|XDG_SESSION_ID"
    r"|DBUS_SESSION_BUS_ADDRESS|PYTEST_CURRENT_TEST"
)


def environment(variables: Mapping[str, str], home: Path, shown: Iterable[str] = ()) -> Environment:
    """What a record in the store `home` says of `variables`. `shown`: further ones whose values the user wants
    recorded. Raises RecordError if the store has no key and none can be made.
    """
    key = store_key(home)
    values, digests, names = {}, {}, []
    wanted = frozenset(shown)
    for name, value in sorted(variables.items()):
        if _FLEETING.fullmatch(name):
            continue
        if is_secret_name(name) and name not in wanted:
            names.append(name)
        elif name in wanted or _KNOWN.fullmatch(name):
            values[name] = redact_text(value)[0]
        else:
            digests[name] = _keyed(key, f"{name}={value}")
    return Environment(values, digests, tuple(names), _keyed(key, "which key is it"))


def store_key(home: Path) -> bytes:
    """The store's key; made at the first call."""
    path = home / KEY
    for _ in range(3):  # two runs at once may make it
        try:
            key = path.read_bytes()
            if len(key) == _KEY_BYTES:
                return key
            path.unlink()  # half of one: the disk was full
        except FileNotFoundError:
            pass
        except OSError as error:
            raise RecordError(f"cannot read {path}: {error.strerror}") from error
        _make_key(path)
    raise RecordError(f"cannot make {path}, the key that digests of environment variables are made with")


def _make_key(path: Path) -> None:
    draft = path.with_name(f".{KEY}.{secrets.token_hex(4)}")
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(secrets.token_bytes(_KEY_BYTES))
            os.link(draft, path)  # fails where another run was faster
        finally:
            draft.unlink(missing_ok=True)
    except FileExistsError:
        return
    except OSError as error:
        raise RecordError(f"cannot write a record in {path.parent}: {error.strerror or error}") from error


def _keyed(key: bytes, text: str) -> str:
    return blake3(text.encode("utf-8", "surrogateescape"), key=key).hexdigest()[:_SHOWN]
