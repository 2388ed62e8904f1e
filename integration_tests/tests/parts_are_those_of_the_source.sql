{#- The model's rows are what the same query finds in the source, by EXCEPT in both directions. -#}
{%- set expected %}
  select l_partkey, count(*) as lines, sum(l_quantity) as quantity, max(l_shipdate) as last_shipped
  from {{ lineitem() }} where {{ in_loads_so_far() }} and l_partkey <= 2000 group by l_partkey
{%- endset %}
(select * from {{ ref('parts') }} except all {{ expected }})
union all
({{ expected }} except all select * from {{ ref('parts') }})
