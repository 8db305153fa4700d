INSERT INTO notices (uid, class, subject, severity, body, meta, shard, happened)
VALUES ('9b2c7f8e-0000-4000-8000-000000000001', 'com.example.DiskFull', '10.0.0.7', 'high', 'disk 3 is full',
        'rack => r7, note => NULL', 0, now() - interval '1 hour'),
       ('9b2c7f8e-0000-4000-8000-000000000002', 'com.example.DiskFull', '10.0.0.7', 'low', ' ', NULL, NULL, NULL);
