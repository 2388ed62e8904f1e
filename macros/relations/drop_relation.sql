{#- dbt-spark's; without `purge`, Iceberg's session catalog leaves the files of a table of Spark's own. -#}
{% macro recluster__drop_relation(relation) -%}
  {%- call statement('drop_relation', auto_begin=False) -%}
    drop {{ relation.type }} if exists {{ relation }} {{- ' purge' if adapter.is_own_table_of_spark(relation) }}
  {%- endcall -%}
{%- endmacro %}
