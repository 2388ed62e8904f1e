{#- dbt-spark's returns rows of text, in which dbt's snapshots find no column. -#}
{% macro recluster__get_columns_in_relation(relation) -%}
  {{ return(adapter.get_columns_in_relation(relation)) }}
{%- endmacro %}
