{#- dbt-spark's; Iceberg's session catalog drops a table of Spark's own with its files only by `purge`. -#}
{% macro recluster__drop_relation(relation) -%}
  {%- call statement('drop_relation', auto_begin=False) -%}
    drop {{ relation.type }} if exists {{ relation }} {{- ' purge' if adapter.is_own_table_of_spark(relation) }}
  {%- endcall -%}
{%- endmacro %}
