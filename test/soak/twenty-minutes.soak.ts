/** An upgrade under load, one of everything killed. Needs: object-storage. */
import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';
import ava, { type ExecutionContext } from 'ava';
import { MattingClient } from '../../client/src/index.ts';
import { FleetUnderLoad } from '../fleet/fleet-under-load.ts';
import { openSeveralMachines } from '../fleet/ground.ts';
import { THIS_VERSION } from '../fleet/installed-version.ts';
import { uniformPicture } from '../fleet/steady-load.ts';
import { at } from '../support/at.ts';
import { galeraSkipReason } from '../support/databases/galera-cluster.ts';
import { missingStore } from '../support/object-storage/object-store.ts';
import { Random } from '../support/random.ts';
import { isNotTested } from '../support/skip.ts';
import { lastRelease, releaseSkipReason } from '../upgrade/releases.ts';
import { photoOf } from './photos.ts';

const test = ava.serial;

/** A node, a control plane and, each for a moment, the database and the storage are lost. */
const LOST_MAX = 3;
/** The nodes take fewer at once. */
const CALLERS = 6;
const MEASURED_MS = 30_000;
const SHARE = 0.5;

/** Pictures a second, with callers who wait for no pace. */
async function measureCapacity(upgrade: FleetUnderLoad): Promise<number> {
  const client = new MattingClient(upgrade.fleet);
  const untilMs = performance.now() + MEASURED_MS;
  let done = 0;
  const call = async () => {
    while (performance.now() < untilMs) {
      const { file } = await photoOf(done);
      await client.cutOut({ image: file });
      upgrade.otherPictures += 1;
      if (performance.now() < untilMs) done += 1;
    }
  };
  await Promise.all(Array.from({ length: CALLERS }, call));
  return (done * 1000) / MEASURED_MS;
}

/** The whole; `MATTING_SOAK_MINUTES` takes another. */
const MINUTES = Number(process.env.MATTING_SOAK_MINUTES ?? 20);

type Step = readonly [what: string, take: () => Promise<unknown>];

function stepsOf(upgrade: FleetUnderLoad): readonly Step[] {
  const { fleet, old } = upgrade;
  const random = new Random(1);
  const node = (index: number) => at(fleet.nodes, index);
  return [
    ['a node of the release dies', () => node(0).die()],
    ['the first node is upgraded', () => upgrade.step(node(0), THIS_VERSION)],
    ['… and taken back', () => upgrade.step(node(0), old)],
    ['… and upgraded again', () => upgrade.step(node(0), THIS_VERSION)],
    ['the second node is upgraded', () => upgrade.step(node(1), THIS_VERSION)],
    ['a member of the database dies', () => fleet.ground.kill('database', random)],
    ['the database is migrated', () => fleet.command(THIS_VERSION, 'migrate')],
    ['the first control plane is upgraded', () => upgrade.step(fleet.plane(0), THIS_VERSION)],
    ['the storage dies', () => fleet.ground.kill('store', random)],
    ['… and the control plane is taken back', () => upgrade.step(fleet.plane(0), old)],
    ['… and upgraded again', () => upgrade.step(fleet.plane(0), THIS_VERSION)],
    ['a control plane of this version dies', () => fleet.plane(0).die()],
    ['the second control plane is upgraded', () => upgrade.step(fleet.plane(1), THIS_VERSION)],
    ['the last node is upgraded', () => upgrade.step(node(2), THIS_VERSION)],
  ];
}

/** Steps at equal distances, each when the one before is over; the load goes on to the end. */
async function upgradeEverything(t: ExecutionContext, upgrade: FleetUnderLoad): Promise<void> {
  assert.ok(MINUTES > 0, 'MATTING_SOAK_MINUTES is no number of minutes');
  const steps = stepsOf(upgrade);
  const beganAtMs = performance.now();
  const slotMs = (MINUTES * 60_000) / (steps.length + 1);
  for (const [index, [what, take]] of steps.entries()) {
    await delay(Math.max(0, beganAtMs + (index + 1) * slotMs - performance.now()));
    const startedAtMs = performance.now();
    await take();
    upgrade.load.requireNoFailure();
    const tookS = Math.round((performance.now() - startedAtMs) / 1000);
    t.log(`${what}: ${tookS} s, ${upgrade.load.done.length} pictures so far`);
  }
  await delay(Math.max(0, beganAtMs + MINUTES * 60_000 - performance.now()));
  const tookMinutes = ((performance.now() - beganAtMs) / 60_000).toFixed(1);
  t.log(`${steps.length} steps in ${tookMinutes} minutes`);
}

const release = lastRelease();
const skip = releaseSkipReason(release) || galeraSkipReason() || missingStore('versitygw');

for (const { model, picture, pace } of [
  { model: 'tiny', picture: uniformPicture, pace: async () => 3 },
  {
    model: 'u2netp',
    picture: photoOf,
    pace: async (upgrade: FleetUnderLoad) => SHARE * (await measureCapacity(upgrade)),
  },
] as const) {
  let upgrade: FleetUnderLoad;

  // The group is closed even where its last test, which closes it, has not been run.
  test.after.always(() => upgrade?.close());

  test.skipIf(isNotTested(skip))(
    `twenty minutes from ${release.version} to this version with ${model} › shows callers no failure`,
    async t => {
      // Made here, since there is one fleet at a time.
      const size = { controlPlanes: 2, nodes: 3, model };
      upgrade = await FleetUnderLoad.start({ ...size, openGround: openSeveralMachines }, release);
      const perSecond = await pace(upgrade);
      t.true(perSecond > 0);
      t.log(`${perSecond.toFixed(2)} pictures a second`);
      await upgrade.begin(perSecond, picture);
      await upgradeEverything(t, upgrade);
    },
  );

  test.skipIf(isNotTested(skip))(
    `twenty minutes from ${release.version} to this version with ${model} › cut out and charged every picture once, and told of each`,
    async t => {
      t.teardown(() => upgrade?.close());
      await t.notThrowsAsync(upgrade.finish(t, LOST_MAX));
    },
  );
}
