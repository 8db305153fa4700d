INSERT INTO outbox (tenant_id, aggregate_type, aggregate_id, event_type, payload, headers, idempotency_key)
VALUES ('7c9e6679-7425-40de-944b-e07fc1f90ae7', 'order', 'order-7', 'OrderPlaced', '{"total": 12.50}',
        '{"content-type": "application/json", "retries": 3, "reply-to": null}', 'order-7:placed');
-- What the relay did and walstream does not see.
UPDATE outbox SET locked_until = now(), attempt_count = attempt_count + 1;
DELETE FROM outbox;
