{#- Run an operation that looks at tables, print its answer, and fail if it failed for any of them. -#}
{% macro recluster_operate(name, arguments) %}
  {%- do recluster_answer(adapter.operate(name, arguments, graph.nodes.values())) -%}
{% endmacro %}

{% macro recluster_answer(answer) %}
  {%- if answer.text -%}
    {%- do print(answer.text) -%}
  {%- endif -%}
  {%- if answer.error -%}
    {%- do adapter.fail_operation(answer.error) -%}
  {%- endif -%}
{% endmacro %}
