"""check.py BROWSER URL STATE ANN [gpus] [pictures=DIR]: what a person sees of the page of seqd.

tests/scripts/page.sh has started seqd and three jobs: 1, a training of 300 steps with 6 evaluations
that has ended, with a long log of rank 1; 2, a training with a hostile name that runs for long; 3,
which waits for 8 slots. ANN is a file with the token of a user without jobs; gpus: the node has two.
"""
import json
import os
import re
import signal
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from browser import Browser, Failed  # noqa: E402

program, url, state, ann = sys.argv[1:5]
gpus = "gpus" in sys.argv[5:]
pictures = next((a.split("=", 1)[1] for a in sys.argv[5:] if a.startswith("pictures=")), None)
token = open(os.path.join(state, "token")).read().strip()
NAME = "<img src=x onerror=document.title=1>"
failed = 0


def ok(name, good, more=""):
    global failed
    failed += not good
    print(("ok   " if good else "FAIL ") + "page: " + name + ("" if good else f": {more}"), flush=True)


def comes(name, expression, seconds=30):
    """The expression comes true."""
    try:
        b.wait(expression, seconds)
        ok(name, True)
    except Failed as e:
        ok(name, False, f"{e}; the page says: {b.ask('document.body.innerText')[:400]!r}")


def press(selector):
    b.ask(f"document.querySelector({selector!r}).click()")


def go(view):
    b.ask(f"location.hash = '#{view}'")


def text(selector="main"):
    return b.ask(f"document.querySelector({selector!r})?.innerText ?? ''")


def again():
    """seqd is killed, and started on the same port once the page has said so; its new pid is in STATE/../pid."""
    pid = int(open(os.path.join(state, "..", "pid")).read())
    words = open(f"/proc/{pid}/cmdline").read().split("\0")[:-1]
    where, port = os.readlink(f"/proc/{pid}/cwd"), url.rsplit(":", 1)[1]
    os.kill(pid, signal.SIGKILL)
    comes("it says that seqd does not answer", "/does not answer; again in/.test(document.getElementById('link').textContent)")
    with open(os.path.join(state, "..", "seqd.again.log"), "w") as log:
        new = subprocess.Popen([*words, "--listen", f"127.0.0.1:{port}"], cwd=where, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    with open(os.path.join(state, "..", "pid"), "w") as f:
        f.write(str(new.pid))


MAIN = "document.querySelector('main').innerText"
b = Browser(program)
try:
    # ---- the door ----
    b.open(url + "/")
    comes("without a token it asks for one", "document.getElementById('token')")
    ok("and says where one is from", "seqctl page" in text() and "seqctl tokens create" in text(), text())
    asked = [r["url"] for r in b.requests]
    ok("and asks seqd nothing else", asked == [url + "/"], asked)
    b.ask("document.getElementById('token').value = 'seqd_1_wrong'; document.querySelector('#door button').click()")
    comes("a wrong token brings the form again", "document.querySelector('#door .note.bad')")
    ok("with what seqd said", "token" in text("#door .note.bad"), text("#door"))
    ok("and is not kept", b.ask("sessionStorage.length") == 0)
    ok("the policy refuses markup from text", b.ask(
        "(() => { try { document.body.innerHTML = '<i>x</i>'; return 'taken'; } catch (e) { return e.name; } })()") == "TypeError")
    b.complaints.clear()  # the 401 and the refusal are errors to the browser, too

    # ---- jobs ----
    b.open("about:blank")
    b.open(f"{url}/#token={token}&to=/jobs")
    comes("with a token it lists jobs", "document.querySelectorAll('#jobs tbody a').length === 3")
    ok("the token is out of the address", token not in b.ask("location.href") and b.ask("location.hash") == "#/jobs", b.ask("location.href"))
    ok("a hostile name is text", b.ask("[...document.querySelectorAll('#jobs a')].map(a => a.textContent)").count(NAME) == 1
       and b.ask("document.images.length") == 0 and b.ask("document.title") == "Jobs · seqd", text())
    comes("a job that waits says why", f"/waits: .*slots/.test({MAIN})")
    comes("a job that runs has a rate and the time left", f"/steps\\/s/.test({MAIN})")
    comes("the latest events of all jobs", "/#[123]\\s+[a-z_]+\\s/.test(document.getElementById('latest')?.innerText)")
    ok("who it is", "root, admin" in text("header") or "admin" in text("header"), text("header"))
    b.ask("""(() => { const s = window.chosen = document.getElementById('state'); s.value = 'succeeded';
      s.dispatchEvent(new Event('change', {bubbles: true})); })()""")
    comes("jobs of one state", "[...document.querySelectorAll('#jobs tbody a')].map(a => a.textContent).join() === 'tiny'")
    b.ask("""(() => { const s = document.getElementById('name'); s.value = 'no-one';
      s.dispatchEvent(new Event('change', {bubbles: true})); })()""")
    comes("none is like that", f"/No job is like that/.test({MAIN})")
    ok("the filter keeps its element", b.ask("window.chosen === document.getElementById('state')"))
    press("button[data-act=all]")
    comes("and all again", "document.querySelectorAll('#jobs tbody a').length === 3")
    ok("and the filter is reset", b.ask("document.getElementById('state').value + document.getElementById('name').value") == "all")
    was = b.ask("document.querySelector('#jobs tr td small') && (window.row = document.querySelector('#jobs tbody tr')) && true")
    b.ask("document.querySelector('#jobs a').focus()")
    before = len(b.requests)
    b.wait("performance.now() > 0")
    comes("it is asked again", f"performance.getEntriesByType('resource').filter(r => r.name.includes('/v1/jobs?')).length > 4")
    ok("rows and focus stay", was and b.ask("window.row.isConnected && document.activeElement.closest('#jobs') !== null"))

    # ---- nodes ----
    go("/nodes")
    comes("nodes with slots", f"/local/.test({MAIN}) && /2 of \\d+ in use/.test({MAIN})")
    ok("and memory", "GiB" in text(), text())
    if gpus:
        comes("GPUs, their memory and what is wrong with one",
              f"/GPU-aa/.test({MAIN}) && /60.1 GiB of 79.6 GiB/.test({MAIN}) && /uncorrectable/.test({MAIN})")

    # ---- a job that has ended ----
    go("/jobs/1")
    comes("its outcome, as text, before its memory", "(t => /loss [0-9.]+/.test(t) && !/[{}]/.test(t))(document.getElementById('result')?.innerText || '{')"
          f" && {MAIN}.indexOf('Result') < {MAIN}.indexOf('Memory')")
    comes("every step is in the curve", "document.getElementById('loss')?.dataset.points === '300'")
    comes("and every evaluation", "document.getElementById('loss')?.dataset.evals === '6'")
    ok("drawn as a path of 300 points", b.ask("document.querySelector('#loss path.curve').getAttribute('d').split(/[ML]/).length - 1") == 300)
    for key in ("grad_norm", "lr", "tokens_s", "step_ms"):
        ok(f"a curve of {key}", b.ask(f"document.getElementById('{key}').dataset.points") == "300")
    press("button[data-act=log-scale]")
    comes("a log scale", "document.querySelector('button[data-act=log-scale]').getAttribute('aria-pressed') === 'true'")
    box = b.ask("(r => [r.x, r.y, r.width, r.height])(document.querySelector('#loss').getBoundingClientRect())")
    b.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0] + box[2] / 2, y=box[1] + box[3] / 2)
    comes("values under the pointer", "/^step 1[45]\\d · loss \\d/.test(document.getElementById('at').textContent)")
    b.call("Input.dispatchMouseEvent", type="mouseMoved", x=2, y=2)
    comes("the last where none is", "/^step 300 · loss \\d/.test(document.getElementById('at').textContent)")
    comes("a focus", "document.querySelector('#loss svg').focus() || document.activeElement.closest('#loss') !== null")
    b.key("ArrowLeft", 37)
    comes("and by keys", "/^step 299 /.test(document.getElementById('at').textContent)")
    ok("memory as planned", "as planned" in text("#memory"), text("#memory"))
    ok("bytes as planned", "as planned" in text("#traffic") and "ring_kv" in text("#traffic"), text("#traffic"))
    ok("its state", b.ask("document.title") == "#1 tiny · succeeded · seqd", b.ask("document.title"))
    ok("a long run is read from its end, and what is new after that", b.ask("""(async () => { const v = view;
      v.curve = new Curve(); await readNewest(v); const n = v.curve.points.length;
      v.job = {...v.job, step: 302}; const asked = []; const real = window.fetch;
      window.fetch = (p, o) => { asked.push(p); return real(p, o); };
      await readNewest(v); window.fetch = real;
      return [n, v.curve.points.length, asked.join()]; })()""") == [300, 300, "/v1/jobs/1/metrics?last=2"])

    # ---- its parts alone ----
    ok("a curve keeps at most 2,000 points, in order, and the last", b.ask("""(() => { const c = new Curve();
      for (let i = 1; i <= 100000; i++) c.add({step: i, loss: 1 / i});
      const p = c.shown();
      return p.length <= 2001 && p[0].step === 1 && p.at(-1).step === 100000 && p.every((q, i) => !i || q.step > p[i - 1].step); })()"""))
    ok("a later attempt takes the place of what it computes again", b.ask("""(() => { const c = new Curve();
      for (let i = 1; i <= 50; i++) c.add({step: i, loss: 1});
      for (let i = 31; i <= 40; i++) c.add({step: i, loss: 2});
      return c.shown().map(p => p.loss).join(''); })()""") == "1" * 30 + "2" * 10)
    ok("a loss of NaN leaves a gap", b.ask("""(() => { const host = document.createElement('div');
      chart(host, {title: 'x', key: 'loss', height: 100, points: [1, null, 3].map((loss, i) => ({step: i + 1, loss}))});
      return [host.dataset.points, (host.querySelector('.curve').getAttribute('d').match(/M/g) || []).length].join(); })()""") == "2,2")
    for x, want in ((0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 40, "3.0 TiB"), (1 << 60, "1048576.0 TiB")):
        ok(f"{x} bytes", b.ask(f"bytes({x})") == want, b.ask(f"bytes({x})"))
    for x, want in ((0, "0 s"), (61, "1 m 01 s"), (3700, "1 h 01 m"), (90000, "1 d 1 h"), ("null", "–"), ("NaN", "–")):
        ok(f"{x} seconds", b.ask(f"span({x})") == want, b.ask(f"span({x})"))
    ok("messages in pieces of any size", b.ask("""(async () => { const bytes = new TextEncoder().encode(
        'retry: 3000\\n\\nid: 4.1\\ndata: {"a":"ä€"}\\n\\n: heartbeat\\n\\nevent: end\\ndata: {}\\n\\n');
      for (let n = 1; n < 20; n++) {
        const body = new ReadableStream({start(c) { for (let i = 0; i < bytes.length; i += n) c.enqueue(bytes.slice(i, i + n)); c.close(); }});
        const got = [];
        for await (const m of messages(body, () => {})) if (m.data) got.push(m.type + m.id + m.data);
        if (got.join() !== 'message4.1{"a":"ä€"},end{}') return got.join();
      }
      return 'all'; })()""") == "all")
    ok("a stream without an end of line is refused", b.ask("""(async () => { const body = new ReadableStream({pull(c) {
        c.enqueue(new Uint8Array(1 << 20).fill(97)); }});
      try { for await (const m of messages(body, () => {})) return m; } catch (e) { return e.message; } })()""").endswith("too long"))
    ok("an event of any shape is a line", b.ask("""[undefined, null, 5, {}, {text: 7}, {detail: null}, {detail: {text: '<b>'}}, {a: [1], b: {}, c: 'd'}]
      .map(data => told({data})).join('|')""") == "||||7||<b>|c d", "")
    ok("a long one is cut at a word, and whole in its title", b.ask("""(() => { const words = 'word '.repeat(100).trim();
      const cells = data => { const [narrow, wide] = toldCells({type: 'note', data}), div = narrow.lastChild;
        return [wide.textContent.length, wide.textContent.slice(-5), wide.title.length,
          div.textContent === wide.textContent && div.title === wide.title].join(); };
      return [{words}, {text: words}, {a: 1}, {x: 'x'.repeat(500)}].map(cells).join('|'); })()""") ==
       "401,word…,505,true|499, word,0,true|3,a 1,0,true|401,xxxx…,502,true", "")

    go("/jobs/1/plan")
    comes("its plan", f"/chosen/.test({MAIN}) && /rsa|lasp|dsp|ulysses/.test({MAIN})")
    go("/jobs/1/logs")
    comes("its log", "+document.getElementById('log')?.dataset.lines >= 1 && /rank.ready/.test(document.getElementById('log').textContent)")
    comes("that has ended", f"/The log has ended/.test({MAIN})")
    b.ask("(s => { s.value = '1'; s.dispatchEvent(new Event('change', {bubbles: true})); })(document.getElementById('rank'))")
    comes("of another rank", "/last/.test(document.getElementById('log').textContent)")
    ok("the newest lines of it", b.ask("document.getElementById('log').dataset.lines") == "2000" and "older lines" in text("#log-note"),
       text("#log-note"))
    ok("as text", b.ask("document.querySelectorAll('#log *').length") == 0 and "<script>last()</script>" in text("#log"))
    go("/jobs/1/events")
    comes("its events", "/checkpoint/.test(document.getElementById('events')?.innerText) && /done/.test(document.getElementById('events').innerText)")
    go("/jobs/1/files")
    comes("its checkpoints", "document.querySelectorAll('#ckpts button').length === 3")
    press("#ckpts button[data-act=save]")
    comes("a download by fetch", "[...document.querySelectorAll('#ckpts button')].every(e => !e.disabled && e.textContent === 'Download')")
    b.ask("1")
    ok("is saved under a name", len(b.downloads) == 1 and re.fullmatch(r"job-1-step-[1-3]00\.tar", b.downloads[0]), b.downloads)

    # ---- a job that runs ----
    go("/jobs/2")
    comes("its curve grows", "+document.getElementById('loss')?.dataset.points >= 100")
    n = b.ask("document.getElementById('at').textContent.match(/[\\d,]+/)[0]")
    comes("as it happens", f"document.getElementById('at').textContent.match(/[\\d,]+/)[0] !== {n!r}")
    ok("points are bounded", b.ask("+document.getElementById('loss').dataset.points") <= 2001)
    ok("a hostile name and label stay text", NAME in text("h1") and "team=<i>x</i>" in text()
       and b.ask("document.querySelectorAll('main img, main i').length") == 0, text())
    if pictures:
        os.makedirs(pictures, exist_ok=True)
        for view in ("jobs", "nodes", "jobs/1", "jobs/1/plan", "jobs/1/logs", "jobs/1/events", "jobs/1/files", "jobs/2"):
            go("/" + view)
            b.wait("document.querySelector('main .card')")
            b.wait("(t => performance.now() - t > 700)(window.shot ??= performance.now()) && !(window.shot = undefined)")
            for width in (1400, 380):
                for scheme in ("light", "dark"):
                    b.size(width, 900)
                    b.scheme(scheme)
                    b.wait("(t => performance.now() - t > 400)(window.shot ??= performance.now()) && !(window.shot = undefined)")
                    b.picture(os.path.join(pictures, f"{view.replace('/', '-')}-{width}-{scheme}.png"))
        b.size(1400, 1000)
    wide = []
    for width in (1400, 380):
        b.size(width, 900)
        for view in ("/jobs", "/nodes", "/jobs/1", "/jobs/1/plan", "/jobs/1/logs", "/jobs/1/events", "/jobs/1/files"):
            go(view)
            b.wait("document.querySelector('main .card')")
            if b.ask("document.documentElement.scrollWidth") > width:
                wide.append((view, width))
    ok("nothing is wider than the window", not wide, wide)
    b.size(1400, 1000)

    # ---- a page that is not seen, a seqd that dies ----
    def streams(since):
        return [r["headers"].get("Last-Event-ID") for r in b.requests[since:] if r["url"].endswith("/events")]

    go("/jobs/2")
    b.wait("document.getElementById('loss')?.dataset.points > 0")
    b.ask("""window.seen = hidden => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});
      document.dispatchEvent(new Event('visibilitychange')); }""")
    b.ask("window.seen(true)")
    b.wait("(t => performance.now() - t > 3000)(window.since ??= performance.now())")
    mark = len(b.requests)
    b.wait("performance.now() - window.since > 6000")
    ok("an unseen page asks nothing", len(b.requests) == mark, [r["url"] for r in b.requests[mark:]])
    b.ask("window.seen(false)")
    b.wait("performance.now() - window.since > 8000")
    ok("seen again, it asks", len(b.requests) > mark)
    ok("and streams continue after the last id", streams(mark) and streams(mark)[-1], streams(mark))
    mark = len(b.requests)
    again()
    comes("seqd dies and comes back: so does the page", "document.getElementById('link').textContent === 'live'")
    comes("and the curve grows on", "document.getElementById('at').textContent")
    ok("from where it was", streams(mark) and streams(mark)[-1], streams(mark))
    b.complaints[:] = [c for c in b.complaints if "ERR_" not in c]

    # ---- another user, whose token ends ----
    hers = open(ann).read().strip()
    go(f"token={hers}&to=/jobs")
    comes("a user sees its own jobs", f"/No jobs yet/.test({MAIN}) && /seqctl submit/.test({MAIN})")
    comes("and how many others have", f"/Of other users: .*1 queued/.test({MAIN})")
    ok("and no events of theirs", not text("#latest"), text("#latest"))
    ok("no names of theirs", "waits" not in text())
    go("/jobs/2")
    comes("nor their jobs", f"/there is no job 2/.test({MAIN})")
    go("/nodes")
    b.wait(f"/local/.test({MAIN})")
    b.ask("""fetch('/v1/tokens/%d:revoke', {method: 'POST', headers: {Authorization: 'Bearer %s'}}).then(a => a.status)"""
          % (int(hers.split("_")[1]), token))
    comes("a token that ends brings the form", "document.querySelector('#door .note.bad')")
    ok("and is forgotten", b.ask("sessionStorage.length") == 0)
    go(f"token={token}&to=/jobs")
    comes("and another is taken", "document.querySelectorAll('#jobs tbody a').length === 3")
    b.complaints[:] = [c for c in b.complaints if "status of 40" not in c]  # the 403 and the 401

    # ---- more jobs than a page has ----
    def post(path, body):
        return b.ask(f"""fetch('{path}', {{method: 'POST', body: {json.dumps(body)}, headers: {{Authorization: 'Bearer {token}',
          'Content-Type': 'application/json'}}}}).then(a => a.status)""")

    spec = open(os.path.join(state, "..", "data", "waits.json")).read().replace('"waits"', '"many"')
    ok("51 more jobs", [post("/v1/jobs", spec) for _ in range(51)] == [201] * 51)
    count = "document.querySelectorAll('#jobs tbody td.name > a').length"
    comes("50 of them, the newest first", f"{count} === 50 && !document.querySelector('[data-act=older]').disabled && "
          "document.querySelector('#jobs tbody td.name > a').hash === '#/jobs/54'")
    press("button[data-act=older]")
    comes("and the older ones", f"{count} === 4 && document.querySelector('[data-act=older]').disabled")
    press("button[data-act=newer]")
    comes("and the newer ones again", f"{count} === 50 && document.querySelector('[data-act=newer]').disabled")
    ok("they go", post("/v1/jobs:cancel", '{"name": "many"}') == 200)

    # ---- cancel ----
    go("/jobs/2")
    b.wait("document.querySelector('button[data-act=cancel]')")
    press("button[data-act=cancel]")
    comes("cancel asks first", "document.getElementById('ask').open")
    ok("and names the job", NAME in text("#ask-title"), text("#ask-title"))
    press("#ask [data-act=no]")
    ok("no is no", b.ask("!document.getElementById('ask').open") and not [r for r in b.requests if r["url"].endswith("/2:cancel")])
    press("button[data-act=cancel]")
    press("#ask [data-act=yes]")
    comes("yes cancels it", "document.title.includes('· cancelled ·')")
    comes("and it can be cancelled no more", "!document.querySelector('button[data-act=cancel]')")

    # ---- a job that serves, and what other kinds end with ----
    waits = json.loads(open(os.path.join(state, "..", "data", "waits.json")).read())
    model, source = waits["model"], waits["data"]["train"][0]
    ONE = {"ranks": 1, "threads": 1}

    def submit(**job):
        return b.ask(f"""fetch('/v1/jobs', {{method: 'POST', body: {json.dumps(json.dumps(job))}, headers: {{Authorization: 'Bearer {token}',
          'Content-Type': 'application/json'}}}}).then(a => a.json()).then(j => j.id || JSON.stringify(j))""")

    serve = submit(kind="serve", name="<i>asks", model=model, data={"seq_len": 128}, sampling={"max_tokens": 24}, resources=ONE)
    score = submit(kind="score", model=model, input=source, data={"seq_len": 256}, score={"by_position_bucket": 32}, resources=ONE)
    verify = submit(kind="verify", model=model, data={"train": [source], "seq_len": 64}, verify={"max_tokens": 64},
                    parallel={"sp": 2}, resources={"ranks": 2, "threads": 1})
    go("/jobs/1")
    b.wait("+document.getElementById('loss')?.dataset.points === 300")
    b.ask("(e => { e.value = '2, x1, 999'; e.dispatchEvent(new Event('change', {bubbles: true})); })(document.getElementById('over'))")
    comes("another training's curve over it", "document.querySelectorAll('#loss path.over').length === 2 && "
          "document.querySelector('#loss path.over').getAttribute('d').length > 100")
    comes("with its name, and why there is no other", f"{MAIN}.includes({('#2 ' + NAME)!r}) && /#999 there is no job 999/.test({MAIN})")
    by_step = b.ask("document.querySelector('#loss path.curve').getAttribute('d')")
    press("button[data-act=by-time]")
    comes("by time", f"document.querySelector('#loss path.curve').getAttribute('d') !== {by_step!r} && "
          "/second/.test(document.querySelector('#loss svg').getAttribute('aria-label'))")
    go(f"/jobs/{score}")
    comes("losses by position", "+document.getElementById('by-position')?.dataset.points >= 7")
    go(f"/jobs/{verify}")
    comes("the worst tensors", "document.querySelectorAll('#tensors tbody tr').length === 20 && "
          "document.querySelectorAll('#tensors progress')[0].value > document.querySelectorAll('#tensors progress')[19].value")

    SAY = "(t => { document.getElementById('say').value = t; document.querySelector('button[data-act=say]').click(); })"
    go(f"/jobs/{serve}")
    comes("a job that serves can be asked", "document.querySelector('#chat button[data-act=say]')?.disabled === false")
    ok("and says which list is which", "/openai/v1/models lists jobs" in text() and "/v1/models lists model directories" in text(), text())
    b.ask(SAY + "('<b>hello')")
    comes("an answer comes, without a template too", "document.querySelectorAll('#turns > div.assistant').length === 1 && !view.chat.stop && "
          f"document.querySelector('#turns .assistant').textContent.length > 1 && /no chat template/.test({MAIN})")
    comes("and is counted", "view.job.serving.requests >= 1 && view.job.serving.tokens >= 1 && view.job.serving.waits.first_token.count === 1")
    comes("with curves", "+document.getElementById('tokens_s')?.dataset.points >= 2 && /open requests/.test(document.getElementById('at').textContent)")
    ok("what is asked stays text", b.ask("document.querySelectorAll('#turns b, main i').length") == 0 and "<b>hello" in text("#turns"), text("#turns"))
    # An answer that does not end, and then one that ends with an error: the page's own part alone.
    b.ask("""window.real = window.fetch; window.fetch = (p, o) => !p.startsWith('/openai') ? window.real(p, o) :
      Promise.resolve(new Response(new ReadableStream({start(c) {
        c.enqueue(new TextEncoder().encode('data: {"choices":[{"delta":{"content":"<b>half"}}]}\\n\\n' + (window.bad || '')));
        if (window.bad) c.close(); else o.signal.addEventListener('abort', () => c.error(new DOMException('x', 'AbortError')));
      }})))""")
    b.ask(SAY + "('two')")
    comes("an answer grows as it comes", "document.querySelector('#turns > div:last-child').textContent === '<b>half' && view.chat.stop")
    press("button[data-act=end-answer]")
    comes("and is stopped", "!view.chat.stop && document.querySelector('#turns > div:last-child').textContent === '<b>half'")
    b.ask("window.bad = 'data: {\"error\":{\"message\":\"<i>lost\"}}\\n\\n'")
    b.ask(SAY + "('three')")
    comes("an error in a stream is said", "document.querySelector('#turns > div.bad')?.textContent === '<i>lost' && !view.chat.stop")
    b.ask("window.fetch = window.real")
    if pictures:
        b.picture(os.path.join(pictures, "serve.png"))
    press("button[data-act=forget]")
    comes("it is forgotten", "!document.querySelector('#turns > div')")
    ok("and nothing of it is kept", b.ask("Object.keys(sessionStorage).join() + localStorage.length") == "seqd-token0")
    b.size(380, 900)
    ok("nothing of it is wider than the window", b.ask("document.documentElement.scrollWidth") <= 380)
    b.size(1400, 1000)
    ok("it is cancelled", post(f"/v1/jobs/{serve}:cancel", "") == 202)
    comes("and its result is a sentence", "/^\\d+ answers, \\d+ tokens/.test(document.querySelector('#result pre')?.textContent)")
    b.complaints[:] = [c for c in b.complaints if "status of 40" not in c]  # job 999, and a model without a template

    # ---- what the page did meanwhile ----
    sent = [r["url"] for r in b.requests if not r["url"].startswith(("data:", "blob:", "about:"))]
    ok("every request was to seqd", all(u.startswith(url + "/") for u in sent), sent)
    ok("no token was in an address", not [u for u in sent if token in u or "token=" in u.split("#")[0]])
    ok("no error in the browser's console", not b.complaints, b.complaints)
    go("/jobs/999")
    comes("a job that is not there", f"/there is no job 999/.test({MAIN})")
    press("button[data-act=leave]")
    comes("signed out", "document.getElementById('token') && sessionStorage.length === 0")
finally:
    b.close()
sys.exit(failed > 0)
