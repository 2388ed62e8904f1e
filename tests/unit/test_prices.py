"""Prices: what seconds and bytes cost, and what is no price."""

from typing import Any

import pytest

from dbt_recluster.advice.cost_model import PriceList, Prices
from dbt_recluster.clustering.options import parse_value
from dbt_recluster.exceptions import OptionError

GIVEN = {"currency": "EUR", "compute_hour": "3.20", "terabyte_scanned": 5}
PRICES = PriceList("EUR", 3.2, 5.0)


def test_a_mapping_and_the_words_of_a_command_line() -> None:
    assert parse_value(Prices, "prices", GIVEN) == PRICES
    assert parse_value(Prices, "prices", "currency=EUR, compute_hour=3.20,terabyte_scanned=5") == PRICES
    assert parse_value(Prices, "prices", "currency=EUR,compute_hour=0") == PriceList("EUR", 0.0)


def test_only_known_amounts_have_a_price() -> None:
    assert (PRICES.of_seconds(900, 900), PRICES.of_seconds(), PRICES.of_seconds(900, None)) == (1.6, 0, None)
    assert (PRICES.of_bytes(3 * 2**39), PRICES.of_bytes(None)) == (7.5, None)
    only_scans = PriceList("EUR", terabyte_scanned=5)
    assert (only_scans.of_seconds(900), only_scans.of_bytes(0)) == (None, 0)
    texts = [PRICES.text(amount) for amount in (1234.5, 0.004, 0, None)]
    assert texts == ["EUR 1,234.50", "EUR < 0.01", "EUR 0.00", "not known"]
    assert only_scans.assumption.startswith("spent: no price; saved: EUR 5 for 2^40 bytes")


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({**GIVEN, "compute_hour": -1}, "var x must have a compute_hour from 0 to 1,000,000,000, not -1"),
        ({**GIVEN, "terabyte_scanned": "nan"}, "must have a terabyte_scanned from 0 to"),
        ({**GIVEN, "compute_hour": True}, "must have a compute_hour from 0 to 1,000,000,000, not True"),
        ({**GIVEN, "compute_hours": 3}, "has no 'compute_hours'; did you mean compute_hour?"),
        ({**GIVEN, "currency": 5}, "must have a currency such as EUR, not 5"),
        ({"currency": "EUR"}, "must be a currency and prices, such as"),
        ({"currency": "EUR", "compute_hour": None}, "must be a currency and prices, such as"),
        ("3.20", "must be a currency and prices, such as"),
    ],
)
def test_a_value_that_is_no_price_is_refused(given: Any, error: str) -> None:
    with pytest.raises(OptionError) as raised:
        parse_value(Prices, "var x", given)
    assert error in str(raised.value)
