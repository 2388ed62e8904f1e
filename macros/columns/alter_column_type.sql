{#- dbt-spark's, with the column's name quoted. -#}
{% macro recluster__alter_column_type(relation, column_name, new_column_type) %}
  {%- call statement('alter_column_type') -%}
    alter table {{ relation }} alter column {{ adapter.quote(column_name) }} type {{ new_column_type }}
  {%- endcall -%}
{% endmacro %}
