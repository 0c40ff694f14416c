-- {schema} and {partitions} are filled in. Every table begins with the tenant and has nothing unique outside of it, so
-- that it can be distributed: SELECT create_distributed_table('messages', 'tenant'); `tenants` is a reference table.
CREATE FUNCTION {schema}.tenant() RETURNS integer LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT nullif(current_setting('holdfast.tenant', true), '')::integer $$;
CREATE TABLE {schema}.tenants(tenant integer PRIMARY KEY, name text NOT NULL UNIQUE);
CREATE TABLE {schema}.scopes(
    tenant integer NOT NULL DEFAULT {schema}.tenant(), id integer NOT NULL,
    project text NOT NULL, agent text NOT NULL, session text NOT NULL,
    PRIMARY KEY (tenant, id), UNIQUE (tenant, project, agent, session)
) PARTITION BY HASH (tenant);
CREATE TABLE {schema}.messages(
    tenant integer NOT NULL DEFAULT {schema}.tenant(), id bigint NOT NULL, scope integer NOT NULL,
    digest bytea NOT NULL, nonce bytea NOT NULL, flags integer NOT NULL DEFAULT 0, body bytea NOT NULL,
    stored timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, id), UNIQUE (tenant, scope, digest, nonce),
    FOREIGN KEY (tenant, scope) REFERENCES {schema}.scopes(tenant, id)
) PARTITION BY HASH (tenant);
CREATE INDEX messages_in_order ON {schema}.messages(tenant, scope, id);
-- Passages are numbered from 0 without gaps: a forgotten one leaves an empty row behind.
-- A passage without a text has the words of its message, from `start` on.
CREATE TABLE {schema}.passages(
    tenant integer NOT NULL DEFAULT {schema}.tenant(), number integer NOT NULL, message bigint NOT NULL,
    scope integer NOT NULL, time bigint NOT NULL, previous integer NOT NULL, human smallint NOT NULL,
    speaker bytea NOT NULL, alive smallint NOT NULL DEFAULT 1, start integer NOT NULL, windows bytea NOT NULL,
    text bytea,
    PRIMARY KEY (tenant, number)
) PARTITION BY HASH (tenant);
CREATE INDEX passages_of_message ON {schema}.passages(tenant, message);
CREATE INDEX passages_in_order ON {schema}.passages(tenant, scope, number);
-- The index. Everything below can be dropped and rebuilt from the passages.
CREATE TABLE {schema}.pending(
    tenant integer NOT NULL DEFAULT {schema}.tenant(), number integer NOT NULL, terms bytea NOT NULL,
    PRIMARY KEY (tenant, number)
) PARTITION BY HASH (tenant);
CREATE TABLE {schema}.runs(
    tenant integer NOT NULL DEFAULT {schema}.tenant(), first integer NOT NULL, stop integer NOT NULL,
    level integer NOT NULL,
    PRIMARY KEY (tenant, first)
) PARTITION BY HASH (tenant);
CREATE TABLE {schema}.postings(
    tenant integer NOT NULL DEFAULT {schema}.tenant(), run integer NOT NULL, term bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (tenant, run, term)
) PARTITION BY HASH (tenant);
CREATE TABLE {schema}.blocks(
    tenant integer NOT NULL DEFAULT {schema}.tenant(), first integer NOT NULL, first_window integer NOT NULL,
    windows integer NOT NULL, data bytea NOT NULL,
    PRIMARY KEY (tenant, first)
) PARTITION BY HASH (tenant);
CREATE TABLE {schema}.spaces(
    tenant integer NOT NULL DEFAULT {schema}.tenant(), id integer NOT NULL,
    name text NOT NULL, dimension integer NOT NULL, digest text NOT NULL,
    PRIMARY KEY (tenant, id), UNIQUE (tenant, name, dimension, digest)
) PARTITION BY HASH (tenant);
-- One row for each window. `signs` has a bit for each dimension; an index over them is made for a large tenant.
CREATE TABLE {schema}.vectors(
    tenant integer NOT NULL DEFAULT {schema}.tenant(), space integer NOT NULL, passage integer NOT NULL,
    place integer NOT NULL, id bigint NOT NULL, scope integer NOT NULL, data bytea NOT NULL,
    signs bit varying NOT NULL,
    PRIMARY KEY (tenant, space, passage, place)
) PARTITION BY HASH (tenant);
-- Without the space: a server that has no statistics of it would use this index for a passage, too.
CREATE INDEX vectors_in_order ON {schema}.vectors(tenant, id);
-- Knowledge, the engine's own documents, and what is still to do.
CREATE TABLE {schema}.facts(
    tenant integer NOT NULL DEFAULT {schema}.tenant(), version bigint NOT NULL, scope integer NOT NULL,
    id text NOT NULL, data bytea NOT NULL,
    PRIMARY KEY (tenant, version), FOREIGN KEY (tenant, scope) REFERENCES {schema}.scopes(tenant, id)
) PARTITION BY HASH (tenant);
CREATE INDEX facts_by_id ON {schema}.facts(tenant, scope, id, version);
CREATE TABLE {schema}.records(
    tenant integer NOT NULL DEFAULT {schema}.tenant(), id bigint NOT NULL, scope integer NOT NULL,
    kind text NOT NULL, key text NOT NULL, time bigint NOT NULL, data bytea NOT NULL,
    PRIMARY KEY (tenant, id), UNIQUE (tenant, scope, kind, key),
    FOREIGN KEY (tenant, scope) REFERENCES {schema}.scopes(tenant, id)
) PARTITION BY HASH (tenant);
CREATE INDEX records_in_order ON {schema}.records(tenant, scope, kind, id);
CREATE TABLE {schema}.jobs(
    tenant integer NOT NULL DEFAULT {schema}.tenant(), id bigint NOT NULL, scope integer NOT NULL,
    kind text NOT NULL, time bigint NOT NULL, data bytea NOT NULL,
    claimed timestamptz NOT NULL DEFAULT '-infinity', claimer text,
    PRIMARY KEY (tenant, id), FOREIGN KEY (tenant, scope) REFERENCES {schema}.scopes(tenant, id)
) PARTITION BY HASH (tenant);
-- Digests of what was forgotten, so that an import does not bring it back.
CREATE TABLE {schema}.forgotten(
    tenant integer NOT NULL DEFAULT {schema}.tenant(), scope integer NOT NULL, digest bytea NOT NULL,
    words bytea, nonce bytea,
    PRIMARY KEY (tenant, scope, digest)
) PARTITION BY HASH (tenant);
CREATE INDEX forgotten_words ON {schema}.forgotten(tenant, scope, words);
-- `rewritten` counts what makes others read the index anew; the names of tables count the numbers that were given.
CREATE TABLE {schema}.counters(
    tenant integer NOT NULL DEFAULT {schema}.tenant(), name text NOT NULL, value bigint NOT NULL,
    PRIMARY KEY (tenant, name)
) PARTITION BY HASH (tenant);
-- What is compressed already is stored as it is. Only PostgreSQL 16 and newer know that as a clause of a column.
ALTER TABLE {schema}.messages ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE {schema}.passages ALTER COLUMN text SET STORAGE EXTERNAL;
ALTER TABLE {schema}.pending ALTER COLUMN terms SET STORAGE EXTERNAL;
ALTER TABLE {schema}.postings ALTER COLUMN data SET STORAGE EXTERNAL;
ALTER TABLE {schema}.blocks ALTER COLUMN data SET STORAGE EXTERNAL;
ALTER TABLE {schema}.vectors ALTER COLUMN data SET STORAGE EXTERNAL;
ALTER TABLE {schema}.facts ALTER COLUMN data SET STORAGE EXTERNAL;
ALTER TABLE {schema}.records ALTER COLUMN data SET STORAGE EXTERNAL;
ALTER TABLE {schema}.jobs ALTER COLUMN data SET STORAGE EXTERNAL;
-- A number of -1 stands for all tenants: counts of everything, and work of any tenant. Partitions have no policy, so that
-- only a superuser reads them directly.
DO $$
DECLARE
    part record;
BEGIN
    FOR part IN SELECT relname, relkind FROM pg_class
        WHERE relnamespace = '{schema}'::regnamespace AND relkind IN ('r', 'p') LOOP
        EXECUTE format('ALTER TABLE {schema}.%I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', part.relname);
        EXECUTE format('CREATE POLICY own_tenant ON {schema}.%I'
            ' USING (tenant = {schema}.tenant() OR {schema}.tenant() = -1)', part.relname);
        CONTINUE WHEN part.relkind = 'r';
        FOR number IN 0..{partitions} - 1 LOOP
            EXECUTE format('CREATE TABLE {schema}.%1$I PARTITION OF {schema}.%2$I FOR VALUES'
                ' WITH (MODULUS {partitions}, REMAINDER %3$s) WITH (toast_tuple_target = 8160)',
                part.relname || '_' || number, part.relname, number);
            EXECUTE format('ALTER TABLE {schema}.%I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY',
                part.relname || '_' || number);
        END LOOP;
    END LOOP;
END $$
