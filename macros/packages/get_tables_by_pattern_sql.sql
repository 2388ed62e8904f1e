{#-
  For dbt_utils.get_tables_by_pattern_sql, whose own version queries an information_schema: the same rows, written out.

  dbt finds it once the project's `dispatch` searches dbt for the macros of dbt_utils (docs/guides/dbt-features.md).
-#}
{% macro recluster__get_tables_by_pattern_sql(schema_pattern, table_pattern, exclude='', database=none) %}
  {%- set relations = recluster__get_relations_by_pattern(schema_pattern, table_pattern, exclude, database) -%}
  select table_schema, table_name, table_type from values
  {%- for relation in relations %}
    ({{ adapter.literal(relation.schema) }}, {{ adapter.literal(relation.identifier) }}, '{{ relation.type }}'){{ ',' if not loop.last }}
  {%- else %}
    ('', '', '')
  {%- endfor %}
  as tables (table_schema, table_name, table_type)
  {%- if not relations %}
  where false
  {%- endif %}
{% endmacro %}
