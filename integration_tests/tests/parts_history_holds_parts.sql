{#- The current rows of the snapshot are the rows of the model, and each part has one. -#}
(select l_partkey, lines, quantity from {{ ref('parts_history') }} where dbt_valid_to is null
 except select l_partkey, lines, quantity from {{ ref('parts') }})
union all
(select l_partkey, lines, quantity from {{ ref('parts') }}
 except select l_partkey, lines, quantity from {{ ref('parts_history') }} where dbt_valid_to is null)
union all
select l_partkey, count(*), null from {{ ref('parts_history') }} where dbt_valid_to is null group by l_partkey having count(*) > 1
