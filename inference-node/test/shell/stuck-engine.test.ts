/** The whole program with an engine that ignores SIGKILL: it ends all the same, and says so. */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { credentials } from '@grpc/grpc-js';
import sharp from 'sharp';
import { MatteServiceClient } from '#gen/matting/v1/matte_service.ts';
import { MatteCaller } from '../grpc/test-node.ts';
import { isAlive, stop } from '../support/processes.ts';

const MAIN = path.resolve(import.meta.dirname, '../../src/main.ts');
const HOOK = path.join(import.meta.dirname, 'stuck-engine-hook.ts');
const size = { width: 32, height: 32 };
const background = { r: 200, g: 200, b: 200 };
const png = await sharp({ create: { ...size, channels: 3, background } })
  .png()
  .toBuffer();

interface LogLine {
  readonly msg: string;
  readonly [field: string]: unknown;
}

let directory: string;
let node: ChildProcess | undefined;
let enginePid: number | undefined;

beforeEach(async () => {
  directory = await mkdtemp(path.join(tmpdir(), 'matting-stuck-'));
});

afterEach(async () => {
  node?.kill('SIGKILL');
  if (enginePid !== undefined && isAlive(enginePid)) process.kill(enginePid, 'SIGKILL');
  await rm(directory, { recursive: true });
});

/** A node that serves, whose engine is stopped. */
async function openStuckNode(killWaitMaxMs: number) {
  const child = spawn(process.execPath, ['--import', HOOK, MAIN], {
    env: {
      PATH: process.env.PATH,
      MATTING_NODE_PORT: '0',
      MATTING_NODE_HTTP_PORT: '0',
      MATTING_EXECUTION_PROVIDER: 'cpu',
      MATTING_ENGINES: '1',
      MATTING_PICTURE_WORKERS: '1',
      MATTING_MODEL_DIR: directory,
      TEST_KILL_WAIT_MAX_MS: String(killWaitMaxMs),
    },
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
  });
  node = child;
  const lines: LogLine[] = [];
  let stderr = '';
  child.stderr?.setEncoding('utf8').on('data', text => {
    stderr += text;
  });
  // Not 'close': the engine that is left behind must hold none of its pipes.
  const exited = Promise.all([once(child, 'exit'), once(child.stdout!, 'end')]);
  const output = createInterface(child.stdout!);
  output.on('line', line => void lines.push(JSON.parse(line)));
  const find = (msg: string) => lines.find(line => line.msg === msg);
  const until = async (msg: string): Promise<LogLine> => {
    for (let found = find(msg); ; found = find(msg)) {
      if (found !== undefined) return found;
      await once(output, 'line');
    }
  };
  const { port } = await until('listening');
  const { enginePid: pid } = await until('engine ready');
  await until('serving');
  enginePid = pid as number;
  await stop(enginePid);
  const client = new MatteServiceClient(`127.0.0.1:${port}`, credentials.createInsecure());
  const caller = await new MatteCaller({ client }).sendFile(png, size);
  void caller.ended.then(() => client.close());
  const ended = exited.then(([[code]]) => ({ code: code as number, stderr, lines }));
  return { child, caller, ended, until };
}

describe('a node whose only engine does not die', () => {
  it('tells the caller, has failed, and ends with 1 without the engine', async () => {
    const { caller, ended } = await openStuckNode(300);
    assert.equal((await caller.failure()).code, 'ENGINE_LOST');
    const { code, stderr, lines } = await ended;
    assert.equal(code, 1);
    const said = `process ${enginePid} of engine 0 was killed and does not die`;
    assert.equal(stderr, `inference node: ${said}\n`);
    assert.ok(lines.some(({ msg, state }) => msg === 'state' && state === 'failed'));
    requireLeftBehind(lines);
  });

  it('ends when it is told to, before anybody knows', async () => {
    const { child, caller, ended, until } = await openStuckNode(3_600_000);
    await until('engine lost');
    // To hurry.
    child.disconnect();
    await caller.ended;
    const { code, lines } = await ended;
    assert.equal(code, 0);
    requireLeftBehind(lines);
  });
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
