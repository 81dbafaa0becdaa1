/** No telemetry leaves: an engine neither marks its machine nor opens a socket to anywhere. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { openPool, pidOf, QUICK, run } from '../pool/pool-harness.ts';
import { networkSocketsOf, openWatchedHome } from './watched-home.ts';

test('an engine that runs models leaves no file and opens no socket', async context => {
  const home = await openWatchedHome(context);
  const pool = await openPool(context, {}, { childEnv: home.env });
  await run(pool, QUICK);
  assert.deepEqual(await networkSocketsOf(pidOf(pool)), []);
  await pool.close(0);
  assert.deepEqual(home.requests, []);
  assert.deepEqual(await home.files(), []);
});

test('where nothing tells ONNX Runtime so, an identifier of the machine is found', async context => {
  const home = await openWatchedHome(context);
  const load = `(await import('onnxruntime-node')).InferenceSession.create('none').catch(() => 0)`;
  const { status } = spawnSync(process.execPath, ['--input-type=module', '--eval', load], {
    env: home.env,
  });
  assert.equal(status, 0);
  assert.ok((await home.files()).some(file => file.endsWith('deviceid')));
});
