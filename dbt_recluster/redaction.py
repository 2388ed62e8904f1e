"""What a secret looks like in settings, commands and text, and text without secrets.

Whatever prints, logs or records text, or starts a process, goes through this module. A setting is secret unless it is
known to be harmless: a word too many hidden in a log costs less than a password shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from urllib.parse import quote, unquote

HIDDEN = "*****"
# Shorter texts occur everywhere, and a log without them could not be read.
_SHORTEST = 4

_SECRET_WORD = (
    r"(?:secret|passw|passphrase|pwd|token|credential|authorization|"
    r"(?:access|account|api|client|encryption|private|shared|sse|storage)[._-]?key)"
)
# Names that sound secret; `signature: f(x)` in a message is not.
_SECRET_NAME = re.compile(
    rf"{_SECRET_WORD}|cookie|private|signature|(?:^|[._-])(?:key|pass|sas|sig)s?(?:$|[._-])|(?-i:[a-z](?:Key|Pass)$)",
    re.IGNORECASE,
)
# Settings of Spark that hold no secret, unless their name says otherwise.
_HARMLESS_FAMILY = re.compile(
    r"""spark\.(?:app|blockManager|broadcast|checkpoint|cleaner|cores|decommission|default|driver|dynamicAllocation
    |eventLog|excludeOnFailure|executor|extraListeners|files|history|io|jars|kerberos|kryo|kryoserializer|kubernetes
    |local|locality|log|logConf|master|memory|metrics|network|plugins|port|pyspark|python|r|rdd|redaction|reducer|repl
    |resources|rpc|scheduler|serializer|shuffle|speculation|sql(?!\.catalog\.)|stage|storage|submit|task|ui|unsafe|yarn
    )(?:\.(?!repositories|\w+Env\.).*)?
    |spark\.sql\.catalog\.\w+(?:\.(?:cache|table-default|table-override).*)?""",
    re.VERBOSE,
)
# Settings of any other family whose last word says what they are.
_HARMLESS_WORD = re.compile(
    r"(?:^|[._-])(?:class|codec|format|impl|level|mode|namespace|nullable|region|scheme|scope|type|version|warehouse"
    r"|user|user-?name|connectionusername)$",
    re.IGNORECASE,
)
# Keys of a profile.
_HARMLESS_KEY = re.compile(
    r"auth|catalog|cluster|database|driver|endpoint|host|kerberos_service_name|method|organization|path|port"
    r"|schema|spark_log_level|threads|user"
)
# Options of spark-submit, kubectl and the like, without their dashes.
_HARMLESS_OPTION = re.compile(
    r"class|deploy-mode|driver-(?:class-path|cores|java-options|library-path|memory)|executor-(?:cores|memory)|files"
    r"|(?:exclude-)?packages|jars|keytab|master|name|num-executors|principal|proxy-user|py-files|queue|status"
    r"|supervise|total-executor-cores|verbose|[eintvx]|it"
)
# Values that are no secret under any name: switches, classes, and addresses without users or parameters.
_SWITCH = re.compile(r"|true|false|none|null", re.IGNORECASE)
_CLASS = re.compile(r"(?:[a-z]\w*\.){2,}[A-Z][\w$]*")
_ADDRESS = r"(?:[a-z][\w+.-]*:)+//[\w.:\[\]-]*(?:/[\w./%+~-]*)?"
_ADDRESSES = re.compile(rf"{_ADDRESS}(?:,{_ADDRESS})*", re.IGNORECASE)
# And under names that do not sound secret: numbers, sizes, durations and paths.
_NUMBER_OR_PATH = re.compile(
    r"[\d.]+ ?[a-z]{0,7}|(?:local(?:\[[\w*,]+\])?)|[~.]{0,2}/[\w./ -]*", re.IGNORECASE
)

_VALUE = r"""(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|\{([^}]*)\}|(?!(?:Bearer|Basic)\s)([^\s"'&;]+))"""
_WORDS = r"[\w.-]{0,99}"
# Where secrets stand in text; the groups are the secrets. Repetitions are limited, or long texts would take minutes.
_IN_TEXT = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\b(?:Bearer|Basic)\s+([^\s\"'&;,]{4,})",
        r"://[^\s/:@?#]{0,99}:(\S{1,999})@",  # //user:SECRET@host, up to the last @: it may be part of the secret
        r"https?://([^\s/:@]{4,999})@",
        r"jdbc:oracle:\w{1,20}:[^\s/@]{0,99}/(\S{1,999})@",
        r"(?<![\w/.:-])\w{1,99}/([^\s/@]{1,999})@(?://)?[\w.-]{1,99}(?::\d|[:/]\w)",  # Oracle's user/SECRET@host:port
        rf"(?<![\w.-])(?:{_WORDS}{_SECRET_WORD}{_WORDS}|pass|sas|sig)[\"']?\s*[=:]\s*{_VALUE}",
        rf"(?<!\S)--?{_WORDS}{_SECRET_WORD}{_WORDS}\s+{_VALUE}",
        r"(?<!\S)-[a-z]\s+[\w.@-]{1,99}:(\S+)",  # -u user:SECRET
    )
)

_hidden: frozenset[str] = frozenset()


def is_harmless(name: str, value: str) -> bool:
    """Whether the value of a setting, an option or a key of a profile may be shown."""
    if any(form.fullmatch(value) for form in (_SWITCH, _CLASS, _ADDRESSES)):
        return True
    if _SECRET_NAME.search(name):
        return False
    return bool(
        _HARMLESS_KEY.fullmatch(name)
        or _HARMLESS_FAMILY.fullmatch(name)
        or _HARMLESS_WORD.search(name)
        or _NUMBER_OR_PATH.fullmatch(value)
    )


def secrets_in(settings: Mapping[str, object]) -> list[str]:
    """Return what is secret in the values of settings: whole values, and parts that may be shown alone."""
    secrets: list[str] = []
    for name, value in settings.items():
        text = str(value)
        secrets += _secrets_in_text(text)
        if not is_harmless(name, text):
            secrets += [text, text.partition(":")[2]]
    return [secret for secret in secrets if secret]


def secrets_in_command(words: Sequence[object], harmless: Collection[str] = ()) -> list[str]:
    """Return what is secret in a command: values of its options, and of settings among its words.

    Those of ``harmless`` options, without their dashes, may be shown.
    """
    texts = list(map(str, words))
    secrets = list(_secrets_in_text(" ".join(texts)))
    option = ""  # the option that the next word may be the value of
    for word in texts:
        name, is_pair, value = word.lstrip("-").partition("=")
        if is_pair and name in ("conf", "c"):
            name, is_pair, value = value.partition("=")
        if (name if word.startswith("-") else option) in harmless:
            pass
        elif is_pair:
            secrets += secrets_in({name: value})
        elif word.startswith("-"):
            if not word.startswith("--") and not _HARMLESS_OPTION.fullmatch(name):
                secrets.append(word[2:])  # -pSECRET
        elif option and not _HARMLESS_OPTION.fullmatch(option):
            secrets += secrets_in({option: word})
        option = "" if is_pair or not word.startswith("-") else name
    return [secret for secret in secrets if secret]


def hide(secrets: Iterable[str]) -> None:
    """Have :func:`redact` and :func:`without_known_secrets` hide these from now on, in whatever form they come."""
    global _hidden
    forms = {form for secret in secrets for form in _forms(secret) if len(form) >= _SHORTEST}
    _hidden |= {form for form in forms - {HIDDEN} if not _SWITCH.fullmatch(form)}


def without_known_secrets(text: str) -> str:
    """Return any text, JSON and SQL included, without the secrets given to :func:`hide`."""
    known = _pattern(_hidden)
    return text if known is None else known.sub(HIDDEN, text)


def redact(text: str) -> str:
    """Return a message without known secrets, and without whatever looks like one."""
    text = without_known_secrets(text)
    for pattern in _IN_TEXT:
        text = pattern.sub(_without_groups, text)
    return text


def java_pattern() -> str:
    """Return a regular expression of Java for all known secrets, of letters, digits, ``|`` and backslashes only."""
    units = ("".join(f"\\u{unit:04x}" for unit in _utf16(secret)) for secret in _longest_first(_hidden))
    return "|".join(units) or "(?!)"


def _secrets_in_text(text: str) -> Iterator[str]:
    for pattern in _IN_TEXT:
        for match in pattern.finditer(text):
            yield from filter(None, match.groups())


def _without_groups(match: re.Match[str]) -> str:
    start, text = match.start(), match.group()
    spans = [match.span(number) for number, group in enumerate(match.groups(), start=1) if group]
    for first, last in reversed(spans):
        text = text[: first - start] + HIDDEN + text[last - start :]
    return text


def _forms(secret: str) -> Iterator[str]:
    """Yield a secret as it stands, as in URLs and as in JSON."""
    for form in (secret, unquote(secret), quote(secret, safe="")):
        yield form
        yield json.dumps(form)[1:-1]
        yield json.dumps(form, ensure_ascii=False)[1:-1]


def _longest_first(secrets: Iterable[str]) -> list[str]:
    """Sort secrets so that one that contains another is hidden as a whole."""
    return sorted(secrets, key=lambda secret: (-len(secret), secret))


@lru_cache(maxsize=1)
def _pattern(secrets: frozenset[str]) -> re.Pattern[str] | None:
    return re.compile("|".join(map(re.escape, _longest_first(secrets)))) if secrets else None


def _utf16(text: str) -> Iterator[int]:
    data = text.encode("utf-16-be")
    return (int.from_bytes(data[place : place + 2], "big") for place in range(0, len(data), 2))
