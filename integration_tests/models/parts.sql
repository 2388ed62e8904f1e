{{ config(materialized='table', cluster_by='l_partkey') }}

select l_partkey, count(*) as lines, sum(l_quantity) as quantity, max(l_shipdate) as last_shipped
from {{ ref('lineitem') }}
where l_partkey <= 2000
group by l_partkey
