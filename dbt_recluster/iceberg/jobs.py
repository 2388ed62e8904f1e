"""Name and cancel the Spark jobs of a thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dbt_recluster.iceberg.jvm import is_stopped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_GROUP = "spark.jobGroup.id"
_DESCRIPTION = "spark.job.description"
_INTERRUPT = "spark.job.interruptOnCancel"


@contextmanager
def job_group(spark: SparkSession, group: str) -> Iterator[None]:
    """Run the jobs of this thread under ``group``, for :func:`cancel_jobs` to find; then restore what was set."""
    context = spark.sparkContext
    values = {_GROUP: group, _INTERRUPT: "true"}
    before = {name: context.getLocalProperty(name) for name in values}
    for name, value in values.items():
        context.setLocalProperty(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            context.setLocalProperty(name, old)  # type: ignore[arg-type]  # None unsets it


@contextmanager
def job_description(spark: SparkSession, description: str) -> Iterator[None]:
    """Let the jobs of this thread carry ``description`` in Spark's UI; then restore what was set."""
    context = spark.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, description)
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type]  # None unsets it


@contextmanager
def job_step(spark: SparkSession, step: str) -> Iterator[None]:
    """Let the jobs of this thread carry ``step`` behind the description that they have already."""
    before = spark.sparkContext.getLocalProperty(_DESCRIPTION)
    with job_description(spark, f"{before}: {step}" if before else step):
        yield


def cancel_jobs(spark: SparkSession, group: str) -> None:
    """Cancel the running jobs of ``group``; does nothing when Spark has stopped already."""
    if not is_stopped(spark):
        spark.sparkContext.cancelJobGroup(group)


@contextmanager
def job_tag(spark: SparkSession, tag: str) -> Iterator[None]:
    """Tag the jobs of this thread, beside the group they are in, for :func:`cancel_tagged` to find."""
    context = spark.sparkContext
    context.addJobTag(tag)
    try:
        yield
    finally:
        context.removeJobTag(tag)


def cancel_tagged(spark: SparkSession, tag: str) -> None:
    """Cancel the running jobs with this tag; does nothing when Spark has stopped already."""
    if not is_stopped(spark):
        spark.sparkContext.cancelJobsWithTag(tag)
