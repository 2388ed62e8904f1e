"""Tables that ``recluster_submit`` reclusters: after the build of each, or once at the end of dbt's run."""

from __future__ import annotations

from collections.abc import Mapping

from dbt.adapters.events.logging import AdapterLogger

from dbt_recluster.adapter.connections import ReclusterConnectionManager
from dbt_recluster.adapter.credentials import ReclusterCredentials
from dbt_recluster.adapter.dbt_errors import message
from dbt_recluster.adapter.submission import Submission, parse_submit
from dbt_recluster.clustering.result import ReclusterResult
from dbt_recluster.exceptions import SubmitError

logger = AdapterLogger("Recluster")


class SubmittedTables:
    """Submits built tables, now or at the end of the run as the profile says.

    Args:
        credentials: The profile.
        connections: dbt's connections.
    """

    def __init__(self, credentials: ReclusterCredentials, connections: ReclusterConnectionManager) -> None:
        self._credentials = credentials
        self._connections = connections
        self._due: list[str] = []

    def submit(self, relation: str) -> ReclusterResult | None:
        """Submit a table, or note it for the end of the run.

        Returns:
            The command's result; None if there is none yet, the command told none, or the table has a single block.

        Raises:
            SubmitError: See :meth:`Submission.run`.
        """
        if int(self._connections.ask(f"select count(*) from {relation}.data_files")[0][0]) < 2:
            return None
        if self._credentials.recluster_submit_when == "end":
            self._due.append(relation)
            return None
        submission = self._submission([relation])
        with self._connections.cancelling(submission):
            answer = submission.run().get(relation)
        if isinstance(answer, SubmitError):
            raise answer
        if answer is None or answer.rounds:
            self._connections.ask(f"refresh table {relation}", fetch=False)
        return answer

    @property
    def is_due(self) -> bool:
        """Whether tables were noted for the end of the run."""
        return bool(self._due)

    def submit_due(self) -> Mapping[str, ReclusterResult | SubmitError]:
        """Submit the tables that were noted, once for all of them, and return what came of each."""
        due, self._due = list(dict.fromkeys(self._due)), []
        try:
            answers = self._submission(due).run()
        except SubmitError as e:
            return {", ".join(due): e}
        for relation, answer in answers.items():
            if isinstance(answer, ReclusterResult) and answer.rounds:
                self._refresh(relation)
        return answers

    def forget(self) -> None:
        """Submit nothing at the end of the run: it was interrupted."""
        self._due.clear()

    def _submission(self, relations: list[str]) -> Submission:
        credentials = self._credentials
        command, timeout = parse_submit(credentials.recluster_submit, credentials.recluster_submit_timeout)
        return Submission(command, relations, timeout)

    def _refresh(self, relation: str) -> None:
        """Have the connection read a table again; otherwise its cache may answer for half a minute."""
        try:
            self._connections.ask(f"refresh table {relation}", fetch=False)
        except Exception as e:
            logger.debug(f"{relation} was not refreshed over the connection: {message(e)}")
