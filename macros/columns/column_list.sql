{#- Write columns as names and types. -#}
{% macro recluster_column_list(columns) -%}
  {%- for column in columns -%}
    {{ adapter.quote(column.name) }} {{ column.data_type }}{{ ', ' if not loop.last }}
  {%- endfor -%}
{%- endmacro %}
