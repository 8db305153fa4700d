INSERT INTO outboxevent (event_id, kind, entity, type, body, region, version)
VALUES ('406c07f3-26f0-4eea-a50c-10994006aaaa', 'Order', '7', 'OrderCreated', '{"id": 7, "note": null}', 'eu "west"', 2),
       ('406c07f3-26f0-4eea-a50c-10994006aaab', 'Order', '7', 'OrderDeleted', NULL, NULL, 2);
