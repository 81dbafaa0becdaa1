/**
 * Two control planes and two nodes on a cluster of database servers, each connection to the next
 * member, under load while a test hurts a member.
 */
import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import { ContractError } from '#contract/errors.ts';
import { assertBalanced } from '../../control-plane/test/store/fixtures.ts';
import { Replicas } from '../../control-plane/test/support/replicas.ts';
import { createTestDatabase } from '../support/database.ts';
import { type DatabaseCluster, urlOfPort } from '../support/databases/cluster.ts';
import { roundRobin, TcpProxy } from '../support/databases/tcp-proxy.ts';
import { Load } from './load.ts';

/** No job may end for so long: what callers are promised of a fail-over. */
const STANDSTILL_MS_MAX = 30_000;
/** Before a member is hurt, and after it. */
const JOBS_AROUND = 30;
/** The store waits by itself, for seconds, each time. */
const TRIES_MAX = 10;

export class ServiceOnCluster {
  readonly replicas: Replicas;
  readonly #proxy: TcpProxy;

  private constructor(replicas: Replicas, proxy: TcpProxy) {
    this.replicas = replicas;
    this.#proxy = proxy;
  }

  static async start(cluster: DatabaseCluster): Promise<ServiceOnCluster> {
    const proxy = await TcpProxy.open(roundRobin(cluster.members.map(({ port }) => port)));
    try {
      const server = urlOfPort(proxy.port);
      const database = await createTestDatabase('mysql', { server, migrated: false });
      const replicas = await Replicas.open('mysql', { database });
      for (let node = 0; node < 2; node += 1) await replicas.addNode({ imagesMax: 4 });
      return new ServiceOnCluster(replicas, proxy);
    } catch (error) {
      await proxy.close();
      throw error;
    }
  }

  /** Every job that was accepted succeeds and is charged once, and none waits for long. */
  async requireFailOver(context: TestContext, hurt: () => Promise<void>): Promise<void> {
    const load = new Load(this.replicas, await patiently(() => this.replicas.createCaller(1e6)));
    await load.untilEnded(JOBS_AROUND, 0);
    const hurtAtMs = performance.now();
    await hurt();
    await load.untilEnded(JOBS_AROUND, performance.now());
    await load.stop();
    const gapMs = load.longestGapMs(hurtAtMs);
    context.diagnostic(
      `${load.ended.length} jobs, ${load.refusals} refusals; no job ended for ` +
        `${Math.round(gapMs)} ms, the longest took ${Math.round(load.longestJobMs(hurtAtMs))} ms`,
    );
    await this.#requireMoney(load);
    assert.ok(gapMs < STANDSTILL_MS_MAX, `no job ended for ${Math.round(gapMs)} ms`);
  }

  async close(): Promise<void> {
    await this.replicas.close();
    await this.#proxy.close();
  }

  async #requireMoney({ accountId, ended }: Load): Promise<void> {
    const { stores } = this.replicas;
    assert.equal(new Set(ended.map(({ jobId }) => jobId)).size, ended.length, 'two keys, one job');
    const credits = await patiently(() => stores.ledger.credits(accountId));
    const { reserve, charge, release } = credits?.sums ?? {};
    // A reservation more would be a job that no caller was told of.
    assert.deepEqual([reserve, charge, release], [ended.length, ended.length, 0]);
    assert.equal(credits?.reserved, 0);
    await patiently(() => assertBalanced(stores, accountId));
  }
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
