{#-
  dbt-spark's; a view without a schema is temporary. Only a snapshot has one, to stage its changes, and the current catalog may
  have no views. A killed run leaves none behind, which the next run could not replace.
-#}
{% macro recluster__create_view_as(relation, sql) -%}
  {%- if relation.schema -%}
    {{ spark__create_view_as(relation, sql) }}
  {%- else -%}
    {{ create_temporary_view(relation, sql) }}
  {%- endif -%}
{%- endmacro %}
