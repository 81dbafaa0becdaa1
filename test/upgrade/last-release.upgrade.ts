/** Needs: object-storage, portal. */
import assert from 'node:assert/strict';
import ava from 'ava';
import { NOTHING_RECORDED } from '../../control-plane/test/last-release/snapshot.ts';
import { FleetUnderLoad } from '../fleet/fleet-under-load.ts';
import { openOneFile, openOneMachine } from '../fleet/ground.ts';
import { THIS_VERSION } from '../fleet/installed-version.ts';
import { uniformPicture } from '../fleet/steady-load.ts';
import { DIALECTS, skipReason } from '../support/database.ts';
import { isNotTested } from '../support/skip.ts';
import { PLAYGROUND_IMAGES, requireOnePlayground } from './one-playground.ts';
import { lastRelease, releaseSkipReason } from './releases.ts';
import { requireSideBySide } from './side-by-side.ts';

const PER_SECOND = 3;
/** One control plane of either version dies, and no job runs on both. */
const LOST_MAX = 1;
const GROUNDS = { sqlite: openOneFile, mysql: openOneMachine };

const release = lastRelease();
const noRelease = releaseSkipReason(release);

// The title is the message.
if (release.commit === '') ava.serial(NOTHING_RECORDED, t => t.is(noRelease, NOTHING_RECORDED));

for (const dialect of DIALECTS) {
  let upgrade: FleetUnderLoad;

  // Closed even if the last test, which closes it, did not run.
  const test = ava.serial.skipIf(isNotTested(noRelease || skipReason(dialect)));
  ava.serial.after.always(() => upgrade?.close());

  test(`an upgrade from ${release.version} on ${dialect} › begins with a service of the release under load`, async t => {
    const openGround = GROUNDS[dialect];
    const env = { MATTING_PLAYGROUND_IMAGES: `${PLAYGROUND_IMAGES}` };
    const options = { controlPlanes: 2, nodes: 3, model: 'tiny' as const, openGround, env };
    upgrade = await FleetUnderLoad.start(options, release);
    await t.notThrowsAsync(upgrade.begin(PER_SECOND, uniformPicture));
  });

  test(`an upgrade from ${release.version} on ${dialect} › brings the nodes to this version, takes the first step back, and goes on`, async t => {
    const [first, ...others] = upgrade.fleet.nodes;
    assert.ok(first);
    await t.notThrowsAsync(async () => {
      for (const version of [THIS_VERSION, upgrade.old]) await upgrade.step(first, version);
      for (const node of [first, ...others]) await upgrade.step(node, THIS_VERSION);
    });
  });

  test(`an upgrade from ${release.version} on ${dialect} › migrates under control planes of the release, which may be started again`, async t => {
    await upgrade.fleet.command(THIS_VERSION, 'migrate');
    await t.notThrowsAsync(upgrade.step(upgrade.fleet.plane(0), upgrade.old));
  });

  test(`an upgrade from ${release.version} on ${dialect} › brings the first control plane to this version, beside one of the release`, async t => {
    const [one, other] = [upgrade.fleet.plane(0), upgrade.fleet.plane(1)];
    await upgrade.step(one, THIS_VERSION);
    upgrade.otherPictures += await requireSideBySide(upgrade.fleet, one, other);
    await requireOnePlayground(upgrade.fleet, [one, other]);
    await upgrade.step(one, upgrade.old);
    await t.notThrowsAsync(upgrade.step(one, THIS_VERSION));
  });

  test(`an upgrade from ${release.version} on ${dialect} › loses nothing that either of the two had in hand when it died`, async t => {
    await t.notThrowsAsync(async () => {
      for (const plane of upgrade.fleet.planes) {
        await plane.die();
        await upgrade.load.more(6);
      }
    });
  });

  test(`an upgrade from ${release.version} on ${dialect} › brings the other control plane to this version`, t =>
    t.notThrowsAsync(upgrade.step(upgrade.fleet.plane(1), THIS_VERSION)));

  test(`an upgrade from ${release.version} on ${dialect} › has cut out and charged every picture once, and told of each`, async t => {
    // Ends before the next group starts.
    t.teardown(() => upgrade?.close());
    await t.notThrowsAsync(upgrade.finish(t, LOST_MAX));
  });
}
