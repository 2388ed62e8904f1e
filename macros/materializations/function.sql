{% materialization function, adapter='recluster', supported_languages=['sql', 'python'] %}
  {%- do adapter.refuse_function(model) -%}
{% endmaterialization %}
