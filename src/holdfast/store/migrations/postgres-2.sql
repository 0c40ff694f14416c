-- Facts have the questions that they answer: an older version would take such a row for a damaged one. Jobs wait for
-- longer than they used to, so that those of a kind are looked up. Nobody claims them: the lock of a tenant decides.
CREATE INDEX jobs_of_kind ON {schema}.jobs(tenant, kind, id);
ALTER TABLE {schema}.jobs DROP COLUMN claimed, DROP COLUMN claimer;
