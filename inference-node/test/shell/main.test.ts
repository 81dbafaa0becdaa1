import assert from 'node:assert/strict';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readdir } from 'node:fs/promises';
import { createServer, type Server } from 'node:net';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { Switch } from '#gen/matting/v1/matte_service.ts';
import { closeChannel } from '../../../test/support/ipc-channel.ts';
import { temporaryFolder } from '../../../test/support/temporary-folder.ts';
import { TINY_LICENCE } from '../../../test/support/tiny-model.ts';
import { header } from '../grpc/test-node.ts';
import type { Told } from './fake-rooms.ts';
import { type NodeProgram, startProgram } from './node-program.ts';

let directory: string;
let running: ChildProcess | undefined;

beforeEach(async context => {
  directory = await temporaryFolder(context);
});

afterEach(async () => {
  running?.kill('SIGKILL');
  running = undefined;
});

/** With `fakeRooms`, over pools that the test holds. */
function startNode(
  env: Record<string, string>,
  { fakeRooms, heldChannel }: { fakeRooms?: boolean; heldChannel?: boolean } = {},
): NodeProgram {
  // An empty folder: a node that gets this far has no weights.
  const given = { MATTING_MODEL_DIR: directory, ...env };
  const hook = fakeRooms ? 'fake-rooms-hook.ts' : undefined;
  const program = startProgram(given, { hook, heldChannel });
  running = program.child;
  return program;
}

async function listenSomewhere(): Promise<{ server: Server; port: number }> {
  const server = createServer();
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  return { server, port: (server.address() as { port: number }).port };
}

describe('the program that cannot start', () => {
  it('names every bad variable and exits with 78', async () => {
    const { exited } = startNode({ MATTING_ENGINES: 'a few', MATTING_NODE_TOKEN: 'too short' });
    const { code, stderr, lines } = await exited;
    assert.equal(code, 78);
    assert.match(stderr, /MATTING_ENGINES must be/);
    assert.match(stderr, /MATTING_NODE_TOKEN must be/);
    assert.doesNotMatch(stderr, /a few|too short|\.ts:\d/);
    assert.deepEqual(lines, []);
  });

  for (const variable of ['MATTING_NODE_PORT', 'MATTING_NODE_HTTP_PORT']) {
    it(`says in one line that ${variable} is in use`, async () => {
      const { server, port } = await listenSomewhere();
      const { code, stderr } = await startNode({ [variable]: String(port) }).exited;
      server.close();
      assert.equal(code, 1);
      const line = `^inference node: port ${port} of 127\\.0\\.0\\.1 is in use: .*${variable}.*\n$`;
      assert.match(stderr, new RegExp(line));
    });
  }

  for (const gate of ['weights', 'strict']) {
    it(`refuses a plan that MATTING_COMMERCIAL_USE=${gate} does not admit, before all else`, async () => {
      const { server, port } = await listenSomewhere();
      // Neither the port that is in use nor the weights that are missing is found out.
      const env = { MATTING_COMMERCIAL_USE: gate, MATTING_NODE_PORT: String(port) };
      const { code, stderr, lines } = await startNode(env).exited;
      server.close();
      assert.equal(code, 78);
      assert.match(stderr, /^inference node: the configuration is not valid:\n/);
      assert.match(stderr, new RegExp(`${gate} refuses isnet \\(subject and second look\\)`));
      assert.doesNotMatch(stderr, /in use|models fetch|\.ts:\d/);
      assert.equal(
        lines.find(({ msg }) => msg === 'listening'),
        undefined,
      );
      assert.deepEqual(await readdir(directory), []);
    });
  }

  it('says in one line that the weights are not there', async () => {
    const { code, stderr } = await startNode({ MATTING_EXECUTION_PROVIDER: 'cpu' }).exited;
    assert.equal(code, 1);
    assert.match(stderr, /^inference node: the weights of isnet .*models fetch isnet.*\n$/);
  });
});

describe('the program that starts', () => {
  it('says in its log and at /info what runs, and under what terms', async () => {
    const { until } = startNode({}, { fakeRooms: true });
    const { httpPort } = await until('listening');
    const { terms } = await until('serving');
    const said = 'tiny weights yes, training data yes (models/README.md)';
    assert.equal(terms, `plan tiny, commercial use: ${said}`);
    const info = await fetch(`http://127.0.0.1:${httpPort}/info`);
    const { models, commercialUseRequired } = (await info.json()) as {
      models: { licence: object }[];
      commercialUseRequired: string;
    };
    assert.equal(commercialUseRequired, '');
    assert.deepEqual(models[0]?.licence, {
      spdx: TINY_LICENCE.spdx,
      weights: TINY_LICENCE.weights,
      trainingData: TINY_LICENCE.trainingData,
    });
  });

  const starting = () => startNode({ FAKE_HOLD: 'start' }, { fakeRooms: true });

  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    it(`ends with 0 on ${signal}`, async () => {
      const { child, until, exited } = starting();
      await until('listening');
      child.kill(signal);
      const { code, stderr } = await exited;
      assert.equal(stderr, '');
      assert.equal(code, 0);
    });
  }

  it('answers probes before it serves, and serves then', async () => {
    const { child, until, exited } = starting();
    const { httpPort } = await until('listening');
    const probe = async (at: string) => (await fetch(`http://127.0.0.1:${httpPort}${at}`)).status;
    assert.deepEqual([await probe('/livez'), await probe('/readyz')], [200, 503]);
    child.send({ start: true });
    await until('serving');
    assert.equal(await probe('/readyz'), 200);
    child.kill('SIGTERM');
    assert.equal((await exited).code, 0);
  });
});

describe('the program that serves', () => {
  it('finishes what is in, refuses the rest, and ends with 0', async () => {
    const program = startNode({ FAKE_HOLD: 'infer' }, { fakeRooms: true });
    const first = await program.caller();
    const second = await program.caller();
    await first.sendFile('12345');
    program.child.kill('SIGTERM');
    // Terminals and npm send a signal twice.
    program.child.kill('SIGTERM');
    await program.until('draining');
    await second.send(header()).refused({ code: 'NODE_UNAVAILABLE' });
    program.child.send({ letGo: 'infer' });
    assert.equal(await first.ended, undefined);
    assert.ok(first.messages.some(({ message }) => message?.$case === 'done'));
    const { code, stderr, lines } = await program.exited;
    assert.equal(stderr, '');
    assert.equal(code, 0);
    assert.ok(!lines.some(({ meaning }) => meaning === 'hurry'));
    assert.equal(lines.at(-1)?.msg, 'drained');
  });

  it("refines and recolours by the operator's variables, where a caller leaves it open", async () => {
    const variables = ['MATTING_REFINEMENT', 'MATTING_FOREGROUND_ESTIMATION'];
    const told: (readonly boolean[])[] = [];
    for (const variable of variables) {
      const program = startNode({ [variable]: 'false' }, { fakeRooms: true });
      const on = { refinement: Switch.SWITCH_ON, foregroundEstimation: Switch.SWITCH_ON };
      for (const fields of [{}, on]) {
        const caller = await program.caller();
        assert.equal(await (await caller.sendFile('12345', fields)).ended, undefined);
      }
      program.child.send({ tellFinished: true });
      const [{ finished }] = (await once(program.child, 'message')) as [Told];
      told.push(...finished.map(choice => [choice.refinement, choice.foregroundEstimation]));
      program.child.kill('SIGTERM');
      assert.equal((await program.exited).code, 0);
    }
    assert.deepEqual(told, [
      [false, true],
      [true, true],
      [true, false],
      [true, true],
    ]);
  });

  it('hurries at a second signal', async () => {
    const program = startNode({ FAKE_HOLD: 'infer' }, { fakeRooms: true });
    const caller = await program.caller();
    await caller.sendFile('12345');
    program.child.kill('SIGINT');
    await program.until('draining');
    // One second apart they are two.
    await new Promise(resolve => setTimeout(resolve, 1050));
    program.child.kill('SIGINT');
    await caller.refused({ code: 'NODE_UNAVAILABLE' });
    assert.equal((await program.exited).code, 0);
  });

  it('hurries when its parent is gone', async () => {
    const program = startNode({ FAKE_HOLD: 'infer' }, { fakeRooms: true, heldChannel: true });
    const caller = await program.caller();
    await caller.sendFile('12345');
    closeChannel(program.child);
    await caller.refused({ code: 'NODE_UNAVAILABLE' });
    const { code, lines } = await program.exited;
    assert.equal(code, 0);
    assert.ok(lines.some(({ msg }) => msg === 'the parent is gone'));
  });

  it('ends with 1 when its engines keep dying', async () => {
    const program = startNode({}, { fakeRooms: true });
    await program.until('serving');
    program.child.send({ failEngines: true });
    const { code, stderr } = await program.exited;
    assert.equal(code, 1);
    assert.equal(stderr, 'inference node: the engines keep dying\n');
  });
});
