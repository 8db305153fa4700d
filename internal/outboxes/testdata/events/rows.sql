INSERT INTO outbox (event_id, topic, key, payload, idempotency_key)
VALUES ('3b241101-e2bb-4255-8caf-4136c566a962', 'invoices', 'inv-7', '{"paid": true}', 'made-by-the-application'),
       ('3b241101-e2bb-4255-8caf-4136c566a963', 'invoices', 'inv-7', '{"paid": false}', NULL);
