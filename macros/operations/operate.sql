{#- Run an operation that looks at tables, print its answer, and fail if it failed for any of them. -#}
{% macro recluster_operate(name, arguments) %}
  {%- do recluster_answer(adapter.operate(name, arguments, graph.nodes.values())) -%}
{% endmacro %}
