/**
 * Notifications to receivers that do everything wrong, while control planes are killed: what
 * arrived, and how often. Real processes, real sockets, a scripted node; the schedule is short.
 * `make chaos` asks for twenty kills, and for a thousand notifications so.
 */
import assert from 'node:assert/strict';
import { randomBytes, randomInt, randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import ava, { type ExecutionContext } from 'ava';
import { findFreePorts } from '../../bin/free-ports.ts';
import { openDatabase } from '../../control-plane/src/store/database/connect.ts';
import type { Stores } from '../../control-plane/src/store/stores.ts';
import { ScriptedNode, TEST_TOKEN } from '../../control-plane/test/nodes/scripted-node.ts';
import {
  type Answer,
  Receiver,
  reset,
  taken,
} from '../../control-plane/test/services/notification/receiver.ts';
import { openCaller, storesOn } from '../../control-plane/test/store/fixtures.ts';
import { pictureBody, submitTo } from '../../control-plane/test/support/replicas.ts';
import { at } from '../support/at.ts';
import { SILENT_LOG } from '../support/database.ts';
import { THIS_VERSION } from '../support/fleet/installed-version.ts';
import { FleetControlPlane } from '../support/fleet/program.ts';
import { until } from '../support/running-service.ts';

const test = ava.serial;

/** The contract's number of attempts and five more: a storm's seconds stand for hours. */
const SCHEDULE_MS = [0, 100, 300, 500, 1000, 1000, 2000, 2000, 3000, 3000, 4000, 4000];
const FLAPS_MAX = SCHEDULE_MS.length / 2;
const KILLS = Number(process.env.MATTING_CHAOS_KILLS ?? 3);
const OPTIONS = { events: Math.max(100, 50 * KILLS), kills: KILLS };
/** What the service promises of a receiver that answers, whatever the others do. */
const HEALTHY_MEDIAN_MS_MAX = 1000;
/** Fewer say nothing of a median. */
const MEDIAN_EVENTS_MIN = 1000;
const SUBMITTERS = 8;
const REPLICAS = 2;
/** Share of all events; an attempt at such a receiver lasts the whole 15 s. */
const STUCK_SHARE = 0.03;
/** Job leases of 15 s, outbox leases of 20 s, stuck attempts of 15 s, one after the other. */
const SETTLE_MS_MAX = 240_000;
/** A process that dies this long after a 2xx may not have written it down. */
const UNWRITTEN_MS_MAX = 2_000;

interface StormOptions {
  readonly events: number;
  readonly kills: number;
}

interface StormReport {
  readonly events: number;
  readonly kills: number;
  readonly deliveries: number;
  /** Jobs whose receiver took them never. */
  readonly lost: string[];
  readonly wrongSignatures: number;
  /** Deliveries after a receiver had taken it, or sent it away for good, that no kill explains. */
  readonly unexplainedRepeats: string[];
  readonly explainedRepeats: number;
  /** Final, but not as the receiver answered. */
  readonly wrongStatus: string[];
  readonly redirectsFollowed: number;
  /** From the job's end to its arrival at the receiver that always answers, in ms. */
  readonly healthyDelaysMs: readonly number[];
  readonly ledgerFaults: number;
}

type Kind = 'healthy' | 'hostile' | 'gone' | 'flapping' | 'stuck';

/** What a hostile receiver does before it takes one, by the number of times it was asked. */
const TANTRUMS: readonly ((elsewhere: string) => Answer)[] = [
  () => (_delivery, response) => void response.writeHead(500).end('no'),
  () => (_delivery, response) => reset(response),
  () => (_delivery, response) => void response.writeHead(503, { 'retry-after': '1' }).end(),
  elsewhere => (_delivery, response) =>
    void response.writeHead(302, { location: elsewhere }).end('over there'),
  () => (_delivery, response) => void response.writeHead(500).end(Buffer.alloc(5_000_000)),
  () => (_delivery, response) => void response.socket?.end('garbage\r\n\r\n'),
];

class Storm {
  readonly #options: StormOptions;
  readonly #kinds = new Map<string, Kind>();
  readonly #receivers: Record<Kind, Receiver>;
  readonly #elsewhere: Receiver;
  readonly #secrets: Record<Kind, string>;
  readonly #replicas: readonly FleetControlPlane[];
  readonly #stores: Stores;
  readonly #token: string;
  /** By this process's clock. */
  readonly #killedAtMs: number[] = [];
  #submitted = 0;

  constructor(parts: {
    options: StormOptions;
    receivers: Record<Kind, Receiver>;
    elsewhere: Receiver;
    secrets: Record<Kind, string>;
    replicas: readonly FleetControlPlane[];
    stores: Stores;
    token: string;
  }) {
    this.#options = parts.options;
    this.#receivers = parts.receivers;
    this.#elsewhere = parts.elsewhere;
    this.#secrets = parts.secrets;
    this.#replicas = parts.replicas;
    this.#stores = parts.stores;
    this.#token = parts.token;
  }

  async run(): Promise<void> {
    const submitters = Array.from({ length: SUBMITTERS }, () => this.#submitAll());
    await Promise.all([...submitters, this.#killAll()]);
    await this.#settled();
  }

  async #submitAll(): Promise<void> {
    while (this.#submitted < this.#options.events) {
      this.#submitted += 1;
      await this.#submit(this.#kindOf(this.#submitted));
    }
  }

  /** Every other to the healthy one; a few get stuck; the rest is for those who misbehave. */
  #kindOf(number: number): Kind {
    if (number % 2 === 0) return 'healthy';
    if (number % Math.round(2 / STUCK_SHARE) === 1) return 'stuck';
    const turn = ((number - 1) / 2) % 4;
    if (turn < 2) return 'hostile';
    return turn === 2 ? 'flapping' : 'gone';
  }

  /** The same key until it is answered: it is one job, whichever process dies meanwhile. */
  async #submit(kind: Kind): Promise<void> {
    const key = randomUUID();
    const body = pictureBody({
      callback_url: this.#receivers[kind].url(),
      callback_secret: this.#secrets[kind],
    });
    for (;;) {
      const replica = at(this.#replicas, randomInt(this.#replicas.length));
      const sent = submitTo(replica.url, this.#token, body, { key });
      const answer = await sent.catch(() => undefined);
      const told = await answer?.text().catch(() => undefined);
      if (answer !== undefined && told !== undefined && answer.ok) {
        this.#kinds.set(JSON.parse(told).job_id, kind);
        return;
      }
      const retryable = answer === undefined || told === undefined || answer.status >= 500;
      assert.ok(retryable, `${answer?.status} ${told}`);
      await delay(50);
    }
  }

  /** Spread over the submissions; one at a time, so that callers always find somebody. */
  async #killAll(): Promise<void> {
    const { events, kills } = this.#options;
    for (let kill = 0; kill < kills; kill += 1) {
      const dueAt = ((kill + 0.5) * events) / kills;
      while (this.#submitted < Math.min(dueAt, events)) await delay(5);
      await delay(randomInt(100));
      this.#killedAtMs.push(Date.now());
      await at(this.#replicas, kill % this.#replicas.length).die();
    }
  }

  async #settled(): Promise<void> {
    const giveUpAtMs = Date.now() + SETTLE_MS_MAX;
    while ((await this.#openJobs()) > 0) {
      if (Date.now() > giveUpAtMs) return;
      await delay(100);
    }
    // What is sent twice is sent soon.
    await delay(500);
  }

  /** Jobs whose notification is not at its end. */
  async #openJobs(): Promise<number> {
    const rows = await this.#stores.outbox.list({ limit: this.#options.events * 2 });
    const final = rows.filter(row => row.status !== 'pending').length;
    return this.#options.events - final;
  }

  async report(): Promise<StormReport> {
    const deliveries = Object.values(this.#receivers).flatMap(receiver => receiver.deliveries);
    const rows = await this.#stores.outbox.list({ limit: this.#options.events * 2 });
    const statuses = new Map(rows.map(row => [row.jobId, row.status]));
    const endedAtMs = new Map(rows.map(row => [row.jobId, row.createdAtMs]));
    const killedAtMs = this.#killedAtMs;
    const lost: string[] = [];
    const wrongStatus: string[] = [];
    const unexplainedRepeats: string[] = [];
    let explainedRepeats = 0;
    const healthyDelaysMs: number[] = [];
    for (const [jobId, kind] of this.#kinds) {
      const mine = this.#receivers[kind].of(jobId);
      const last = mine.find(({ status = 0 }) => isTaken(status) || status === 410);
      if (last === undefined) {
        lost.push(`${kind} ${jobId}`);
        continue;
      }
      const expected = kind === 'gone' ? 'failed' : 'delivered';
      if (statuses.get(jobId) !== expected) wrongStatus.push(`${kind} ${jobId}`);
      for (const repeat of mine.slice(mine.indexOf(last) + 1)) {
        const explained = killedAtMs.some(
          atMs => atMs <= repeat.atMs && Math.abs(atMs - last.atMs) < UNWRITTEN_MS_MAX,
        );
        if (explained) explainedRepeats += 1;
        else unexplainedRepeats.push(`${kind} ${jobId}`);
      }
      if (kind === 'healthy') healthyDelaysMs.push(at(mine, 0).atMs - endedAtMs.get(jobId)!);
    }
    return {
      events: this.#kinds.size,
      kills: killedAtMs.length,
      deliveries: deliveries.length,
      lost,
      wrongSignatures: deliveries.filter(delivery => !delivery.signatureHolds).length,
      unexplainedRepeats,
      explainedRepeats,
      wrongStatus,
      redirectsFollowed: this.#elsewhere.deliveries.length,
      healthyDelaysMs: healthyDelaysMs.sort((a, b) => a - b),
      ledgerFaults: (await this.#stores.ledger.check()).length,
    };
  }
}

function isTaken(status: number): boolean {
  return status >= 200 && status < 300;
}

/** The first times it is asked for a job it throws a tantrum, then it takes it. */
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

/** Half of every second it is not there, but not so often that a job's attempts run out by chance. */
function flapping(receiver: () => Receiver): Answer {
  return (delivery, response) => {
    const isPatient = receiver().of(delivery.jobId).length > FLAPS_MAX;
    return delivery.atMs % 1000 < 500 && !isPatient ? reset(response) : taken(delivery, response);
  };
}

/** It hangs, or drips its headers, the first time. */
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

/** Everything is ended and removed when it settles. */
async function runWebhookStorm(options: StormOptions): Promise<StormReport> {
  const directory = await mkdtemp(path.join(tmpdir(), 'matting-storm-'));
  await using closing = new AsyncDisposableStack();
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
  const token = await openCaller(databaseUrl, options.events);
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
  const storm = new Storm({ options, receivers, elsewhere, secrets, replicas, stores, token });
  await storm.run();
  return await storm.report();
}

/** What must hold after any storm. Fails with the report. */
function assertWeathered(
  t: ExecutionContext,
  report: StormReport,
  { events, kills }: StormOptions,
): void {
  const { lost, wrongSignatures, unexplainedRepeats, wrongStatus, redirectsFollowed } = report;
  t.deepEqual(
    { lost, wrongSignatures, unexplainedRepeats, wrongStatus, redirectsFollowed },
    { lost: [], wrongSignatures: 0, unexplainedRepeats: [], wrongStatus: [], redirectsFollowed: 0 },
  );
  t.deepEqual([report.events, report.kills, report.ledgerFaults], [events, kills, 0]);
}

/** One line for people. */
function inWords(report: StormReport): string {
  const { events, kills, deliveries, explainedRepeats, healthyDelaysMs } = report;
  return (
    `${events} events, ${kills} kills, ${deliveries} deliveries, ${explainedRepeats} repeats that a ` +
    `kill explains; healthy receiver: median ${medianOf(healthyDelaysMs)} ms after the job's end, ` +
    `longest ${healthyDelaysMs.at(-1)} ms`
  );
}

/** @param sorted ascending */
function medianOf(sorted: readonly number[]): number {
  return at(sorted, Math.floor(sorted.length / 2));
}

test('notifications survive kills, and receivers that do everything wrong', async t => {
  const report = await runWebhookStorm(OPTIONS);
  t.log(inWords(report));
  assertWeathered(t, report, OPTIONS);
  if (OPTIONS.events < MEDIAN_EVENTS_MIN) return;
  t.true(medianOf(report.healthyDelaysMs) < HEALTHY_MEDIAN_MS_MAX);
});
