-- What version 2 wrote: a run that waits for an approval, and input that nobody took yet.
INSERT INTO calls (run, step, place, id, name, ref, payload)
    VALUES (2, 1, 0, '01a1e49c-86a6-7001-82fb-6d12638efeb0', 'refund', 11, convert_to($p${"state":"suspended","ticket_id":"01a1e49c-86a7-7000-8111-8f1b47711032"}$p$, 'UTF8'));
INSERT INTO dispatches (thread, agent, priority, due_at, attempts, tenant, held, mark)
    VALUES (2, 'shop', 128, 1694836825912, 0, 'default', 0, 0);
INSERT INTO inbox (tenant, id, thread, kind, wake, position, revision, status, payload, run, priority, agent)
    VALUES ('default', '01a1e49c-86bb-7001-815b-6ffe739ba643', 2, 'input', 'queue', 1, 0, 'pending', convert_to($p${"id":"01a1e49c-86bb-7001-815b-6ffe739ba643","thread_id":"t2","kind":"input","message":{"id":"01a1e49c-86bb-7002-815b-6ffe739ba643","role":"user","content":[{"type":"text","text":"Anybody there?"}],"created_at":1694836825787},"agent_id":"shop","run_id":"01a1e49c-86bb-7001-815b-6ffe739ba643"}$p$, 'UTF8'), '01a1e49c-86bb-7001-815b-6ffe739ba643', 128, 'shop');
INSERT INTO log (thread, seq, kind, run, agent, at, payload)
    VALUES (1, 1, 'run_start', 1, 'shop', 1694836825661, convert_to($p${"trigger":"new"}$p$, 'UTF8'));
INSERT INTO log (thread, seq, kind, run, agent, at, payload)
    VALUES (1, 2, 'message', 1, 'shop', 1694836825386, convert_to($p${"id":"01a1e49c-852a-7001-859d-9be28dcecd4c","role":"user","content":[{"type":"text","text":"Hi"}],"created_at":1694836825386}$p$, 'UTF8'));
INSERT INTO log (thread, seq, kind, run, agent, at, payload)
    VALUES (1, 3, 'step_start', 1, 'shop', 1694836825662, convert_to($p${"step":1}$p$, 'UTF8'));
INSERT INTO log (thread, seq, kind, run, agent, at, payload)
    VALUES (1, 4, 'message', 1, 'shop', 1694836825714, convert_to($p${"id":"01a1e49c-8672-7000-8a4e-de50ee45d019","role":"assistant","content":[{"type":"text","text":"Hello."}],"created_at":1694836825714,"producer":{"run_id":"01a1e49c-852a-7000-859d-9be28dcecd4c","step":1,"agent_id":"shop"}}$p$, 'UTF8'));
INSERT INTO log (thread, seq, kind, run, agent, at, payload)
    VALUES (1, 5, 'inference_complete', 1, 'shop', 1694836825714, convert_to($p${"model":"scripted","message_id":"01a1e49c-8672-7000-8a4e-de50ee45d019","stop":"end_turn","usage":{},"duration_ms":52}$p$, 'UTF8'));
INSERT INTO log (thread, seq, kind, run, agent, at, payload)
    VALUES (1, 6, 'step_end', 1, 'shop', 1694836825714, convert_to($p${"step":1}$p$, 'UTF8'));
INSERT INTO log (thread, seq, kind, run, agent, at, payload)
    VALUES (1, 7, 'run_finish', 1, 'shop', 1694836825714, convert_to($p${"status":"done","termination":{"type":"natural_end"},"usage":{},"steps":1}$p$, 'UTF8'));
INSERT INTO log (thread, seq, kind, run, agent, at, payload)
    VALUES (1, 8, 'run_start', 2, 'shop', 1694836825749, convert_to($p${"trigger":"new"}$p$, 'UTF8'));
INSERT INTO log (thread, seq, kind, run, agent, at, payload)
    VALUES (1, 9, 'message', 2, 'shop', 1694836825725, convert_to($p${"id":"01a1e49c-867d-7001-8207-270705fb68af","role":"user","content":[{"type":"text","text":"Refund order 7"}],"created_at":1694836825725}$p$, 'UTF8'));
INSERT INTO log (thread, seq, kind, run, agent, at, payload)
    VALUES (1, 10, 'step_start', 2, 'shop', 1694836825749, convert_to($p${"step":1}$p$, 'UTF8'));
INSERT INTO log (thread, seq, kind, run, agent, at, payload)
    VALUES (1, 11, 'message', 2, 'shop', 1694836825766, convert_to($p${"id":"01a1e49c-86a6-7000-82fb-6d12638efeb0","role":"assistant","content":[{"type":"tool_call","id":"01a1e49c-86a6-7001-82fb-6d12638efeb0","name":"refund","arguments":{"order":"7"}}],"created_at":1694836825766,"producer":{"run_id":"01a1e49c-867d-7000-8207-270705fb68af","step":1,"agent_id":"shop"}}$p$, 'UTF8'));
INSERT INTO log (thread, seq, kind, run, agent, at, payload)
    VALUES (1, 12, 'inference_complete', 2, 'shop', 1694836825766, convert_to($p${"model":"scripted","message_id":"01a1e49c-86a6-7000-82fb-6d12638efeb0","stop":"tool_use","usage":{},"duration_ms":17}$p$, 'UTF8'));
INSERT INTO log (thread, seq, kind, run, agent, at, ref, payload)
    VALUES (1, 13, 'tool_call_ready', 2, 'shop', 1694836825766, 11, convert_to($p${"call_id":"01a1e49c-86a6-7001-82fb-6d12638efeb0","name":"refund"}$p$, 'UTF8'));
INSERT INTO log (thread, seq, kind, run, agent, at, payload)
    VALUES (1, 14, 'tool_call_suspended', 2, 'shop', 1694836825767, convert_to($p${"call_id":"01a1e49c-86a6-7001-82fb-6d12638efeb0","name":"refund","ticket":{"id":"01a1e49c-86a7-7000-8111-8f1b47711032","run_id":"01a1e49c-867d-7000-8207-270705fb68af","thread_id":"t1","call_id":"01a1e49c-86a6-7001-82fb-6d12638efeb0","tool":"refund","arguments":{"order":"7"},"message":"May refund run?","asked_by":"approval","accepts":["replay","arguments","result"],"created_at":1694836825767}}$p$, 'UTF8'));
INSERT INTO log (thread, seq, kind, run, agent, at, payload)
    VALUES (1, 15, 'run_finish', 2, 'shop', 1694836825767, convert_to($p${"status":"waiting","waiting":{"reason":"tool_permission","since":1694836825767,"wakes":["decision"],"tickets":["01a1e49c-86a7-7000-8111-8f1b47711032"]},"usage":{},"steps":1}$p$, 'UTF8'));
INSERT INTO meta (name, value)
    VALUES ('application', 'wakeful');
INSERT INTO meta (name, value)
    VALUES ('version', '2');
INSERT INTO meta (name, value)
    VALUES ('min_reader', '1');
INSERT INTO runs (no, tenant, id, thread, agent, status, step, acting, answer, finished_at, bare, payload, priority) OVERRIDING SYSTEM VALUE
    VALUES (1, 'default', '01a1e49c-852a-7000-859d-9be28dcecd4c', 1, 'shop', 'done', 1, 0, 4, 1694836825714, 0, convert_to($p${"identity":{"run_id":"01a1e49c-852a-7000-859d-9be28dcecd4c","thread_id":"t1","agent_id":"shop","root_run_id":"01a1e49c-852a-7000-859d-9be28dcecd4c"},"status":"done","agent_id":"shop","steps":1,"answer_id":"01a1e49c-8672-7000-8a4e-de50ee45d019","outcome":{"termination":{"type":"natural_end"}},"first_seq":1,"created_at":1694836825661,"started_at":1694836825661,"finished_at":1694836825714,"updated_at":1694836825714}$p$, 'UTF8'), 128);
INSERT INTO runs (no, tenant, id, thread, agent, status, step, acting, answer, bare, payload, priority) OVERRIDING SYSTEM VALUE
    VALUES (2, 'default', '01a1e49c-867d-7000-8207-270705fb68af', 1, 'shop', 'waiting', 1, 1, 11, 0, convert_to($p${"identity":{"run_id":"01a1e49c-867d-7000-8207-270705fb68af","thread_id":"t1","agent_id":"shop","root_run_id":"01a1e49c-867d-7000-8207-270705fb68af"},"status":"waiting","agent_id":"shop","stage":"acting","steps":1,"answer_id":"01a1e49c-86a6-7000-82fb-6d12638efeb0","calls":1,"tree_calls":1,"waiting":{"reason":"tool_permission","since":1694836825767,"wakes":["decision"],"tickets":["01a1e49c-86a7-7000-8111-8f1b47711032"]},"first_seq":8,"created_at":1694836825749,"started_at":1694836825749,"updated_at":1694836825767,"needs":{"agent":{"instructions":"fbcad3b4d0be6c48","model":"c339fa9aa79ef89f","tools":"53e9e8df7ba433b2"},"tools":{"refund":"ee48d36d49ac7bf0"}}}$p$, 'UTF8'), 128);
SELECT setval(pg_get_serial_sequence('runs', 'no'), 2);
INSERT INTO threads (no, tenant, id, version, head, epoch, inbox_head, wakes, open_run, last_run, last_commit, base_seq, created_at, updated_at) OVERRIDING SYSTEM VALUE
    VALUES (1, 'default', 't1', 4, 15, 2, 0, 'decision cancel', 2, 2, '01a1e49c-86a7-7001-8111-8f1b47711032 01a1e49c-8672-7001-8a4e-de50ee45d019 2 7 1', 0, 1694836825704, 1694836825770);
INSERT INTO threads (no, tenant, id, version, head, epoch, inbox_head, wakes, base_seq, created_at, updated_at) OVERRIDING SYSTEM VALUE
    VALUES (2, 'default', 't2', 0, 0, 0, 1, 'queue steer', 0, 1694836825912, 1694836825912);
SELECT setval(pg_get_serial_sequence('threads', 'no'), 2);
INSERT INTO tickets (tenant, id, thread, run, status, payload)
    VALUES ('default', '01a1e49c-86a7-7000-8111-8f1b47711032', 1, 2, 'open', convert_to($p${"id":"01a1e49c-86a7-7000-8111-8f1b47711032","run_id":"01a1e49c-867d-7000-8207-270705fb68af","thread_id":"t1","call_id":"01a1e49c-86a6-7001-82fb-6d12638efeb0","tool":"refund","arguments":{"order":"7"},"message":"May refund run?","asked_by":"approval","accepts":["replay","arguments","result"],"created_at":1694836825767}$p$, 'UTF8'));
