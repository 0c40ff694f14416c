CREATE TABLE scopes(
    id INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL, project TEXT NOT NULL, agent TEXT NOT NULL, session TEXT NOT NULL,
    UNIQUE(tenant, project, agent, session)
);
CREATE TABLE messages(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    scope INTEGER NOT NULL REFERENCES scopes(id),
    digest BLOB NOT NULL,
    nonce BLOB NOT NULL,
    flags INTEGER NOT NULL DEFAULT 0,
    body BLOB NOT NULL,
    UNIQUE(scope, digest, nonce)
);
CREATE INDEX messages_in_order ON messages(scope, id);
-- Passages are numbered from 0 without gaps: a forgotten one leaves an empty row behind.
-- A passage without a text has the words of its message, from `start` on.
CREATE TABLE passages(
    number INTEGER PRIMARY KEY,
    message INTEGER NOT NULL,
    scope INTEGER NOT NULL,
    time INTEGER NOT NULL,
    previous INTEGER NOT NULL,
    human INTEGER NOT NULL,
    speaker BLOB NOT NULL,
    alive INTEGER NOT NULL DEFAULT 1,
    start INTEGER NOT NULL,
    windows BLOB NOT NULL,
    text BLOB
);
CREATE INDEX passages_of_message ON passages(message);
CREATE INDEX passages_in_order ON passages(scope, number);
-- The index. Everything below can be dropped and rebuilt from the passages.
CREATE TABLE pending(number INTEGER PRIMARY KEY, terms BLOB NOT NULL);
CREATE TABLE runs(first INTEGER PRIMARY KEY, stop INTEGER NOT NULL, level INTEGER NOT NULL);
CREATE TABLE postings(run INTEGER, term INTEGER, data BLOB NOT NULL, UNIQUE(run, term));
CREATE TABLE blocks(
    first INTEGER PRIMARY KEY, first_window INTEGER NOT NULL, windows INTEGER NOT NULL, data BLOB NOT NULL
);
CREATE TABLE spaces(
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, dimension INTEGER NOT NULL, digest TEXT NOT NULL,
    UNIQUE(name, dimension, digest)
);
CREATE TABLE vectors(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    space INTEGER NOT NULL, passage INTEGER NOT NULL, data BLOB NOT NULL,
    UNIQUE(space, passage)
);
CREATE TABLE vector_blocks(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    space INTEGER NOT NULL, first INTEGER NOT NULL, data BLOB NOT NULL,
    UNIQUE(space, first)
);
-- Knowledge, the engine's own documents, and what is still to do.
CREATE TABLE facts(
    version INTEGER PRIMARY KEY AUTOINCREMENT,
    scope INTEGER NOT NULL REFERENCES scopes(id),
    id TEXT NOT NULL,
    data BLOB NOT NULL
);
CREATE INDEX facts_by_id ON facts(scope, id, version);
CREATE TABLE records(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    scope INTEGER NOT NULL REFERENCES scopes(id),
    kind TEXT NOT NULL, key TEXT NOT NULL, time INTEGER NOT NULL, data BLOB NOT NULL,
    UNIQUE(scope, kind, key)
);
CREATE INDEX records_in_order ON records(scope, kind, id);
CREATE TABLE jobs(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    scope INTEGER NOT NULL REFERENCES scopes(id),
    kind TEXT NOT NULL, time INTEGER NOT NULL, data BLOB NOT NULL
);
-- Digests of what was forgotten, so that an import does not bring it back.
CREATE TABLE forgotten(scope INTEGER, digest BLOB, PRIMARY KEY(scope, digest)) WITHOUT ROWID;
-- `rewritten` counts what makes others read the index anew; `unscrubbed` says that deleted text may still be on disk.
CREATE TABLE counters(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO counters VALUES ('rewritten', 0), ('unscrubbed', 0);
