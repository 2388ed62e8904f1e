"""Which hooks recluster the table of their own model, by their text."""

from __future__ import annotations

import pytest

from dbt_recluster.adapter.operations import reclusters

CALLS = [
    "{{ recluster() }}",
    "{{ recluster(final=true) }}",
    "{{- dbt.recluster(max_bytes='1 GB') -}}",
    "{{ dbt_recluster.recluster() }}",
    "{% do recluster() %}",
    "analyze table {{ this }} compute statistics; {{ recluster(this) }}",
    "{{ recluster(table=this, depth=2) }}",
    "{% if target.name == 'prod' and var('at_night', false) %}{{ recluster() }}{% endif %}",
    "{{ 'select ' ~ recluster() }}",
]
OTHERS = [
    "",
    "select recluster() from t",
    "select '{{ '{{ recluster() }}' }}'",
    "{# {{ recluster() }} #}",
    "{% raw %}{{ recluster() }}{% endraw %}",
    "{{ recluster }}",
    "{{ my_recluster() }}",
    "{{ recluster('sales.orders') }}",
    "{{ recluster(table=ref('orders')) }}",
]


@pytest.mark.parametrize("text", [*CALLS, *OTHERS])
def test_a_hook_that_reclusters_its_own_model(text: str) -> None:
    assert reclusters([{"sql": "select 1"}, {"sql": text, "transaction": False}]) is (text in CALLS)
    assert not reclusters([])
