{#- Run one of the operations that look at tables, print its answer, and fail when it failed for any of them. -#}
{% macro recluster_operate(name, arguments) %}
  {%- do recluster_answer(adapter.operate(name, arguments, graph.nodes.values())) -%}
{% endmacro %}

{% macro recluster_answer(answer) %}
  {%- if answer.text -%}
    {%- do print(answer.text) -%}
  {%- endif -%}
  {%- if answer.error -%}
    {%- do exceptions.raise_compiler_error(answer.error) -%}
  {%- endif -%}
{% endmacro %}
