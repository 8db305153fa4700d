INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, tracingspancontext)
VALUES ('406c07f3-26f0-4eea-a50c-109940064b8f', 'Order', '1', 'OrderCreated', '{"id": 1, "lines": [{"item": "Debezium"}]}',
        E'#Wed Mar 04 05:06:07 UTC 2026\ntraceparent=00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\n'),
       ('406c07f3-26f0-4eea-a50c-109940064b90', 'Order', '1', 'OrderDeleted', NULL, NULL);
