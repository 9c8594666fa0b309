"""Finds secrets by their shape, and makes them unreadable in what goes into a record.

Two kinds of evidence: tokens that their makers gave a shape of their own, and values that look random and are assigned
to a name that says "token", "key", "secret" or "password". What has neither is not found: a password like a word, a
token in pieces, one in a binary file. Ordinary code must come through unchanged, since it is run again from the record.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

SECRET_FILE = "its name says that it holds secrets"  # why a file is left out
LONGEST = 1 << 20  # bytes of a file that is searched
MASK = b"*"


@dataclass(frozen=True)
class _Shape:
    """A token with a shape of its own: the pattern's group 1, or all of it. ``hint`` must occur where it does."""

    kind: str
    hint: bytes
    pattern: re.Pattern[bytes]


def _shape(kind: str, hint: bytes, pattern: bytes) -> _Shape:
    return _Shape(kind, hint, re.compile(pattern, re.DOTALL))


_START, _END = rb"(?<![A-Za-z0-9_-])", rb"(?![A-Za-z0-9_-])"
_GITHUB = (b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_")
_SHAPES = (
    _shape("AWS access key", b"AKIA", _START + rb"AKIA[0-9A-Z]{16}" + _END),
    _shape("AWS access key", b"ASIA", _START + rb"ASIA[0-9A-Z]{16}" + _END),
    *(_shape("GitHub token", kind, _START + kind + rb"[A-Za-z0-9]{36,255}" + _END) for kind in _GITHUB),
    _shape("GitHub token", b"github_pat_", _START + rb"github_pat_[A-Za-z0-9_]{30,255}"),
    _shape("GitLab token", b"glpat-", _START + rb"glpat-[A-Za-z0-9_-]{20,}"),
    _shape("Slack token", b"xox", _START + rb"xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    _shape("Slack address", b"hooks.slack.com/", rb"hooks\.slack\.com/services/([A-Za-z0-9/_+-]{20,})"),
    _shape("API key", b"sk-", _START + rb"sk-(?=[A-Za-z0-9_-]*[0-9])(?=[A-Za-z0-9_-]*[A-Za-z])[A-Za-z0-9_-]{20,}"),
    _shape("Stripe key", b"k_live_", _START + rb"[rs]k_live_[A-Za-z0-9]{16,}"),
    _shape("Hugging Face token", b"hf_", _START + rb"hf_(?=[a-z0-9]*[A-Z])(?=[A-Z0-9]*[a-z])[A-Za-z0-9]{30,}" + _END),
    _shape("Google API key", b"AIza", _START + rb"AIza[A-Za-z0-9_-]{35}" + _END),
    _shape("PyPI token", b"pypi-", _START + rb"pypi-[A-Za-z0-9_-]{50,}"),
    _shape("npm token", b"npm_", _START + rb"npm_[A-Za-z0-9]{36}" + _END),
    _shape("JSON web token", b"eyJ", _START + rb"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
    _shape(
        "private key",
        b"PRIVATE KEY",
        rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----(.{20,}?)-----END",
    ),
    _shape("password in an address", b"://", rb"://[^\s/:@'\"{}$<>\[\]]{0,100}:([^\s/@'\"{}$<>\[\]]{3,200})@"),
)  # fmt: skip

# The word is looked for first, in lower case; then what surrounds it. One pattern of all takes a hundred times longer.
_WORDS = (b"token", b"key", b"secret", b"passw", b"passphrase", b"credential")
_BEFORE = re.compile(rb"[A-Za-z0-9_.-]{0,60}\Z")
_QUOTED = re.compile(
    rb"[A-Za-z0-9_-]{2,30}[\"'\])]{0,3}\s{0,8}(?::[^=\n\"']{0,40}=|[:=]|,)\s{0,8}[rbufRBUF]{0,2}"
    rb"[\"']([^\s\"']{8,512})[\"']"
)
_PLAIN = re.compile(rb"[A-Za-z0-9_-]{2,30}[\"']?[ \t]*[:=][ \t]*([^\s\"'#,;]{8,512})(?=[ \t]*,?\r?(?:\n|\Z))")
_SPAN = 700  # bytes after the word that belong to an assignment
_PASSWORD = re.compile(r"(?i)secret|passw(or)?d|passphrase|credential")
_CODE = (".py", ".pyi", ".pyx", ".ipynb", ".js", ".ts", ".c", ".h", ".cpp", ".cc", ".cu", ".rs", ".go", ".java")

_SECRET_NAME = re.compile(
    r"(?i)token|secret|passw(or)?d|passwd|passphrase|credential|cookie|(^|_)(pwd|auth|session|pat)(_|$)"
    r"|(^|_|api|access|private)key(s|id)?($|_)"
)
_NOT_SECRET = frozenset({"PWD", "OLDPWD", "SSH_AUTH_SOCK", "TOKENIZERS_PARALLELISM"})
_SECRET_FILES = re.compile(
    r"(?i)\.env(\.(?!example$|sample$|template$|dist$).+)?|.+\.env|[._]netrc|\.pypirc|\.npmrc|\.git-credentials"
    r"|\.htpasswd|id_(rsa|dsa|ecdsa|ed25519)|.+\.(pem|p12|pfx|jks|keystore|ppk|kdbx)|kaggle\.json"
    r"|(secrets?|credentials)\.(json|ya?ml|toml|ini)|credentials|client_secret.*\.json|service[-_]account.*\.json"
)


def is_secret_file(name: str) -> bool:
    """Whether a file with this name is made to hold secrets, so that the whole of it stays out of the record."""
    return _SECRET_FILES.fullmatch(name) is not None


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name is likely to hold a secret."""
    return name not in _NOT_SECRET and _SECRET_NAME.search(name) is not None


def redact(data: bytes, name: str = "") -> tuple[bytes, dict[str, int]]:
    """`data` with every secret replaced by as many asterisks, and how many of which kind. Binary and long data stay
    as they are. `name`: of the file.
    """
    if len(data) > LONGEST or b"\0" in data[:8192]:
        return data, {}
    places = dict(_shaped(data))
    places |= {span: kind for span, kind in _assigned(data, name) if not _within(span, places)}
    if not places:
        return data, {}
    changed = bytearray(data)
    for start, end in places:
        changed[start:end] = bytes(byte if byte in b"\r\n" else MASK[0] for byte in data[start:end])
    return bytes(changed), dict(Counter(places.values()))


def redact_text(text: str) -> tuple[str, int]:
    """`text` with every secret replaced, and how many there were."""
    changed, found = redact(text.encode("utf-8", "surrogatepass"))
    return changed.decode("utf-8", "surrogatepass"), sum(found.values())


def redact_words(words: Iterable[str]) -> tuple[tuple[str, ...], int]:
    """The words of a command line; ``--token VALUE`` counts as assigned, like ``--token=VALUE``."""
    changed: list[str] = []
    count = 0
    for word in words:
        before = changed[-1] if changed else ""
        name, equals, value = word.partition("=")
        if before.startswith("-") and "=" not in before and _is_secret(before.lstrip("-"), word):
            changed.append("*" * len(word))
            count += 1
        elif equals and _is_secret(name.lstrip("-"), value):
            changed.append(f"{name}={'*' * len(value)}")
            count += 1
        else:
            text, found = redact_text(word)
            changed.append(text)
            count += found
    return tuple(changed), count


def _is_secret(name: str, value: str) -> bool:
    return is_secret_name(name.replace("-", "_")) and looks_random(name, value)


def _shaped(data: bytes) -> Iterator[tuple[tuple[int, int], str]]:
    for shape in _SHAPES:
        if shape.hint in data:
            for match in shape.pattern.finditer(data):
                span = match.span(1 if shape.pattern.groups else 0)
                if not _PLACEHOLDER.search(data[slice(*span)].decode("latin-1")):
                    yield span, shape.kind


def _assigned(data: bytes, name: str) -> Iterator[tuple[tuple[int, int], str]]:
    patterns = (_QUOTED,) if name.endswith(_CODE) else (_QUOTED, _PLAIN)
    for start in _places(data.lower()):
        for pattern in patterns:
            match = pattern.match(data, start, start + _SPAN)
            if match is None:
                continue
            before = _BEFORE.search(data, max(0, start - 60), start)
            variable = (before[0] if before else b"") + data[start : match.start(1)].split(b"=")[0]
            if looks_random(variable.decode("latin-1"), match[1].decode("latin-1")):
                yield match.span(1), "value of a secret's name"
                break


def _places(lower: bytes) -> Iterator[int]:
    """Where a word that announces a secret begins."""
    for word in _WORDS:
        place = lower.find(word)
        while place >= 0:
            yield place
            place = lower.find(word, place + 1)


def _within(span: tuple[int, int], places: Mapping[tuple[int, int], str]) -> bool:
    return any(start < span[1] and span[0] < end for start, end in places)


_PLACEHOLDER = re.compile(r"(?i)x{5,}|\*{4,}|\.{3}|<|>|\$\{|\{\{|your|example|changeme|placeholder|dummy|0{8,}|1234567")
_RANDOM = re.compile(r"[A-Za-z0-9+/=_-]+")
_TYPED = re.compile(r"[A-Za-z0-9+/=_.~!@#$%^&*?-]+")


def looks_random(name: str, value: str) -> bool:
    """Whether `value`, assigned to `name`, is rather a secret than a word, a path or an identifier."""
    if _PLACEHOLDER.search(value):
        return False
    classes = sum(any(test(c) for c in value) for test in _CLASSES)
    if _PASSWORD.search(name) and _TYPED.fullmatch(value):
        return len(value) >= 8 and classes >= 2 and value[0] not in "./$" and any(map(str.isdigit, value))
    if _RANDOM.fullmatch(value) is None:
        return False
    if re.fullmatch(r"[0-9a-fA-F]{32,}", value):
        return classes >= 2 and _entropy(value) >= 3.0
    return len(value) >= 20 and classes >= 3 and _entropy(value) >= 3.5 and not _is_plain(value)


_CLASSES: tuple[Callable[[str], bool], ...] = (str.islower, str.isupper, str.isdigit)
_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")


def _is_plain(value: str) -> bool:
    """Whether it is made of words, as identifiers, file names and dotted paths are: its letters come in long runs."""
    parts = _PART.findall(value)
    return sum(map(len, parts)) >= 2.2 * len(parts)


def _entropy(value: str) -> float:
    """Bits for each character, by how often each occurs."""
    counts, n = Counter(value), len(value)
    return -sum(k / n * math.log2(k / n) for k in counts.values())
