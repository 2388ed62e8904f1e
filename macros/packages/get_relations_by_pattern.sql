{#-
  For dbt_utils.get_relations_by_pattern: the tables and views whose names match, in all schemas whose names do. Patterns are
  those of LIKE, in any case. spark_utils has a version that gives the schema's pattern to Spark as a name.
-#}
{% macro recluster__get_relations_by_pattern(schema_pattern, table_pattern, exclude='', database=none) %}
  {{ return(adapter.relations_like(schema_pattern, table_pattern, exclude, database or target.database or none)) }}
{% endmacro %}
