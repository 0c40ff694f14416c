-- Facts have the questions that they answer: an older version would take such a row for a damaged one. Jobs wait for
-- longer than they used to, so that those of a kind are looked up.
CREATE INDEX jobs_of_kind ON jobs(kind, id)
