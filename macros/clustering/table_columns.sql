{#- Return the columns that a table has, name to Spark type. -#}
{% macro recluster_table_columns(relation) %}
  {%- set columns = {} -%}
  {%- for column in adapter.get_columns_in_relation(relation) -%}
    {%- do columns.update({column.name: column.dtype}) -%}
  {%- endfor -%}
  {{ return(columns) }}
{% endmacro %}
