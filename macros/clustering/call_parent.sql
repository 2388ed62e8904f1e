{#- Call the materialization that ours wraps. -#}
{% macro recluster_call_parent(parent) %}
  {{ return(adapter.call_as_outermost(parent) if model.language == 'python' else parent()) }}
{% endmacro %}
