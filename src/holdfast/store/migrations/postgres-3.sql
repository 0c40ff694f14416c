-- Numbers of messages and turns, to be added up without reading their text. They are derived from `messages` and
-- `records`, whose last rows that were read are in `counters`, and can be dropped.
CREATE TABLE {schema}.usage(
    tenant integer NOT NULL DEFAULT {schema}.tenant(), message bigint NOT NULL,
    scope integer NOT NULL, time bigint NOT NULL, model text NOT NULL,
    input bigint NOT NULL, output bigint NOT NULL, cache_read bigint NOT NULL, cache_write bigint NOT NULL,
    PRIMARY KEY (tenant, message)
) PARTITION BY HASH (tenant);
CREATE INDEX usage_by_time ON {schema}.usage(tenant, time);
CREATE INDEX usage_by_scope ON {schema}.usage(tenant, scope);
CREATE TABLE {schema}.turns(
    tenant integer NOT NULL DEFAULT {schema}.tenant(), record bigint NOT NULL,
    scope integer NOT NULL, time bigint NOT NULL, turn bigint NOT NULL, question bigint NOT NULL,
    sent bigint NOT NULL, saved bigint NOT NULL, cut integer NOT NULL, recalled integer NOT NULL,
    followed integer NOT NULL, failed integer NOT NULL, microseconds bigint NOT NULL,
    reply bigint NOT NULL DEFAULT 0, timed integer NOT NULL DEFAULT 0, milliseconds bigint NOT NULL DEFAULT 0,
    refused integer NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, record)
) PARTITION BY HASH (tenant);
CREATE INDEX turns_by_time ON {schema}.turns(tenant, time);
CREATE INDEX turns_by_question ON {schema}.turns(tenant, scope, question);
CREATE INDEX turns_in_order ON {schema}.turns(tenant, scope, turn);
-- As the other tables: a number of -1 stands for all tenants, and partitions have no policy.
DO $$
DECLARE
    part text;
BEGIN
    FOREACH part IN ARRAY ARRAY['usage', 'turns'] LOOP
        EXECUTE format('ALTER TABLE {schema}.%I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', part);
        EXECUTE format('CREATE POLICY own_tenant ON {schema}.%I'
            ' USING (tenant = {schema}.tenant() OR {schema}.tenant() = -1)', part);
        FOR number IN 0..{partitions} - 1 LOOP
            EXECUTE format('CREATE TABLE {schema}.%1$I PARTITION OF {schema}.%2$I FOR VALUES'
                ' WITH (MODULUS {partitions}, REMAINDER %3$s)', part || '_' || number, part, number);
            EXECUTE format('ALTER TABLE {schema}.%I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY',
                part || '_' || number);
        END LOOP;
    END LOOP;
END $$
