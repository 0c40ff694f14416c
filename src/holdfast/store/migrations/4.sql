-- Numbers of messages and turns, to be added up without reading their text. They are derived from `messages` and
-- `records`, whose last rows that were read are in `counters`, and can be dropped.
CREATE TABLE usage(
    message INTEGER PRIMARY KEY,
    scope INTEGER NOT NULL, time INTEGER NOT NULL, model TEXT NOT NULL,
    input INTEGER NOT NULL, output INTEGER NOT NULL, cache_read INTEGER NOT NULL, cache_write INTEGER NOT NULL
);
CREATE INDEX usage_by_time ON usage(time);
CREATE INDEX usage_by_scope ON usage(scope);
CREATE TABLE turns(
    record INTEGER PRIMARY KEY,
    scope INTEGER NOT NULL, time INTEGER NOT NULL, turn INTEGER NOT NULL, question INTEGER NOT NULL,
    sent INTEGER NOT NULL, saved INTEGER NOT NULL, cut INTEGER NOT NULL, recalled INTEGER NOT NULL,
    followed INTEGER NOT NULL, failed INTEGER NOT NULL, microseconds INTEGER NOT NULL,
    reply INTEGER NOT NULL DEFAULT 0, timed INTEGER NOT NULL DEFAULT 0, milliseconds INTEGER NOT NULL DEFAULT 0,
    refused INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX turns_by_time ON turns(time);
CREATE INDEX turns_by_question ON turns(scope, question);
CREATE INDEX turns_in_order ON turns(scope, turn)
