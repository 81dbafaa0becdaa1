import type { ChildProcess } from 'node:child_process';
import { mkdtemp, readdir } from 'node:fs/promises';
import { createServer, type Server } from 'node:net';
import path from 'node:path';
import { type NodeProgram, startProgram } from '@matting/serving/test/node-program.ts';
import { header } from '@matting/serving/test/test-node.ts';
import { closeChannel } from '@matting/test-support/ipc-channel.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import { TINY_LICENCE } from '@matting/test-support/tiny-model.ts';
import ava from 'ava';

const test = ava.serial;

const home = await temporaryFolder({ teardown: test.after.always });
let directory: string;
let running: ChildProcess | undefined;

test.beforeEach(async () => {
  directory = await mkdtemp(path.join(home, 'test-'));
});

test.afterEach.always(async () => {
  running?.kill('SIGKILL');
  running = undefined;
});

function startNode(
  env: Record<string, string>,
  { fakeModules, heldChannel }: { fakeModules?: boolean; heldChannel?: boolean } = {},
): NodeProgram {
  // A node that gets this far has no weights.
  const given = { MATTING_MODEL_DIR: directory, ...env };
  const hook = fakeModules ? 'fake-modules-hook.ts' : undefined;
  const program = startProgram(given, { hook, heldChannel });
  running = program.child;
  return program;
}

async function listenSomewhere(): Promise<{ server: Server; port: number }> {
  const server = createServer();
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  return { server, port: (server.address() as { port: number }).port };
}

test('the program that cannot start › names every bad variable and exits with 78', async t => {
  const { exited } = startNode({ MATTING_ENGINES: 'a few', MATTING_NODE_TOKEN: 'too short' });
  const { code, stderr, lines } = await exited;
  t.is(code, 78);
  t.regex(stderr, /MATTING_ENGINES must be/);
  t.regex(stderr, /MATTING_NODE_TOKEN must be/);
  t.notRegex(stderr, /a few|too short|\.ts:\d/);
  t.deepEqual(lines, []);
});

for (const variable of ['MATTING_NODE_PORT', 'MATTING_NODE_HTTP_PORT']) {
  test(`the program that cannot start › says in one line that ${variable} is in use`, async t => {
    const { server, port } = await listenSomewhere();
    const { code, stderr } = await startNode({ [variable]: String(port) }).exited;
    server.close();
    t.is(code, 1);
    const line = `^inference node: port ${port} of 127\\.0\\.0\\.1 is in use: .*${variable}.*\n$`;
    t.regex(stderr, new RegExp(line));
  });
}

test('the program that cannot start › refuses a plan that MATTING_COMMERCIAL_USE=strict does not admit, before all else', async t => {
  const { server, port } = await listenSomewhere();
  // Neither the port in use nor the missing weights are found.
  const env = { MATTING_COMMERCIAL_USE: 'strict', MATTING_NODE_PORT: String(port) };
  const { code, stderr, lines } = await startNode(env).exited;
  server.close();
  t.is(code, 78);
  t.regex(stderr, /^inference node: the configuration is not valid:\n/);
  t.regex(stderr, /strict refuses isnet \(subject and second look\)/);
  t.notRegex(stderr, /in use|models fetch|\.ts:\d/);
  t.is(
    lines.find(({ msg }) => msg === 'listening'),
    undefined,
  );
  t.deepEqual(await readdir(directory), []);
});

test('the program that starts › says in its log and at /info what runs, and under what terms', async t => {
  const { until } = startNode({}, { fakeModules: true });
  const { httpPort } = await until('listening');
  const { terms } = await until('serving');
  const expected = 'tiny weights yes, training data yes (models/README.md)';
  t.is(terms, `plan tiny, commercial use: ${expected}`);
  const info = await fetch(`http://127.0.0.1:${httpPort}/info`);
  const { models, commercialUseRequired } = (await info.json()) as {
    models: { licence: object }[];
    commercialUseRequired: string;
  };
  t.is(commercialUseRequired, '');
  t.deepEqual(models[0]?.licence, {
    spdx: TINY_LICENCE.spdx,
    weights: TINY_LICENCE.weights,
    trainingData: TINY_LICENCE.trainingData,
  });
});

const starting = () => startNode({ FAKE_HOLD: 'start' }, { fakeModules: true });

test('the program that starts › ends with 0 on SIGTERM', async t => {
  const { child, until, exited } = starting();
  await until('listening');
  child.kill('SIGTERM');
  const { code, stderr } = await exited;
  t.is(stderr, '');
  t.is(code, 0);
});

test('the program that starts › answers probes before it serves, and serves then', async t => {
  const { child, until, exited } = starting();
  const { httpPort } = await until('listening');
  const probe = async (at: string) => (await fetch(`http://127.0.0.1:${httpPort}${at}`)).status;
  t.deepEqual([await probe('/livez'), await probe('/readyz')], [200, 503]);
  child.send({ start: true });
  await until('serving');
  t.is(await probe('/readyz'), 200);
  child.kill('SIGTERM');
  t.is((await exited).code, 0);
});

test('the program that serves › finishes what is in, refuses the rest, and ends with 0', async t => {
  const program = startNode({ FAKE_HOLD: 'infer' }, { fakeModules: true });
  const first = await program.caller();
  const second = await program.caller();
  await first.sendFile('12345');
  program.child.kill('SIGTERM');
  // Terminals and npm send a signal twice.
  program.child.kill('SIGTERM');
  await program.until('draining');
  await second.send(header()).refused({ code: 'NODE_UNAVAILABLE' });
  program.child.send({ letGo: 'infer' });
  t.is(await first.ended, undefined);
  t.true(first.messages.some(({ message }) => message?.$case === 'done'));
  const { code, stderr, lines } = await program.exited;
  t.is(stderr, '');
  t.is(code, 0);
  t.false(lines.some(({ meaning }) => meaning === 'hurry'));
  t.is(lines.at(-1)?.msg, 'drained');
});

test('the program that serves › hurries at a second signal', async t => {
  const program = startNode({ FAKE_HOLD: 'infer' }, { fakeModules: true });
  const caller = await program.caller();
  await caller.sendFile('12345');
  program.child.kill('SIGINT');
  await program.until('draining');
  await new Promise(resolve => setTimeout(resolve, 1050));
  program.child.kill('SIGINT');
  await caller.refused({ code: 'NODE_UNAVAILABLE' });
  t.is((await program.exited).code, 0);
});

test('the program that serves › hurries when its parent is gone', async t => {
  const program = startNode({ FAKE_HOLD: 'infer' }, { fakeModules: true, heldChannel: true });
  const caller = await program.caller();
  await caller.sendFile('12345');
  closeChannel(program.child);
  await caller.refused({ code: 'NODE_UNAVAILABLE' });
  const { code, lines } = await program.exited;
  t.is(code, 0);
  t.true(lines.some(({ msg }) => msg === 'the parent is gone'));
});

test('the program that serves › ends with 1 when its engines keep dying', async t => {
  const program = startNode({}, { fakeModules: true });
  await program.until('serving');
  program.child.send({ failEngines: true });
  const { code, stderr } = await program.exited;
  t.is(code, 1);
  t.is(stderr, 'inference node: the engines keep dying\n');
});
