{#- dbt's, which drops a table for a view; the view's query is analysed first. -#}
{% macro recluster__handle_existing_table(full_refresh, old_relation) %}
  {%- do run_query('describe query ' ~ model['compiled_code']) -%}
  {{ default__handle_existing_table(full_refresh, old_relation) }}
{% endmacro %}
