#!/usr/bin/env python3
"""client_schemathesis.py: requests that Schemathesis draws from openapi.yaml, to the routes of
OpenAI's API (run.sh). No answer is a 5xx but a 503 with Retry-After, and each is as the document
says.

CLIENTS_EXAMPLES    the number of drawn requests of a route, 100
"""
import os
import sys

from checks import MODEL, NOT_INSTALLED, URL, check, end

try:
    import hypothesis
    import schemathesis
    from schemathesis.specs.openapi import checks as known
except ImportError:
    sys.exit(NOT_INSTALLED)

ROOT = URL[:-len("/openai/v1")]
SEED = int(os.environ.get("CLIENTS_SEED", "1"))
HEADERS = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
CHECKS = [known.status_code_conformance, known.content_type_conformance]
schema = schemathesis.openapi.from_url(ROOT + "/openapi.yaml").include(path_regex="^/openai")


def name_model(case):
    """Most drawn names become that of the job, so that the request reaches it."""
    for where, key in ((case.body, "model"), (case.path_parameters, "name")):
        if isinstance(where, dict) and isinstance(where.get(key), str) and len(where[key]) != 2:
            where[key] = MODEL


def ask(case, statuses):
    name_model(case)
    answer = case.call(base_url=ROOT, headers=HEADERS, timeout=60)
    statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1
    if answer.status_code >= 500:
        assert answer.status_code == 503 and "retry-after" in answer.headers, f"{answer.status_code} {answer.text[:300]}"
    # The document's schema of a stream is that of its whole text: Schemathesis holds it for an event's.
    stream = answer.headers["content-type"][0].startswith("text/event-stream")
    case.validate_response(answer, checks=CHECKS if stream else CHECKS + [known.response_schema_conformance])


def run(operation, mode):
    statuses = {}
    strategy = operation.as_strategy(generation_mode=mode)

    @hypothesis.seed(SEED)
    @hypothesis.settings(max_examples=int(os.environ.get("CLIENTS_EXAMPLES", "100")), deadline=None,
                         database=None, suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(case=strategy)
    def drawn(case):
        ask(case, statuses)

    name = f"{operation.method.upper()} {operation.path} {mode.value}"
    try:
        drawn()
    except (Exception, BaseExceptionGroup) as e:  # noqa: BLE001
        check(name, False, f"{statuses} {e} {getattr(e, 'exceptions', '')}"[:2000])
        return
    check(f"{name}: {sum(statuses.values())} requests, statuses {dict(sorted(statuses.items()))}", True)


for result in schema.get_all_operations():
    operation = result.ok()
    for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):
        try:
            run(operation, mode)
        except hypothesis.errors.Unsatisfiable:
            pass  # a route without anything that can be wrong
end()
