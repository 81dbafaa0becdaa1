/**
 * From the last release to this version under load, one process after the other, old and new side
 * by side, each step undone once: callers who come again as docs/rest.md says see no failure. The
 * release is its own commit with the packages of its own lock file, and every process is a real
 * one; only the nodes' model is a tiny one.
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Job } from '../../control-plane/src/domain/job.ts';
import { openDatabase } from '../../control-plane/src/store/database/connect.ts';
import type { Stores } from '../../control-plane/src/store/stores.ts';
import { Receiver } from '../../control-plane/test/services/notification/receiver.ts';
import { storesOn } from '../../control-plane/test/store/fixtures.ts';
import { openOneMachine } from '../chaos/chaos-ground.ts';
import { SILENT_LOG, skipReason } from '../support/database.ts';
import { until } from '../support/running-service.ts';
import { type InstalledVersion, ReleaseCheckout, THIS_VERSION } from './installed-version.ts';
import { lastRelease, releaseSkipReason } from './releases.ts';
import { requireSideBySide } from './side-by-side.ts';
import { SteadyLoad, uniformPicture } from './steady-load.ts';
import { UpgradableFleet } from './upgradable-fleet.ts';
import type { UpgradableProgram } from './upgradable-program.ts';

const PER_SECOND = 3;
/** Between two steps: some are under way at each. */
const PICTURES_BETWEEN = 6;
const SECRET = 'a callback secret of the upgrade';
const TOLD_MS_MAX = 120_000;

const release = lastRelease();
const skip = releaseSkipReason(release) || skipReason('mysql');

describe(`an upgrade from ${release.version}`, { skip }, () => {
  let old: ReleaseCheckout;
  let fleet: UpgradableFleet;
  let receiver: Receiver;
  let load: SteadyLoad;

  before(async () => {
    old = await ReleaseCheckout.install(release);
    receiver = await Receiver.open(SECRET);
  });
  after(async () => {
    await receiver?.[Symbol.asyncDispose]();
    await fleet?.kill();
    await old?.[Symbol.asyncDispose]();
  });

  async function step(program: UpgradableProgram, version: InstalledVersion): Promise<void> {
    await program.become(version);
    await load.more(PICTURES_BETWEEN);
  }

  /**
   * 0.1.0 refuses to start on a schema that a newer version added to, and names what it does not
   * know. Later releases start, and this does nothing.
   */
  async function openWayBack(): Promise<void> {
    const refusal = await fleet.command(old, 'migrate').then(
      () => '',
      (error: Error) => error.message,
    );
    if (refusal === '') return;
    const [, names] = /made by a newer version \(([^)]+)\)/.exec(refusal) ?? [];
    assert.ok(release.version === '0.1.0' && names !== undefined, refusal);
    await fleet.command(THIS_VERSION, 'migrate', '--forget', ...names.split(', '));
  }

  it('begins with a service of the release under load', async () => {
    fleet = await UpgradableFleet.start({
      version: old,
      controlPlanes: 2,
      nodes: 3,
      model: 'tiny',
      openGround: openOneMachine,
    });
    const { baseUrl, apiKey } = fleet;
    load = await SteadyLoad.start({
      baseUrl,
      apiKey,
      perSecond: PER_SECOND,
      clients: [old, THIS_VERSION],
      receiver,
      secret: SECRET,
      picture: uniformPicture,
    });
    await load.more(PICTURES_BETWEEN);
  });

  it('brings the nodes to this version, takes the first step back, and goes on', async () => {
    const [first, ...others] = fleet.nodes;
    assert.ok(first);
    for (const version of [THIS_VERSION, old]) await step(first, version);
    for (const node of [first, ...others]) await step(node, THIS_VERSION);
  });

  it('migrates under control planes of the release, which may be started again after it', async () => {
    await fleet.command(THIS_VERSION, 'migrate');
    await load.more(PICTURES_BETWEEN);
    await openWayBack();
    await step(fleet.plane(0), old);
  });

  it('brings the first control plane to this version, beside one of the release', async () => {
    const [one, other] = [fleet.plane(0), fleet.plane(1)];
    await step(one, THIS_VERSION);
    await requireSideBySide(fleet, one, other);
    await openWayBack();
    await step(one, old);
    await step(one, THIS_VERSION);
  });

  it('loses nothing that either of the two had in hand when it died', async () => {
    for (const plane of fleet.planes) {
      await openWayBack();
      await plane.die();
      await load.more(PICTURES_BETWEEN);
    }
  });

  it('brings the other control plane to this version', () => step(fleet.plane(1), THIS_VERSION));

  it('has cut out and charged every picture once, and told of each', async t => {
    await load.finish();
    t.diagnostic(load.summary());
    const database = await openDatabase(fleet.ground.databaseUrl, { log: SILENT_LOG });
    try {
      await requireAccounts(storesOn(database));
    } finally {
      await database.close();
    }
    const told = load.done.filter(done => done.told);
    await until(() => told.every(({ jobId }) => receiver.of(jobId).length > 0), {
      timeoutMs: TOLD_MS_MAX,
      what: 'every notification',
    });
    assert.ok(receiver.deliveries.every(({ signatureHolds }) => signatureHolds));
    for (const version of [old, THIS_VERSION]) await fleet.command(version, 'credits', 'check');
    await fleet.close();
  });

  async function requireAccounts(stores: Stores): Promise<void> {
    const account = (await stores.accounts.list()).find(({ name }) => name === fleet.account);
    assert.ok(account);
    const jobs = new Map<string, Job>();
    for (const { jobId } of load.done) {
      const job = await stores.jobs.find(jobId);
      assert.equal(job?.state, 'succeeded', jobId);
      jobs.set(jobId, job);
    }
    assert.equal(jobs.size, load.done.length, 'a job for two pictures');
    const credits = await stores.ledger.credits(account.id);
    const { reserve, charge, release: released } = credits?.sums ?? {};
    assert.equal(credits?.reserved, 0);
    assert.equal(reserve, (charge ?? 0) + (released ?? 0));
    assert.deepEqual(await stores.ledger.check(), []);
    const lost = [...jobs.values()].map(job => job.lostAttempts + job.takeovers);
    // Who is ended by SIGTERM loses nothing; two were killed.
    assert.ok(Math.max(...lost) <= 1, 'twice lost by what dies once');
  }
});
