"""The project's ``catalogs.yml``: which of its integrations is a catalog of Spark.

One ``catalogs.yml`` serves all targets of a project. An Iceberg REST or Hive integration is a catalog of Spark; a model
that names any other cannot be built here.
"""

from __future__ import annotations

from typing import Any

from dbt.adapters.catalogs._integration import CatalogIntegrationConfig

from dbt_recluster.adapter.dbt_errors import ConfigurationError


class Integrations(dict[str, CatalogIntegrationConfig]):
    """The integrations by name, as dbt registers them before it parses."""

    def catalog(self, name: str | None) -> str | None:
        """Return the Spark catalog of a model's ``catalog_name``, or None if it has none."""
        integration = self.get(name or "")
        return None if integration is None or _refusal(integration) else _spark_catalog(integration)

    def check(self, node: Any) -> None:
        """Refuse a node whose ``catalog_name`` leads to no catalog of Spark."""
        config: Any = getattr(node, "config", {})
        name = config.get("catalog_name")
        if name is None:
            return
        integration = self.get(str(name))
        known = ", ".join(sorted(self)) or "none"
        refusal = (
            _refusal(integration) if integration else f"not among the catalogs of catalogs.yml ({known})"
        )
        if integration is None or refusal:
            raise ConfigurationError(
                f"{node.name}: catalog_name {name} is {refusal}. Write the catalog of Spark that the model is for as "
                "its config `catalog`, or leave catalog_name out for this target",
                node=node,
            )
        catalog = _spark_catalog(integration)
        if not (config.get("database") or config.get("catalog") or node.database == catalog):
            # dbt parses a model again when its file changes, not when catalogs.yml does.
            raise ConfigurationError(
                f"{node.name}: catalog_name {name} is the catalog {catalog} of Spark, but dbt parsed the model for "
                f"{node.database or 'the current one'}: run once with --no-partial-parse",
                node=node,
            )


def _spark_catalog(integration: CatalogIntegrationConfig) -> str:
    """Return the Spark catalog of an integration: its adapter property ``catalog``, or its own name."""
    named = (integration.adapter_properties or {}).get("catalog")
    return str(named or integration.catalog_name or integration.name)


def _refusal(integration: CatalogIntegrationConfig) -> str | None:
    """Return why an integration is no catalog of Spark, or None if it is one."""
    kind, table_format = integration.catalog_type, integration.table_format
    if str(kind).lower() not in ("iceberg_rest", "hive_metastore"):
        return f"an integration of type {kind}, and to Spark only iceberg_rest, hive_metastore are catalogs"
    if (table_format or "default").lower() not in ("iceberg", "default"):
        return f"an integration for tables of {table_format}, where this adapter's are Iceberg tables"
    return None
