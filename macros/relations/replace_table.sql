{#-
  Return the statement that creates a table, and drop the relation that it replaces as late as possible: a table in Spark's own
  format is built beside it first; for any other, Iceberg's included, the query is analysed first.
-#}
{% macro recluster_replace_table(relation, replaced, compiled_code) -%}
  {%- if config.get('file_format') == 'iceberg' or config.get('location_root') or not adapter.shares_directories(relation) -%}
    {%- set create = spark__create_table_as(false, relation, compiled_code) -%}
    {%- do run_query('describe query ' ~ compiled_code) -%}
    {%- do adapter.drop_relation(replaced) -%}
    {{ return(create) }}
  {%- endif -%}

  {%- set successor = relation.incorporate(path={'identifier': relation.identifier ~ '__dbt_tmp'}, type='table') -%}
  {%- do adapter.drop_relation(successor) -%} {#- of a run that was killed -#}
  {%- do adapter.clear_directory(successor) -%}
  {%- call statement('create_successor') -%}
    {{ spark__create_table_as(false, successor, compiled_code) }}
  {%- endcall -%}
  {%- do adapter.drop_relation(replaced) -%}
  {%- do adapter.clear_directory(relation) -%}
  {{ return('alter table ' ~ successor ~ ' rename to ' ~ relation.include(database=false)) }}
{%- endmacro %}
