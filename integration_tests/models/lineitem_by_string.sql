{#- Keys that differ only beyond the 16 characters that Iceberg keeps of a string's bounds by default. -#}
{{ config(materialized='incremental', cluster_by='shipment') }}

select *, concat('shipment-of-the-day-', date_format(l_shipdate, 'yyyy-MM-dd'), '-', l_shipmode) as shipment
from {{ lineitem() }} where {{ in_this_load() }}
