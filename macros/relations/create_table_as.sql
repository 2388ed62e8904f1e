{#-
  dbt-spark's, with the rows sorted by the cluster key: a table's sort order does not apply to create-as-select, and no sort
  order has a curve, along which rows to insert are sorted, too.
-#}
{% macro recluster__create_table_as(temporary, relation, compiled_code, language='sql') -%}
  {%- set build = adapter.current_build() -%}
  {%- if language == 'sql' -%}
    {%- set order_by = none if temporary else build.order_by(compiled_code) -%}
    {%- set along_curve = build.along_curve(compiled_code, temporary) -%}
    {%- if along_curve -%}
      {%- set compiled_code = along_curve -%}
    {%- elif order_by -%}
      {%- set compiled_code -%}
      select * from (
        {{ build.as_subquery(compiled_code) }}
      )
      order by {{ order_by }}
      {%- endset -%}
    {%- endif -%}
  {%- endif -%}
  {%- set replaced = none if temporary else build.replaced_by(relation) -%}
  {%- if replaced -%}
    {{ recluster_replace_table(relation, replaced, compiled_code) }}
  {%- else -%}
    {%- if not temporary and config.get('file_format') != 'iceberg' and not config.get('location_root') -%}
      {%- do adapter.clear_directory(relation) -%}
    {%- endif -%}
    {{ spark__create_table_as(temporary, relation, compiled_code, language) }}
  {%- endif -%}
{%- endmacro %}
