/** Two control planes and two nodes on a cluster, while a test hurts a member. */
import assert from 'node:assert/strict';
import type { ExecutionContext } from 'ava';
import { assertBalanced, creditsOf } from '../../control-plane/core/test/fixtures.ts';
import { type Caller, pictureBody } from '../../control-plane/core/test/support/replicas.ts';
import { cutOutOf } from '../../control-plane/nodes/test/scripted-exchange.ts';
import { Replicas } from '../../control-plane/test/programs.ts';
import { ContractError } from '../../proto/contract/errors.ts';
import { THIS_VERSION } from '../fleet/installed-version.ts';
import { type Picture, SteadyLoad } from '../fleet/steady-load.ts';
import { createTestDatabase } from '../support/database.ts';
import type { ClusterMember, DatabaseCluster } from '../support/databases/cluster.ts';
import { roundRobin, TcpProxy } from '../support/databases/tcp-proxy.ts';
import { WriterRouter } from '../support/databases/writer-router.ts';

/** No job may end for so long: what callers are promised of a fail-over. */
const STANDSTILL_MS_MAX = 30_000;
/** Callers get so many jobs done before a member is hurt, and as many after it. */
const JOBS_AROUND = 30;
const CALLERS = 6;
/** More than they get: each comes again when the one before is done. */
const PER_SECOND = 1000;
/** The store waits by itself, for seconds, each time. */
const TRIES_MAX = 10;

export class ServiceOnCluster {
  readonly replicas: Replicas;
  readonly #router: WriterRouter;
  readonly #baseUrl: string;
  readonly #closing: AsyncDisposableStack;

  private constructor(
    replicas: Replicas,
    router: WriterRouter,
    baseUrl: string,
    closing: AsyncDisposableStack,
  ) {
    this.replicas = replicas;
    this.#router = router;
    this.#baseUrl = baseUrl;
    this.#closing = closing;
  }

  static async start(cluster: DatabaseCluster): Promise<ServiceOnCluster> {
    await using opening = new AsyncDisposableStack();
    const router = await WriterRouter.open(cluster);
    opening.defer(() => router.close());
    // As a balancer does: a caller whom one control plane refuses comes to the other.
    const balancer = await TcpProxy.open(() => lead());
    opening.defer(() => balancer.close());
    const baseUrl = `http://127.0.0.1:${balancer.port}`;
    const database = await createTestDatabase('mysql', { server: router.url, migrated: false });
    const env = { MATTING_BASE_URL: baseUrl };
    const replicas = await Replicas.open('mysql', { database, env });
    opening.defer(() => replicas.close());
    const lead = roundRobin([0, 1].map(index => Number(new URL(replicas.url(index, '')).port)));
    for (let node = 0; node < 2; node += 1) await replicas.addNode({ imagesMax: 4 });
    return new ServiceOnCluster(replicas, router, baseUrl, opening.move());
  }

  /** Takes the writes at this moment. */
  get writer(): ClusterMember {
    return this.#router.writer;
  }

  async requireFailOver(context: ExecutionContext, hurt: () => Promise<unknown>): Promise<void> {
    const caller = await patiently(() => this.replicas.createCaller(1e6));
    const load = await SteadyLoad.start({
      baseUrl: this.#baseUrl,
      apiKey: caller.token,
      perSecond: PER_SECOND,
      openMax: CALLERS,
      clients: [THIS_VERSION],
      picture,
      mayRetry: ({ status, retryable }) => status === 503 && retryable,
    });
    await load.more(JOBS_AROUND);
    const hurtAtMs = performance.now();
    await hurt();
    await load.more(JOBS_AROUND);
    await load.finish();
    const gapMs = longestGapMs(load, hurtAtMs);
    context.log(`${load.summary()}; no job ended for ${Math.round(gapMs)} ms`);
    await this.#requireMoney(caller, load);
    assert.ok(gapMs < STANDSTILL_MS_MAX, `no job ended for ${Math.round(gapMs)} ms`);
  }

  async close(): Promise<void> {
    await this.#closing.disposeAsync();
  }

  async #requireMoney({ accountId }: Caller, { done }: SteadyLoad): Promise<void> {
    const { stores } = this.replicas;
    assert.equal(new Set(done.map(({ jobId }) => jobId)).size, done.length, 'two keys, one job');
    const credits = await patiently(() => creditsOf(stores, accountId));
    const { reserve, charge, release } = credits?.sums ?? {};
    // A reservation more would be a job that no caller knows of.
    assert.deepEqual([reserve, charge, release], [done.length, done.length, 0]);
    assert.equal(credits?.reserved, 0);
    await patiently(() => assertBalanced(stores, accountId));
  }
}

async function picture(): Promise<Picture> {
  const file = Buffer.from(pictureBody().image_base64, 'base64');
  return { file, requireCutOut: async cutOut => assert.ok(cutOutOf(file).equals(cutOut)) };
}

/** The longest time from an instant on in which no job ended. */
function longestGapMs({ done }: SteadyLoad, fromMs: number): number {
  const ended = done.map(({ endedAtMs }) => endedAtMs).filter(ms => ms > fromMs);
  const instants = [fromMs, ...ended.sort((one, other) => one - other)];
  return Math.max(0, ...instants.slice(1).map((ms, index) => ms - (instants[index] ?? ms)));
}

/** The test's own connections may lead to a member that is gone, as those of any other caller. */
async function patiently<T>(ask: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await ask();
    } catch (error) {
      const isAway = error instanceof ContractError && error.code === 'SERVICE_UNAVAILABLE';
      if (!isAway || tries >= TRIES_MAX) throw error;
    }
  }
}
