-- Text at rest gets a checksum; `add_checksum` is a function of ours. Compressed text has one already. Of a forgotten
-- message its digest and nonce are kept, so that it is recognised where a client moved it to another place. A store
-- without `cutting` holds passages that were cut by other rules than those of `search.passages.CUTTING`.
ALTER TABLE forgotten ADD COLUMN words BLOB;
ALTER TABLE forgotten ADD COLUMN nonce BLOB;
CREATE INDEX forgotten_words ON forgotten(scope, words);
INSERT INTO counters SELECT 'cutting', 1 WHERE NOT EXISTS (SELECT 1 FROM passages);
UPDATE messages SET body = add_checksum(body) WHERE substr(body, 1, 1) = x'00';
UPDATE passages SET text = add_checksum(text) WHERE substr(text, 1, 1) = x'00';
UPDATE facts SET data = add_checksum(data);
UPDATE records SET data = add_checksum(data);
UPDATE jobs SET data = add_checksum(data);
