{#- dbt's; a type that Iceberg cannot change is an error before any column is added or dropped. -#}
{% macro recluster__sync_column_schemas(on_schema_change, target_relation, schema_changes_dict) %}
  {%- if on_schema_change == 'sync_all_columns' and config.get('file_format') == 'iceberg' -%}
    {%- do adapter.current_build().check_new_types(target_relation) -%}
  {%- endif -%}
  {{ return(default__sync_column_schemas(on_schema_change, target_relation, schema_changes_dict)) }}
{% endmacro %}
