"""Sessions of a web application whose workers are killed.

One process owns the file and serves all threads. Sessions that were acknowledged are there after
`kill -9`, at once. Run it twice:

  python examples/python/session_store.py sessions.perdure
"""

import json
import secrets
import sys
import time

import perdure


class Sessions:
    """Sessions by token, and an index by expiry that makes the clean-up cheap."""

    def __init__(self, path: str) -> None:
        self.pool = perdure.Pool(path)
        self.sessions = self.pool.store("sessions")
        self.expiry = self.pool.store("expiry")  # time and token, in order

    def create(self, user: str, seconds: float) -> str:
        token = secrets.token_hex(16)
        ends = f"{time.time() + seconds:020.6f}"
        with self.pool.batch() as batch:  # both or none
            batch.put(self.sessions, token, json.dumps({"user": user, "ends": ends}).encode())
            batch.put(self.expiry, f"{ends}:{token}", b"")
        return token

    def user(self, token: str) -> str | None:
        found = self.sessions.get(token)
        if found is None:
            return None
        session = json.loads(found)
        return session["user"] if float(session["ends"]) > time.time() else None

    def remove_expired(self) -> int:
        due = list(self.expiry.keys(stop=f"{time.time():020.6f}"))
        for key in due:
            with self.pool.batch() as batch:
                batch.delete(self.sessions, key.split(b":", 1)[1])
                batch.delete(self.expiry, key)
        return len(due)


def main() -> None:
    sessions = Sessions(sys.argv[1])
    print(f"{len(sessions.sessions)} sessions from earlier runs, "
          f"{sessions.remove_expired()} of them expired")
    token = sessions.create("ada", seconds=3600)
    sessions.create("grace", seconds=-1)
    print("ada is", sessions.user(token))
    print("removed", sessions.remove_expired())
    sessions.pool.close()


if __name__ == "__main__":
    main()
