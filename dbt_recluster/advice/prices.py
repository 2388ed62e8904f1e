"""Prices of computing and of scanning, to show seconds and bytes as money."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from dbt_recluster.clustering.values import parse_number
from dbt_recluster.exceptions import OptionError
from dbt_recluster.text import did_you_mean

_EXAMPLE = "{currency: EUR, compute_hour: 3.20, terabyte_scanned: 5}"
_GREATEST = 1e9  # the sum of many amounts must stay finite


@dataclass(frozen=True)
class PriceList:
    """The prices of a project. An amount is None if its price, seconds or bytes are unknown."""

    currency: str
    compute_hour: float | None = None  # of the session that reclusters, all its machines together
    terabyte_scanned: float | None = None  # of 2^40 bytes that a query opens

    def of_seconds(self, *seconds: float | None) -> float | None:
        """Return the price of some durations together."""
        return _product(self.compute_hour, seconds, 3600)

    def of_bytes(self, count: float | None) -> float | None:
        """Return the price of opening some bytes."""
        return _product(self.terabyte_scanned, [count], 2**40)

    def text(self, amount: float | None) -> str:
        """Return ``EUR 1.25``, ``EUR < 0.01`` or ``not known``."""
        amount_text = "< 0.01" if amount and amount < 0.01 else f"{amount or 0:,.2f}"
        return "not known" if amount is None else f"{self.currency} {amount_text}"

    @property
    def assumption(self) -> str:
        """The meaning of amounts, in one line."""
        hour = "an hour, for the seconds in which rounds read, sort and write"
        terabyte = "for 2^40 bytes that known reads do not open because of reclustering"
        units = (("spent", self.compute_hour, hour), ("saved", self.terabyte_scanned, terabyte))
        return "; ".join(
            f"{word}: {'no price' if price is None else f'{self.currency} {price:,.10g} {unit}'}"
            for word, price, unit in units
        )


def _product(price: float | None, amounts: Sequence[float | None], unit: int) -> float | None:
    known = [amount for amount in amounts if amount is not None]
    return None if price is None or len(known) < len(amounts) else round(price * sum(known) / unit, 6)


def parse_prices(name: str, value: Any) -> PriceList:
    """Return the prices of a mapping, or of ``currency=EUR,compute_hour=3.20`` from a command line."""
    if isinstance(value, PriceList):
        return value
    given, example = value, _EXAMPLE
    if isinstance(value, str):
        example = "currency=EUR,compute_hour=3.20,terabyte_scanned=5"
        pairs = (part.partition("=") for part in value.split(","))
        value = {key.strip(): amount.strip() for key, _, amount in pairs}
    if not isinstance(value, Mapping) or len(value) < 2 or "currency" not in value:
        raise OptionError(f"{name} must be a currency and prices, such as {example}, not {given!r:.80}")
    names = [field.name for field in fields(PriceList)]
    if unknown := [str(key) for key in value if key not in names]:
        raise OptionError(f"{name} has no {unknown[0]!r}; {did_you_mean(unknown[0], names, 'it has')}")
    currency = value["currency"]
    if not isinstance(currency, str) or not currency.strip().isalpha() or len(currency.strip()) > 8:
        raise OptionError(f"{name} must have a currency such as EUR, not {currency!r:.80}")
    prices = {key: parse_number(value[key]) for key in names[1:] if key in value}
    for key, price in prices.items():
        if price is None or not 0 <= price <= _GREATEST:
            raise OptionError(f"{name} must have a {key} from 0 to {_GREATEST:,.0f}, not {value[key]!r:.80}")
    return PriceList(currency.strip(), **prices)
