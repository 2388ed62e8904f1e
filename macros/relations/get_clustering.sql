{#- Return the sort order and properties that a table has. -#}
{% macro recluster_get_clustering(relation) %}
  {%- set rows = run_query('show tblproperties ' ~ relation.render()) -%}
  {{ return(adapter.table_clustering(relation, rows.rows)) }}
{% endmacro %}
