{#- Print the answer of an operation, and fail if it failed for any table. -#}
{% macro recluster_answer(answer) %}
  {%- if answer.text -%}
    {%- do print(answer.text) -%}
  {%- endif -%}
  {%- if answer.error -%}
    {%- do adapter.fail_operation(answer.error) -%}
  {%- endif -%}
{% endmacro %}
