#!/usr/bin/env python3
"""A service in Python of which one instance at a time writes reports.

Start it as often as you like: it starts itself again under `tenure run`, which runs it while this
instance leads the role "reports", and ends it before another instance can.

    export TENURE_REDIS_URL=redis://localhost:6379 TENURE_NAMESPACE=shop
    python3 reports.py reports.db
"""

import os
import signal
import sqlite3
import sys
import time


def campaign():
    """Start this program again, while this instance leads."""
    os.execvp("tenure", ["tenure", "run", "--role", "reports", "--restart", "always", "--", sys.executable, *sys.argv])


def write(database, token, text):
    """Write with the fencing token: the database refuses a leader that has a successor.

    A process that was frozen does not know that its lease has ended. Its token does.
    """
    with database:
        database.execute("INSERT INTO fence SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM fence)")
        fenced = database.execute("UPDATE fence SET token = ? WHERE token <= ?", (token, token))
        if fenced.rowcount == 0:
            sys.exit(f"token {token} is fenced: a newer leader has written")
        database.execute("INSERT INTO reports VALUES (?, ?)", (token, text))


def lead(path, token):
    """Write a report a second, until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE IF NOT EXISTS fence (token INTEGER NOT NULL)")
    database.execute("CREATE TABLE IF NOT EXISTS reports (token INTEGER NOT NULL, text TEXT NOT NULL)")
    number = 0
    while True:
        number += 1
        write(database, token, f"report {number}")
        print(f"{os.environ['TENURE_INSTANCE_ID']} has written report {number} with token {token}", flush=True)
        time.sleep(1)


if __name__ == "__main__":
    if "TENURE_TOKEN" not in os.environ:
        campaign()
    lead(sys.argv[1], int(os.environ["TENURE_TOKEN"]))
