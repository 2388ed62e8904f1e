{#- dbt-spark's; a table is renamed within its catalog. -#}
{% macro recluster__rename_relation(from_relation, to_relation) -%}
  {%- if from_relation.type == 'table' -%}
    {%- call statement('rename_relation') -%}
      alter table {{ from_relation }} rename to {{ to_relation.include(database=false) }}
    {%- endcall -%}
  {%- else -%}
    {{ spark__rename_relation(from_relation, to_relation) }}
  {%- endif -%}
{% endmacro %}
