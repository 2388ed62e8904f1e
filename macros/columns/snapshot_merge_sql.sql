{#- dbt-spark's, with the inserted columns named: `insert *` needs every column of the table, and the query may have lost one. -#}
{% macro recluster__snapshot_merge_sql(target, source, insert_cols) -%}
  {%- set values = [] -%}
  {%- for column in insert_cols -%}
    {%- do values.append('DBT_INTERNAL_SOURCE.' ~ column) -%}
  {%- endfor -%}
  {{ spark__snapshot_merge_sql(target, source, insert_cols)
    | replace('insert *', 'insert (' ~ insert_cols | join(', ') ~ ') values (' ~ values | join(', ') ~ ')') }}
{%- endmacro %}
