{#- dbt-spark's, with the rows sorted by the cluster key. -#}
{% macro recluster__create_table_as(temporary, relation, compiled_code, language='sql') -%}
  {%- set build = adapter.current_build() -%}
  {%- if language == 'sql' -%}
    {%- set compiled_code = build.sorted_query(compiled_code, temporary) -%}
  {%- endif -%}
  {%- set replaced = none if temporary else build.replacement.beside(relation) -%}
  {%- if replaced -%}
    {{ recluster_replace_table(relation, replaced, compiled_code) }}
  {%- else -%}
    {%- if not temporary and config.get('file_format') != 'iceberg' and not config.get('location_root') -%}
      {%- do adapter.clear_directory(relation) -%}
    {%- endif -%}
    {{ spark__create_table_as(temporary, relation, compiled_code, language) }}
  {%- endif -%}
{%- endmacro %}
