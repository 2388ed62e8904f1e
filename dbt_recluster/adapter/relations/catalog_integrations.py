"""dbt's ``catalogs.yml``, which a project has for all its targets.

Models name an integration of it by ``catalog_name``. An Iceberg REST or Hive integration is a catalog of Spark. Any
other keeps only the models that name it from being built.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dbt.adapters.base.meta import available
from dbt.adapters.catalogs._integration import CatalogIntegrationConfig

from dbt_recluster.adapter.dbt_errors import ConfigurationError
from dbt_recluster.adapter.relations.freshness import FreshnessMethods

_TYPES = ("iceberg_rest", "hive_metastore")
# `default` is the platform's own, and this adapter's is Iceberg.
_FORMATS = ("iceberg", "default")


@dataclass(frozen=True)
class Integration:
    """The active integration of an entry of ``catalogs.yml``.

    Attributes:
        name: The name of the entry, which is that of the config ``catalog_name``.
        catalog_type: Its type.
        table_format: The format of its tables, or None for the platform's own.
        spark_catalog: The catalog of Spark that it names: its adapter property ``catalog``, or its own name.
    """

    name: str
    catalog_type: str
    table_format: str | None
    spark_catalog: str

    @classmethod
    def of_config(cls, config: CatalogIntegrationConfig) -> Integration:
        """Return the integration that dbt has read."""
        named = (config.adapter_properties or {}).get("catalog")
        return cls(
            config.name,
            str(config.catalog_type),
            config.table_format,
            str(named or config.catalog_name or config.name),
        )

    @property
    def refusal(self) -> str | None:
        """Why Spark has no such catalog, or None."""
        if self.catalog_type.lower() not in _TYPES:
            return f"an integration of type {self.catalog_type}, and to Spark only {', '.join(_TYPES)} are catalogs"
        if (self.table_format or "iceberg").lower() not in _FORMATS:
            return (
                f"an integration for tables of {self.table_format}, where this adapter's are Iceberg tables"
            )
        return None


class IntegrationMethods(FreshnessMethods):
    """The part of the adapter that knows the integrations of ``catalogs.yml``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._integrations: dict[str, Integration] = {}

    def add_catalog_integration(self, catalog_integration: CatalogIntegrationConfig) -> Any:
        """Take an integration of any type: dbt adds all of them before it parses."""
        integration = Integration.of_config(catalog_integration)
        self._integrations[integration.name] = integration
        return integration

    @available
    def integration_catalog(self, name: str | None) -> str | None:
        """Return the catalog of Spark that a model's ``catalog_name`` means, or None if it means none."""
        integration = None if name is None else self._integrations.get(name)
        return None if integration is None or integration.refusal else integration.spark_catalog

    def pre_model_hook(self, config: Any) -> Any:
        """Before each node: refuse a ``catalog_name`` that leads to no catalog of Spark."""
        node = getattr(config, "model", None)
        name = getattr(node, "config", {}).get("catalog_name")
        if name is not None:
            self._check_integration(node, str(name))
        return super().pre_model_hook(config)

    def _check_integration(self, node: Any, name: str) -> None:
        integration = self._integrations.get(name)
        if integration is None:
            reason = (
                f"not among the catalogs of catalogs.yml ({', '.join(sorted(self._integrations)) or 'none'})"
            )
        elif integration.refusal:
            reason = integration.refusal
        elif not (node.config.get("database") or node.config.get("catalog")) and (
            node.database != integration.spark_catalog
        ):
            # dbt parses a model again when its file changes, not when catalogs.yml does.
            raise ConfigurationError(
                f"{node.name}: catalog_name {name} is the catalog {integration.spark_catalog} of Spark, but dbt parsed "
                f"the model for {node.database or 'the current one'}: run once with --no-partial-parse",
                node=node,
            )
        else:
            return
        raise ConfigurationError(
            f"{node.name}: catalog_name {name} is {reason}. Write the catalog of Spark that the model is for as its "
            "config `catalog`, or leave catalog_name out for this target",
            node=node,
        )
