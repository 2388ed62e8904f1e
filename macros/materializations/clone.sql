{#- dbt's own: Iceberg has no shallow clone, so a clone is a view of the original. -#}
{% materialization clone, adapter='recluster' %}
  {{ return(materialization_clone_default()) }}
{% endmaterialization %}

{% macro recluster__can_clone_table() %}
  {{ return(False) }}
{% endmacro %}
