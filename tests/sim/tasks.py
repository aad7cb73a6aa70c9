"""Many transactions at once in one thread: each runs in a greenlet and lets others go first at every statement.

The product's code is synchronous. In the simulation its database connection and its fake host call `pause()`, which
may switch to another task. A statement that waits for a lock blocks only its own task. Nothing here depends on
timing: whether a statement waits for a lock is asked of PostgreSQL, not guessed from a clock.
"""

import random
import select
import time
from collections.abc import Callable
from typing import Any

import psycopg
from greenlet import getcurrent, greenlet

from gpuaas.control.store.exchange import Answer, Asked, Exchange
from gpuaas.node.host.faults import Crash


class Task:
    def __init__(self, owner: str, name: str, work: Callable[[], Any], finish: Callable[[Any], None]) -> None:
        self.owner = owner
        self.name = name
        self.blocked: Callable[[], bool] | None = None  # says whether it still has to wait
        self.doomed = False  # its process is dead; it ends at its next pause
        self.dying = False  # on its way out: what it does now is only cleaning up
        self.ended = False
        self._work = work
        self._finish = finish
        self.green = greenlet(self._run)

    def _run(self) -> None:
        try:
            result = self._work()
        except Crash as crash:
            result = crash
        except Exception as error:
            result = error
        self.ended = True
        if not self.doomed:
            self._finish(result)


class Tasks:
    def __init__(self, rng: random.Random, switching: float) -> None:
        self.rng = rng
        self.switching = switching
        self.all: list[Task] = []
        self.current: Task | None = None
        self._main = getcurrent()

    def run(self, owner: str, name: str, work: Callable[[], Any], finish: Callable[[Any], None]) -> None:
        task = Task(owner, name, work, finish)
        self.all.append(task)
        self.resume(task)

    def resume(self, task: Task) -> None:
        self.current = task
        task.green.switch()
        self.current = None
        self.all = [one for one in self.all if not one.ended]

    def pause(self) -> None:
        """Called by whatever a task does. Outside of tasks, and in one that is dying, it does nothing."""
        task = self.current
        if task is None or task.dying:
            return
        if not task.doomed and self.rng.random() < self.switching:
            self._main.switch()
        if task.doomed and not task.dying:
            task.dying = True
            raise Crash("process killed")

    def block(self, task: Task, waits: Callable[[], bool]) -> None:
        task.blocked = waits
        self._main.switch()
        task.blocked = None

    def runnable(self) -> list[Task]:
        return [task for task in self.all if task.blocked is None or not task.blocked()]

    def kill(self, owner: str) -> None:
        """A process dies: its tasks stop where they are, and PostgreSQL rolls back what they had not committed."""
        for task in [one for one in self.all if one.owner == owner and one is not self.current]:
            task.doomed = True
            if task.blocked is None:
                previous, self.current = self.current, task
                task.green.switch()
                self.current = previous
        self.all = [one for one in self.all if not one.ended]

    def drain(self) -> None:
        """Run everything that is under way to its end, without new pauses."""
        switching, self.switching = self.switching, 0.0
        deadline = time.monotonic() + 30
        while self.all:
            for task in self.runnable():
                self.resume(task)
            if time.monotonic() > deadline:
                raise AssertionError(f"tasks never end: {[task.name for task in self.all]}")
        self.switching = switching


class SimConnection(psycopg.Connection[Any]):
    """A connection that gives way to other tasks before each statement and while it waits for a lock."""

    tasks: Tasks
    monitor: psycopg.Connection[Any]

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        self.tasks.pause()
        poller = select.poll()
        try:
            state = next(gen)
            while True:
                poller.register(self.pgconn.socket, _events(state))
                self._until_ready(poller)
                state = gen.send(state)
        except StopIteration as stop:
            return stop.value

    def _until_ready(self, poller: Any) -> None:
        while not poller.poll(3):
            task = self.tasks.current
            if task is not None and not task.dying and self._waits_for_lock():
                self.tasks.block(task, lambda: not poller.poll(0) and self._still_waits(poller))

    def _still_waits(self, poller: Any) -> bool:
        """Decided by PostgreSQL: either it waits for somebody, or its answer is on the way."""
        while not self._waits_for_lock():
            if poller.poll(1):
                return False
        return True

    def _waits_for_lock(self) -> bool:
        row = self.monitor.execute("SELECT pg_blocking_pids(%s) <> '{}'", [self.pgconn.backend_pid]).fetchone()
        return bool(row and row[0])


class OneByOne(Exchange):
    """One statement after the other: sent together, they would run on while another task has its turn."""

    def __init__(self, driver: Any, on_wake: Callable[[set[str]], None]) -> None:
        super().__init__(driver)
        self._on_wake = on_wake

    def __call__(self, *asked: Asked, hint: Asked | None = None) -> list[Answer]:
        answers = [super(OneByOne, self).__call__(each)[0] for each in asked]
        if hint and hint[1]:
            self._on_wake(set(hint[1]["topics"]))
        return answers


def _events(state: int) -> int:
    return (select.POLLIN if state & 1 else 0) | (select.POLLOUT if state & 2 else 0)
