{#- One row for each of TPC-H's ship modes, which is what seeds/ship_modes.csv holds. -#}
(select distinct l_shipmode as mode from {{ lineitem() }} except all select ship_mode from {{ ref('ship_modes') }})
union all
(select ship_mode from {{ ref('ship_modes') }} except all select distinct l_shipmode from {{ lineitem() }})
