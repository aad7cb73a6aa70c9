"""How far a connection has pushed specs to its node, and when to start again from where the node really is."""

from dataclasses import dataclass

RESEND_SECONDS = 2.0  # a node that is still behind this long after a push is sent everything again


@dataclass
class Cursor:
    sent: int | None = None  # the newest revision pushed; None until the node said what it has
    sent_at: float = 0.0
    unconfirmed_since: float | None = None  # when the oldest push was made of which the node has not said it has it

    def heartbeat(self, revision: int, now: float) -> bool:
        """True when there may be something to push from `revision` on."""
        behind = self.sent is None or (revision < self.sent and now - self.sent_at > RESEND_SECONDS)
        if behind:
            self.sent = revision
        return behind

    def pushed(self, upto: int, now: float) -> None:
        self.sent, self.sent_at = upto, now
        if self.unconfirmed_since is None:
            self.unconfirmed_since = now

    def confirmed(self, revision: int, now: float) -> float | None:
        """How long the node took to have everything that was pushed, when it has it now and had not before."""
        if self.unconfirmed_since is None or self.sent is None or revision < self.sent:
            return None
        lag, self.unconfirmed_since = now - self.unconfirmed_since, None
        return lag
