{#- dbt's; under append_new_columns, the rows to load then have NULL in the columns that the model no longer selects. -#}
{% macro recluster__process_schema_changes(on_schema_change, source_relation, target_relation) %}
  {%- set columns = default__process_schema_changes(on_schema_change, source_relation, target_relation) -%}
  {%- set missing = adapter.current_build().schema_changes.missing -%}
  {%- if on_schema_change == 'append_new_columns' and missing -%}
    {%- do recluster_add_nulls(source_relation, missing) -%}
  {%- endif -%}
  {{ return(columns) }}
{% endmacro %}
