"""The page docs/reference/figures.md, and what is read from docstrings for the other pages."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields, is_dataclass
from inspect import get_annotations
from typing import Any

_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises):\n", re.MULTILINE)

_FIGURES = """# Figures

The operations answer with these in JSON, and the [Python functions](python.md) in objects with the same names.
[How it works](../concepts/how-it-works.md#terms) defines the terms.

## JSON in dbt

    dbt --quiet run-operation clustering_information --args '{table: events, format: json}'

prints one object if `table` is a single name, and an array with an object for each table if it is a list, or if the
tables are chosen by `select` or not at all; `[]` if none of them is built. `clustering_report` prints one
object with the `files` that it has written, and `clustering_overview` one with `tables` and their `totals`.

For a table that failed the object is another one; dbt prints its own error below the JSON and ends with exit code 1,
after the others were tried. A table that `recluster` passes over, because it is not built or the run's budget is spent,
has this object too, and its `error` is null:

| figure | what it is |
| --- | --- |
| `table` | The table. |
| `error` | Why it failed, in one line, or null. |
| `reason` | The line that is printed of it. |
| `orphans` | Files that were written and could not be deleted. |

## JSON of the command

`dbt-recluster ... --json` prints one line with one object. With `--every` there is one for each pass, of the tables \
that it worked on, and one for the end:

| figure | what it is |
| --- | --- |
| `command` | The command. |
| `exit_code` | [What it ended with](../guides/job.md#commands). |
| `error` | Why it ended before all tables had their turn, in one line, or null. |
| `tables` | An array with an object for each table, as in dbt, however many there are. |
| `files` | Only of `report`: the files that it has written; `tables` is empty. |
| `totals` | Only of `overview`: numbers of tables, by verdict as well, and the sums of their figures. |
"""
_RESPONSE = """\
## adapter_response

What dbt writes into `run_results.json` for a model, seed or snapshot that was reclustered after its build, or looked \
at for that, beside dbt's own fields. A field without a value is left out.
"""


def figures() -> str:
    """Return the page of the figures that operations answer with, from the classes and functions that make them."""
    from dbt_recluster.adapter.operations import FIGURES

    parts = [_FIGURES]
    for title, rows in _answers().items():
        parts += [f"## {title}\n", table(("figure", "what it is"), rows), ""]
    rows = [(f"`{name}`", f"`{figure}`") for name, figure in FIGURES.items()]
    return "\n".join([*parts, _RESPONSE, table(("field", "figure of [recluster](#recluster)"), rows), ""])


def _answers() -> dict[str, list[tuple[str, str]]]:
    """Return the figures of each operation by the titles of their tables: what its function is declared to return."""
    from dbt_recluster.advice.cost_model import ReclusterEstimate
    from dbt_recluster.advice.overview import Overview
    from dbt_recluster.advice.suggest import KeyCandidate
    from dbt_recluster.api import MEASURED_FACTS, OPERATIONS
    from dbt_recluster.clustering.history import HistoryEntry
    from dbt_recluster.clustering.information import ReadInformation, table_information
    from dbt_recluster.clustering.result import PlannedSet, RewritePlan
    from dbt_recluster.clustering.verdict import VERDICTS
    from dbt_recluster.planner import ClusteringInformation, CurveInformation

    parts = {
        "recluster": {"its plan": RewritePlan, "each of the plan's sets": PlannedSet},
        "clustering_information": {"its curve": CurveInformation},
        "clustering_overview": {"each of its tables": Overview},
        "clustering_history": {"each of its entries": HistoryEntry},
        "suggest_cluster_by": {"each of its candidates": KeyCandidate},
        "clustering_reads": {"each of its reads": ReadInformation},
    }
    documented = (
        (OPERATIONS["clustering_information"].function, "Returns"),
        (table_information, "Returns"),
        (ClusteringInformation, "Attributes"),
    )
    information = [row for of, section in documented for row in entries(of, section)]
    metrics = {"clustering_depth": "average_depth", "clustering_ratio": "clustering_ratio"}
    answers = {}
    for name, operation in OPERATIONS.items():
        kind = get_annotations(operation.function, eval_str=True)["return"]
        if name == "clustering_information":
            answers[name] = information
        elif name in metrics:
            shown = [f"`{each}`" for each in (*MEASURED_FACTS, metrics[name])]
            answers[name] = [row for row in information if row[0] in shown]
        elif not operation.finish:
            answers[name] = entries(kind) if is_dataclass(kind) else entries(operation.function, "Returns")
        for title, part in parts.get(name, {}).items():
            answers[f"{name}: {title}"] = entries(part)
    answers["clustering_overview: verdicts"] = [(f"`{verdict}`", meaning) for verdict, meaning in VERDICTS.items()]
    return {**answers, "The estimate in the report": entries(ReclusterEstimate)}


def sections(documented: Any) -> dict[str, str]:
    """Return the parts of a docstring: its text under an empty name, then its sections, still indented."""
    parts = _SECTION.split(inspect.getdoc(documented) or "")
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def entries(documented: Any, section: str = "Attributes") -> list[tuple[str, str]]:
    """Return the entries of a section as cells of a table; attributes of a class begin with those it inherits."""
    inherits = inspect.isclass(documented) and section == "Attributes"
    sources = [each for each in reversed(documented.__mro__) if each.__doc__] if inherits else [documented]
    texts = [sections(each).get(section, "") for each in sources]
    found = re.findall(r"^    (\w[\w, ]*): (.*(?:\n {8}.*)*)", "\n".join(texts), re.MULTILINE)
    named = {name for names, _ in found for name in re.split(r",\s*", names)}
    missing = {f.name for f in fields(documented)} - named if inherits and is_dataclass(documented) else set()
    if missing or not found:
        raise SystemExit(f"{documented.__qualname__}: {section} of its docstring lacks {', '.join(missing) or 'all'}")
    return [
        (", ".join(f"`{each}`" for each in re.split(r",\s*", names)), _capital(markdown(body))) for names, body in found
    ]


def markdown(text: str) -> str:
    """Turn a docstring's text into one line of Markdown."""
    text = re.sub(r":\w+:`([^`]*)`", lambda match: f"`{match.group(1).rpartition('.')[2]}`", text)
    return re.sub(r"\s+", " ", text.replace("``", "`")).replace("|", "\\|").strip()


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a table in Markdown."""
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
