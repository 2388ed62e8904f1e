{#- The catalog of a model: its config `database` or `catalog`, or what its `catalog_name` means, or the profile's; none is the
    connection's current one. -#}
{% macro recluster__generate_database_name(custom_database_name=none, node=none) -%}
  {%- set config = node.config if node is not none and node.config is defined else {} -%}
  {%- set catalog = config.get('catalog') or adapter.integration_catalog(config.get('catalog_name')) -%}
  {%- do return(custom_database_name or catalog or target.database or none) -%}
{%- endmacro %}
