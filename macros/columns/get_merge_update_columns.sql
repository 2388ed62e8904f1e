{#- dbt-spark's; a column that the model no longer selects keeps its value in the rows that a merge updates. -#}
{% macro recluster__get_merge_update_columns(merge_update_columns, merge_exclude_columns, dest_columns) %}
  {%- set columns = spark__get_merge_update_columns(merge_update_columns, merge_exclude_columns, dest_columns) -%}
  {%- set changes = adapter.current_build().schema_changes -%}
  {%- if changes.missing -%}
    {%- set columns = changes.without_missing(dest_columns | map(attribute='quoted') if columns is none else columns) -%}
  {%- endif -%}
  {#- dbt-spark would update all columns. The keys of matched rows are equal, so setting them changes nothing. -#}
  {%- if columns is not none and not columns -%}
    {%- set key = config.get('unique_key') -%}
    {%- set columns = [key] if key is string else key -%}
  {%- endif -%}
  {{ return(columns) }}
{% endmacro %}
