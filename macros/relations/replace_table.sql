{#-
  Return the statement that creates a table, and drop the relation that it replaces as late as possible: Iceberg replaces its own
  tables, a table in Spark's own format is built beside it first, and for any other the query is analysed first.
-#}
{% macro recluster_replace_table(relation, replaced, compiled_code) -%}
  {%- set is_iceberg = config.get('file_format') == 'iceberg' -%}
  {%- if is_iceberg or config.get('location_root') or not adapter.shares_directories(relation) -%}
    {%- set create = spark__create_table_as(false, relation, compiled_code) -%}
    {%- if not (is_iceberg and replaced.is_iceberg) -%}
      {%- do run_query('describe query ' ~ compiled_code) -%}
      {%- do adapter.drop_relation(replaced) -%}
    {%- endif -%}
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
