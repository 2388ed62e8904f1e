select * from {{ ref('lineitem') }} where l_shipdate >= date '1998-01-01'
