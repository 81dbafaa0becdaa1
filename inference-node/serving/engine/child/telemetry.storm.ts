/** Longer than ONNX Runtime waits before its first report (9 to 12 s). */
import { setTimeout as delay } from 'node:timers/promises';
import { onEachRuntime as test } from '../../test/openvino.ts';
import { openPool, pidOf, QUICK, run } from '../../test/pool-harness.ts';
import { networkSocketsOf, openWatchedHome } from '../../test/watched-home.ts';

const WATCH_MS = 25_000;
const LOOK_EVERY_MS = 20;

test('an engine opens no socket and asks nobody for as long as it lives', async t => {
  const home = await openWatchedHome(t);
  const pool = await openPool(t, {}, { childEnv: home.env });
  const pid = pidOf(pool);
  for (const end = performance.now() + WATCH_MS; performance.now() < end; ) {
    await run(pool, QUICK);
    t.deepEqual(await networkSocketsOf(pid), []);
    await delay(LOOK_EVERY_MS);
  }
  await pool.close(0);
  t.deepEqual(home.requests, []);
  t.deepEqual(await home.files(), []);
});
