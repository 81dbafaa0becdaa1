/** By docs/operate.md and docs/security.md, while callers are served. */
import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import ava from 'ava';
import { type LoopbackSource, openSource } from '../../control-plane/http/test/loopback-source.ts';
import type { Env } from '../support/program.ts';
import { isNotTested } from '../support/skip.ts';
import { Installation, NODE_TOKEN, pictureBase64, SECRETS_KEY, SKIP } from './installation.ts';

const test = ava.serial.skipIf(isNotTested(SKIP));

const NEXT_TOKEN = 'the-next-node-token-of-the-runbook';
const NEXT_KEY = 'cd'.repeat(32);
/** The token after the first test. */
const TOKEN = { MATTING_NODE_TOKEN: NEXT_TOKEN };
/** Keeps submissions below the rate limit. */
const PAUSE_MS = 100;

const service = new Installation();
let receiver: LoopbackSource;
const told: string[] = [];
ava.serial.before(async () => {
  receiver = await openSource((request, response) => {
    told.push(String(request.headers['webhook-id']));
    request.resume();
    response.writeHead(204).end();
  });
});
service.use(test, {
  planes: 2,
  nodes: 2,
  env: { MATTING_ALLOW_HTTP_CALLBACKS: 'true', MATTING_ALLOW_PRIVATE_ADDRESSES: 'true' },
});
ava.serial.after.always(() => receiver?.[Symbol.asyncDispose]());

async function restartAll(variables: Env, programs = [...service.planes, ...service.nodes]) {
  for (const program of programs) {
    assert.equal(await program.stop(), 0, program.logTail());
    program.start(variables);
    await service.ready();
  }
}

async function underLoad(work: () => Promise<void>): Promise<number> {
  const image_base64 = await pictureBase64();
  const jobIds: string[] = [];
  let isOver = false;
  const caller = async () => {
    for (let turn = 0; !isOver; turn += 1) {
      // One control plane may be restarting.
      const sent = await service.post({ image_base64 }, { plane: turn % 2 }).catch(() => null);
      if (sent?.status === 202) jobIds.push(sent.job.job_id);
      await delay(PAUSE_MS);
    }
  };
  const calling = caller();
  await work().finally(() => {
    isOver = true;
  });
  await calling;
  for (const id of jobIds) assert.equal((await service.final(id)).status, 'succeeded', id);
  return jobIds.length;
}

async function attemptsThatFailed(): Promise<number> {
  const failed = 'sum(matting_control_attempts_total{outcome=~"lost|node-fault"})';
  const [sample] = await service.prometheus.query(failed);
  return Number(sample?.value[1] ?? 0);
}

test('the node token', async t => {
  const file = path.join(service.directory, 'node-token');
  const [node] = service.nodes;
  assert.ok(node);
  await writeFile(file, NODE_TOKEN);
  const inFile = { MATTING_NODE_TOKEN: '', MATTING_NODE_TOKEN_FILE: file };
  await restartAll(inFile);
  const programs = [...service.planes, ...service.nodes];
  const pids = programs.map(({ pid }) => pid);
  const steps = [[NODE_TOKEN, NEXT_TOKEN], [NEXT_TOKEN, NODE_TOKEN], [NEXT_TOKEN]];
  const changesOf = ({ lines }: (typeof programs)[number]) =>
    lines.flatMap(({ msg, nodeTokens }) => (msg === 'token files changed' ? [nodeTokens] : []));
  const jobs = await underLoad(async () => {
    for (const [index, tokens] of steps.entries()) {
      await writeFile(file, tokens.join('\n'));
      const isTold = () => programs.every(program => changesOf(program).length > index);
      await service.until('every program has read it', isTold);
    }
  });
  for (const program of programs) t.deepEqual(changesOf(program), [2, 2, 1]);
  t.true(jobs > 0);
  t.is(await attemptsThatFailed(), 0);
  t.deepEqual(
    programs.map(({ pid }) => pid),
    pids,
  );
  // The old token opens nothing.
  await node.restart();
  const refused = await service.planes[0]?.line('a node was refused');
  t.is(refused?.cause, 'token');
  await node.restart(inFile);
  await service.ready();
});

test('the secrets key', async t => {
  const callback_url = `${receiver.url}/`;
  const callback_secret = 'a secret of twenty-four characters';
  for (const node of service.nodes) await node.stop();
  const image_base64 = await pictureBase64();
  const jobId = await service.submit({ image_base64, callback_url, callback_secret });
  const both = {
    ...TOKEN,
    MATTING_SECRETS_KEY: NEXT_KEY,
    MATTING_SECRETS_KEY_PREVIOUS: SECRETS_KEY,
  };
  for (const plane of service.planes) {
    t.is(await plane.stop(), 0, plane.logTail());
    plane.start(both);
    await plane.line('listening');
  }
  for (const node of service.nodes) node.start(TOKEN);
  await service.ready();
  t.is((await service.final(jobId)).status, 'succeeded');
  await service.until('it is told of', () => told.some(id => id.includes(jobId)));
  const [plane] = service.planes;
  await plane?.restart(TOKEN);
  t.not(await plane?.exited, 0);
  t.regex(plane?.complaint ?? '', /MATTING_SECRETS_KEY/);
  plane?.start({ ...TOKEN, MATTING_SECRETS_KEY: NEXT_KEY });
  await service.ready();
});

test("the database user's password", async t => {
  const url = await service.database.addUser('matting_2');
  const jobs = await underLoad(() =>
    restartAll({ ...TOKEN, MATTING_DATABASE_URL: url, MATTING_SECRETS_KEY: NEXT_KEY }, [
      ...service.planes,
    ]),
  );
  t.true(jobs > 0);
  await service.database.ask("drop user 'matting'@'localhost'");
  await service.cutOut();
});
