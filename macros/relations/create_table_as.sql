{#- dbt-spark's, with the rows sorted by the cluster key: a table's sort order does not apply to create-as-select. -#}
{% macro recluster__create_table_as(temporary, relation, compiled_code, language='sql') -%}
  {%- set clustering = adapter.current_clustering() -%}
  {%- if language == 'sql' and not temporary and clustering and clustering.columns is none -%}
    {%- set clustering = adapter.prepare_clustering(clustering, recluster_model_columns(compiled_code)) -%}
  {%- endif -%}
  {%- if language == 'sql' and not temporary and clustering and clustering.order_by() -%}
    {%- set compiled_code -%}
      select * from (
        {{ compiled_code }}
      )
      order by {{ clustering.order_by() }}
    {%- endset -%}
  {%- endif -%}
  {{ spark__create_table_as(temporary, relation, compiled_code, language) }}
{%- endmacro %}
