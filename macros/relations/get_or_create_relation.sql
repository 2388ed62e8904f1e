{#- dbt's; dbt-spark's snapshot names no database. -#}
{% macro recluster__get_or_create_relation(database, schema, identifier, type) %}
  {{ return(default__get_or_create_relation(database or this.database, schema, identifier, type)) }}
{% endmacro %}
