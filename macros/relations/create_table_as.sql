{#-
  dbt-spark's, with the rows sorted by the cluster key: a table's sort order does not apply to create-as-select, and no sort
  order has a curve, along which rows to insert are sorted, too.
-#}
{% macro recluster__create_table_as(temporary, relation, compiled_code, language='sql') -%}
  {%- set clustering = adapter.current_clustering() -%}
  {%- if language == 'sql' and not temporary and clustering and clustering.columns is none -%}
    {%- set clustering = adapter.prepare_clustering(clustering, recluster_model_columns(compiled_code)) -%}
  {%- endif -%}
  {%- if language == 'sql' and adapter.sorts_along_curve(temporary) -%}
    {%- set compiled_code = adapter.sorted_along_curve(compiled_code, recluster_model_columns(compiled_code), temporary) -%}
  {%- elif language == 'sql' and not temporary and clustering and clustering.order_by() -%}
    {%- set compiled_code -%}
      select * from (
        {{ adapter.as_subquery(compiled_code) }}
      )
      order by {{ clustering.order_by() }}
    {%- endset -%}
  {%- endif -%}
  {%- set replaced = none if temporary else adapter.replaced_by(relation) -%}
  {%- if replaced -%}
    {{ recluster_replace_table(relation, replaced, compiled_code) }}
  {%- else -%}
    {%- if not temporary and config.get('file_format') != 'iceberg' and not config.get('location_root') -%}
      {%- do adapter.clear_directory(relation) -%}
    {%- endif -%}
    {{ spark__create_table_as(temporary, relation, compiled_code, language) }}
  {%- endif -%}
{%- endmacro %}
