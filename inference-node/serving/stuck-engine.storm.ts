/** An engine ignores SIGKILL: the program still ends, and reports it. */
import assert from 'node:assert/strict';
import type { ChildProcess } from 'node:child_process';
import { mkdtemp } from 'node:fs/promises';
import path from 'node:path';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import ava, { type ExecutionContext } from 'ava';
import sharp from 'sharp';
import { type LogLine, startProgram } from './test/node-program.ts';
import { onEachRuntime } from './test/openvino.ts';
import type { RuntimeContext } from './test/pool-harness.ts';
import { isAlive, stop } from './test/processes.ts';

const test = ava.serial;

const size = { width: 32, height: 32 };
const background = { r: 200, g: 200, b: 200 };
const png = await sharp({ create: { ...size, channels: 3, background } })
  .png()
  .toBuffer();

const home = await temporaryFolder({ teardown: test.after.always });
let directory: string;
let node: ChildProcess | undefined;
let enginePid: number | undefined;

test.beforeEach(async () => {
  directory = await mkdtemp(path.join(home, 'test-'));
});

test.afterEach.always(async () => {
  node?.kill('SIGKILL');
  if (enginePid !== undefined && isAlive(enginePid)) process.kill(enginePid, 'SIGKILL');
});

async function openStuckNode(
  { context: { openvino } }: ExecutionContext<RuntimeContext>,
  killWaitMaxMs: number,
) {
  const env = {
    ...(openvino && { TEST_TINY_OPENVINO: openvino.library }),
    MATTING_EXECUTION_PROVIDER: 'cpu',
    MATTING_ENGINES: '1',
    MATTING_PICTURE_WORKERS: '1',
    MATTING_MODEL_DIR: directory,
    TEST_KILL_WAIT_MAX_MS: String(killWaitMaxMs),
  };
  const program = startProgram(env, { hook: 'stuck-engine-hook.ts' });
  node = program.child;
  const ready = await program.until('engine ready');
  assert.equal(ready.runtime, openvino === undefined ? 'onnxruntime' : 'openvino');
  enginePid = ready.enginePid as number;
  const serving = await program.caller();
  await stop(enginePid);
  const caller = await serving.sendFile(png, size);
  return { child: program.child, caller, ended: program.exited, until: program.until };
}

onEachRuntime('tells the caller, has failed, and ends with 1 without the engine', async t => {
  const { caller, ended } = await openStuckNode(t, 300);
  await caller.refused({ code: 'ENGINE_LOST' });
  const { code, stderr, lines } = await ended;
  t.is(code, 1);
  const expected = `process ${enginePid} of engine 0 was killed and does not die`;
  t.is(stderr, `inference node: ${expected}\n`);
  t.true(lines.some(({ msg, state }) => msg === 'state' && state === 'failed'));
  requireLeftBehind(lines);
});

onEachRuntime('ends on request, before anybody knows', async t => {
  const { child, caller, ended, until } = await openStuckNode(t, 3_600_000);
  await until('engine lost');
  child.disconnect();
  await caller.ended;
  const { code, lines } = await ended;
  t.is(code, 0);
  requireLeftBehind(lines);
});

function requireLeftBehind(lines: readonly LogLine[]): void {
  const left = lines.filter(({ msg }) => msg.endsWith('it is left behind'));
  assert.deepEqual(
    left.map(({ kind, pid }) => [kind, pid]),
    [['engine', enginePid]],
  );
  assert.equal(lines.at(-1)?.msg, 'drained');
  assert.ok(isAlive(enginePid as number), 'nobody could end it');
}
