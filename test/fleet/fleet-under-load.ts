/** Restarts and upgrades under load. Needs: object-storage. */
import assert from 'node:assert/strict';
import type { ExecutionContext } from 'ava';
import type { Job } from '../../control-plane/core/jobs/job.ts';
import type { Stores } from '../../control-plane/core/stores.ts';
import { creditsOf } from '../../control-plane/core/test/fixtures.ts';
import { Receiver } from '../../control-plane/core/test/receiver.ts';
import { openDatabase } from '../../control-plane/database/connect.ts';
import { storesOn } from '../../control-plane/test/fixtures.ts';
import { SILENT_LOG } from '../support/database.ts';
import { until } from '../support/processes.ts';
import type { Release } from '../upgrade/releases.ts';
import { Fleet, type FleetOptions } from './fleet.ts';
import { type InstalledVersion, ReleaseCheckout, THIS_VERSION } from './installed-version.ts';
import type { FleetProgram } from './program.ts';
import { type Picture, SteadyLoad } from './steady-load.ts';

const SECRET = 'a callback secret of the upgrade';
const TOLD_MS_MAX = 120_000;

export class FleetUnderLoad {
  readonly old: InstalledVersion;
  readonly fleet: Fleet;
  /** Cut-outs that the load did not request. */
  otherPictures = 0;
  readonly #receiver: Receiver;
  readonly #closing: AsyncDisposableStack;
  #load: SteadyLoad | undefined;

  private constructor(parts: {
    old: InstalledVersion;
    fleet: Fleet;
    receiver: Receiver;
    closing: AsyncDisposableStack;
  }) {
    this.old = parts.old;
    this.fleet = parts.fleet;
    this.#receiver = parts.receiver;
    this.#closing = parts.closing;
  }

  static async start(
    options: Omit<FleetOptions, 'version'>,
    release?: Release,
  ): Promise<FleetUnderLoad> {
    await using opening = new AsyncDisposableStack();
    const old = release ? opening.use(await ReleaseCheckout.install(release)) : THIS_VERSION;
    const receiver = opening.use(await Receiver.open(SECRET));
    const fleet = await Fleet.start({ ...options, version: old });
    return new FleetUnderLoad({ old, fleet, receiver, closing: opening.move() });
  }

  get load(): SteadyLoad {
    if (this.#load === undefined) throw new Error('no load has begun');
    return this.#load;
  }

  async begin(perSecond: number, picture: (number: number) => Promise<Picture>): Promise<void> {
    const { baseUrl, apiKey } = this.fleet;
    this.#load = await SteadyLoad.start({
      baseUrl,
      apiKey,
      perSecond,
      clients: [...new Set([this.old, THIS_VERSION])],
      callback: { receiver: this.#receiver, secret: SECRET },
      picture,
    });
  }

  /** Changes one process's version, then waits for `pictures` more. */
  async step(program: FleetProgram, version: InstalledVersion, pictures = 6): Promise<void> {
    await program.become(version);
    await this.load.more(pictures);
  }

  /** `lostMax`: lost attempts of a job. */
  async finish(t: ExecutionContext, lostMax: number): Promise<void> {
    await this.load.finish();
    t.log(this.load.summary());
    const database = await openDatabase(this.fleet.ground.databaseUrl, { log: SILENT_LOG });
    try {
      await this.#requireAccounts(storesOn(database), lostMax);
    } finally {
      await database.close();
    }
    const told = this.load.done.filter(done => done.told);
    await until(() => told.every(({ jobId }) => this.#receiver.of(jobId).length > 0), {
      timeoutMs: TOLD_MS_MAX,
      what: 'every notification',
    });
    assert.ok(this.#receiver.deliveries.every(({ signatureHolds }) => signatureHolds));
    await this.fleet.command(this.old, 'credits', 'check');
    await this.fleet.command(THIS_VERSION, 'credits', 'check');
    await this.fleet.close();
  }

  async close(): Promise<void> {
    await this.fleet.kill();
    await this.#closing.disposeAsync();
  }

  async #requireAccounts(stores: Stores, lostMax: number): Promise<void> {
    const account = (await stores.accounts.list()).find(({ name }) => name === this.fleet.account);
    assert.ok(account);
    const jobs = new Map<string, Job>();
    for (const { jobId } of this.load.done) {
      const job = await stores.jobs.find(jobId);
      assert.equal(job?.state, 'succeeded', jobId);
      jobs.set(jobId, job);
    }
    assert.equal(jobs.size, this.load.done.length, 'a job for two pictures');
    const credits = await creditsOf(stores, account.id);
    const { reserve, charge, release: released } = credits?.sums ?? {};
    assert.equal(credits?.reserved, 0);
    assert.equal(charge, jobs.size + this.otherPictures);
    assert.equal(reserve, charge + (released ?? 0));
    assert.deepEqual(await stores.ledger.check(), []);
    const lost = [...jobs.values()].map(job => job.lostAttempts + job.takeovers);
    assert.ok(Math.max(...lost) <= lostMax, `lost ${Math.max(...lost)} times`);
  }
}
