import assert from 'node:assert/strict';
import { randomBytes, randomInt, randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import ava from 'ava';
import type { Stores } from '../../control-plane/core/stores.ts';
import { type Answer, Receiver, reset, taken } from '../../control-plane/core/test/receiver.ts';
import { pictureBody, submitTo } from '../../control-plane/core/test/support/replicas.ts';
import { openDatabase } from '../../control-plane/database/connect.ts';
import { ScriptedNode, TEST_TOKEN } from '../../control-plane/nodes/test/scripted-node.ts';
import { openCaller, storesOn } from '../../control-plane/test/fixtures.ts';
import { findFreePorts } from '../../program/ports/free-ports.ts';
import { THIS_VERSION } from '../fleet/installed-version.ts';
import { FleetControlPlane } from '../fleet/program.ts';
import { at } from '../support/at.ts';
import { SILENT_LOG } from '../support/database.ts';
import { until } from '../support/processes.ts';

const test = ava.serial;

/** Five more attempts than the contract: a storm's seconds stand for hours. */
const SCHEDULE_MS = [0, 100, 300, 500, 1000, 1000, 2000, 2000, 3000, 3000, 4000, 4000];
const FLAPS_MAX = SCHEDULE_MS.length / 2;
const KILLS = Number(process.env.MATTING_CHAOS_KILLS ?? 3);
const EVENTS = Math.max(100, 50 * KILLS);
/** Promised to a receiver that answers, whatever others do. */
const HEALTHY_MEDIAN_MS_MAX = 1000;
const MEDIAN_EVENTS_MIN = 1000;
const SUBMITTERS = 8;
const REPLICAS = 2;
/** Share of all events; each attempt at such a receiver takes 15 s. */
const STUCK_SHARE = 0.03;
/** In sequence: job leases of 15 s, outbox leases of 20 s, stuck attempts of 15 s. */
const SETTLE_MS_MAX = 240_000;
/** A process killed this soon after a 2xx may not have stored it. */
const UNWRITTEN_MS_MAX = 2_000;

type Kind = 'healthy' | 'hostile' | 'gone' | 'flapping' | 'stuck';

/** In this order before it accepts one. */
const TANTRUMS: readonly ((elsewhere: string) => Answer)[] = [
  () => (_delivery, response) => void response.writeHead(500).end('no'),
  () => (_delivery, response) => reset(response),
  () => (_delivery, response) => void response.writeHead(503, { 'retry-after': '1' }).end(),
  elsewhere => (_delivery, response) =>
    void response.writeHead(302, { location: elsewhere }).end('over there'),
  () => (_delivery, response) => void response.writeHead(500).end(Buffer.alloc(5_000_000)),
  () => (_delivery, response) => void response.socket?.end('garbage\r\n\r\n'),
];

interface Parties {
  readonly receivers: Record<Kind, Receiver>;
  readonly secrets: Record<Kind, string>;
  readonly replicas: readonly FleetControlPlane[];
  readonly stores: Stores;
  readonly token: string;
}

class Storm {
  readonly kinds = new Map<string, Kind>();
  readonly killedAtMs: number[] = [];
  readonly #parties: Parties;
  #submitted = 0;

  constructor(parties: Parties) {
    this.#parties = parties;
  }

  async run(): Promise<void> {
    const submitters = Array.from({ length: SUBMITTERS }, () => this.#submitAll());
    await Promise.all([...submitters, this.#killAll()]);
    const giveUpAtMs = Date.now() + SETTLE_MS_MAX;
    const isSettled = async () =>
      (await this.rows()).filter(({ status }) => status !== 'pending').length === EVENTS;
    while (Date.now() < giveUpAtMs && !(await isSettled())) await delay(100);
    await delay(500);
  }

  rows() {
    return this.#parties.stores.outbox.list({ limit: EVENTS * 2 });
  }

  async #submitAll(): Promise<void> {
    while (this.#submitted < EVENTS) {
      this.#submitted += 1;
      await this.#submit(kindOf(this.#submitted));
    }
  }

  /** Keeps its key until it is answered, whichever process dies. */
  async #submit(kind: Kind): Promise<void> {
    const { receivers, secrets, replicas, token } = this.#parties;
    const key = randomUUID();
    const body = pictureBody({
      callback_url: receivers[kind].url(),
      callback_secret: secrets[kind],
    });
    for (;;) {
      const replica = at(replicas, randomInt(replicas.length));
      const answer = await submitTo(replica.url, token, body, { key }).catch(() => undefined);
      const told = await answer?.text().catch(() => undefined);
      if (answer !== undefined && told !== undefined && answer.ok) {
        this.kinds.set(JSON.parse(told).job_id, kind);
        return;
      }
      const retryable = answer === undefined || told === undefined || answer.status >= 500;
      assert.ok(retryable, `${answer?.status} ${told}`);
      await delay(50);
    }
  }

  /** One at a time, so that some process always answers. */
  async #killAll(): Promise<void> {
    const { replicas } = this.#parties;
    for (let kill = 0; kill < KILLS; kill += 1) {
      const dueAt = ((kill + 0.5) * EVENTS) / KILLS;
      while (this.#submitted < Math.min(dueAt, EVENTS)) await delay(5);
      await delay(randomInt(100));
      this.killedAtMs.push(Date.now());
      await at(replicas, kill % replicas.length).die();
    }
  }
}

/** Half healthy, a few stuck, the rest misbehaving. */
function kindOf(number: number): Kind {
  if (number % 2 === 0) return 'healthy';
  if (number % Math.round(2 / STUCK_SHARE) === 1) return 'stuck';
  const turn = ((number - 1) / 2) % 4;
  if (turn < 2) return 'hostile';
  return turn === 2 ? 'flapping' : 'gone';
}

function isTaken(status: number): boolean {
  return status >= 200 && status < 300;
}

function hostile(receiver: () => Receiver, elsewhere: string): Answer {
  return (delivery, response) => {
    const turn = receiver().of(delivery.jobId).length - 1;
    const nature = Number.parseInt(delivery.jobId.slice(0, 4), 16);
    const tantrum = at(TANTRUMS, (nature + turn) % TANTRUMS.length);
    return turn < 1 + (nature % 3)
      ? tantrum(elsewhere)(delivery, response)
      : taken(delivery, response);
  };
}

/** Down half of every second, but rarely enough that no job runs out of attempts by chance. */
function flapping(receiver: () => Receiver): Answer {
  return (delivery, response) => {
    const isPatient = receiver().of(delivery.jobId).length > FLAPS_MAX;
    return delivery.atMs % 1000 < 500 && !isPatient ? reset(response) : taken(delivery, response);
  };
}

function stuck(receiver: () => Receiver): Answer {
  return (delivery, response) => {
    const { jobId } = delivery;
    if (receiver().of(jobId).length > 1) return taken(delivery, response);
    if (Number.parseInt(jobId.slice(0, 1), 16) % 2 === 0) return undefined;
    response.socket?.write('HTTP/1.1 200 OK\r\n');
    const drip = setInterval(() => response.socket?.write('x: y\r\n'), 500);
    response.socket?.once('close', () => clearInterval(drip));
  };
}

async function openParties(
  closing: AsyncDisposableStack,
): Promise<Parties & { elsewhere: Receiver }> {
  const directory = await mkdtemp(path.join(tmpdir(), 'matting-storm-'));
  closing.defer(() => rm(directory, { recursive: true, force: true }));
  const raw = () => randomBytes(20).toString('hex');
  const whsec = () => `whsec_${randomBytes(32).toString('base64')}`;
  const secrets = {
    healthy: whsec(),
    hostile: raw(),
    gone: whsec(),
    flapping: raw(),
    stuck: whsec(),
  };
  const elsewhere = closing.use(await Receiver.open(whsec()));
  const receivers = {} as Record<Kind, Receiver>;
  const answers: Record<Kind, Answer> = {
    healthy: taken,
    hostile: hostile(() => receivers.hostile, elsewhere.url()),
    gone: (_delivery, response) => void response.writeHead(410).end(),
    flapping: flapping(() => receivers.flapping),
    stuck: stuck(() => receivers.stuck),
  };
  for (const kind of Object.keys(answers) as Kind[]) {
    receivers[kind] = closing.use(await Receiver.open(secrets[kind], answers[kind]));
  }
  const databaseUrl = `sqlite:${path.join(directory, 'matting.sqlite')}`;
  const token = await openCaller(databaseUrl, EVENTS);
  const env = {
    MATTING_DATA_DIR: directory,
    MATTING_SECRETS_KEY: 'ab'.repeat(32),
    MATTING_BASE_URL: 'http://links.example',
    MATTING_NODE_TOKEN: TEST_TOKEN,
    MATTING_ALLOW_HTTP_CALLBACKS: 'true',
    MATTING_ALLOWED_NETWORKS: '127.0.0.0/8',
    MATTING_WEBHOOK_SCHEDULE_MS: SCHEDULE_MS.join(','),
    MATTING_SUBMISSIONS_PER_MINUTE: '1000000',
    MATTING_JOBS_IN_FLIGHT_MAX: '1000000',
  };
  const node = await ScriptedNode.start({ imagesMax: 8 });
  closing.defer(() => node.down());
  const replicas: FleetControlPlane[] = [];
  for (let count = 0; count < REPLICAS; count += 1) {
    const [http = 0, registry = 0, metrics = 0] = await findFreePorts(3);
    const place = { ports: { http, registry, metrics }, nodes: 1 };
    const options = { name: `replica-${count}`, env, directory };
    const replica = new FleetControlPlane(THIS_VERSION, options, place);
    replica.start();
    closing.defer(() => replica.kill());
    replicas.push(replica);
  }
  for (const { url, ports } of replicas) {
    const listens = () =>
      fetch(`${url}/livez`).then(
        ({ ok }) => ok,
        () => false,
      );
    await until(listens, { timeoutMs: SETTLE_MS_MAX, what: 'a control plane listens' });
    await node.join(ports.registry);
  }
  for (const replica of replicas) await replica.untilReady();
  const database = await openDatabase(databaseUrl, { log: SILENT_LOG });
  closing.defer(() => database.close());
  const stores = storesOn(database);
  return { receivers, secrets, replicas, stores, token, elsewhere };
}

test('notifications survive kills, and receivers that do everything wrong', async t => {
  await using closing = new AsyncDisposableStack();
  const { elsewhere, ...parties } = await openParties(closing);
  const { receivers, stores } = parties;
  const storm = new Storm(parties);
  await storm.run();
  const rows = new Map((await storm.rows()).map(row => [row.jobId, row]));
  const wrong: string[] = [];
  let explainedRepeats = 0;
  const healthyDelaysMs: number[] = [];
  for (const [jobId, kind] of storm.kinds) {
    const mine = receivers[kind].of(jobId);
    const last = mine.find(({ status = 0 }) => isTaken(status) || status === 410);
    if (last === undefined) {
      wrong.push(`lost: ${kind} ${jobId}`);
      continue;
    }
    const row = rows.get(jobId);
    const expected = kind === 'gone' ? 'failed' : 'delivered';
    if (row?.status !== expected) wrong.push(`${row?.status}, not ${expected}: ${kind} ${jobId}`);
    // Repeats after the receiver accepted it, or refused it for good.
    for (const repeat of mine.slice(mine.indexOf(last) + 1)) {
      const isExplained = storm.killedAtMs.some(
        atMs => atMs <= repeat.atMs && Math.abs(atMs - last.atMs) < UNWRITTEN_MS_MAX,
      );
      if (isExplained) explainedRepeats += 1;
      else wrong.push(`repeated without a kill: ${kind} ${jobId}`);
    }
    if (kind === 'healthy') healthyDelaysMs.push(at(mine, 0).atMs - (row?.createdAtMs ?? 0));
  }
  const deliveries = Object.values(receivers).flatMap(receiver => receiver.deliveries);
  healthyDelaysMs.sort((a, b) => a - b);
  const medianMs = at(healthyDelaysMs, Math.floor(healthyDelaysMs.length / 2));
  t.log(`${EVENTS} events, ${KILLS} kills, ${deliveries.length} deliveries`);
  t.log(`${explainedRepeats} repeats that a kill explains`);
  t.log(`healthy receiver: median ${medianMs} ms, longest ${healthyDelaysMs.at(-1)} ms`);
  t.deepEqual(wrong, []);
  t.true(deliveries.every(({ signatureHolds }) => signatureHolds));
  t.is(elsewhere.deliveries.length, 0, 'a redirect was followed');
  t.deepEqual([storm.kinds.size, storm.killedAtMs.length], [EVENTS, KILLS]);
  t.deepEqual(await stores.ledger.check(), []);
  if (EVENTS >= MEDIAN_EVENTS_MIN) t.true(medianMs < HEALTHY_MEDIAN_MS_MAX);
});
