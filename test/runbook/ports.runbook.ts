/** Pages about floods: connections to the public port and to those of the inside, slow readers. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import ava from 'ava';
import sharp from 'sharp';
import { PIPELINED_MAX } from '../../program/ports/http-guard.ts';
import { MatteServiceService } from '../../proto/gen/matting/v1/matte_service.ts';
import { ROOT } from '../running-service.ts';
import { at } from '../support/at.ts';
import { descendantsOf } from '../support/processes.ts';
import { framed, RawConnection } from '../support/raw-grpc.ts';
import { BATCH, Flood, STRANGER } from './flood.ts';
import { Installation } from './installation.ts';
import { type Procedure, proceduresOn } from './procedures.ts';
import { runbookPages } from './runbook-page.ts';

const test = ava.serial;

const LIVEZ = 'GET /livez HTTP/1.1\r\nHost: x\r\n\r\n';
const DIRECT_TOKEN = 'token-of-a-direct-caller';
/** What the system takes of a file that nobody reads is less than these pixels of noise. */
const [WIDTH, HEIGHT] = [2000, 1200];
const FEW_CONNECTIONS = path.join(ROOT, 'control-plane/core/test/support/few-connections-hook.ts');
/** Of the port that is to be full. */
const CONNECTIONS_MAX = 100;
/** One is read before the next one comes, or it would count as idle. */
const PAUSE_MS = 10;
/** Other pages lead to this one for the command that names who holds connections. */
const FIND = at(runbookPages().get('MattingConnectionsMany')?.commands ?? [], 0);

/** The last line, of who holds most. */
function requireStranger(out: string): void {
  const [, count = '', address] = /(\d+) (\S+)\s*$/.exec(out) ?? [];
  assert.equal(address, STRANGER, out);
  assert.ok(Number(count) > 50, out);
}

const service = new Installation();
const procedure = proceduresOn(service, test);
const flood = new Flood();
const httpPort = () => Number(new URL(at(service.planes, 0).baseUrl).port);

async function requireFound(port: number): Promise<void> {
  const { out } = await service.run(FIND.replace('<port>', String(port)));
  requireStranger(out);
}

service.use(test, {
  nodeEnv: { MATTING_NODE_CALLER_TOKENS: `direct:${DIRECT_TOKEN}` },
});
test.afterEach.always(() => flood.end());

procedure('MattingConnectionsMany', async page => {
  await page.fires(() => flood.open(httpPort(), 8200 - flood.size));
  requireStranger((await page.run(FIND, { port: String(httpPort()) })).out);
  await service.cutOut();
  flood.end();
  await page.isOver();
});

procedure('MattingConnectionsEnded', async (page, t) => {
  const tooMany = LIVEZ.repeat(2 * PIPELINED_MAX);
  const pipelined = await page.fires(() => flood.open(httpPort(), BATCH, tooMany));
  t.deepEqual([...new Set(pipelined.map(({ cause }) => cause))], ['pipelined']);
  await page.isOver();
  // Idle ones: from 9,000 on each newcomer ends another.
  const crowded = await page.fires(() =>
    flood.open(httpPort(), Math.max(0, 9000 - flood.size) + BATCH),
  );
  t.deepEqual([...new Set(crowded.map(({ cause }) => cause))], ['crowded']);
  await requireFound(httpPort());
  await service.cutOut();
  flood.end();
  await page.isOver();
});

procedure('MattingNodePortFlooded', async (page, t) => {
  const { grpcPort } = at(service.nodes, 0);
  const crowded = await page.fires(() => flood.open(grpcPort, 700 - flood.size));
  t.deepEqual(
    crowded.map(({ cause }) => cause),
    ['crowded'],
  );
  await requireFound(grpcPort);
  await service.cutOut();
  flood.end();
  await page.isOver();
  await requireOverLimit(page, grpcPort);
});

/** A known caller that opens a channel for each call. */
async function requireOverLimit(page: Procedure, port: number): Promise<void> {
  const channels: RawConnection[] = [];
  const call = async () => {
    const channel = await RawConnection.open(`http://127.0.0.1:${port}`);
    channels.push(channel);
    const { stream, ended } = channel.call(MatteServiceService.getNodeInfo.path, DIRECT_TOKEN);
    stream.end(framed(Buffer.alloc(0)));
    return await ended;
  };
  const [firing] = await page.fires(async () => {
    for (let count = 0; count < 50; count += 1) await call();
  });
  assert.equal(firing?.cause, 'over_limit');
  assert.equal((await call()).code, 'CALLER_OVER_LIMIT');
  for (const channel of channels) channel.close();
  await page.isOver();
  assert.equal((await call()).status, 0);
  for (const channel of channels) channel.close();
}

procedure('MattingRegistryFlooded', async (page, t) => {
  const { registryPort } = at(service.planes, 0);
  const [firing] = await page.fires(() => flood.open(registryPort, 700 - flood.size));
  t.is(firing?.cause, 'crowded');
  await requireFound(registryPort);
  await service.cutOut();
  flood.end();
  await page.isOver();
  await service.ready();
});

procedure('MattingResultReadersMany', async (page, t) => {
  const noise = { width: WIDTH, height: HEIGHT, channels: 3 } as const;
  const picture = sharp(randomBytes(3 * WIDTH * HEIGHT), { raw: noise }).png();
  const image_base64 = (await picture.toBuffer()).toString('base64');
  const paths: string[] = [];
  // A share is 256: four accounts, of which each leaves places to the next, are not enough.
  for (const [account, jobs] of [16, 16, 16, 8, 4].entries()) {
    const key = await openAccount(`reader-${account}`);
    const cut = async () => {
      const { job } = await service.post({ image_base64 }, { key });
      const { result } = await service.final(job.job_id, key);
      paths.push(new URL(result?.url ?? '').pathname);
    };
    await Promise.all(Array.from({ length: jobs }, cut));
  }
  for (const link of paths) {
    const request = `GET ${link} HTTP/1.1\r\nHost: x\r\n\r\n`;
    await flood.open(httpPort(), 16, request);
  }
  await page.fires();
  flood.end();
  await page.isOver();
  const { accountId } = await at(service.planes, 0).line('answered', {
    route: '/v1/results/:token',
  });
  const { out } = await service.matting('accounts list');
  t.true(out.includes(String(accountId)), out);
});

/** With credits; its key. */
async function openAccount(name: string): Promise<string> {
  await service.matting(`accounts create ${name}`);
  await service.matting(`credits grant ${name} 1000`);
  return await service.createKey(name, 'reads');
}

/** The database answers nobody, as one behind a disk that hangs. */
async function whileDatabaseHangs(work: () => Promise<void>): Promise<void> {
  const { socket } = service.database.server;
  const servers = descendantsOf(process.pid).filter(({ command }) => command.includes(socket));
  assert.ok(servers.length > 0);
  for (const { pid } of servers) process.kill(pid, 'SIGSTOP');
  try {
    await work();
  } finally {
    for (const { pid } of servers) process.kill(pid, 'SIGCONT');
  }
}

procedure('MattingConnectionsDropped', async (page, t) => {
  await service.reopen({
    planeImports: [FEW_CONNECTIONS],
    env: { TEST_CONNECTIONS_MAX: String(CONNECTIONS_MAX) },
  });
  // Idle ones would make room: each of these asks for a link, which waits for the database.
  await whileDatabaseHangs(async () => {
    for (let asked = 0; asked < 2 * CONNECTIONS_MAX; asked += 1) {
      const link = `/v1/results/${randomBytes(32).toString('base64url')}`;
      await flood.connect(httpPort(), `GET ${link} HTTP/1.1\r\nHost: x\r\n\r\n`);
      await delay(PAUSE_MS);
    }
    await requireFound(httpPort());
    const [waiting = ''] = page.codeOf(/^matting_control_database_waiting$/);
    const metrics = await fetch(`${at(service.planes, 0).metricsUrl}/metrics`);
    t.regex(await metrics.text(), new RegExp(`^${waiting} [1-9]\\d$`, 'm'));
  });
  await page.fires();
  flood.end();
  await page.isOver();
  await service.cutOut();
});
