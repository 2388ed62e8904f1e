{#- Run an operation and print what it answers. Python knows its arguments; it fails if the operation failed for any table. -#}
{% macro recluster_operate(name, table, arguments) %}
  {%- for output in adapter.operate(name, dict(arguments, table=table), graph.nodes.values(), recluster_run_vars()) -%}
    {%- if output.line -%}
      {%- do log(output.line, info=true) -%}
    {%- endif -%}
    {%- if output.text -%}
      {%- do print(output.text) -%}
    {%- endif -%}
    {%- for warning in output.warnings -%}
      {%- do exceptions.warn(warning) -%}
    {%- endfor -%}
  {%- endfor -%}
{% endmacro %}
