{#- dbt's; Spark has no transactions, so hooks with `transaction: false` run with the others. dbt-spark leaves them out, or fails. -#}
{% macro run_hooks(hooks, inside_transaction=True) %}
  {%- for hook in hooks if inside_transaction -%}
    {%- set rendered = render(hook.get('sql')) | trim -%}
    {%- if rendered -%}
      {%- call statement() -%}
        {{ rendered }}
      {%- endcall -%}
    {%- endif -%}
  {%- endfor -%}
{% endmacro %}
