/**
 * A service of the last release under load, on its way to this version: what the tests of upgrades
 * share. In the end every picture is cut out and charged once, and every notification is there.
 */
import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import type { Job } from '../../control-plane/src/domain/job.ts';
import { openDatabase } from '../../control-plane/src/store/database/connect.ts';
import type { Stores } from '../../control-plane/src/store/stores.ts';
import { Receiver } from '../../control-plane/test/services/notification/receiver.ts';
import { storesOn } from '../../control-plane/test/store/fixtures.ts';
import { SILENT_LOG } from '../support/database.ts';
import { until } from '../support/running-service.ts';
import { type InstalledVersion, ReleaseCheckout, THIS_VERSION } from './installed-version.ts';
import type { Release } from './releases.ts';
import { type Picture, SteadyLoad } from './steady-load.ts';
import { type FleetOptions, UpgradableFleet } from './upgradable-fleet.ts';
import type { UpgradableProgram } from './upgradable-program.ts';

const SECRET = 'a callback secret of the upgrade';
const TOLD_MS_MAX = 120_000;

export class UpgradeUnderLoad {
  readonly old: ReleaseCheckout;
  readonly fleet: UpgradableFleet;
  readonly #receiver: Receiver;
  #load: SteadyLoad | undefined;

  private constructor(parts: { old: ReleaseCheckout; fleet: UpgradableFleet; receiver: Receiver }) {
    this.old = parts.old;
    this.fleet = parts.fleet;
    this.#receiver = parts.receiver;
  }

  /** Installs the release and starts a fleet of it, all of whose nodes are ready; no load yet. */
  static async start(
    release: Release,
    options: Omit<FleetOptions, 'version'>,
  ): Promise<UpgradeUnderLoad> {
    await using opening = new AsyncDisposableStack();
    const old = opening.use(await ReleaseCheckout.install(release));
    const receiver = opening.use(await Receiver.open(SECRET));
    const fleet = await UpgradableFleet.start({ ...options, version: old });
    opening.move();
    return new UpgradeUnderLoad({ old, fleet, receiver });
  }

  get load(): SteadyLoad {
    if (this.#load === undefined) throw new Error('no load has begun');
    return this.#load;
  }

  /** Callers of both versions from now on. */
  async begin(perSecond: number, picture: (number: number) => Promise<Picture>): Promise<void> {
    const { baseUrl, apiKey } = this.fleet;
    this.#load = await SteadyLoad.start({
      baseUrl,
      apiKey,
      perSecond,
      clients: [this.old, THIS_VERSION],
      receiver: this.#receiver,
      secret: SECRET,
      picture,
    });
  }

  /** One process becomes the version, and so many pictures later all is well. */
  async step(program: UpgradableProgram, version: InstalledVersion, pictures = 6): Promise<void> {
    await program.become(version);
    await this.load.more(pictures);
  }

  /**
   * Waits for the last picture, and looks at jobs, money and notifications.
   * @param lostMax how often one job may have lost whoever worked on it
   */
  async finish(t: TestContext, lostMax: number): Promise<void> {
    await this.load.finish();
    t.diagnostic(this.load.summary());
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

  /** At once, also after a failure. */
  async close(): Promise<void> {
    await this.#receiver[Symbol.asyncDispose]();
    await this.fleet.kill();
    await this.old[Symbol.asyncDispose]();
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
    const credits = await stores.ledger.credits(account.id);
    const { reserve, charge, release: released } = credits?.sums ?? {};
    assert.equal(credits?.reserved, 0);
    assert.equal(reserve, (charge ?? 0) + (released ?? 0));
    assert.deepEqual(await stores.ledger.check(), []);
    const lost = [...jobs.values()].map(job => job.lostAttempts + job.takeovers);
    assert.ok(Math.max(...lost) <= lostMax, `lost ${Math.max(...lost)} times`);
  }
}
