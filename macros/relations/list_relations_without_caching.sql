{#- dbt-spark's, for the session catalog by its name too; adapter.list_relations_without_caching lists the others. -#}
{% macro recluster__list_relations_without_caching(schema_relation) %}
  {% call statement('list_relations_without_caching', fetch_result=True) -%}
    show table extended in {{ schema_relation.without_identifier() }} like '*'
  {% endcall %}
  {% do return(load_result('list_relations_without_caching').table) %}
{% endmacro %}
