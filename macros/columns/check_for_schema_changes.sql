{#- dbt's, with names compared as the session does and types as Iceberg stores them. -#}
{% macro recluster__check_for_schema_changes(source_relation, target_relation) %}
  {%- if config.get('file_format') != 'iceberg' -%}
    {{ return(default__check_for_schema_changes(source_relation, target_relation)) }}
  {%- endif -%}
  {{ return(adapter.current_build().compare_schemas(
    adapter.get_columns_in_relation(source_relation), adapter.get_columns_in_relation(target_relation)
  )) }}
{% endmacro %}
