/**
 * The same twenty minutes with u2netp in the nodes and photos, at half of what the service of the
 * last release is measured to do at first.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import sharp from 'sharp';
import { MattingClient } from '../../client/src/index.ts';
import { openSeveralMachines } from '../chaos/chaos-ground.ts';
import { galeraSkipReason } from '../support/databases/galera-cluster.ts';
import { missingStore } from '../support/object-storage/object-store.ts';
import { ROOT } from '../support/running-service.ts';
import { upgradeEverything } from '../upgrade/everything-at-once.ts';
import { lastRelease, releaseSkipReason } from '../upgrade/releases.ts';
import type { Picture } from '../upgrade/steady-load.ts';
import { UpgradeUnderLoad } from '../upgrade/upgrade-under-load.ts';

const LOST_MAX = 3;
/** More than the nodes take at once. */
const CALLERS = 6;
const MEASURED_MS = 30_000;
const SHARE = 0.5;
/** Of the smallest picture, pixels. */
const WIDTH_MIN = 200;
const WIDTHS = 150;

const photo = readFileSync(path.join(ROOT, 'docs/images/demo.jpg'));

/** The photo at a width of its own: its cut-out's size tells whose it is. */
async function photoOf(number: number): Promise<Picture> {
  const resized = sharp(photo)
    .resize({ width: WIDTH_MIN + (number % WIDTHS) })
    .jpeg();
  const { data, info } = await resized.toBuffer({ resolveWithObject: true });
  return {
    file: data,
    requireCutOut: async cutOut => {
      const { width, height, hasAlpha } = await sharp(cutOut).metadata();
      assert.deepEqual([width, height, hasAlpha], [info.width, info.height, true]);
    },
  };
}

/** Pictures a second, with callers who wait for no pace. */
async function measureCapacity({ fleet }: UpgradeUnderLoad): Promise<number> {
  const client = new MattingClient(fleet);
  const untilMs = performance.now() + MEASURED_MS;
  let done = 0;
  const call = async () => {
    while (performance.now() < untilMs) {
      const { file } = await photoOf(done);
      await client.cutOut({ image: file });
      if (performance.now() < untilMs) done += 1;
    }
  };
  await Promise.all(Array.from({ length: CALLERS }, call));
  return (done * 1000) / MEASURED_MS;
}

const release = lastRelease();
const skip = releaseSkipReason(release) || galeraSkipReason() || missingStore('versitygw');

describe(`twenty minutes from ${release.version} with u2netp`, { skip }, () => {
  let upgrade: UpgradeUnderLoad;

  before(async () => {
    upgrade = await UpgradeUnderLoad.start(release, {
      controlPlanes: 2,
      nodes: 3,
      model: 'u2netp',
      modelDir: path.join(ROOT, 'model-cache'),
      openGround: openSeveralMachines,
    });
  });
  after(() => upgrade?.close());

  it('shows callers no failure', async t => {
    const capacity = await measureCapacity(upgrade);
    assert.ok(capacity > 0);
    t.diagnostic(`${capacity.toFixed(2)} pictures a second at most, half of it from now on`);
    await upgrade.begin(SHARE * capacity, photoOf);
    await upgradeEverything(t, upgrade);
  });

  it('cut out and charged every picture once, and told of each', t => upgrade.finish(t, LOST_MAX));
});
