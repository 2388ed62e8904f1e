{#-
  dbt-spark's; a view without a schema is temporary. Only snapshots have one, for their changes. A permanent view needs a catalog
  with views, and would outlive a killed run.
-#}
{% macro recluster__create_view_as(relation, sql) -%}
  {%- if relation.schema -%}
    {{ spark__create_view_as(relation, sql) }}
  {%- else -%}
    {{ create_temporary_view(relation, sql) }}
  {%- endif -%}
{%- endmacro %}
