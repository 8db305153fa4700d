INSERT INTO outbox (aggregate_id, topic, key, payload)
VALUES ('0f8fad5b-d9cb-469f-a165-70867728950e', 'bank.transfers', 'acc-7', '{"cents": 500}'),
       ('0f8fad5b-d9cb-469f-a165-70867728950e', 'bank.ledger', '\x00ff', '\x0a0b00');
