{#-
  Return the statement that creates a table, and drop the relation that it replaces once the query has run: Iceberg replaces its own
  tables, any other table is built beside what it replaces. Where that is impossible, the query is only analysed first.
-#}
{% macro recluster_replace_table(relation, replaced, compiled_code) -%}
  {%- set is_iceberg = config.get('file_format') == 'iceberg' -%}
  {%- if is_iceberg and replaced.is_iceberg -%}
    {{ return(spark__create_table_as(false, relation, compiled_code)) }}
  {%- elif (adapter.cannot_rename(relation) if is_iceberg else config.get('location_root')) -%}
    {%- do run_query('describe query ' ~ compiled_code) -%}
    {%- do adapter.drop_relation(replaced) -%}
    {{ return(spark__create_table_as(false, relation, compiled_code)) }}
  {%- endif -%}

  {#- An Iceberg table keeps the directory of its first name, which no table of Spark's own may then need. -#}
  {%- set name = relation.identifier ~ ('__dbt_iceberg' if is_iceberg else '__dbt_tmp') -%}
  {%- set successor = relation.incorporate(path={'identifier': name}, type='table') -%}
  {%- do adapter.drop_relation(successor) -%} {#- of a run that was killed -#}
  {%- if not is_iceberg -%}
    {%- do adapter.clear_directory(successor) -%}
  {%- endif -%}
  {%- call statement('create_successor') -%}
    {{ spark__create_table_as(false, successor, compiled_code) }}
  {%- endcall -%}
  {%- do adapter.drop_relation(replaced) -%}
  {%- if not is_iceberg -%}
    {%- do adapter.clear_directory(relation) -%}
  {%- endif -%}
  {{ return('alter table ' ~ successor ~ ' rename to ' ~ relation.include(database=false)) }}
{%- endmacro %}
