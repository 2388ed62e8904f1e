"""Write docs/reference from the code: configs, operations, figures and errors.

MkDocs makes the page of Python functions.

python scripts/reference.py            # writes
python scripts/reference.py --check    # fails when what is there is not what would be written
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import recluster_schema
import yaml
from figures_reference import entries, figures, markdown, sections, table

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
_NOTE = "<!-- Written by scripts/reference.py from the code; edit that. -->\n"


def main() -> None:
    """Write the pages, or check them."""
    pages = {
        REFERENCE / "configs.md": configs(),
        REFERENCE / "operations.md": operations(),
        REFERENCE / "figures.md": f"{_NOTE}\n{figures()}",
        REFERENCE / "errors.md": errors(),
        REFERENCE / "properties.md": properties(),
        REFERENCE / "recluster.schema.json": recluster_schema.schema(),
        ROOT / "macros" / "operations" / "operations.sql": macros(),
        ROOT / "macros" / "operations" / "operations.yml": macros_documentation(),
        ROOT / "macros" / "tests" / "well_clustered.yml": generic_test(),
    }
    stale = [path for path, text in pages.items() if _current(path) != text]
    if "--check" in sys.argv[1:]:
        if stale:
            names = ", ".join(path.name for path in stale)
            raise SystemExit(f"not what the code says: {names}; run python scripts/reference.py")
        return
    REFERENCE.mkdir(exist_ok=True)
    for path in stale:
        path.write_text(pages[path], encoding="utf-8")


def configs() -> str:
    """Return the page of the model configs, from their declarations."""
    from dbt_recluster.adapter.dbt_run import AUTOMATIC_CLUSTERING_ENV
    from dbt_recluster.iceberg.table_properties import OPTION_PREFIX
    from dbt_recluster.key.transforms import TRANSFORMS
    from dbt_recluster.operations.arguments import AUTOMATIC_CLUSTERING, BUDGET
    from dbt_recluster.operations.model_options import CONFIGS, META
    from dbt_recluster.planner import STRATEGIES

    not_recorded = [
        f"`{name}`" for name, option in CONFIGS.items() if not option.is_recorded and option.name != "cluster_by"
    ]
    of_run = [
        ("var", AUTOMATIC_CLUSTERING.var, AUTOMATIC_CLUSTERING.meaning),
        ("environment", AUTOMATIC_CLUSTERING_ENV, "Likewise, for where vars are out of reach."),
        ("var", BUDGET.var, BUDGET.meaning),
    ]
    rows = []
    for name, option in CONFIGS.items():
        text = markdown(option.meaning)
        if option.name == "strategy":
            text = f"{text[:-1]}: {', '.join(f'`{each}`' for each in STRATEGIES)}."
        assert option.name == name.removeprefix(f"{META}_"), name
        rows.append((f"`{name}`", text, option.otherwise, f"`{option.example}`"))
    items = [[f"`{text}`" for text in kind.written] for kind in TRANSFORMS[1:] if kind.written]
    return "\n".join(
        (
            _NOTE,
            "# Configs\n",
            "In a model, seed or snapshot, or for a folder in `dbt_project.yml`. Every value is checked before "
            "any data is written, but SQL in `recluster_reads` and `recluster_when` only after the build, where a "
            "mistake is a warning. A misspelt name is a warning that names the nearest. "
            f"`meta: {{{META}: {{...}}}}` means the same, with these names less their prefix `{META}_`.\n",
            table(("config", "what it is", "default", "example"), rows),
            "\nAn item of `cluster_by` is a column or one of these; the last may be `hilbert(a, b)`, of two to four "
            "items.\n",
            table(("item", "in Iceberg's sort order"), [(", ".join(texts), texts[0]) for texts in items]),
            "",
            f"The table records its key and, as `{OPTION_PREFIX}<name>`, each option that differs from its default, "
            f"but not {', '.join(not_recorded)}. Where there is no model, the command and Python go by them.\n",
            "## For a whole run\n",
            table(("where", "name", "what it is"), [(kind, f"`{name}`", text) for kind, name, text in of_run]),
            recluster_schema.IN_EDITORS,
        )
    )


def operations() -> str:
    """Return the page of the operations, from their declarations, and of the generic test."""
    from dbt_recluster.api import OPERATIONS, well_clustered
    from dbt_recluster.operations.arguments import FORMAT, TABLE, arguments_of, meaning_of

    parts = [
        _NOTE,
        "# Operations\n",
        "In dbt `dbt run-operation NAME --args '{argument: value}'`, without dbt `dbt-recluster NAME TABLE --argument "
        "value`, with hyphens for underscores. In a hook of a model `{{ NAME(argument=value) }}` is for its own "
        "table unless it names another. Hooks act when tables are built, not when dbt compiles or tests, nor with "
        "`--empty`. Wrong arguments are an error before anything is changed, with exit code 1 in dbt and 2 of the "
        "command; those of a hook that reclusters its own model are a warning, since the data is in place.\n",
        "## Arguments of all in dbt\n",
        table(("argument", "what it is", "default"), [_argument_row(each) for each in (TABLE, FORMAT)]),
        "\nThe command takes tables, `--namespace` or `--catalog` in their place, and `--json` "
        "([Without dbt](../guides/job.md)).\n",
    ]
    for operation in OPERATIONS.values():
        short = f" The command also calls it `{operation.short}`." if operation.short else ""
        parts += [f"## {operation.name}\n", f"{markdown(operation.meaning)}{short}\n"]
        needs = "has to be chosen" if operation.needs_choice else f"every model that {operation.eligible.trait}"
        parts.append(f"Without `table`: {needs}.\n")
        if operation.arguments:
            rows = [_argument_row(each) for each in operation.arguments]
            parts.append(table(("argument", "what it is", "default"), rows) + "\n")
    rows = [(f"`{each.name}`", markdown(each.meaning)) for each in arguments_of(well_clustered)]
    parts += ["# Generic test\n", f"## well_clustered\n\n{markdown(meaning_of(well_clustered))}\n"]
    parts.append(f"{table(('argument', 'what it is'), rows)}\n")
    return "\n".join(parts)


def macros() -> str:
    """Return the macros of the operations, which hand their arguments to the adapter."""
    from dbt_recluster.api import OPERATIONS

    lines = [
        f"{{% macro {name}(table=none) %}}"
        f"{{{{- adapter.operate('{name}', dict(kwargs, table=table), context) -}}}}{{% endmacro %}}"
        for name in OPERATIONS
    ]
    return "\n".join(["{#- Written by scripts/reference.py from the code; edit that. -#}", *lines, ""])


def macros_documentation() -> str:
    """Return what dbt's docs say of the operations' macros."""
    from dbt_recluster.api import OPERATIONS
    from dbt_recluster.operations.arguments import FORMAT, TABLE

    table = {"name": TABLE.name, "type": "any", "description": TABLE.meaning}
    every = OPERATIONS.values()
    return _yaml([_macro(each.name, each.meaning, table, (*each.arguments, FORMAT)) for each in every])


def generic_test() -> str:
    """Return what dbt's docs say of the generic test's macro."""
    from dbt_recluster.api import well_clustered
    from dbt_recluster.operations.arguments import arguments_of, meaning_of

    model = {"name": "model", "type": "relation", "description": "The table; dbt fills it in."}
    return _yaml([_macro("test_well_clustered", meaning_of(well_clustered), model, arguments_of(well_clustered))])


def _macro(name: str, meaning: str, table: dict[str, str], others: Iterable[Any]) -> dict[str, Any]:
    """Return the entry of a macro. It takes its other arguments as ``kwargs``, so those are in the text."""
    listed = [f"- `{each.name}`: {each.meaning}" for each in others]
    return {"name": name, "description": "\n".join((meaning, "", *listed)), "arguments": [dict(table)]}


def _yaml(macros: list[dict[str, Any]]) -> str:
    text = yaml.safe_dump({"macros": macros}, sort_keys=False, allow_unicode=True, width=120)
    return f"# Written by scripts/reference.py from the code; edit that.\n{text}"


def _argument_row(argument: Any) -> tuple[str, str, str]:
    return f"`{argument.name}`", markdown(argument.meaning), markdown(argument.otherwise)


def properties() -> str:
    """Return the page of what is left in a table, from its declarations and the fields of a round's summary."""
    from dbt_recluster.clustering.history import PREFIX, RoundSummary
    from dbt_recluster.iceberg.commit import LOADED_AT
    from dbt_recluster.iceberg.table_properties import CARRIED_OVER, PROPERTIES

    listed = [(f"`{p}{'<name>' if p.endswith('.') else ''}`", p.holds, p.lost) for p in PROPERTIES.values()]
    summary = [
        (names.replace("`", f"`{PREFIX}", 1).replace(", `", f", `{PREFIX}"), meaning)
        for names, meaning in entries(RoundSummary)
    ]
    summary.append((f"`{PREFIX}level`", "The level of the blocks that the snapshot adds."))
    loaded_at = "When the rows were last changed before, in milliseconds since 1970: for the freshness of sources."
    summary.append((f"`{LOADED_AT}`", loaded_at))
    return "\n".join(
        (
            _NOTE,
            "# Properties\n",
            "All that dbt-recluster keeps is in the table itself. Losing any of it costs work, never rows. "
            "[Leaving](../guides/leaving.md) strips a table of it.\n",
            "## Of the table\n",
            table(("property", "what it holds", "without it"), listed),
            "\nBeside these is the table's sort order, set with `alter table ... write ordered by`.\n",
            "`--full-refresh`, like each run of a `table` model or a seed, replaces a table with new blocks. Its key "
            "and options are those of the model then, and its other properties stay. A Python model's full refresh "
            f"drops the table and makes a new one, to which only {' and '.join(f'`{name}`' for name in CARRIED_OVER)} "
            "are carried over. `remove_clustering`, or a drop by hand, ends all of them.\n",
            "## Of the summary of a snapshot that a recluster made\n",
            "`clustering_history` reads them.\n",
            table(("entry", "what it is"), summary),
            "",
        )
    )


def errors() -> str:
    """Return the page of the errors, from their classes."""
    from dbt_recluster import exceptions

    classes = [kind for kind in vars(exceptions).values() if inspect.isclass(kind)]
    errors = [kind for kind in classes if issubclass(kind, exceptions.ReclusterError)]
    rows = [(f"`{kind.__name__}`", markdown(sections(kind)[""])) for kind in errors]
    intro = "All are in `dbt_recluster.exceptions`. In dbt they appear as errors of the model or of the operation.\n"
    return "\n".join((_NOTE, "# Errors\n", intro, table(("error", "when"), rows), ""))


def _current(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    main()
