"""Text without secrets, and messages of Java's exceptions as such text.

The rule: the value of a setting whose name says secret is hidden wherever it stands, and so is the password of a URL.
All code that prints, logs or records text, or starts a process, goes through this module.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote

from dbt_recluster.exceptions import ReclusterError
from dbt_recluster.iceberg.session.jvm import java_map, java_session, jvm

HIDDEN = "*****"
_NEVER_HIDDEN = (HIDDEN, "true", "false", "none", "null")
# Shorter texts occur everywhere, and a log without them could not be read.
_SHORTEST = 4
_SECRET = (
    r"(?:secret|passw|passphrase|pwd|token|credential|authorization|"
    r"(?:access|account|api|client|encryption|private|shared|sse|storage)[._-]?key)"
)
_SECRET_NAME = re.compile(
    rf"{_SECRET}|cookie|private|(?:^|[._-])(?:key|pass|sas|sig)s?(?:$|[._-])|(?-i:[a-z](?:Key|Pass)$)", re.I
)
# Harmless under any name: switches, classes, and addresses without users or parameters.
_ADDRESS = r"(?:[a-z][\w+.-]*:)+//[\w.:\[\]-]*(?:/[\w./%+~-]*)?"
_CONSTANT = re.compile(rf"|true|false|none|null|(?:[a-z]\w*\.){{2,}}[A-Z][\w$]*|{_ADDRESS}(?:,{_ADDRESS})*", re.I)
_VALUE = r"""(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|\{([^}]*)\}|(?!(?:Bearer|Basic)\s)([^\s"'&;]+))"""
_WORDS = r"[\w.-]{0,99}"
# Where secrets stand in text; the groups are the secrets. Repetitions are limited, or long texts would take minutes.
_IN_TEXT = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\b(?:Bearer|Basic)\s+([^\s\"'&;,]{4,})",
        r"://[^\s/:@?#]{0,99}:(\S{1,999})@",  # //user:SECRET@host, up to the last @: it may be part of the secret
        r"https?://([^\s/:@]{4,999})@",
        rf"(?<![\w.-])(?:{_WORDS}{_SECRET}{_WORDS}|pass|sas|sig)[\"']?\s*[=:]\s*{_VALUE}",
        rf"(?<!\S)--?{_WORDS}{_SECRET}{_WORDS}\s+{_VALUE}",
    )
)

_hidden: frozenset[str] = frozenset()


def is_secret(name: str, value: str) -> bool:
    """Whether the value of a setting, an option or a key of a profile must not be shown."""
    return _SECRET_NAME.search(name) is not None and not _CONSTANT.fullmatch(value)


def secrets_in(settings: Mapping[str, object]) -> list[str]:
    """Return the secrets in the values of settings: whole values, and parts that may be shown alone."""
    secrets: list[str] = []
    for name, text in ((name, str(value)) for name, value in settings.items()):
        secrets += [match[match.lastindex or 0] for form in _IN_TEXT for match in form.finditer(text)]
        if is_secret(name, text):
            secrets += [text, text.partition(":")[2]]
    return [secret for secret in secrets if secret]


def secrets_in_command(words: Sequence[object]) -> list[str]:
    """Return the secrets in a command: values of its options, and of settings among its words."""
    texts = list(map(str, words))
    secrets = secrets_in({"": " ".join(texts)})
    for option, word in zip(["", *texts], texts, strict=False):
        if option.startswith("-") and not word.startswith("-"):
            secrets += secrets_in({option: word})
        name, is_pair, value = word.lstrip("-").partition("=")
        while is_pair:  # as --conf=NAME=VALUE has it
            secrets += secrets_in({name: value})
            name, is_pair, value = value.partition("=")
    return secrets


def hide(secrets: Iterable[str]) -> None:
    """Have :func:`redact` and :func:`without_known_secrets` hide these from now on: as they stand, in URLs, in JSON."""
    global _hidden
    texts = {form for secret in secrets for form in (secret, unquote(secret), quote(secret, safe=""))}
    texts |= {json.dumps(text, ensure_ascii=is_ascii)[1:-1] for text in texts for is_ascii in (True, False)}
    _hidden |= {text for text in texts if len(text) >= _SHORTEST and text.lower() not in _NEVER_HIDDEN}


def without_known_secrets(text: str) -> str:
    """Return any text, JSON and SQL included, without the secrets given to :func:`hide`."""
    return _pattern(_hidden).sub(HIDDEN, text) if _hidden else text


def redact(text: str) -> str:
    """Return a message without known secrets and anything that looks like one."""
    text = without_known_secrets(text)
    for pattern in _IN_TEXT:
        text = pattern.sub(_without_secret, text)
    return text


def java_pattern() -> str:
    """Return a regular expression of Java for all known secrets, of letters, digits, ``|`` and backslashes only."""
    codes = (secret.encode("utf-16-be").hex() for secret in sorted(_hidden, key=len, reverse=True))
    return "|".join(re.sub("....", r"\\u\g<0>", code) for code in codes) or "(?!)"


def _without_secret(match: re.Match[str]) -> str:
    first, last = match.span(match.lastindex or 0)
    if first == last:
        return match.group()
    return match.string[match.start() : first] + HIDDEN + match.string[last : match.end()]


@lru_cache(maxsize=1)
def _pattern(secrets: frozenset[str]) -> re.Pattern[str]:
    # Longest first, so that a secret that contains another is hidden as a whole.
    return re.compile("|".join(map(re.escape, sorted(secrets, key=len, reverse=True))))


def causes(error: BaseException) -> Iterator[Any]:
    """Yield the Java exception behind ``error`` and its causes, outermost first; a Python error has none."""
    if "py4j" not in sys.modules:
        return  # py4j may be missing
    from py4j.protocol import Py4JJavaError
    from pyspark.errors.exceptions.captured import CapturedException

    origin: Any = None
    if isinstance(error, Py4JJavaError):
        origin = error.java_exception
    elif isinstance(error, CapturedException):
        origin = error._origin
    for _ in range(20):
        if origin is None:
            return
        yield origin
        origin = origin.getCause()


def is_caused_by(error: BaseException, *class_names: str) -> bool:
    """Whether ``error`` or one of its causes has exactly one of these Java classes."""
    return any(cause.getClass().getName() in class_names for cause in causes(error))


def is_instance(error: BaseException, interface: str) -> bool:
    """Whether the Java exception behind ``error`` is an instance of a class or interface; its causes do not count."""
    from py4j.java_gateway import is_instance_of
    from pyspark import SparkContext

    outermost = next(causes(error), None)
    return outermost is not None and bool(is_instance_of(SparkContext._gateway, outermost, interface))


def short_message(error: BaseException) -> str:
    """Return one line for users: our own message, or that of :func:`readable_message` without Spark's query plan."""
    if isinstance(error, ReclusterError):
        return str(error)
    text = re.split(r"\n|; line \d+", readable_message(error).strip(), maxsplit=1)[0].strip()
    package = type(error).__module__.partition(".")[0]
    is_of_others = package in ("dbt", "dbt_common", "py4j", "pyspark") or not isinstance(error, Exception)
    if is_of_others or isinstance(error, (OSError, ImportError, MemoryError)):  # memory, disk or network
        return text
    return f"this is a fault of dbt-recluster, please report it: {type(error).__name__}: {text}"


@contextmanager
def raise_as(
    kind: type[ReclusterError], what: str, *, advice: str = "", explain: Callable[[BaseException], str] = short_message
) -> Iterator[None]:
    """Raise an error of Spark or Iceberg in the block as ``kind``: what failed, the error's message, and advice."""
    try:
        yield
    except ReclusterError:
        raise
    except Exception as e:
        message = explain(e)
        raise kind(f"{what}: {message.rstrip('.')}. {advice}" if advice else f"{what}: {message}") from e


def silence_query_errors() -> None:
    """Keep pyspark 4 from logging errors of queries to standard error, with their literals and secrets.

    The errors are raised as well.
    """
    with suppress(ImportError):  # pyspark 3.5 logs none
        from pyspark.logger import PySparkLogger

        for kind in ("SQL", "DataFrame"):
            # A plain logger of this name would break pyspark's calls.
            PySparkLogger.getLogger(f"{kind}QueryContextLogger").disabled = True


def readable_message(error: BaseException) -> str:
    """Return the message of an error without secrets and without Java's stack trace."""
    with suppress(Exception):  # Spark may be gone
        from pyspark.sql import SparkSession

        if (spark := SparkSession.getActiveSession()) is not None:
            as_java = jvm(spark).scala.collection.JavaConverters.mapAsJavaMap
            hide(secrets_in(java_map(spark, as_java(java_session(spark).conf().getAll()))))
    return redact(_java_message(error))


def _java_message(error: BaseException) -> str:
    if type(error).__module__.startswith("pyspark.") and (text := str(error)).strip() not in ("", "None"):
        return text
    # A Py4JJavaError prints the whole trace, of which users need the innermost message.
    messages = [(cause.getClass().getSimpleName(), cause.getMessage()) for cause in causes(error)]
    for name, message in reversed(messages):
        if message:
            return f"{name}: {message}"
    return messages[-1][0] if messages else str(error)
