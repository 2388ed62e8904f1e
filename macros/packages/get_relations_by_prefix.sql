{#- For dbt_utils.get_relations_by_prefix, whose own version needs a target with a database. -#}
{% macro recluster__get_relations_by_prefix(schema, prefix, exclude='', database=none) %}
  {{ return(recluster__get_relations_by_pattern(schema, prefix ~ '%', exclude, database)) }}
{% endmacro %}
