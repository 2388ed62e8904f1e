{#-
  Return the statement that creates a table. Any but an Iceberg table that replaces one is built beside what it replaces, or, where
  that is impossible, after it is renamed.
-#}
{% macro recluster_replace_table(relation, replaced, compiled_code) -%}
  {%- set is_iceberg = config.get('file_format') == 'iceberg' -%}
  {%- if (adapter.cannot_rename(relation) if is_iceberg else config.get('location_root')) -%}
    {%- do adapter.drop_relation(replaced) -%}
    {{ return(spark__create_table_as(false, relation, compiled_code)) }}
  {%- endif -%}

  {%- set successor = adapter.current_build().replacement.first_name(relation) -%}
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
