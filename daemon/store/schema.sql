-- seqd's state. One process, one writing connection (daemon/store/store.c).
-- Times are UTC milliseconds. A job is the fold of its events; jobs.state and jobs.doc are a copy of
-- the fold for lists, written in the transaction that wrote the event.
CREATE TABLE IF NOT EXISTS meta (
  key   TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS jobs (
  id          INTEGER PRIMARY KEY,
  state       INTEGER NOT NULL,  -- enum job_state
  created_at  INTEGER NOT NULL,
  spec        TEXT NOT NULL,     -- canonical JSON, json.h JSON_STORED
  plan        TEXT,              -- JSON of plan_json at submit
  doc         TEXT NOT NULL,     -- members of the job's JSON, without braces
  result      TEXT,              -- JSON from rank 0
  owner       TEXT               -- user, "" for seqd's own; NULL: the job is older than owners
) STRICT;
CREATE INDEX IF NOT EXISTS jobs_by_state ON jobs (state, id);
CREATE INDEX IF NOT EXISTS jobs_by_owner ON jobs (owner, state, id);

-- Tags find jobs: the name (key "") and labels, with jobs.state beside them, so that every filter
-- is a scan of an index.
CREATE TABLE IF NOT EXISTS tags (
  job   INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
  key   TEXT NOT NULL,
  value TEXT NOT NULL,
  state INTEGER NOT NULL,
  PRIMARY KEY (job, key)
) STRICT, WITHOUT ROWID;
-- Enter the tags of jobs that are older than this table, once, and make the index after that.
INSERT OR IGNORE INTO tags (job, key, value, state)
  SELECT j.id, t.key, t.value, j.state
  FROM (SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM meta WHERE key = 'tags'))
  CROSS JOIN jobs AS j
  CROSS JOIN json_each(CASE WHEN json_valid('{' || j.doc || '}') THEN
    json_set(coalesce(json_extract('{' || j.doc || '}', '$.labels'), '{}'), '$.""',
             json_extract('{' || j.doc || '}', '$.name')) ELSE '{}' END) AS t
  WHERE t.type = 'text' AND (t.key <> '' OR t.value <> '');
CREATE INDEX IF NOT EXISTS tags_find ON tags (key, value, state, job);
INSERT INTO meta (key, value) SELECT 'tags', '1' WHERE NOT EXISTS (SELECT 1 FROM meta WHERE key = 'tags');

CREATE TABLE IF NOT EXISTS events (
  seq   INTEGER PRIMARY KEY,     -- ascending over all jobs
  job   INTEGER NOT NULL REFERENCES jobs (id),
  epoch INTEGER NOT NULL,
  at    INTEGER NOT NULL,
  type  INTEGER NOT NULL,        -- enum job_event: numbers are never reused
  data  TEXT NOT NULL            -- JSON object, event.h
) STRICT;
CREATE INDEX IF NOT EXISTS events_by_job ON events (job, seq);

-- Images of jobs that wait for their first run, so that seqd starts faster (daemon/state/job_image.h).
-- Rows of an older build or of an older event are not read.
CREATE TABLE IF NOT EXISTS images (
  job  INTEGER PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
  seq  INTEGER NOT NULL,         -- the last event that the image has
  data BLOB NOT NULL
) STRICT;

-- One row per job and second: every step of that second, as a JSON array.
CREATE TABLE IF NOT EXISTS metrics (
  seq  INTEGER PRIMARY KEY,
  job  INTEGER NOT NULL REFERENCES jobs (id),
  data TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS metrics_by_job ON metrics (job, seq);

-- A mark tells up to which record of an attempt's spool seqd has stored the effects. seqd
-- writes it together with these effects.
CREATE TABLE IF NOT EXISTS marks (
  job   INTEGER NOT NULL REFERENCES jobs (id),
  epoch INTEGER NOT NULL,
  seq   INTEGER NOT NULL,
  PRIMARY KEY (job, epoch)
) STRICT, WITHOUT ROWID;

-- Marks of the second and further nodes of an attempt; the table `marks` has those of the first.
CREATE TABLE IF NOT EXISTS part_marks (
  job   INTEGER NOT NULL REFERENCES jobs (id),
  epoch INTEGER NOT NULL,
  part  INTEGER NOT NULL,
  seq   INTEGER NOT NULL,
  PRIMARY KEY (job, epoch, part)
) STRICT, WITHOUT ROWID;

-- Failures of the last hour that count against a node, one row per job (daemon/state/quarantine.h).
CREATE TABLE IF NOT EXISTS blames (
  node TEXT NOT NULL,
  job  INTEGER NOT NULL REFERENCES jobs (id),
  at   INTEGER NOT NULL,
  PRIMARY KEY (node, job)
) STRICT, WITHOUT ROWID;

-- Nodes that get no jobs because too many failed there (daemon/state/quarantine.h).
CREATE TABLE IF NOT EXISTS quarantine (
  node   TEXT PRIMARY KEY,
  at     INTEGER NOT NULL,
  reason TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Nodes that get no new work by order (daemon/state/cordon.h).
CREATE TABLE IF NOT EXISTS cordons (
  node   TEXT PRIMARY KEY,
  at     INTEGER NOT NULL,
  drains INTEGER NOT NULL,
  by     TEXT NOT NULL,
  reason TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Idempotency-Key of POST /v1/jobs.
CREATE TABLE IF NOT EXISTS keys (
  key         TEXT PRIMARY KEY,
  fingerprint TEXT NOT NULL,     -- SHA-256 of the canonical body
  job         INTEGER NOT NULL REFERENCES jobs (id),
  at          INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Bearer tokens (daemon/access/auth.h). A token itself is shown once and kept nowhere.
CREATE TABLE IF NOT EXISTS tokens (
  id         INTEGER PRIMARY KEY,
  user       TEXT NOT NULL,
  role       INTEGER NOT NULL,   -- enum role
  hash       TEXT NOT NULL,      -- SHA-256 of the token's text
  label      TEXT NOT NULL,      -- the owner's name for the token
  created_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,   -- 0: never
  revoked_at INTEGER NOT NULL,   -- 0: it is valid
  used_at    INTEGER NOT NULL    -- 0: never; to the hour
) STRICT;

-- The audit log: who changed an object, and who read an object of another user
-- (daemon/http/admit.c).
CREATE TABLE IF NOT EXISTS audit (
  seq     INTEGER PRIMARY KEY,
  at      INTEGER NOT NULL,
  user    TEXT NOT NULL,
  role    INTEGER NOT NULL,      -- enum role
  token   INTEGER NOT NULL,      -- 0: by the Unix socket
  address TEXT NOT NULL,         -- of the client: an IP address, or "uid N"
  request INTEGER NOT NULL,      -- X-Request-Id
  action  TEXT NOT NULL,         -- "POST /v1/jobs/7:cancel"
  status  INTEGER NOT NULL,      -- HTTP status of the answer; 0: unknown
  made    TEXT NOT NULL DEFAULT '' -- Location of the answer: "/v1/jobs/7"
) STRICT;

-- Join tokens (daemon/access/join.h). The token itself is not stored.
CREATE TABLE IF NOT EXISTS join_tokens (
  id         TEXT PRIMARY KEY,
  hash       TEXT NOT NULL,      -- SHA-256 of the token
  names      TEXT NOT NULL,      -- glob of the nodes that may use it
  uses       INTEGER NOT NULL,
  used       INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  number     INTEGER             -- ascending in the order of making; NULL: older than numbers
) STRICT, WITHOUT ROWID;

-- Nodes whose certificates were revoked: no token up to `number` may use the name.
CREATE TABLE IF NOT EXISTS revocations (
  node   TEXT PRIMARY KEY,
  at     INTEGER NOT NULL,
  number INTEGER NOT NULL        -- of the newest join token at that time; 0: there was none
) STRICT, WITHOUT ROWID;
UPDATE join_tokens SET number = n.number FROM (
  SELECT id, row_number() OVER (ORDER BY created_at, id) +
    (SELECT coalesce(max(number), 0) FROM (SELECT number FROM join_tokens UNION ALL SELECT number FROM revocations)) AS number
  FROM join_tokens WHERE number IS NULL) AS n
  WHERE join_tokens.id = n.id;

-- Certificates of nodes until they expire. A certificate that is not here is refused.
CREATE TABLE IF NOT EXISTS certificates (
  serial     INTEGER PRIMARY KEY,
  node       TEXT NOT NULL,
  key        TEXT NOT NULL,      -- SHA-256 of the public key
  token      TEXT NOT NULL,      -- id of the join token by which the node joined
  issued_at  INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  revoked_at INTEGER
) STRICT;

-- Removals, pending and done (api/core/removal.h). A row is written before any data is removed, and
-- stays as the record of the removal. A job that is being removed has jobs.state 100, so no query
-- shows it.
CREATE TABLE IF NOT EXISTS removals (
  seq        INTEGER PRIMARY KEY AUTOINCREMENT,
  job        INTEGER NOT NULL,
  what       INTEGER NOT NULL,     -- enum removal_what
  state      INTEGER NOT NULL,     -- enum removal_state
  at         INTEGER NOT NULL,
  done_at    INTEGER,
  why        TEXT NOT NULL,        -- delete, prune, ttl
  who        TEXT NOT NULL,
  rows_size  INTEGER NOT NULL DEFAULT 0, -- bytes, estimated
  logs_size  INTEGER NOT NULL DEFAULT 0,
  files_size INTEGER NOT NULL DEFAULT 0, -- on nodes
  UNIQUE (job, what)
) STRICT;
CREATE INDEX IF NOT EXISTS removals_by_state ON removals (state, seq);

-- Nodes that have not confirmed a removal. They are told again until they do.
CREATE TABLE IF NOT EXISTS removal_nodes (
  node  TEXT NOT NULL,
  job   INTEGER NOT NULL,
  what  INTEGER NOT NULL,
  error TEXT,                      -- why the last try failed
  PRIMARY KEY (node, job, what)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS removal_nodes_by_job ON removal_nodes (job, what);

-- Jobs that have ended. at: when their time to live begins. cut: bits 1 << enum removal_what of the
-- parts that are removed. A query for jobs with a part that is due does not read jobs whose part is
-- removed.
CREATE TABLE IF NOT EXISTS ended (
  job INTEGER PRIMARY KEY,
  at  INTEGER NOT NULL,
  cut INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX IF NOT EXISTS ended_whole ON ended (at, job) WHERE cut & 1 = 0;
CREATE INDEX IF NOT EXISTS ended_events ON ended (at, job) WHERE cut & 2 = 0;
CREATE INDEX IF NOT EXISTS ended_metrics ON ended (at, job) WHERE cut & 4 = 0;
CREATE INDEX IF NOT EXISTS ended_logs ON ended (at, job) WHERE cut & 8 = 0;
CREATE INDEX IF NOT EXISTS ended_checkpoints ON ended (at, job) WHERE cut & 16 = 0;

-- Orders about many jobs (daemon/loop/orders.h). A row is written before any of its jobs is ordered.
CREATE TABLE IF NOT EXISTS orders (
  id          INTEGER PRIMARY KEY,
  at          INTEGER NOT NULL,
  what        INTEGER NOT NULL,  -- enum orders_what
  who         TEXT NOT NULL,
  n_jobs      INTEGER NOT NULL,
  jobs        TEXT NOT NULL,     -- ids, as "1-1000,1002"; "" when the order is finished
  handled     INTEGER NOT NULL,  -- jobs that were looked at
  done        INTEGER NOT NULL,  -- jobs that accepted the order
  finished_at INTEGER NOT NULL   -- 0: not yet
) STRICT;

-- Without this index the removal of a job would scan all keys.
CREATE INDEX IF NOT EXISTS keys_by_job ON keys (job);
