INSERT INTO outbox (event_id, aggregate_type, aggregate_id, event_type, payload, headers)
VALUES ('6f6d2c0e-6c0e-4d6e-9a53-0c1f0e6c0001', 'account', 'acc-7', 'deposited', '{"cents": 500}',
        '{"content-type": "application/json", "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}');
