"""checks.py: counted checks of a client, in the form of tests/lib/lib.sh."""
import contextlib
import os
import sys

URL = os.environ.get("OPENAI_BASE_URL", "")
MODEL = os.environ.get("CLIENTS_MODEL", "reader")
EMBEDDER = os.environ.get("CLIENTS_EMBEDDER")  # the name of a job that answers embeddings
SEQ_LEN = int(os.environ.get("CLIENTS_SEQ_LEN", "512"))
NOT_INSTALLED = 77  # the exit status of a client whose package is missing
passed = failed = 0


def check(name, holds, more=""):
    global passed, failed
    if holds:
        passed += 1
        print(f"ok   {name}", flush=True)
    else:
        failed += 1
        print(f"FAIL {name}{': ' if more != '' else ''}{str(more)[:600]}", flush=True)
    return bool(holds)


def same(name, got, want):
    return check(name, got == want, f"got {got!r}, want {want!r}")


@contextlib.contextmanager
def checked(name):
    """A part whose exception is one failed check."""
    try:
        yield
    except Exception as e:  # noqa: BLE001 - any exception of a client is a failure of its part
        check(name, False, f"{type(e).__name__}: {e}")


def raises(name, kind, call, holds=lambda e: True):
    """Calls, and checks the exception: its type, and what holds of it."""
    try:
        got = call()
    except kind as e:
        return check(name, holds(e), f"{type(e).__name__}: {e} {vars(e)}")
    except Exception as e:  # noqa: BLE001
        return check(name, False, f"{type(e).__name__}: {e}")
    return check(name, False, f"returned {got!r}")


def left_out(what, why):
    print(f"left out: {what}: {why}", flush=True)


def refused_by_name(e):
    """Tells whether the server refuses a member that it does not have yet."""
    body = getattr(e, "body", None) or {}
    return body.get("code") == "unsupported"


def end():
    print(f"{os.path.basename(sys.argv[0])}: {passed} passed, {failed} failed", flush=True)
    sys.exit(1 if failed else 0)
